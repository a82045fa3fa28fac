extension DiskCache.Store {
  typealias Producer<T> = (sending DiskCache.CachedValue<T>?) async throws ->
    DiskCache.FetchResult<T>

  /// What a fetch can use.
  private enum Usable<T> {
    case missing
    case noValue
    case fresh(StoredValue, T)
    case stale(StoredValue, T, StaleEntry)
  }

  /// What a fetch can use, and the look-up behind it; nil if that failed.
  private typealias FetchLookup<T> = (usable: Usable<T>, result: CacheLookup?)

  func fetchValue<T: Codable>(
    _ key: String, _ policy: FetchPolicy, isolation: isolated (any Actor)?,
    _ produce: () async throws -> T
  ) async throws -> T {
    let value = try await fetch(key, policy, isolation: isolation) { _ in
      .value(try await produce())
    }
    return try value ?? decode(nil, key)
  }

  /// Returns a stale entry at once, and runs the producer in a task of its own.
  func fetchInBackground<T: Codable>(
    _ key: String, _ policy: FetchPolicy, isolation: isolated (any Actor)?,
    _ background: BackgroundFetch<T>
  ) async throws -> T? {
    let lookup = try await lookUp(key, policy, isolation: isolation) as FetchLookup<T>
    switch lookup.usable {
    case .fresh(_, let value):
      count(lookup.result)
      return value
    case .noValue:
      count(lookup.result)
      return nil
    case .stale(_, let value, let entry) where entry.isStale(for: policy.staleFor):
      count(lookup.result)
      if !backoff.isWaiting(key) {
        refresh(key, policy, isolation: isolation, background)
      }
      return value
    case .stale, .missing:
      return try await fetch(key, policy, isolation: isolation) { old in
        try await background.produce(old)
      }
    }
  }

  /// Starts a task that produces the value, unless another one does.
  private func refresh(
    _ key: String, _ policy: FetchPolicy, isolation: (any Actor)?, _ fetch: any AnyBackgroundFetch
  ) {
    let fetches = InFlightFetches.shared
    let call = fetches.makeCall(to: InFlightFetches.Target(self, key))
    guard fetches.lead(call) else { return fetches.leave(call) }
    Task {
      // The producer whose task started this one does not wait for it.
      await InFlightFetches.$producing.withValue([]) {
        await fetch.run(call, self, key, policy, isolation: isolation)
      }
    }
  }

  func fetch<T: Codable>(
    _ key: String, _ policy: FetchPolicy, isolation: isolated (any Actor)?, _ produce: Producer<T>
  ) async throws -> T? {
    let isFailing = backoff.isWaiting(key)
    let target = InFlightFetches.Target(self, key)
    if policy.staleFor > 0 || isFailing && policy.staleIfFailing > 0 {
      let lookup = try await lookUp(key, policy, isolation: isolation) as FetchLookup<T>
      switch lookup.usable {
      case .fresh(_, let value):
        count(lookup.result)
        return value
      case .noValue:
        count(lookup.result)
        return nil
      case .stale(_, let value, let entry):
        let isFetching = InFlightFetches.shared.isFetching(target)
        if isFailing && entry.isStale(for: max(policy.staleFor, policy.staleIfFailing))
          || isFetching && entry.isStale(for: policy.staleFor)
        {
          count(lookup.result)
          return value
        }
      case .missing: break
      }
    }
    do {
      return try await joinOrProduce(target, key, policy, isolation: isolation, produce)
    } catch {
      guard policy.staleIfFailing > 0, !Task.isCancelled,
        case .stale(_, let value, let entry) =
          (try await lookUp(key, policy, isolation: isolation) as FetchLookup<T>).usable,
        entry.isStale(for: policy.staleIfFailing)
      else { throw error }
      return value
    }
  }

  private func joinOrProduce<T: Codable>(
    _ target: InFlightFetches.Target, _ key: String, _ policy: FetchPolicy,
    isolation: isolated (any Actor)?, _ produce: Producer<T>
  ) async throws -> T? {
    let fetches = InFlightFetches.shared
    let call = fetches.makeCall(to: target)
    defer { fetches.leave(call) }
    switch await fetches.join(call) {
    case .cancelled: throw CancellationError()
    case .failure(let error): throw error
    case .value(let stored):
      (try? engine)?.counts.addCoalesced()
      return try stored.map { try decode($0, key) }
    case .produce:
      return try await withTaskCancellationHandler {
        do {
          return try await readOrProduce(call, key, policy, isolation: isolation, produce)
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

  fileprivate func readOrProduce<T: Codable>(
    _ call: InFlightFetches.Call, _ key: String, _ policy: FetchPolicy,
    isCounted: Bool = true, isolation: isolated (any Actor)?, _ produce: Producer<T>
  ) async throws -> T? {
    let fetches = InFlightFetches.shared
    let turn = sharedEngine.map { $0.makeTurn(key) }
    defer { turn?.end() }
    var old: (stored: StoredValue, entry: StaleEntry)?
    var isUsable = false
    var isCounted = isCounted
    repeat {
      old = nil
      isUsable = false
      let lookup = try await lookUp(key, policy, isolation: isolation) as FetchLookup<T>
      if isCounted { count(lookup.result) }
      isCounted = false
      switch lookup.usable {
      case .fresh(let stored, let value):
        fetches.finish(call, with: .value(stored))
        return value
      case .noValue:
        fetches.finish(call, with: .value(nil))
        return nil
      case .stale(let stored, let value, let entry):
        isUsable = entry.isStale(for: policy.staleFor)
        if let turn, turn.isElsewhere, isUsable {
          fetches.finish(call, with: .value(stored))
          return value
        }
        old = (stored, entry)
      case .missing: break
      }
      try Task.checkCancellation()
    } while try await turn?.begin(
      knowing: old?.entry.version, waits: !isUsable, isolation: isolation) == false
    let result: DiskCache.FetchResult<T>
    do {
      result = try await withTaskCancellationHandler {
        try await InFlightFetches.$producing.withValue(
          InFlightFetches.producing + [call],
          operation: {
            // Decoded for the producer alone, which may be in another isolation.
            try await produce(
              old.map { DiskCache.CachedValue(try decode($0.stored, key), $0.entry) })
          }, isolation: isolation)
      } onCancel: {
        // The next call, here or on another machine, need not wait until the producer notices.
        turn?.end()
      }
    } catch {
      if let entry = old?.entry, !Task.isCancelled { noteFailure(error, key, policy, entry) }
      throw error
    }
    backoff.noteSuccess(key)
    let author = ChangeAuthor.producer(turn?.production)
    let expiry = result.expiry ?? policy.expiry
    switch result.answer {
    case .value(let value, let tags):
      let stored: StoredValue?
      do throws(StorageError) {
        stored = try Codec.encode(value)
      } catch {
        report(error.inContext(of: "fetch", key: key, path: directoryPath))
        // Without a stored form there is nothing to share: each waiter produces its own value.
        fetches.handOver(call)
        return value
      }
      await store(key, call) { store, hook throws(StorageError) in
        guard let stored else { return try store.engine.remove(key, by: author, hook: hook) }
        try EntryDetails.check(tags, path: store.directoryPath)
        try store.write(
          stored, forKey: key, expiry, EntryDetails(kept: policy.kept, tags: tags),
          durable: false, by: author, hook: hook)
      }
      fetches.finish(call, with: .value(stored))
      return value
    case .unchanged(let tags):
      guard let (stored, entry) = old else {
        throw StorageError(
          .misuse, operation: "fetch", key: key, path: directoryPath,
          reason: "the producer returned .unchanged, but there is no old entry",
          remedy: "Return .value if the producer gets nil.")
      }
      await store(key, call) { store, hook throws(StorageError) in
        try store.renew(
          entry, key, expiry, kept: policy.kept, tags: tags ?? entry.tags, by: author, hook: hook)
      }
      fetches.finish(call, with: .value(stored))
      return try decode(stored, key)
    case .gone:
      await store(key, call) { store, hook throws(StorageError) in
        let options = policy.nilExpiry.flatMap { WriteOptions($0, isDurable: false, by: author) }
        guard let options else { return try store.engine.remove(key, by: author, hook: hook) }
        try store.engine.writeNoValue(forKey: key, options, hook: hook)
      }
      fetches.finish(call, with: .value(nil))
      return nil
    }
  }

  /// Delays the next attempt after a failure, and reports it if the old value is returned instead.
  private func noteFailure(
    _ failure: any Error, _ key: String, _ policy: FetchPolicy, _ entry: StaleEntry
  ) {
    guard entry.isStale(for: max(policy.staleFor, policy.staleIfFailing)) else { return }
    backoff.noteFailure(key)
    report(
      StorageError(
        .fetchFailed, operation: "fetch", key: key, path: directoryPath,
        reason: "the producer threw \(StorageError.text(of: failure)), so the value is an expired "
          + "one from the cache",
        remedy: "Nothing need be done: a later fetch tries again.", underlyingError: failure
      ).asWarning)
  }

  /// Counts what a fetch has found, which may look several times, as a hit or a miss.
  private func count(_ result: CacheLookup?) {
    if let result, let engine = try? engine { engine.counts.add(result) }
  }

  /// Looks for an entry. Nothing is counted.
  private func lookUp<T: Codable>(
    _ key: String, _ policy: FetchPolicy, isolation: isolated (any Actor)?
  ) async throws -> FetchLookup<T> {
    let findsNoValue = policy.nilExpiry != nil
    let result = try await perform { store -> CacheLookup? in
      do throws(StorageError) {
        return try store.engine.find(key, noValue: findsNoValue)
      } catch {
        store.report(error.inContext(of: "fetch", key: key, path: store.directoryPath))
        return nil
      }
    }
    return (usable(result?.found ?? .missing, key, policy), result)
  }

  /// What can be used of an entry. One that cannot be decoded is reported, and counts as missing.
  private func usable<T: Codable>(
    _ found: FoundEntry, _ key: String, _ policy: FetchPolicy
  ) -> Usable<T> {
    do throws(StorageError) {
      switch found {
      case .missing: return .missing
      case .noValue: return .noValue
      case .fresh(let payload):
        let stored = try storedValue(payload, key)
        return .fresh(stored, try Codec.decode(stored))
      case .stale(let entry):
        if policy.kept == 0 { return .missing }
        let stored = try storedValue(entry.payload, key)
        return .stale(stored, try Codec.decode(stored), entry)
      }
    } catch {
      report(error.inContext(of: "fetch", key: key, path: directoryPath))
      return .missing
    }
  }

  /// Runs `change` on another thread unless the key was changed in the meantime; reports a failure.
  private func store(
    _ key: String, _ call: InFlightFetches.Call,
    _ change: @escaping @Sendable (DiskCache.Store, CommitHook) throws(StorageError) -> Void
  ) async {
    await withCheckedContinuation { continuation in
      BlockingWork.start { [self] in
        let hook: CommitHook = { commit throws(StorageError) in
          if InFlightFetches.shared.isCurrentProducer(call) { try commit() }
        }
        do throws(StorageError) {
          try change(self, hook)
        } catch {
          report(error.inContext(of: "fetch", key: key, path: directoryPath))
        }
        continuation.resume()
      }
    }
  }

  /// Stores a value again that has not changed, without writing it if its entry is still there.
  private func renew(
    _ entry: StaleEntry, _ key: String, _ expiry: DiskCache.Expiry, kept: Int64,
    tags: [String: String], by author: ChangeAuthor, hook: CommitHook
  ) throws(StorageError) {
    try EntryDetails.check(tags, path: directoryPath)
    let details = EntryDetails(kept: kept, tags: tags)
    guard let options = WriteOptions(expiry, details, isDurable: false, by: author) else {
      return try engine.remove(key, by: author, hook: hook)
    }
    do throws(StorageError) {
      if try engine.renew(entry, forKey: key, options, hook: hook) { return }
      // Another process has stored a newer value, unless the entry was evicted.
      guard case .missing = try engine.find(key, noValue: true).found else { return }
    } catch  where error.code == .accessDenied {
      // Only its owner may set the times of a file.
    }
    try engine.write(entry.payload, forKey: key, options, hook: hook)
  }

  /// The value that another call produced, as the type that this call asks for.
  func decode<T: Codable>(_ stored: StoredValue?, _ key: String) throws(StorageError) -> T {
    try withContext("fetch", key, path: directoryPath) { () throws(StorageError) in
      if let stored { return try Codec.decode(stored) }
      if let type = T.self as? any ExpressibleByNilLiteral.Type,
        let value = type.init(nilLiteral: ()) as? T
      {
        return value
      }
      throw StorageError(
        .wrongType, operation: "fetch",
        reason: "the fetch that this call joined returned nil, but \(T.self) was requested",
        remedy: "Use one type for each key.")
    }
  }
}

extension StaleEntry {
  /// Whether the entry has expired for less than this many nanoseconds.
  fileprivate func isStale(for length: Int64) -> Bool {
    WallClock.now < expired.addingSaturated(length)
  }
}

/// A fetch in the background, of a type that its task need not know.
protocol AnyBackgroundFetch: Sendable {
  func run(
    _ call: InFlightFetches.Call, _ store: DiskCache.Store, _ key: String, _ policy: FetchPolicy,
    isolation: isolated (any Actor)?
  ) async
}

struct BackgroundFetch<T: Codable>: AnyBackgroundFetch {
  enum Producer {
    case value(@Sendable () async throws -> T)
    case result(
      @Sendable (DiskCache.CachedValue<T>?) async throws -> DiskCache.FetchResult<T>)
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
    isolation: isolated (any Actor)?
  ) async {
    let fetches = InFlightFetches.shared
    defer { fetches.leave(call) }
    do {
      // The fetch that found the old entry was counted.
      _ = try await store.readOrProduce(
        call, key, policy, isCounted: false, isolation: isolation
      ) { old in
        try await produce(old, isolation: isolation)
      }
    } catch {
      fetches.finish(call, with: .failure(error))
    }
  }
}
