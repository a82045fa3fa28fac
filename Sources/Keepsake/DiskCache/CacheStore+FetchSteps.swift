/// The steps of a fetch: it joins the fetch that runs for its key, or leads one, which looks up the
/// entry and, if there is none that counts, runs the producer and stores what it returns.
extension DiskCache.Store {
  typealias Producer<T> = (sending DiskCache.CachedValue<T>?) async throws ->
    DiskCache.FetchResult<T>

  /// What a look-up has found, and the value that the caller of a fetch can get of it.
  private struct Lookup<T> {
    /// An entry that cannot be decoded is missing.
    let found: FoundEntry
    let value: DiskCache.CachedValue<T>?
    /// nil if the look-up failed.
    let result: CacheLookup?

    /// The entry, if it has expired.
    var stale: CachedEntry? { if case .stale(let entry) = found { entry } else { nil } }

    /// Whether a fetch can return ``value`` at once.
    ///
    /// - Parameter length: How long after its expiry an entry counts, in nanoseconds.
    func isAnswer(within length: Int64) -> Bool {
      switch found {
      case .fresh, .noValue: true
      case .stale(let entry): entry.isStale(for: length)
      case .missing: false
      }
    }
  }

  /// - Parameter background: Produces the value of a stale entry, which is returned at once; nil to
  ///   wait for `produce`.
  func fetch<T: Codable>(
    _ key: String, _ policy: FetchPolicy, inBackground background: BackgroundFetch<T>? = nil,
    isolation: isolated (any Actor)?, _ produce: Producer<T>
  ) async throws -> DiskCache.CachedValue<T>? {
    do {
      return try await joinOrLead(key, policy, background, isolation: isolation, produce)
    } catch {
      guard policy.staleIfFailing > 0, !Task.isCancelled else { throw error }
      let lookup = try await lookUp(key, policy, isolation: isolation) as Lookup<T>
      guard let entry = lookup.stale, entry.isStale(for: policy.staleIfFailing) else { throw error }
      return lookup.value
    }
  }

  /// Returns a stale entry at once, and runs the producer in a separate task.
  func fetchInBackground<T: Codable>(
    _ key: String, _ policy: FetchPolicy, isolation: isolated (any Actor)?,
    _ producer: BackgroundFetch<T>.Producer
  ) async throws -> DiskCache.CachedValue<T>? {
    let background = BackgroundFetch(producer: producer)
    return try await fetch(
      key, policy, inBackground: background, isolation: isolation
    ) { old in try await background.produce(old) }
  }

  private func joinOrLead<T: Codable>(
    _ key: String, _ policy: FetchPolicy, _ background: BackgroundFetch<T>?,
    isolation: isolated (any Actor)?, _ produce: Producer<T>
  ) async throws -> DiskCache.CachedValue<T>? {
    let fetches = InFlightFetches.shared
    let target = InFlightFetches.Target(self, key)
    let isFailing = backoff.isWaiting(key)
    let length = policy.usableLength(isFailing: isFailing)
    if length > 0 {
      // A call that can return an old value does not wait for the new one, but only the call that
      // leads the fetch starts a producer.
      let lookup = try await lookUp(key, policy, isolation: isolation) as Lookup<T>
      let needsProducer = lookup.stale != nil && !isFailing && !fetches.isFetching(target)
      if lookup.isAnswer(within: length), !needsProducer {
        count(lookup.result)
        return lookup.value
      }
    }
    while true {
      if Task.isCancelled { throw CancellationError() }
      let (call, isProducer) = fetches.makeCall(to: target, timeout: policy.timeout)
      defer { fetches.leave(call) }
      switch isProducer ? .produce : await fetches.join(call) {
      case .cancelled: throw CancellationError()
      case .failure(let error): throw error
      case .timedOut(let timeout): throw timeoutError(key, timeout)
      case .found(.stale(let entry)) where !entry.isStale(for: length): continue
      // On its own, this call would have produced a value.
      case .found(.noValue) where !policy.returnsNil && !(T.self is any AnyOptional.Type): continue
      case .found(let found):
        (try? engine)?.counts.addCoalesced()
        return try value(of: found, key)
      case .produce:
        return try await withTaskCancellationHandler {
          do {
            return try await lead(call, key, policy, background, isolation: isolation, produce)
          } catch {
            // A cancellation concerns this task only. Its handler may not have run yet.
            if Task.isCancelled { fetches.handOver(call) }
            fetches.finish(call, with: .failure(error))
            throw error
          }
        } onCancel: {
          fetches.handOver(call)
        }
      }
    }
  }

