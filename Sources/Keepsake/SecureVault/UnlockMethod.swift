#if SecureVault
extension SecureVault {
  /// Something that opens a vault: the key source that protects it, a recovery code, or a recovery
  /// passphrase.
  ///
  /// ```swift
  /// for method in try SecureVault.shared.unlockMethods where method.isRecovery { print(method) }
  /// ```
  public struct UnlockMethod: Hashable, Sendable, CustomStringConvertible {
    package enum Kind: Hashable, Sendable {
      /// The key source that protects the vault.
      case keySource(Protection)
      /// A code that ``Store/addRecovery()`` returned.
      case recoveryCode
      /// A passphrase that was passed to ``Store/addRecovery(passphrase:)``.
      case recoveryPassphrase
    }

    /// Distinguishes the unlock methods of a vault. It is random, and reveals nothing about the
    /// secret.
    package let id: String
    package let kind: Kind

    init(_ slot: KeySlot) {
      id = slot.id
      kind =
        if slot.kind == .recoveryCode {
          .recoveryCode
        } else if slot.purpose == .recovery, slot.kind == .passphrase {
          .recoveryPassphrase
        } else {
          .keySource(slot.protection)
        }
    }

    /// Whether ``Store/removeRecovery(_:)`` can remove it.
    public var isRecovery: Bool {
      if case .keySource = kind { return false }
      return true
    }

    /// The kind, and for a recovery a random name that distinguishes it.
    public var description: String {
      switch kind {
      case .keySource(let protection): protection.description
      case .recoveryCode: "recovery code \(id)"
      case .recoveryPassphrase: "recovery passphrase \(id)"
      }
    }
  }
}
#endif
