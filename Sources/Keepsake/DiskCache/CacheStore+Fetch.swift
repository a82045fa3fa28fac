extension DiskCache.Store {
  /// The value of an entry, or the value that `produce` returns, which is then stored.
  ///
  /// ```swift
  /// let article: Article = try await DiskCache.shared.fetch("article_1", expiry: .minutes(5)) {
  ///   try await download()
  /// }
  /// ```
  ///
  /// If several tasks of this process fetch a key at the same time, one of them runs `produce`, in
  /// its own isolation, and the others wait for the result. If that task is cancelled, the next one
  /// takes over. If `produce` throws, all waiting tasks get its error and nothing is stored. If
  /// this process sets or removes the key while `produce` runs, that change wins. If `produce`
  /// returns nil, nothing is stored.
  ///
  /// If several machines share the cache, see ``StorageBacking``, one of them runs `produce`, and a
  /// change on any of them wins. Another machine runs its own if that one fails.
  ///
  /// A value that cannot be stored is still returned; the failure is reported to
  /// ``StorageSystem/onFailure``. An entry that cannot be read as a `T` is reported too, and
  /// produced again.
  ///
  /// - Throws: What `produce` throws, `CancellationError`, or a ``StorageError`` of code
  ///   `wrongType` or `decodingFailed` if the task that produced the value stores another type
  ///   under this key.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: String, expiry: DiskCache.Expiry = .never,
    isolation: isolated (any Actor)? = #isolation, _ produce: () async throws -> T
  ) async throws -> T {
    try await fetchValue(key, FetchPolicy(expiry: expiry), isolation: isolation, produce)
  }

  /// The value of a typed key, or the value that `produce` returns, which is then stored.
  ///
  /// If the key has a `staleFor`, the task that runs `produce` waits for it, and all others get the
  /// old value at once. With ``fetch(_:refresh:isolation:_:)`` no task waits. If the
  /// key has a `staleIfFailing` and `produce` throws, this returns the old value.
  ///
  /// See ``fetch(_:expiry:isolation:_:)``, which throws the same errors.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: DiskCache.Key<T>, isolation: isolated (any Actor)? = #isolation,
    _ produce: () async throws -> T
  ) async throws -> T {
    try await fetchValue(key.name, FetchPolicy(key), isolation: isolation, produce)
  }

  // MARK: Using expired entries

  /// The value of an entry, for some time after its expiry too if producing it anew fails.
  ///
  /// ```swift
  /// let rates: Rates = try await cache.fetch(
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
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Makes the value if there is none that counts.
  /// - Throws: What ``fetch(_:expiry:isolation:_:)`` throws, if there is no such entry.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: String, expiry: DiskCache.Expiry, staleIfFailing: Duration,
    isolation: isolated (any Actor)? = #isolation, _ produce: () async throws -> T
  ) async throws -> T {
    let policy = FetchPolicy(expiry: expiry, staleIfFailing: staleIfFailing)
    return try await fetchValue(key, policy, isolation: isolation, produce)
  }

  /// The value of an entry, for some time after its expiry too: it is then returned at once, and
  /// produced anew in the background.
  ///
  /// ```swift
  /// let page = try await cache.fetch("page", expiry: .minutes(5), staleFor: .hours(1)) {
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
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Makes the value if there is none that counts.
  /// - Throws: What ``fetch(_:expiry:isolation:_:)`` throws, if there is no such entry.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: String, expiry: DiskCache.Expiry, staleFor: Duration,
    staleIfFailing: Duration? = nil,
    isolation: isolated (any Actor)? = #isolation,
    _ produce: @escaping @Sendable () async throws -> T
  ) async throws -> T {
    let policy = FetchPolicy(expiry: expiry, staleFor: staleFor, staleIfFailing: staleIfFailing)
    let fetch = BackgroundFetch(producer: .value(produce))
    let value = try await fetchInBackground(key, policy, isolation: isolation, fetch)
    return try value ?? decode(nil, key)
  }

  /// The value of a typed key, which is produced anew in the background while it is stale.
  ///
  /// ```swift
  /// let page = try await cache.fetch(.frontPage, refresh: .inBackground) { try await download() }
  /// ```
  ///
  /// See ``fetch(_:expiry:staleFor:staleIfFailing:isolation:_:)``; the times are
  /// those of the key.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: DiskCache.Key<T>, refresh: DiskCache.Refresh,
    isolation: isolated (any Actor)? = #isolation,
    _ produce: @escaping @Sendable () async throws -> T
  ) async throws -> T {
    let fetch = BackgroundFetch(producer: .value(produce))
    let value = try await fetchInBackground(
      key.name, FetchPolicy(key), isolation: isolation, fetch)
    return try value ?? decode(nil, key.name)
  }

  // MARK: Missing values

  /// The value of an entry, or nil: that there is no value is stored, too.
  ///
  /// ```swift
  /// let user = try await cache.fetch("user_7", expiry: .hours(1), nilExpiry: .minutes(1)) {
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
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Makes the value if there is none that counts.
  /// - Throws: What ``fetch(_:expiry:isolation:_:)`` throws.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: String, expiry: DiskCache.Expiry, nilExpiry: DiskCache.Expiry,
    staleIfFailing: Duration? = nil,
    isolation: isolated (any Actor)? = #isolation, _ produce: () async throws -> T?
  ) async throws -> T? {
    let policy = FetchPolicy(
      expiry: expiry, staleIfFailing: staleIfFailing, nilExpiry: nilExpiry)
    return try await fetch(key, policy, isolation: isolation) { _ in
      try await produce().map { .value($0) } ?? .gone
    }
  }

  // MARK: Revalidating

  /// The value of an entry. After its expiry, `produce` gets the old value, and decides whether it
  /// is still right.
  ///
  /// ```swift
  /// let page: Data? = try await cache.fetch("page", expiry: .minutes(5)) { old in
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
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Gets the old entry, or nil if there is none.
  /// - Returns: The value; nil if it is gone.
  /// - Throws: What ``fetch(_:expiry:isolation:_:)`` throws; a ``StorageError`` of code `misuse` if
  ///   `produce` returns `.unchanged` without an old entry.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: String, expiry: DiskCache.Expiry, keptFor: Duration = .days(7),
    nilExpiry: DiskCache.Expiry? = nil, staleIfFailing: Duration? = nil,
    isolation: isolated (any Actor)? = #isolation,
    _ produce: (DiskCache.CachedValue<T>?) async throws -> DiskCache.FetchResult<T>
  ) async throws -> T? {
    let policy = FetchPolicy(
      expiry: expiry, staleIfFailing: staleIfFailing, keptFor: keptFor, nilExpiry: nilExpiry)
    return try await fetch(key, policy, isolation: isolation, produce)
  }

  /// The value of an entry. For some time after its expiry it is returned at once, and revalidated
  /// in the background.
  ///
  /// See ``fetch(_:expiry:keptFor:nilExpiry:staleIfFailing:isolation:_:)`` and
  /// ``fetch(_:expiry:staleFor:staleIfFailing:isolation:_:)``.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: String, expiry: DiskCache.Expiry, staleFor: Duration,
    keptFor: Duration = .days(7), nilExpiry: DiskCache.Expiry? = nil,
    staleIfFailing: Duration? = nil,
    isolation: isolated (any Actor)? = #isolation,
    _ produce:
      @escaping @Sendable (DiskCache.CachedValue<T>?) async throws
      -> DiskCache.FetchResult<T>
  ) async throws -> T? {
    let policy = FetchPolicy(
      expiry: expiry, staleFor: staleFor, staleIfFailing: staleIfFailing, keptFor: keptFor,
      nilExpiry: nilExpiry)
    let fetch = BackgroundFetch(producer: .result(produce))
    return try await fetchInBackground(key, policy, isolation: isolation, fetch)
  }
}
