#if SecureVault
extension SecureVault.Store {
  /// Opens a locked vault, and asks for its passphrase on the terminal if it has one.
  ///
  /// ```swift
  /// guard try SecureVault.shared.unlockAtTerminal(reason: "Unlock the notes") else { exit(77) }
  /// ```
  ///
  /// For command-line tools: call it before the first secret is read. It returns at once if the
  /// vault is open, does not exist yet, or is opened by a key source. What the user types is not
  /// shown. A wrong passphrase can be corrected twice. The vault then stays open until ``lock()``.
  ///
  /// If the vault has no passphrase and its key is missing, it asks for a recovery code or recovery
  /// passphrase; see ``addRecovery()``. After that, protect the vault with a new source.
  ///
  /// It waits for the user, and checking a passphrase takes about half a second.
  ///
  /// - Parameters:
  ///   - reason: What the passphrase is needed for, shown to the user.
  ///   - period: How long other programs of this login may open the vault without asking; nil
  ///     disables this. See ``SecureVault/unlock(passphrase:rememberFor:service:)``.
  /// - Returns: Whether the vault is open; false if the user cancels with Control-D or an empty
  ///   line when asked for the vault's passphrase.
  /// - Throws: ``StorageError`` of code `wrongPassphrase` if the passphrase is wrong three times,
  ///   `locked` if there is no terminal, or if no key source opens the vault and the user enters no
  ///   recovery code either.
  public func unlockAtTerminal(
    reason: String = "Unlock the secrets", rememberFor period: Duration? = nil
  ) throws(StorageError) -> Bool {
    try perform("unlockAtTerminal") { () throws(StorageError) in
      do throws(StorageError) {
        try vault.unlock(passphrase: nil)
        return true
      } catch {
        if try vault.protection() == .passphrase {
          return try ask(reason, "Passphrase: ", "The passphrase is wrong.", period)
        }
        guard try vault.unlockMethods().contains(where: \.isRecovery) else { throw error }
        return try ask(
          reason, "Recovery code or passphrase: ", "That is wrong.", period, because: error)
      }
    }
  }

  /// Opens the vault with what the user types; false if the user cancels.
  ///
  /// - Parameters:
  ///   - reason: Stands before the question at first.
  ///   - complaint: Stands before it when the answer was wrong.
  ///   - missingKey: Why the key source did not open it. It is thrown if the user cancels or there
  ///     is no terminal.
  private func ask(
    _ reason: String, _ question: String, _ complaint: String, _ period: Duration?,
    because missingKey: StorageError? = nil
  ) throws(StorageError) -> Bool {
    var prompt = "\(reason). \(question)"
    var attempts = 3
    while true {
      let typed: String?
      do throws(StorageError) {
        typed = try SecureVault.askTerminal(.init(prompt: prompt))
      } catch {
        throw missingKey ?? error
      }
      guard let typed, !typed.isEmpty else { break }
      attempts -= 1
      do throws(StorageError) {
        try vault.unlock(passphrase: typed, rememberingFor: period?.wholeSeconds)
        return true
      } catch  where error.code == .wrongPassphrase && attempts > 0 {
        let isMistyped = error.reason == Vault.mistypedCode
        prompt = (isMistyped ? "There is a typing error in the code." : complaint) + " " + question
      }
    }
    if let missingKey { throw missingKey }
    return false
  }
}
#endif
