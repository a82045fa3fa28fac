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
    /// Has keys compared by their bytes.
    private let exactName: ExactString
    /// When an entry that is stored under this key expires.
    public let expiry: Expiry
    /// The cache in which the value is stored.
    public let cache: Name

    /// Makes the key of an entry.
    public init(_ name: String, expiry: Expiry = .never, cache: Name = .standard) {
      self.name = name
      exactName = ExactString(name)
      self.expiry = expiry
      self.cache = cache
    }
  }
}