  private func lead<T: Codable>(
    _ call: InFlightFetches.Call, _ key: String, _ policy: FetchPolicy,
    _ background: BackgroundFetch<T>?, isolation: isolated (any Actor)?, _ produce: Producer<T>
  ) async throws -> DiskCache.CachedValue<T>? {
    let lookup = try await lookUp(key, policy, isolation: isolation) as Lookup<T>
    count(lookup.result)
    let isFailing = backoff.isWaiting(key)
    guard lookup.isAnswer(within: policy.usableLength(isFailing: isFailing)) else {
      return try await produceValue(
        call, key, policy, lookup.stale, isolation: isolation, produce)
    }
    if let background, let entry = lookup.stale, !isFailing {
      refresh(call, key, policy, entry, isolation: isolation, background)
    } else {
      InFlightFetches.shared.finish(call, with: .found(lookup.found))
    }
    return lookup.value
  }

  /// Starts a task that produces a new value, unless the key was changed since it was looked up.
  private func refresh(
    _ call: InFlightFetches.Call, _ key: String, _ policy: FetchPolicy, _ entry: CachedEntry,
    isolation: (any Actor)?, _ fetch: any AnyBackgroundFetch
  ) {
    let fetches = InFlightFetches.shared
    guard let next = fetches.passOn(call, with: .found(.stale(entry))) else { return }
    let task = Task {
      // The producer whose task started this one does not wait for it.
      await InFlightFetches.$producing.withValue([]) {
        await fetch.run(next, self, key, policy, entry, isolation: isolation)
      }
    }
    fetches.onTimeout(of: next) { [self] in
      // It may end without an error after that, or much later.
      let timeout = policy.timeout
      noteFailure(
        timeoutError(key, timeout), "has taken longer than its timeout of \(timeout)", key, policy,
        entry)
      task.cancel()
    }
  }

  fileprivate func produceValue<T: Codable>(
    _ call: InFlightFetches.Call, _ key: String, _ policy: FetchPolicy, _ stale: CachedEntry?,
    isolation: isolated (any Actor)?, _ produce: Producer<T>
  ) async throws -> DiskCache.CachedValue<T>? {
    let fetches = InFlightFetches.shared
    let turn = (try? engine)?.makeTurn(key)
    defer { turn?.end() }
    var old = stale
    try Task.checkCancellation()
    if let turn {
      fetches.onTimeout(of: call) { turn.end() }
      while try await !turn.begin(
        knowing: old?.version, waits: old?.isStale(for: policy.staleFor) != true,
        isolation: isolation)
      {
        let lookup = try await lookUp(key, policy, isolation: isolation) as Lookup<T>
        if lookup.isAnswer(within: turn.isElsewhere ? policy.staleFor : 0) {
          fetches.finish(call, with: .found(lookup.found))
          return lookup.value
        }
        old = lookup.stale
        try Task.checkCancellation()
      }
    }
    let result: DiskCache.FetchResult<T>
    do {
      result = try await withTaskCancellationHandler {
        try await InFlightFetches.$producing.withValue(
          InFlightFetches.producing + [call],
          operation: {
            // Decoded for the producer alone, which may be in another isolation.
            try await produce(old.flatMap { try value(of: .stale($0), key) })
          }, isolation: isolation)
      } onCancel: {
        // The next call, here or on another machine, need not wait until the producer notices.
        turn?.end()
      }
    } catch {
      if let old, !Task.isCancelled {
        noteFailure(error, "threw \(StorageError.text(of: error))", key, policy, old)
      }
      throw error
    }
    backoff.noteSuccess(key)
    return try await keep(result, call, key, policy, old, by: turn?.production)
  }

