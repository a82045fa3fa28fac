#if SecureVault
extension SecureVault {
  /// Something that opens a vault: the key source that protects it, a recovery code, or a recovery
  /// passphrase.
  ///
  /// ```swift
  /// for opener in SecureVault.openers where opener.isRecovery { print(opener) }
  /// ```
  public struct Opener: Hashable, Sendable, Identifiable, CustomStringConvertible {
    /// The kinds of openers.
    public enum Kind: Hashable, Sendable {
      /// The key source that protects the vault.
      case keySource(Protection)
      /// A code that ``SecureVault/addRecovery(service:)`` returned.
      case recoveryCode
      /// A passphrase that was given to ``SecureVault/addRecovery(passphrase:service:)``.
      case recoveryPassphrase
    }

    /// Distinguishes the openers of a vault. It is random, and reveals nothing about the secret.
    public let id: String
    /// What it is.
    public let kind: Kind

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

    /// Whether ``SecureVault/removeRecovery(_:service:)`` can remove it.
    public var isRecovery: Bool {
      if case .keySource = kind { return false }
      return true
    }

    /// The kind, and for a recovery its ``id``.
    public var description: String {
      switch kind {
      case .keySource(let protection): protection.description
      case .recoveryCode: "recovery code \(id)"
      case .recoveryPassphrase: "recovery passphrase \(id)"
      }
    }
  }
}

// MARK: - Recovery

extension SecureVault {
  /// Adds a recovery code, which opens the vault when its passphrase is forgotten or its key is
  /// lost.
  ///
  /// ```swift
  /// if let code = SecureVault.addRecovery() { print("Keep this code on paper: \(code)") }
  /// SecureVault.unlock(passphrase: typedCode)                 // later
  /// ```
  ///
  /// The code has 130 random bits in seven groups of four characters. It is returned once and
  /// stored nowhere. A vault has room for 16 openers.
  ///
  /// The code keeps its effect when ``rotateKeys(service:)`` changes keys. It loses it with
  /// ``removeRecovery(_:service:)``, and with ``protect(with:service:)``, after which you add a new
  /// one.
  ///
  /// - Returns: The code, to be printed or written down by the user. If it cannot be added, the
  ///   failure is reported and the result is nil.
  public static func addRecovery(service: Service = defaultService) -> String? {
    self.service(service).attempt { store throws(StorageError) in try store.addRecovery() }
  }

  /// Adds a second passphrase, which opens the vault as its own one does.
  ///
  /// There is room for seven at the usual cost of a passphrase. When it loses its effect is the
  /// same as for ``addRecovery(service:)``.
  ///
  /// - Returns: Whether the passphrase opens the vault now. If not, the failure is reported.
  public static func addRecovery(
    passphrase: String, service: Service = defaultService
  ) -> Bool {
    self.service(service).attempt { store throws(StorageError) in
      try store.addRecovery(passphrase: passphrase)
    } != nil
  }

  /// Removes a recovery code or a recovery passphrase, or all of them.
  ///
  /// The vault's master key stays the same. Anyone who knows what you removed *and* has an older
  /// copy of the vault header can still open the vault with both: call ``protect(with:service:)``
  /// if a code or a passphrase was exposed.
  ///
  /// - Parameters:
  ///   - opener: One of ``openers``; nil to remove all recovery codes and recovery passphrases.
  ///   - service: A service of the vault.
  /// - Returns: Whether they are gone; true if there was none. The vault has to be open.
  @discardableResult
  public static func removeRecovery(
    _ opener: Opener? = nil, service: Service = defaultService
  ) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.removeRecovery(opener) }
      != nil
  }

  /// What opens the vault of the ``defaultService``: first its key source, then what was added for
  /// recovery.
  ///
  /// It is empty if there is no vault yet. If the vault header cannot be read, the failure is
  /// reported and the value is empty. The list is read without a key, so an attacker who can write
  /// to the vault's directory can forge it while the vault is locked; a forged header opens
  /// nothing.
  public static var openers: [Opener] {
    shared.attempt { store throws(StorageError) in try store.openers } ?? []
  }

  /// Drops the old keys even if the files of some secrets are damaged.
  ///
  /// ``rotateKeys(service:)`` and ``protect(with:service:)`` keep the old keys while any file in
  /// the vault is damaged, because it might be restored. This call does not: a damaged secret, and
  /// a file in the vault that is no secret, can never be opened again, even if the right file is
  /// put back. All other secrets are sealed under the current key first.
  ///
  /// - Returns: Whether only the current key is left. If a secret cannot be read for another
  ///   reason, such as a failing disk, the failure is reported and the old keys are kept.
  @discardableResult
  public static func forgetOldKeys(service: Service = defaultService) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.forgetOldKeys() } != nil
  }
}

extension SecureVault.Store {
  /// Adds a recovery code, which opens the vault with ``unlock(passphrase:)``.
  ///
  /// See ``SecureVault/addRecovery(service:)``.
  ///
  /// - Returns: The code. It is stored nowhere.
  /// - Throws: ``StorageError`` of code `locked` before `unlock`, `misuse` if there is no room for
  ///   another one. The header is unchanged then, unless only synchronizing the directory failed.
  public func addRecovery() throws(StorageError) -> String {
    try perform("addRecovery") { () throws(StorageError) in try vault.addRecoveryCode() }
  }

  /// Adds a second passphrase, which opens the vault as its own one does.
  ///
  /// See ``SecureVault/addRecovery(passphrase:service:)``.
  ///
  /// - Throws: ``StorageError`` of code `locked` before `unlock`, `misuse` if the passphrase is
  ///   empty or there is no room for another one. The header is unchanged then, unless only
  ///   synchronizing the directory failed.
  public func addRecovery(passphrase: String) throws(StorageError) {
    try perform("addRecovery") { () throws(StorageError) in
      try vault.addRecovery(passphrase: passphrase)
    }
  }

  /// Removes a recovery code or a recovery passphrase, or all of them.
  ///
  /// See ``SecureVault/removeRecovery(_:service:)`` for what this does not prevent.
  ///
  /// - Throws: ``StorageError`` of code `locked` before `unlock`, `misuse` for the key source that
  ///   protects the vault.
  public func removeRecovery(_ opener: SecureVault.Opener? = nil) throws(StorageError) {
    try perform("removeRecovery") { () throws(StorageError) in
      if let opener, !opener.isRecovery {
        throw StorageError(
          .misuse, operation: "removeRecovery",
          reason: "the \(opener) protects the vault; it is not a recovery",
          remedy: "Call SecureVault.protect(with:) to replace it.")
      }
      try vault.removeRecovery(id: opener?.id)
    }
  }

  /// What opens the vault: first its key source, then what was added for recovery; empty if there
  /// is no vault yet.
  ///
  /// - Throws: ``StorageError`` if the vault header cannot be read.
  public var openers: [SecureVault.Opener] {
    get throws(StorageError) {
      try perform("openers") { () throws(StorageError) in try vault.openers() }
    }
  }

  /// Drops the old keys even if the files of some secrets are damaged.
  ///
  /// See ``SecureVault/forgetOldKeys(service:)``.
  ///
  /// - Throws: ``StorageError`` if a secret cannot be read for another reason than damage. The old
  ///   keys are kept then.
  public func forgetOldKeys() throws(StorageError) {
    try perform("forgetOldKeys") { () throws(StorageError) in try vault.forgetOldKeys() }
  }
}
#endif
