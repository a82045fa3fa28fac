#if SecureVault
extension SecureVault {
  /// Asks the person who sits there for a passphrase: what `authenticate` of
  /// ``StorageSystem/bootstrap(app:directories:engines:keySources:authenticate:)`` is given.
  public struct PassphraseRequest: Sendable {
    /// What the passphrase is needed for, in words for that person.
    public let reason: String
    /// Whether it is to be chosen, so that it should be asked for twice; else it is the one that
    /// was chosen before.
    public let isNew: Bool

    /// A request with the words to show.
    public init(reason: String, isNew: Bool = false) {
      self.reason = reason
      self.isNew = isNew
    }
  }

  /// Returns the passphrase, or nil when nobody gives one.
  ///
  /// It is called on the thread that needs it, with no lock held: it may wait as long as it likes.
  public typealias Authenticator = @Sendable (PassphraseRequest) throws -> String?
}

extension SecureVault {
  /// Asks for a passphrase on the terminal, without showing it: an ``Authenticator`` for
  /// command-line tools.
  ///
  /// ```swift
  /// try StorageSystem.bootstrap(app: "com.example.notes", authenticate: SecureVault.askTerminal)
  /// ```
  ///
  /// It uses the terminal that the program was started from, also when its standard streams are
  /// redirected. A new passphrase is asked for twice.
  ///
  /// - Returns: nil when the person ends the input, with Control-D.
  /// - Throws: ``StorageError`` of code `locked` when there is no terminal.
  @Sendable
  public static func askTerminal(_ request: PassphraseRequest) throws(StorageError) -> String? {
    guard request.isNew else { return try askTerminal(prompt: "\(request.reason). Passphrase: ") }
    var prompt = "\(request.reason). New passphrase: "
    while let first = try askTerminal(prompt: prompt) {
      if first.isEmpty {
        prompt = "It is empty. New passphrase: "
        continue
      }
      guard let second = try askTerminal(prompt: "The same again: ") else { return nil }
      // Its bytes count, and other bytes can be the same text.
      if first.utf8.elementsEqual(second.utf8) { return first }
      prompt = "They differ. New passphrase: "
    }
    return nil
  }

  /// Asks for a line on the terminal, without showing it: a token, or a password.
  ///
  /// ```swift
  /// let token = try SecureVault.askTerminal(prompt: "Token: ")
  /// ```
  ///
  /// - Returns: nil when the person ends the input, with Control-D.
  /// - Throws: ``StorageError`` of code `locked` when there is no terminal.
  public static func askTerminal(prompt: String) throws(StorageError) -> String? {
    do throws(StorageError) {
      return try Terminal.readHidden(prompt)
    } catch {
      throw StorageError(
        .locked, operation: "askTerminal", path: error.path,
        reason: "the terminal cannot be used",
        remedy: "Run the program in a terminal, or let it take what it needs from elsewhere.",
        underlyingError: error)
    }
  }
}
#endif
