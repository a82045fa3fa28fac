#if SecureVault
internal import Synchronization

/// Derives keys from passphrases, one at a time: a derivation takes 128 MiB or more.
///
/// Threads that wait with the same passphrase for the same slot get the key that one of them
/// derives. It is wiped when none of them waits any more.
final class PassphraseDerivations: Sendable {
  /// Unchecked because its memory is only written when it is made.
  private final class Derivation: @unchecked Sendable {
    let passphrase: SecretBytes
    let salt: [UInt8]
    let logN: UInt8
    let key: SecretBytes

    init(
      _ passphrase: UnsafeRawBufferPointer, salt: [UInt8], logN: UInt8,
      key: consuming SecretBytes
    ) throws(StorageError) {
      self.passphrase = try SecretBytes(copying: passphrase)
      (self.salt, self.logN) = (salt, logN)
      self.key = key
    }

    func isOf(_ passphrase: UnsafeRawBufferPointer, _ salt: [UInt8], _ logN: UInt8) -> Bool {
      self.logN == logN && self.salt == salt
        && OpenSSL.areEqual(UnsafeRawBufferPointer(self.passphrase.bytes), passphrase)
    }
  }

  static let shared = PassphraseDerivations()

  /// The last one, while other threads wait.
  private let last = Locked<Derivation?>(nil, afterFork: { nil })
  /// How many threads derive a key or wait for that.
  let callers = Atomic(0)
  /// The process that has counted them.
  private let generation = Atomic(ForkGuard.generation)

  /// - Parameter scrypt: Fills the last argument with the key.
  func derive(
    from passphrase: UnsafeRawBufferPointer, salt: [UInt8], logN: UInt8,
    into output: UnsafeMutableRawBufferPointer,
    with scrypt: (UnsafeRawBufferPointer, [UInt8], UInt8, UnsafeMutableRawBufferPointer)
      throws(StorageError) -> Void
  ) throws(StorageError) {
    let current = ForkGuard.generation
    if generation.exchange(current, ordering: .relaxed) != current {
      callers.store(0, ordering: .relaxed)
    }
    callers.add(1, ordering: .relaxed)
    try last.withLock { last throws(StorageError) in
      defer {
        if callers.subtract(1, ordering: .relaxed).newValue <= 0 { last = nil }
      }
      if let last, last.isOf(passphrase, salt, logN) {
        output.copyMemory(from: UnsafeRawBufferPointer(last.key.bytes))
        return
      }
      let key = try SecretBytes(count: output.count)
      try scrypt(passphrase, salt, logN, key.bytes)
      output.copyMemory(from: UnsafeRawBufferPointer(key.bytes))
      // Without memory for it, the others derive their own.
      last = try? Derivation(passphrase, salt: salt, logN: logN, key: key)
    }
  }
}
#endif
