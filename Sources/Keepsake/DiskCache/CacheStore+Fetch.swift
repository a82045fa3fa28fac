// The same calls as in `DiskCache`, where they are documented.

extension DiskCache.Store {
  /// The value of an entry, or the value that `produce` returns, which is then stored.
  ///
  /// See ``DiskCache/fetch(_:expiry:staleIfFailing:timeout:cache:isolation:_:)``, which throws the
  /// same errors.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: String, expiry: DiskCache.Expiry = .never, staleIfFailing: Duration? = nil,
    timeout: Duration = .minutes(5), isolation: isolated (any Actor)? = #isolation,
    _ produce: () async throws -> T
  ) async throws -> T {
    let policy = FetchPolicy(expiry: expiry, staleIfFailing: staleIfFailing, timeout: timeout)
    let value = try await fetch(key, policy, isolation: isolation) { _ in
      .value(try await produce())
    }
    return try value?.value ?? nilValue(key)
  }

  /// The value of an entry. For some time after its expiry, the old value is returned at once while
  /// a new one is produced in the background.
  ///
  /// See ``DiskCache/fetch(_:expiry:staleFor:staleIfFailing:timeout:cache:isolation:_:)``, which
  /// throws the same errors.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: String, expiry: DiskCache.Expiry, staleFor: Duration, staleIfFailing: Duration? = nil,
    timeout: Duration = .minutes(5), isolation: isolated (any Actor)? = #isolation,
    _ produce: @escaping @Sendable () async throws -> T
  ) async throws -> T {
    let policy = FetchPolicy(
      expiry: expiry, staleFor: staleFor, staleIfFailing: staleIfFailing, timeout: timeout)
    let value = try await fetchInBackground(key, policy, isolation: isolation, .value(produce))
    return try value?.value ?? nilValue(key)
  }

  // MARK: Revalidating

  /// The value of an entry. After its expiry, `produce` gets the old value, and decides whether it
  /// is still right.
  ///
  /// See ``DiskCache/fetch(_:expiry:staleIfFailing:keptFor:nilExpiry:timeout:cache:isolation:_:)``,
  /// which throws the same errors.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: String, expiry: DiskCache.Expiry, staleIfFailing: Duration? = nil,
    keptFor: Duration = .days(7), nilExpiry: DiskCache.Expiry? = nil,
    timeout: Duration = .minutes(5), isolation: isolated (any Actor)? = #isolation,
    _ produce: (DiskCache.CachedValue<T>?) async throws -> DiskCache.FetchResult<T>
  ) async throws -> DiskCache.CachedValue<T>? {
    let policy = FetchPolicy(
      expiry: expiry, staleIfFailing: staleIfFailing, keptFor: keptFor, nilExpiry: nilExpiry,
      returnsNil: true, timeout: timeout)
    return try await fetch(key, policy, isolation: isolation, produce)
  }

  /// The value of an entry. For some time after its expiry it is returned at once, and revalidated
  /// in the background.
  ///
  /// See ``fetch(_:expiry:staleIfFailing:keptFor:nilExpiry:timeout:isolation:_:)`` and
  /// ``fetch(_:expiry:staleFor:staleIfFailing:timeout:isolation:_:)``.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: String, expiry: DiskCache.Expiry, staleFor: Duration, staleIfFailing: Duration? = nil,
    keptFor: Duration = .days(7), nilExpiry: DiskCache.Expiry? = nil,
    timeout: Duration = .minutes(5), isolation: isolated (any Actor)? = #isolation,
    _ produce:
      @escaping @Sendable (DiskCache.CachedValue<T>?) async throws -> DiskCache.FetchResult<T>
  ) async throws -> DiskCache.CachedValue<T>? {
    let policy = FetchPolicy(
      expiry: expiry, staleFor: staleFor, staleIfFailing: staleIfFailing, keptFor: keptFor,
      nilExpiry: nilExpiry, returnsNil: true, timeout: timeout)
    return try await fetchInBackground(key, policy, isolation: isolation, .result(produce))
  }

  // MARK: Typed keys

  /// The value of a typed key, or the value that `produce` returns, which is then stored.
  ///
  /// See ``DiskCache/fetch(_:timeout:isolation:_:)``.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: DiskCache.Key<T>, timeout: Duration = .minutes(5),
    isolation: isolated (any Actor)? = #isolation, _ produce: () async throws -> T
  ) async throws -> T {
    try await fetch(
      key.name, expiry: key.expiry, staleIfFailing: key.staleIfFailing, timeout: timeout,
      isolation: isolation, produce)
  }

  /// The value of a typed key. For some time after its expiry, the old value is returned at once
  /// while a new one is produced in the background.
  ///
  /// See ``DiskCache/fetch(_:staleFor:timeout:isolation:_:)``.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: DiskCache.Key<T>, staleFor: Duration, timeout: Duration = .minutes(5),
    isolation: isolated (any Actor)? = #isolation,
    _ produce: @escaping @Sendable () async throws -> T
  ) async throws -> T {
    try await fetch(
      key.name, expiry: key.expiry, staleFor: staleFor, staleIfFailing: key.staleIfFailing,
      timeout: timeout, isolation: isolation, produce)
  }

  /// The value of a typed key. After its expiry, `produce` gets the old value, and decides whether
  /// it is still right.
  ///
  /// See ``DiskCache/fetch(_:keptFor:nilExpiry:timeout:isolation:_:)``.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: DiskCache.Key<T>, keptFor: Duration = .days(7), nilExpiry: DiskCache.Expiry? = nil,
    timeout: Duration = .minutes(5), isolation: isolated (any Actor)? = #isolation,
    _ produce: (DiskCache.CachedValue<T>?) async throws -> DiskCache.FetchResult<T>
  ) async throws -> DiskCache.CachedValue<T>? {
    try await fetch(
      key.name, expiry: key.expiry, staleIfFailing: key.staleIfFailing, keptFor: keptFor,
      nilExpiry: nilExpiry, timeout: timeout, isolation: isolation, produce)
  }
}
