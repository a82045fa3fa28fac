extension DiskCache {
  // MARK: Using expired entries

  /// The value of an entry, for some time after its expiry too if producing it anew fails.
  ///
  /// ```swift
  /// let rates: Rates = try await DiskCache.fetch(
  ///   "rates", expiry: .minutes(5), staleIfFailing: .hours(2)
  /// ) { try await download() }
  /// ```
  ///
  /// After a failure, which is reported to ``StorageSystem/onFailure``, the old value is returned
  /// without another attempt for a second; after each further failure for twice as long, up to a
  /// minute.
  ///
  /// - Parameters:
  ///   - key: The key of the entry.
  ///   - expiry: When the entry expires.
  ///   - staleIfFailing: For how long after its expiry.
  ///   - cache: The cache of the entry.
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Makes the value if there is none that counts.
  /// - Throws: What ``fetch(_:expiry:cache:isolation:_:)`` throws, if there is no such entry.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: String, expiry: Expiry, staleIfFailing: Duration,
    cache: Name = .standard, isolation: isolated (any Actor)? = #isolation,
    _ produce: () async throws -> T
  ) async throws -> T {
    try await named(cache).fetch(
      key, expiry: expiry, staleIfFailing: staleIfFailing, isolation: isolation, produce)
  }

  /// The value of an entry, for some time after its expiry too: it is then returned at once, and
  /// produced anew in the background.
  ///
  /// ```swift
  /// let page = try await DiskCache.fetch("page", expiry: .minutes(5), staleFor: .hours(1)) {
  ///   try await download()
  /// }
  /// ```
  ///
  /// In the background, too, one task of this process produces the value of a key. A failure there
  /// is reported to ``StorageSystem/onFailure``. The next attempt begins with the first fetch after
  /// a second, and after each further failure after twice as long, up to a minute. Until the entry
  /// is too old, no caller waits.
  ///
  /// - Parameters:
  ///   - key: The key of the entry.
  ///   - expiry: When the entry expires.
  ///   - staleFor: For how long after its expiry.
  ///   - staleIfFailing: For how long after its expiry an entry is returned if the caller waited
  ///     for `produce` and it failed.
  ///   - cache: The cache of the entry.
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Makes the value if there is none that counts.
  /// - Throws: What ``fetch(_:expiry:cache:isolation:_:)`` throws, if there is no such entry.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: String, expiry: Expiry, staleFor: Duration,
    staleIfFailing: Duration? = nil,
    cache: Name = .standard, isolation: isolated (any Actor)? = #isolation,
    _ produce: @escaping @Sendable () async throws -> T
  ) async throws -> T {
    try await named(cache).fetch(
      key, expiry: expiry, staleFor: staleFor, staleIfFailing: staleIfFailing, isolation: isolation,
      produce)
  }

  /// The value of a typed key, which is produced anew in the background while it is stale.
  ///
  /// ```swift
  /// let page = try await DiskCache.fetch(.frontPage, refresh: .inBackground) {
  ///   try await download()
  /// }
  /// ```
  ///
  /// See ``fetch(_:expiry:staleFor:staleIfFailing:cache:isolation:_:)``; the
  /// times are those of the key.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: Key<T>, refresh: Refresh,
    isolation: isolated (any Actor)? = #isolation,
    _ produce: @escaping @Sendable () async throws -> T
  ) async throws -> T {
    try await named(key.cache).fetch(
      key, refresh: refresh, isolation: isolation, produce)
  }

  // MARK: Missing values

  /// The value of an entry, or nil: that there is no value is stored, too.
  ///
  /// ```swift
  /// let user = try await DiskCache.fetch("user_7", expiry: .hours(1), nilExpiry: .minutes(1)) {
  ///   try await database.user(7)
  /// }
  /// ```
  ///
  /// Until `nilExpiry` has passed, this returns nil without running `produce`. For all other calls,
  /// such an entry does not exist.
  ///
  /// - Parameters:
  ///   - key: The key of the entry.
  ///   - expiry: When the entry expires.
  ///   - nilExpiry: For how long it is known that there is no value.
  ///   - staleIfFailing: For how long after its expiry an entry is returned if `produce` fails;
  ///     nil for no time.
  ///   - cache: The cache of the entry.
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Makes the value if there is none that counts.
  /// - Throws: What ``fetch(_:expiry:cache:isolation:_:)`` throws.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: String, expiry: Expiry, nilExpiry: Expiry,
    staleIfFailing: Duration? = nil,
    cache: Name = .standard, isolation: isolated (any Actor)? = #isolation,
    _ produce: () async throws -> T?
  ) async throws -> T? {
    try await named(cache).fetch(
      key, expiry: expiry, nilExpiry: nilExpiry, staleIfFailing: staleIfFailing,
      isolation: isolation, produce)
  }

  // MARK: Revalidating

  /// The value of an entry. After its expiry, `produce` gets the old value, and decides whether it
  /// is still right.
  ///
  /// ```swift
  /// let page: Data? = try await DiskCache.fetch("page", expiry: .minutes(5)) { old in
  ///   let response = try await client.get("/", ifNoneMatch: old?.tags["etag"])
  ///   switch response.status {
  ///   case 304: return .unchanged
  ///   case 404: return .gone
  ///   default: return .value(response.body, tags: ["etag": response.etag])
  ///   }
  /// }
  /// ```
  ///
  /// - Parameters:
  ///   - key: The key of the entry.
  ///   - expiry: When the entry expires.
  ///   - keptFor: For how long after its expiry an entry can be revalidated.
  ///   - nilExpiry: For how long it is known that the value is gone; nil to ask each time.
  ///   - staleIfFailing: For how long after its expiry an entry is returned if `produce` throws.
  ///   - cache: The cache of the entry.
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Gets the old entry, or nil if there is none.
  /// - Returns: The value; nil if it is gone.
  /// - Throws: What ``fetch(_:expiry:cache:isolation:_:)`` throws; a ``StorageError`` of code
  ///   `misuse` if `produce` returns `.unchanged` without an old entry.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: String, expiry: Expiry, keptFor: Duration = .days(7),
    nilExpiry: Expiry? = nil, staleIfFailing: Duration? = nil,
    cache: Name = .standard, isolation: isolated (any Actor)? = #isolation,
    _ produce: (CachedValue<T>?) async throws -> FetchResult<T>
  ) async throws -> T? {
    try await named(cache).fetch(
      key, expiry: expiry, keptFor: keptFor, nilExpiry: nilExpiry, staleIfFailing: staleIfFailing,
      isolation: isolation, produce)
  }

  /// The value of an entry. For some time after its expiry it is returned at once, and revalidated
  /// in the background.
  ///
  /// See ``fetch(_:expiry:keptFor:nilExpiry:staleIfFailing:cache:isolation:_:)`` and
  /// ``fetch(_:expiry:staleFor:staleIfFailing:cache:isolation:_:)``.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: String, expiry: Expiry, staleFor: Duration,
    keptFor: Duration = .days(7), nilExpiry: Expiry? = nil,
    staleIfFailing: Duration? = nil,
    cache: Name = .standard, isolation: isolated (any Actor)? = #isolation,
    _ produce:
      @escaping @Sendable (CachedValue<T>?) async throws
      -> FetchResult<T>
  ) async throws -> T? {
    try await named(cache).fetch(
      key, expiry: expiry, staleFor: staleFor, keptFor: keptFor, nilExpiry: nilExpiry,
      staleIfFailing: staleIfFailing, isolation: isolation, produce)
  }
}
