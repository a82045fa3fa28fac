#if SecureVault
extension SecureVault {
  /// A secret's name with its type, its access and its service.
  ///
  /// Declare keys once and they complete after a dot; a value of another type does not compile.
  ///
  /// ```swift
  /// extension SecureVault.Key<Token> {
  ///   static let accessToken = Self("accessToken", service: "com.app.auth")
  /// }
  ///
  /// SecureVault[.accessToken] = token
  /// ```
  public struct Key<Value: Codable>: Hashable, Sendable {
    /// The name under which the secret is stored.
    public let name: String
    /// Whether a person has to be present to read it; nil leaves that as it is.
    public let access: Access?
    /// Where it is stored; nil for ``SecureVault/defaultService``, as it is at each use.
    public let service: Service?

    /// Names a secret.
    public init(_ name: String, access: Access? = nil, service: Service? = nil) {
      self.name = name
      self.access = access
      self.service = service
    }
  }
}
#endif
