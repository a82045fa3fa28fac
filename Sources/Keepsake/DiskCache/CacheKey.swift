extension DiskCache {
  /// An entry's name with its type, its expiry and its cache.
  ///
  /// Declare keys once and they complete after a dot; a value of another type does not compile.
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
    /// When what is stored under it is gone.
    public let expiry: Expiry
    /// Where it is stored.
    public let cache: Name

    /// Names an entry.
    public init(_ name: String, expiry: Expiry = .never, cache: Name = .standard) {
      self.name = name
      self.expiry = expiry
      self.cache = cache
    }
  }
}
