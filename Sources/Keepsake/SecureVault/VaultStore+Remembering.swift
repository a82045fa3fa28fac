#if SecureVault
extension SecureVault {
  /// Opens the vault with a passphrase, and lets the other processes of this login open it without
  /// one for some time.
  ///
  /// ```swift
  /// if SecureVault.isLocked, let typed = try SecureVault.askTerminal(prompt: "Passphrase: ") {
  ///   guard SecureVault.unlock(passphrase: typed, rememberFor: .minutes(15)) else { return }
  /// }
  /// ```
  ///
  /// The vault's master key is put in the kernel's session keyring (`keyrings(7)`). There,
  /// processes that run as the same user in the same login find it, whenever they use the vault or
  /// ask ``isLocked``, until the time is over or any of them calls ``lock(service:)``. Another
  /// process that has opened the vault already keeps it open. A new key source or passphrase makes
  /// the remembered key useless. The article on the threat model says what this protects against.
  ///
  /// Where there is no such keyring, as in many containers, the vault is opened all the same, and
  /// the failure is reported.
  ///
  /// - Parameters:
  ///   - passphrase: The vault's passphrase, or a recovery code or recovery passphrase.
  ///   - period: The time from now, rounded up to whole seconds, of which it is at least one. Using
  ///     the key does not prolong it.
  ///   - service: A service of the vault.
  /// - Returns: Whether the vault is open.
  public static func unlock(
    passphrase: String, rememberFor period: Duration, service: Service = defaultService
  ) -> Bool {
    self.service(service).attempt { store throws(StorageError) in
      try store.unlock(passphrase: passphrase, rememberFor: period)
    } != nil
  }
}

extension SecureVault.Store {
  /// Opens the vault with a passphrase, and lets the other processes of this login open it without
  /// one for some time.
  ///
  /// See ``SecureVault/unlock(passphrase:rememberFor:service:)``. A failure to remember the key is
  /// reported to ``StorageSystem/onFailure`` and not thrown.
  ///
  /// - Throws: ``StorageError`` of code `wrongPassphrase` if the passphrase is wrong, `misuse` if
  ///   the vault has none, `notFound` if there is no vault yet.
  public func unlock(
    passphrase: String, rememberFor period: Duration
  ) throws(StorageError) {
    try perform("unlock") { () throws(StorageError) in
      try vault.unlock(passphrase: passphrase, rememberingFor: period.wholeSeconds)
    }
  }
}
#endif
