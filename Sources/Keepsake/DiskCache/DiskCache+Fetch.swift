extension DiskCache {
  // MARK: Fetching

  /// The value of an entry, or the value that `produce` returns, which is then stored.
  ///
  /// ```swift
  /// let article: Article = try await DiskCache.fetch("article_1", expiry: .minutes(5)) {
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
  /// With `staleIfFailing`, a failure of `produce` is reported to ``StorageSystem/onFailure``, and
  /// the old value is returned: without another attempt for a second, and after each further
  /// failure for twice as long, up to a minute.
  ///
  /// A value that cannot be stored is still returned; the failure is reported. An entry that cannot
  /// be read as a `T` is reported too, and produced again.
  ///
  /// - Parameters:
  ///   - key: The key of the entry.
  ///   - expiry: When the entry expires.
  ///   - staleIfFailing: For how long after its expiry an entry is returned if `produce` throws;
  ///     nil for no time.
  ///   - timeout: For how long other tasks wait while `produce` runs. Then they get an error, and
  ///     the next fetch runs its own closure. `produce` itself goes on.
  ///   - cache: The cache of the entry.
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Makes the value if there is none that counts. It must not wait for a fetch of the
  ///     same key in another task, which would wait for it.
  /// - Throws: What `produce` throws, `CancellationError`, or a ``StorageError``: of code
  ///   `timedOut` if another task has been producing the value for longer than its `timeout`, of
  ///   code `wrongType` or `decodingFailed` if that task stores another type under this key.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: String, expiry: Expiry = .never, staleIfFailing: Duration? = nil,
    timeout: Duration = .minutes(5), cache: Name = .standard,
    isolation: isolated (any Actor)? = #isolation, _ produce: () async throws -> T
  ) async throws -> T {
    try await named(cache).fetch(
      key, expiry: expiry, staleIfFailing: staleIfFailing, timeout: timeout, isolation: isolation,
      produce)
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
  /// In the background, too, one task of this process produces the value of a key; it is cancelled
  /// after `timeout`. A failure there is reported to ``StorageSystem/onFailure``. The next attempt
  /// begins with the first fetch after a second, and after each further failure after twice as
  /// long, up to a minute. Until the entry is too old, no caller waits.
  ///
  /// - Parameters:
  ///   - key: The key of the entry.
  ///   - expiry: When the entry expires.
  ///   - staleFor: For how long after its expiry an entry is returned at once.
  ///   - staleIfFailing: For how long after its expiry an entry is returned if the caller waited
  ///     for `produce` and it failed.
  ///   - timeout: For how long other tasks wait while `produce` runs.
  ///   - cache: The cache of the entry.
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Makes the value if there is none that counts.
  /// - Throws: What ``fetch(_:expiry:staleIfFailing:timeout:cache:isolation:_:)`` throws, if there
  ///   is no such entry.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: String, expiry: Expiry, staleFor: Duration, staleIfFailing: Duration? = nil,
    timeout: Duration = .minutes(5), cache: Name = .standard,
    isolation: isolated (any Actor)? = #isolation,
    _ produce: @escaping @Sendable () async throws -> T
  ) async throws -> T {
    try await named(cache).fetch(
      key, expiry: expiry, staleFor: staleFor, staleIfFailing: staleIfFailing, timeout: timeout,
      isolation: isolation, produce)
  }

  // MARK: Revalidating

  /// The value of an entry. After its expiry, `produce` gets the old value, and decides whether it
  /// is still right.
  ///
  /// ```swift
  /// let page = try await DiskCache.fetch("page", expiry: .minutes(5)) {
  ///   (old: DiskCache.CachedValue<Data>?) in
  ///   let response = try await client.get("/", ifNoneMatch: old?.tags["etag"])
  ///   switch response.status {
  ///   case 304: return .unchanged
  ///   case 404: return .gone
  ///   default: return .value(response.body, tags: ["etag": response.etag])
  ///   }
  /// }
  /// print(page?.value.count ?? 0, page?.age ?? .zero)
  /// ```
  ///
  /// - Parameters:
  ///   - key: The key of the entry.
  ///   - expiry: When the entry expires.
  ///   - staleIfFailing: For how long after its expiry an entry is returned if `produce` throws.
  ///   - keptFor: For how long after its expiry an entry can be revalidated.
  ///   - nilExpiry: For how long it is known that the value is gone, so that a fetch returns nil
  ///     without running `produce`; nil to ask each time. For all other calls, there is no entry.
  ///   - timeout: For how long other tasks wait while `produce` runs.
  ///   - cache: The cache of the entry.
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Gets the old entry, or nil if there is none.
  /// - Returns: The value, with its age and its tags; nil if it is gone.
  /// - Throws: What ``fetch(_:expiry:staleIfFailing:timeout:cache:isolation:_:)`` throws; a
  ///   ``StorageError`` of code `misuse` if `produce` returns `.unchanged` without an old entry.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: String, expiry: Expiry, staleIfFailing: Duration? = nil, keptFor: Duration = .days(7),
    nilExpiry: Expiry? = nil, timeout: Duration = .minutes(5), cache: Name = .standard,
    isolation: isolated (any Actor)? = #isolation,
    _ produce: (CachedValue<T>?) async throws -> FetchResult<T>
  ) async throws -> CachedValue<T>? {
    try await named(cache).fetch(
      key, expiry: expiry, staleIfFailing: staleIfFailing, keptFor: keptFor, nilExpiry: nilExpiry,
      timeout: timeout, isolation: isolation, produce)
  }

  /// The value of an entry. For some time after its expiry it is returned at once, and revalidated
  /// in the background.
  ///
  /// See ``fetch(_:expiry:staleIfFailing:keptFor:nilExpiry:timeout:cache:isolation:_:)`` and
  /// ``fetch(_:expiry:staleFor:staleIfFailing:timeout:cache:isolation:_:)``.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: String, expiry: Expiry, staleFor: Duration, staleIfFailing: Duration? = nil,
    keptFor: Duration = .days(7), nilExpiry: Expiry? = nil, timeout: Duration = .minutes(5),
    cache: Name = .standard, isolation: isolated (any Actor)? = #isolation,
    _ produce: @escaping @Sendable (CachedValue<T>?) async throws -> FetchResult<T>
  ) async throws -> CachedValue<T>? {
    try await named(cache).fetch(
      key, expiry: expiry, staleFor: staleFor, staleIfFailing: staleIfFailing, keptFor: keptFor,
      nilExpiry: nilExpiry, timeout: timeout, isolation: isolation, produce)
  }

  // MARK: Typed keys

  /// The value of a typed key, or the value that `produce` returns, which is then stored.
  ///
  /// See ``fetch(_:expiry:staleIfFailing:timeout:cache:isolation:_:)``, which throws the same
  /// errors; the expiry and `staleIfFailing` are those of the key.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: Key<T>, timeout: Duration = .minutes(5),
    isolation: isolated (any Actor)? = #isolation, _ produce: () async throws -> T
  ) async throws -> T {
    try await named(key.cache).fetch(key, timeout: timeout, isolation: isolation, produce)
  }

  /// The value of a typed key, for some time after its expiry too: it is then returned at once, and
  /// produced anew in the background.
  ///
  /// ```swift
  /// let page = try await DiskCache.fetch(.frontPage, staleFor: .hours(1)) { try await download() }
  /// ```
  ///
  /// See ``fetch(_:expiry:staleFor:staleIfFailing:timeout:cache:isolation:_:)``.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: Key<T>, staleFor: Duration, timeout: Duration = .minutes(5),
    isolation: isolated (any Actor)? = #isolation,
    _ produce: @escaping @Sendable () async throws -> T
  ) async throws -> T {
    try await named(key.cache).fetch(
      key, staleFor: staleFor, timeout: timeout, isolation: isolation, produce)
  }

  /// The value of a typed key. After its expiry, `produce` gets the old value, and decides whether
  /// it is still right.
  ///
  /// See ``fetch(_:expiry:staleIfFailing:keptFor:nilExpiry:timeout:cache:isolation:_:)``.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: Key<T>, keptFor: Duration = .days(7), nilExpiry: Expiry? = nil,
    timeout: Duration = .minutes(5), isolation: isolated (any Actor)? = #isolation,
    _ produce: (CachedValue<T>?) async throws -> FetchResult<T>
  ) async throws -> CachedValue<T>? {
    try await named(key.cache).fetch(
      key, keptFor: keptFor, nilExpiry: nilExpiry, timeout: timeout, isolation: isolation, produce)
  }
}
