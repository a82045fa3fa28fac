#if SecureVault
/// What a source of keys gave, for as long as it is needed.
final class SlotSecret {
  let kind: KeySlot.Kind
  let logN: UInt8
  let locator: [UInt8]
  private let memory: SecretBytes

  var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(memory.bytes) }

  init(
    _ kind: KeySlot.Kind, locator: [UInt8] = [], logN: UInt8 = 0, _ memory: consuming SecretBytes
  ) {
    self.kind = kind
    self.locator = locator
    self.logN = logN
    self.memory = memory
  }
}
#endif
