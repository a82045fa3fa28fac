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
  /// If several machines share the cache (see ``StorageBacking``), only one of them runs `produce`,
  /// and a change on any of them wins. If `produce` fails there, another machine runs its own.
  ///
  /// With `staleIfFailing`, a failure of `produce` is reported to ``StorageSystem/onFailure``, and
  /// the old value is returned. The next attempt is made a second later at the earliest. This delay
  /// doubles with each further failure, up to a minute.
  ///
  /// A value that cannot be stored is still returned; the failure is reported. An entry that cannot
  /// be read as a `T` is reported too, and produced again.
  ///
  /// - Parameters:
  ///   - key: The key of the entry.
  ///   - expiry: When the entry expires.
  ///   - staleIfFailing: How long after its expiry an entry is returned if `produce` throws; nil
  ///     disables this.
  ///   - timeout: How long other tasks wait while `produce` runs. After that they get an error, and
  ///     the next fetch runs its own closure. `produce` itself goes on.
  ///   - cache: The cache of the entry.
  ///   - isolation: The actor on which `produce` runs: the caller's.
  ///   - produce: Makes the value if there is no entry, or only an expired one. It must not wait
  ///     for another task that fetches the same key: each would wait for the other.
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

  /// The value of an entry. For some time after its expiry, the old value is returned at once while
  /// a new one is produced in the background.
  ///
  /// ```swift
  /// let page = try await DiskCache.fetch("page", expiry: .minutes(5), staleFor: .hours(1)) {
  ///   try await download()
  /// }
  /// ```
  ///
  /// Only one task of this process produces the value of a key in the background, too; it is
  /// cancelled after `timeout`. A failure there is reported to ``StorageSystem/onFailure``. The
  /// next attempt is made by the first fetch after a second; this delay doubles with each further
  /// failure, up to a minute. No caller waits until the entry is too old.
  ///
  /// - Parameters:
  ///   - key: The key of the entry.
  ///   - expiry: When the entry expires.
  ///   - staleFor: How long after its expiry an entry is returned at once.
  ///   - staleIfFailing: How long after its expiry an entry is returned if the caller waited for
  ///     `produce` and it failed.
  ///   - timeout: How long other tasks wait while `produce` runs.
  ///   - cache: The cache of the entry.
  ///   - isolation: The caller's actor. `produce` runs in its own isolation.
  ///   - produce: Makes the value if there is no entry, or only an expired one.
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
  ///   - staleIfFailing: How long after its expiry an entry is returned if `produce` throws.
  ///   - keptFor: How long after its expiry an entry can be revalidated.
  ///   - nilExpiry: How long to remember that the value is gone: a fetch then returns nil without
  ///     running `produce`. nil disables this. All other calls find no entry.
  ///   - timeout: How long other tasks wait while `produce` runs.
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
  /// errors. The key determines the expiry and `staleIfFailing`.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: Key<T>, timeout: Duration = .minutes(5),
    isolation: isolated (any Actor)? = #isolation, _ produce: () async throws -> T
  ) async throws -> T {
    try await named(key.cache).fetch(key, timeout: timeout, isolation: isolation, produce)
  }

  /// The value of a typed key. For some time after its expiry, the old value is returned at once
  /// while a new one is produced in the background.
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
