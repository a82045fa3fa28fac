#if SecureVault
extension SecureVault {
  /// The name of a secret, with its type, its access and its service.
  ///
  /// Once declared, a key completes after a dot, and a value of another type does not compile.
  ///
  /// ```swift
  /// extension SecureVault.Key<Token> {
  ///   static let accessToken = Self("accessToken", service: "com.app.auth")
  /// }
  ///
  /// SecureVault[.accessToken] = token
  /// ```
  public struct Key<Value: Codable>: Hashable, Sendable {
    /// The name that the secret is stored under.
    public let name: String
    /// Makes keys compare byte by byte.
    private let exactName: ExactString
    /// What reading the secret requires; nil keeps the access that it has.
    public let access: Access?
    /// The service that it belongs to; nil for the ``SecureVault/defaultService`` at each use.
    public let service: Service?

    /// Names a secret.
    public init(_ name: String, access: Access? = nil, service: Service? = nil) {
      self.name = name
      exactName = ExactString(name)
      self.access = access
      self.service = service
    }
  }
}
#endif
