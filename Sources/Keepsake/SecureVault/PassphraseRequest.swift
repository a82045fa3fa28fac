#if SecureVault
extension SecureVault {
  /// A request for a passphrase.
  ///
  /// The `authenticate` closure of
  /// ``StorageSystem/bootstrap(app:on:directories:engines:keySources:onFailure:authenticate:)``
  /// gets one.
  public struct PassphraseRequest: Sendable {
    /// What the passphrase is needed for, shown to the user.
    public let reason: String
    /// Whether the user chooses a new passphrase, so that it should be asked for twice. Otherwise
    /// the user enters an existing one.
    public let isNew: Bool
    /// Whether ``reason`` is the whole prompt.
    let isPrompt: Bool

    /// Creates a request for a passphrase.
    public init(reason: String, isNew: Bool = false) {
      self.reason = reason
      self.isNew = isNew
      isPrompt = false
    }

    /// Creates a request for another secret, such as a token. The prompt is shown unchanged.
    ///
    /// ```swift
    /// let token = try SecureVault.askTerminal(.init(prompt: "Token: "))
    /// ```
    public init(prompt: String) {
      reason = prompt
      isNew = false
      isPrompt = true
    }
  }

  /// Returns the passphrase, or nil if the user enters none.
  ///
  /// It is called on the thread that needs the passphrase. No lock is held, so it may take as long
  /// as the user needs.
  public typealias Authenticator = @Sendable (PassphraseRequest) throws -> String?
}
#endif
