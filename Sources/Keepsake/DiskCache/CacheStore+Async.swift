public import FoundationEssentials

extension DiskCache.Store {
  /// Runs `body` with this store on a concurrent queue, so that the caller's thread does not wait
  /// for the disk.
  ///
  /// ```swift
  /// let names = try await DiskCache.shared.perform { store in try store.keys() }
  /// ```
  ///
  /// - Returns: What `body` returns.
  /// - Throws: What `body` throws, or `CancellationError` if the task was cancelled before `body`
  ///   started.
  @discardableResult
  public func perform<R>(
    _ body: sending @escaping (DiskCache.Store) throws -> sending R
  ) async throws -> sending R {
    // The closure is transferred rather than shared: this function does not use it again.
    nonisolated(unsafe) let body = body
    return try await BlockingWork.run { try body(self) }
  }

  // MARK: Fetching

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
    let fetches = InFlightFetches.shared
    let call = fetches.makeCall(to: InFlightFetches.Target(self, key))
    defer { fetches.leave(call) }
    switch await fetches.join(call) {
    case .cancelled: throw CancellationError()
    case .failure(let error): throw error
    case .value(let stored): return try decode(stored, key)
    case .produce:
      return try await withTaskCancellationHandler {
        do {
          return try await readOrProduce(call, key, expiry, isolation: isolation, produce)
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

  /// The value of a typed key, or the value that `produce` returns, which is then stored.
  ///
  /// See ``fetch(_:expiry:isolation:_:)``, which throws the same errors.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: DiskCache.Key<T>, isolation: isolated (any Actor)? = #isolation,
    _ produce: () async throws -> T
  ) async throws -> T {
    try await fetch(key.name, expiry: key.expiry, isolation: isolation, produce)
  }

  private func readOrProduce<T: Codable>(
    _ call: InFlightFetches.Call, _ key: String, _ expiry: DiskCache.Expiry,
    isolation: isolated (any Actor)?, _ produce: () async throws -> T
  ) async throws -> T {
    if let (stored, value): (StoredValue, T) = try await readUsable(key) {
      InFlightFetches.shared.finish(call, with: .value(stored))
      return value
    }
    try Task.checkCancellation()
    let value = try await InFlightFetches.$producing.withValue(
      InFlightFetches.producing + [call], operation: produce, isolation: isolation)
    let stored: StoredValue?
    do throws(StorageError) {
      stored = try Codec.encode(value)
    } catch {
      report(error.inContext(of: "set", key: key, path: directoryPath))
      // Without a stored form there is nothing to share: each waiter produces its own value.
      InFlightFetches.shared.handOver(call)
      return value
    }
    await store(stored, forKey: key, expiry, call)
    InFlightFetches.shared.finish(call, with: .value(stored))
    return value
  }

  /// The stored value; nil if there is none, or if it was reported as unusable.
  private func readUsable<T: Codable>(
    _ key: String, isolation: isolated (any Actor)? = #isolation
  ) async throws -> (StoredValue, T)? {
    let stored = try await perform { store -> StoredValue? in
      do throws(StorageError) {
        return try store.value(key)
      } catch {
        store.report(error.inContext(of: "model", key: key, path: store.directoryPath))
        return nil
      }
    }
    guard let stored else { return nil }
    do throws(StorageError) {
      return (stored, try Codec.decode(stored))
    } catch {
      report(error.inContext(of: "model", key: key, path: directoryPath))
      return nil
    }
  }

  /// Stores a produced value unless the key was changed in the meantime; reports a failure.
  private func store(
    _ stored: StoredValue?, forKey key: String, _ expiry: DiskCache.Expiry,
    _ call: InFlightFetches.Call
  ) async {
    await withCheckedContinuation { continuation in
      BlockingWork.start { [self] in
        let hook: CommitHook = { commit throws(StorageError) in
          if InFlightFetches.shared.isCurrentProducer(call) { try commit() }
        }
        do throws(StorageError) {
          if let stored {
            try write(stored, forKey: key, expiry, durable: false, hook: hook)
          } else {
            try engine.remove(key, hook: hook)
          }
        } catch {
          report(error.inContext(of: "set", key: key, path: directoryPath))
        }
        continuation.resume()
      }
    }
  }

  /// The value that another call produced, as the type that this call asks for.
  private func decode<T: Codable>(_ stored: StoredValue?, _ key: String) throws(StorageError) -> T {
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

  // MARK: Large values

  /// Stores the contents of a file; where the file system supports it, the two share their blocks
  /// until one of them changes.
  ///
  /// The contents are never held in memory whole.
  ///
  /// - Throws: ``StorageError`` if the file cannot be read or the value was not stored. The key
  ///   then has its old value or no entry; if only updating ``totalSize`` failed, it has the new
  ///   value.
  public func set(
    contentsOf file: URL, forKey key: String, expiry: DiskCache.Expiry = .never,
    durable: Bool = false
  ) throws(StorageError) {
    try withContext("set", key) { () throws(StorageError) in
      let source = try File(DirectoryFinder.path(of: file, operation: "set"), .read)
      guard let expiry = StoredExpiry(expiry, now: WallClock.now) else { return try remove(key) }
      let writer = try engine.startWriting(key)
      try writer.append(contentsOf: source)
      try writer.finish(
        WriteOptions(expiry: expiry, isDurable: durable), hook: invalidatingFetch(of: key))
    }
  }

  /// Stores the chunks of a sequence, such as a download, once the sequence has ended.
  ///
  /// ```swift
  /// try await DiskCache.shared.set(chunks: body, forKey: "film", total: length) { done, total in
  ///   print(done, "of", total ?? 0)
  /// }
  /// ```
  ///
  /// The value is never held in memory whole. The key keeps its old value until the sequence has
  /// ended; if the sequence throws or the task is cancelled, nothing is left behind.
  ///
  /// Chunks are pieces of any size, such as `Data` or `[UInt8]`. `progress` is called after each
  /// chunk, in the caller's isolation, with the number of bytes so far and with `total`.
  ///
  /// - Throws: What the sequence throws, `CancellationError`, or what
  ///   ``set(contentsOf:forKey:expiry:durable:)`` throws.
  public func set<Chunks: AsyncSequence>(
    chunks: Chunks, forKey key: String, expiry: DiskCache.Expiry = .never, durable: Bool = false,
    total: Int? = nil, isolation: isolated (any Actor)? = #isolation,
    progress: (_ bytes: Int, _ total: Int?) -> Void = { _, _ in }
  ) async throws where Chunks.Element: Sequence<UInt8> {
    let writer = try await perform { store in
      try store.withContext("set", key) { () throws(StorageError) in
        if let total {
          try CacheSizeLimit.check(total, within: store.sizeLimit, path: store.directoryPath)
        }
        return try store.engine.startWriting(key)
      }
    }
    var iterator = chunks.makeAsyncIterator()
    while let chunk = try await iterator.next(isolation: isolation) {
      let bytes = Array(chunk)
      try await perform { store in
        try store.withContext("set", key) { () throws(StorageError) in
          try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in
            try writer.append(bytes)
          }
        }
      }
      progress(writer.count, total)
    }
    try await perform { store in
      try store.withContext("set", key) { () throws(StorageError) in
        guard let expiry = StoredExpiry(expiry, now: WallClock.now) else {
          return try store.remove(key)
        }
        try writer.finish(
          WriteOptions(expiry: expiry, isDurable: durable), hook: store.invalidatingFetch(of: key))
      }
    }
  }
}