  /// Stores what a producer has returned, and shares it with the calls that wait.
  private func keep<T: Codable>(
    _ result: DiskCache.FetchResult<T>, _ call: InFlightFetches.Call, _ key: String,
    _ policy: FetchPolicy, _ old: CachedEntry?, by production: SharedProduction?,
    isolation: isolated (any Actor)? = #isolation
  ) async throws -> DiskCache.CachedValue<T>? {
    let fetches = InFlightFetches.shared
    let expiry = result.expiry ?? policy.expiry
    let now = WallClock.now
    var found = FoundEntry.noValue
    switch result.answer {
    case .value(let value, let tags):
      let produced = DiskCache.CachedValue(value, created: now, tags: tags, isStale: false)
      let stored: StoredValue?
      do throws(StorageError) {
        stored = try Codec.encode(value)?.copied
      } catch {
        report(error.inContext(of: "fetch", key: key, path: directoryPath))
        // Without a stored form there is nothing to share: each waiter produces its own value.
        fetches.handOver(call)
        return produced
      }
      await store(key, call) { store, hook throws(StorageError) in
        guard let stored else { return try store.engine.remove(key, by: production, hook: hook) }
        try EntryDetails.check(tags: tags, path: store.directoryPath)
        try store.write(
          stored, forKey: key, expiry, EntryDetails(kept: policy.kept, tags: tags),
          durable: false, by: production, hook: hook)
      }
      if let stored {
        found = .fresh(CachedEntry(payload: Payload(stored), created: now, tags: tags))
      }
      fetches.finish(call, with: .found(found))
      return produced
    case .unchanged(let tags):
      guard let old else {
        throw StorageError(
          .misuse, operation: "fetch", key: key, path: directoryPath,
          reason: "the producer returned .unchanged, but there is no old entry",
          remedy: "Return .value if the producer gets nil.")
      }
      let entry = CachedEntry(payload: old.payload, created: now, tags: tags ?? old.tags)
      await store(key, call) { store, hook throws(StorageError) in
        try store.renew(
          old, key, expiry, kept: policy.kept, tags: entry.tags, by: production, hook: hook)
      }
      found = .fresh(entry)
    case .gone:
      await store(key, call) { store, hook throws(StorageError) in
        let options = policy.nilExpiry.flatMap {
          WriteOptions($0, isDurable: false, by: production)
        }
        guard let options else { return try store.engine.remove(key, by: production, hook: hook) }
        try store.engine.writeNoValue(forKey: key, options, hook: hook)
      }
    }
    fetches.finish(call, with: .found(found))
    return try value(of: found, key)
  }

  /// Delays the next attempt after a failure, and reports it if the old value is returned instead.
  private func noteFailure(
    _ failure: any Error, _ what: String, _ key: String, _ policy: FetchPolicy,
    _ entry: CachedEntry
  ) {
    guard entry.isStale(for: policy.usableLength(isFailing: true)) else { return }
    backoff.noteFailure(key)
    report(
      StorageError(
        .fetchFailed, operation: "fetch", key: key, path: directoryPath,
        reason: "the producer \(what), so the value is an expired one from the cache",
        remedy: "Nothing need be done: a later fetch tries again.", underlyingError: failure
      ).asWarning)
  }

  private func timeoutError(_ key: String, _ timeout: Duration) -> StorageError {
    StorageError(
      .timedOut, operation: "fetch", key: key, path: directoryPath,
      reason: "the call that produces the value has taken longer than its timeout of \(timeout)",
      remedy: "Fetch again, with a longer timeout if the producer needs it. A producer must not "
        + "wait for a fetch of its own key.")
  }

  /// Counts what a fetch has found, which may look several times, as a hit or a miss.
  private func count(_ result: CacheLookup?) {
    if let result, let engine = try? engine { engine.counts.add(result) }
  }

  /// Looks for an entry. Nothing is counted. A failure is reported, and counts as a missing entry.
  private func lookUp<T: Codable>(
    _ key: String, _ policy: FetchPolicy, isolation: isolated (any Actor)?
  ) async throws -> Lookup<T> {
    let noValue = policy.nilExpiry != nil
    let result = try await perform { store -> CacheLookup? in
      do throws(StorageError) {
        // With the tags, because a call that joins this one may return them.
        return try store.engine.find(key, noValue: noValue, tags: true)
      } catch {
        store.report(error.inContext(of: "fetch", key: key, path: store.directoryPath))
        return nil
      }
    }
    var found = result?.found ?? .missing
    if case .stale = found, policy.kept == 0 { found = .missing }
    do throws(StorageError) {
      return Lookup(found: found, value: try value(of: found, key), result: result)
    } catch {
      report(error.inContext(of: "fetch", key: key, path: directoryPath))
      return Lookup(found: .missing, value: nil, result: result)
    }
  }

  /// The value that was found or that another call produced, as the type that this call asks for.
  private func value<T: Codable>(
    of found: FoundEntry, _ key: String
  ) throws(StorageError) -> DiskCache.CachedValue<T>? {
    let (entry, isStale): (CachedEntry, Bool)
    switch found {
    case .missing, .noValue: return nil
    case .fresh(let fresh): (entry, isStale) = (fresh, false)
    case .stale(let stale): (entry, isStale) = (stale, true)
    }
    let value: T = try withContext("fetch", key, path: directoryPath) { () throws(StorageError) in
      try Codec.decode(storedValue(entry.payload, key))
    }
    return DiskCache.CachedValue(
      value, created: entry.created, tags: entry.tags, isStale: isStale)
  }

