#if SecureVault
extension SecureVault {
  /// Asks for a passphrase or another secret on the terminal without echoing it: an
  /// ``Authenticator`` for command-line tools.
  ///
  /// ```swift
  /// try StorageSystem.bootstrap(app: "com.example.notes", authenticate: SecureVault.askTerminal)
  /// let token = try SecureVault.askTerminal(.init(prompt: "Token: "))
  /// ```
  ///
  /// It uses the terminal that the program was started from, even if the standard streams are
  /// redirected. A new passphrase is asked for twice. A Tab is part of the typed line. A line that
  /// contains another control key, such as Escape or an arrow key, is rejected, and the user is
  /// asked again.
  ///
  /// - Returns: The line; nil if the user ends the input with Control-D.
  /// - Throws: ``StorageError`` of code `locked` when there is no terminal.
  @Sendable
  public static func askTerminal(_ request: PassphraseRequest) throws(StorageError) -> String? {
    if request.isPrompt { return try readTerminal(request.reason) }
    guard request.isNew else { return try readTerminal("\(request.reason). Passphrase: ") }
    var prompt = "\(request.reason). New passphrase: "
    while let first = try readTerminal(prompt) {
      if first.isEmpty {
        prompt = "The passphrase is empty. New passphrase: "
        continue
      }
      guard let second = try readTerminal("Repeat passphrase: ") else { return nil }
      if first == second { return first }
      prompt = "The passphrases do not match. New passphrase: "
    }
    return nil
  }

  private static func readTerminal(_ prompt: String) throws(StorageError) -> String? {
    do throws(StorageError) {
      return try Terminal.readHidden(prompt)
    } catch {
      throw StorageError(
        .locked, operation: "askTerminal", path: error.path,
        reason: "the terminal cannot be used",
        remedy: "Run the program in a terminal, or pass the secret to it in another way.",
        underlyingError: error)
    }
  }
}
#endif
