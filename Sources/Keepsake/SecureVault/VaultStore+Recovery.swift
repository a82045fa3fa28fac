#if SecureVault
extension SecureVault.Store {
  /// Adds a recovery code, which opens the vault when its passphrase is forgotten or its key is
  /// lost.
  ///
  /// ```swift
  /// let code = try SecureVault.shared.addRecovery()
  /// print("Keep this code on paper: \(code)")
  /// guard SecureVault.unlock(passphrase: typedCode) else { return }    // later
  /// ```
  ///
  /// The code has 130 random bits in seven groups of four characters. It is returned once and
  /// stored nowhere. A vault has room for 16 unlock methods.
  ///
  /// The code stays valid when ``rotateKeys()`` changes keys. ``removeRecovery(_:)`` and
  /// ``protect(with:)`` invalidate it; after ``protect(with:)``, add a new one.
  ///
  /// - Returns: The code, to be printed or written down by the user.
  /// - Throws: ``StorageError`` of code `locked` before `unlock`, `misuse` if there is no room for
  ///   another one. The header is unchanged then, unless only synchronizing the directory failed.
  public func addRecovery() throws(StorageError) -> String {
    try perform("addRecovery") { () throws(StorageError) in try vault.addRecoveryCode() }
  }

  /// Adds a second passphrase that also opens the vault.
  ///
  /// There is room for three, besides the passphrase that protects the vault. The calls that
  /// invalidate a recovery code also invalidate the passphrase; see ``addRecovery()``.
  ///
  /// - Throws: ``StorageError`` of code `locked` before `unlock`, `misuse` if the passphrase is
  ///   empty or there is no room for another one. The header is unchanged then, unless only
  ///   synchronizing the directory failed.
  public func addRecovery(passphrase: String) throws(StorageError) {
    try perform("addRecovery") { () throws(StorageError) in
      try vault.addRecovery(passphrase: passphrase)
    }
  }

  /// Removes a recovery code or a recovery passphrase.
  ///
  /// The vault's master key stays the same. Anyone who knows what you removed *and* has an older
  /// copy of the vault header can still open the vault with both: call ``protect(with:)`` if a
  /// code or a passphrase was exposed.
  ///
  /// - Parameter method: One of ``unlockMethods``. It need not exist any more.
  /// - Throws: ``StorageError`` of code `locked` before `unlock`, `misuse` for the key source that
  ///   protects the vault.
  public func removeRecovery(_ method: SecureVault.UnlockMethod) throws(StorageError) {
    try perform("removeRecovery") { () throws(StorageError) in
      guard method.isRecovery else {
        throw StorageError(
          .misuse, operation: "removeRecovery",
          reason: "the \(method) protects the vault; it is not a recovery",
          remedy: "Call SecureVault.protect(with:) to replace it.")
      }
      try vault.removeRecovery(id: method.id)
    }
  }

  /// Removes all recovery codes and recovery passphrases.
  ///
  /// See ``removeRecovery(_:)`` for what this does not prevent.
  ///
  /// - Throws: ``StorageError`` of code `locked` before `unlock`.
  public func removeAllRecoveries() throws(StorageError) {
    try perform("removeAllRecoveries") { () throws(StorageError) in
      try vault.removeRecovery(id: nil)
    }
  }

  /// What opens the vault: first its key source, then its recovery codes and recovery passphrases;
  /// empty if there is no vault yet.
  ///
  /// The list is read without a key, so an attacker who can write to the vault's directory can
  /// forge it while the vault is locked; a forged header opens nothing.
  ///
  /// - Throws: ``StorageError`` if the vault header cannot be read.
  public var unlockMethods: [SecureVault.UnlockMethod] {
    get throws(StorageError) {
      try perform("unlockMethods") { () throws(StorageError) in try vault.unlockMethods() }
    }
  }

  /// Drops the old keys even if the files of some secrets are damaged.
  ///
  /// ``rotateKeys()`` and ``protect(with:)`` keep the old keys while any file in the vault is
  /// damaged, because it might be restored. This call does not: a damaged secret, and a file in the
  /// vault that is no secret, can never be opened again, even if the right file is put back. All
  /// other secrets are sealed under the current key first.
  ///
  /// - Throws: ``StorageError`` if a secret cannot be read for another reason, such as a failing
  ///   disk. The old keys are kept then.
  public func forgetOldKeys() throws(StorageError) {
    try perform("forgetOldKeys") { () throws(StorageError) in try vault.forgetOldKeys() }
  }
}
#endif