  /// The nil of a fetch whose values are optional.
  func nilValue<T>(_ key: String) throws(StorageError) -> T {
    if let type = T.self as? any ExpressibleByNilLiteral.Type,
      let value = type.init(nilLiteral: ()) as? T
    {
      return value
    }
    throw StorageError(
      .wrongType, operation: "fetch", key: key, path: directoryPath,
      reason: "the fetch that this call joined returned nil, but \(T.self) was requested",
      remedy: "Use one type for each key.")
  }

  // MARK: Storing

  /// Runs `change` on another thread unless the key was changed in the meantime; reports a failure.
  ///
  /// If it was changed elsewhere, the calls that wait may have read the newer value, and the next
  /// one looks for it.
  private func store(
    _ key: String, _ call: InFlightFetches.Call,
    _ change: @escaping @Sendable (DiskCache.Store, CommitHook) throws(StorageError) -> Void
  ) async {
    await withCheckedContinuation { continuation in
      BlockingWork.start { [self] in
        var isOutdated = true
        let hook: CommitHook = { commit throws(StorageError) in
          isOutdated = false
          if InFlightFetches.shared.isCurrentProducer(call) { try commit() }
        }
        do throws(StorageError) {
          try change(self, hook)
          if isOutdated { InFlightFetches.shared.handOver(call) }
        } catch {
          report(error.inContext(of: "fetch", key: key, path: directoryPath))
        }
        continuation.resume()
      }
    }
  }

  /// Stores a value again that has not changed, without writing it if its entry is still there.
  private func renew(
    _ entry: CachedEntry, _ key: String, _ expiry: DiskCache.Expiry, kept: Int64,
    tags: [String: String], by production: SharedProduction?, hook: CommitHook
  ) throws(StorageError) {
    try EntryDetails.check(tags: tags, path: directoryPath)
    let details = EntryDetails(kept: kept, tags: tags)
    guard let options = WriteOptions(expiry, details, isDurable: false, by: production) else {
      return try engine.remove(key, by: production, hook: hook)
    }
    do throws(StorageError) {
      if try engine.renew(entry, forKey: key, options, hook: hook) { return }
      // Another process has stored a newer value, unless the entry was evicted.
      let found = try engine.find(key, noValue: true, tags: false).found
      guard case .missing = found else { return }
    } catch  where error.code == .accessDenied {
      // Only its owner may set the times of a file.
    }
    try engine.write(entry.payload, forKey: key, options, hook: hook)
  }
}

extension CachedEntry {
  /// Whether the entry has expired for less than this many nanoseconds.
  fileprivate func isStale(for length: Int64) -> Bool {
    WallClock.now < expires.addingSaturated(length)
  }
}

/// A fetch in the background, of a type that its task need not know.
protocol AnyBackgroundFetch: Sendable {
  func run(
    _ call: InFlightFetches.Call, _ store: DiskCache.Store, _ key: String, _ policy: FetchPolicy,
    _ stale: CachedEntry, isolation: isolated (any Actor)?
  ) async
}

struct BackgroundFetch<T: Codable>: AnyBackgroundFetch {
  enum Producer {
    case value(@Sendable () async throws -> T)
    case result(@Sendable (DiskCache.CachedValue<T>?) async throws -> DiskCache.FetchResult<T>)
  }

  let producer: Producer

  func produce(
    _ old: sending DiskCache.CachedValue<T>?, isolation: isolated (any Actor)? = #isolation
  ) async throws -> DiskCache.FetchResult<T> {
    switch producer {
    case .value(let produce): .value(try await produce())
    case .result(let produce): try await produce(old)
    }
  }

  /// Encodes and decodes values in the isolation of the caller of `fetch`, whose conformances may
  /// be isolated.
  func run(
    _ call: InFlightFetches.Call, _ store: DiskCache.Store, _ key: String, _ policy: FetchPolicy,
    _ stale: CachedEntry, isolation: isolated (any Actor)?
  ) async {
    let fetches = InFlightFetches.shared
    defer { fetches.leave(call) }
    do {
      _ = try await store.produceValue(call, key, policy, stale, isolation: isolation) { old in
        try await produce(old, isolation: isolation)
      }
    } catch {
      fetches.finish(call, with: .failure(error))
    }
  }
}
