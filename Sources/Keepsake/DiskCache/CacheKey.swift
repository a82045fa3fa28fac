extension DiskCache {
  /// The name of an entry together with its type, expiry and cache.
  ///
  /// Once declared, a key completes after a dot, and a value of another type does not compile.
  ///
  /// ```swift
  /// extension DiskCache.Key<Article> {
  ///   static let frontPage = Self("frontPage", expiry: .minutes(5))
  /// }
  ///
  /// DiskCache[.frontPage] = article
  /// let page = try await DiskCache.fetch(.frontPage) { try await download() }
  /// ```
  public struct Key<Value: Codable>: Hashable, Sendable {
    /// The name under which the value is stored.
    public let name: String
    /// Makes keys compare byte by byte.
    private let exactName: ExactString
    /// When an entry that is stored under this key expires.
    @usableFromInline let expiry: Expiry
    /// How long after its expiry a fetch returns an entry if producing a new one fails; nil
    /// disables this.
    @usableFromInline let staleIfFailing: Duration?
    /// The cache in which the value is stored.
    public let cache: Name

    /// Makes the key of an entry.
    ///
    /// ```swift
    /// static let frontPage = Self("frontPage", expiry: .minutes(5), staleIfFailing: .hours(1))
    /// ```
    ///
    /// - Parameters:
    ///   - name: The name of the entry.
    ///   - expiry: When the entry expires.
    ///   - staleIfFailing: How long after its expiry a fetch returns the entry if producing a new
    ///     one fails; nil disables this.
    ///   - cache: The cache of the entry.
    public init(
      _ name: String, expiry: Expiry = .never, staleIfFailing: Duration? = nil,
      cache: Name = .standard
    ) {
      self.name = name
      exactName = ExactString(name)
      self.expiry = expiry
      self.staleIfFailing = staleIfFailing
      self.cache = cache
    }
  }
}
