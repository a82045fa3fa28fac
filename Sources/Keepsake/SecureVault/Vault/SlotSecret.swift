#if SecureVault
/// The secret that opens a key slot, and what the slot records about it.
///
/// It lives only while a slot is opened or made.
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
