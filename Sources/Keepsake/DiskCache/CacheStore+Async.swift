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
  /// - Throws: What `body` throws, or `CancellationError` when the task was cancelled before it
  ///   began.
  @discardableResult
  public func perform<R>(
    _ body: sending @escaping (DiskCache.Store) throws -> sending R
  ) async throws -> sending R {
    // Handed over, not shared: this function does not use it again.
    nonisolated(unsafe) let body = body
    return try await BlockingWork.run { try body(self) }
  }

  // MARK: Fetching

  /// The entry's value, or else what `produce` returns, which is stored for the next time.
  ///
  /// ```swift
  /// let article: Article = try await DiskCache.shared.fetch("article_1", expiry: .minutes(5)) {
  ///   try await download()
  /// }
  /// ```
  ///
  /// However many tasks of this process ask for the key at once, one produces, in its own
  /// isolation, and the others wait for what it gets. If that one is cancelled the next takes over;
  /// if it fails all who wait get its error, and nothing is stored. What is set or removed
  /// meanwhile is newer and stays. A nil is not stored. A value that cannot be stored is returned
  /// all the same, and the failure reported to ``StorageSystem/onFailure``, as is an entry that
  /// cannot be read as a `T` and is produced anew.
  ///
  /// - Throws: What `produce` throws, `CancellationError`, or a ``StorageError`` of code
  ///   `wrongType` or `decodingFailed` when the task that produced the value stores another type
  ///   under this key.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: String, expiry: DiskCache.Expiry = .never,
    isolation: isolated (any Actor)? = #isolation, _ produce: () async throws -> T
  ) async throws -> T {
    let flights = InFlightFetches.shared
    let passenger = flights.makePassenger(to: InFlightFetches.Destination(self, key))
    defer { flights.leave(passenger) }
    switch await flights.board(passenger) {
    case .cancelled: throw CancellationError()
    case .failure(let error): throw error
    case .value(let stored): return try value(of: stored, key)
    case .lead:
      return try await withTaskCancellationHandler {
        do {
          return try await lead(passenger, key, expiry, isolation: isolation, produce)
        } catch {
          // A leader that was cancelled speaks for itself alone. Its handler may not have run yet.
          if Task.isCancelled { flights.handOver(passenger) }
          flights.land(passenger, .failure(error))
          throw error
        }
      } onCancel: {
        flights.handOver(passenger)
      }
    }
  }

  /// The value of a typed key, or else what `produce` returns; see
  /// ``fetch(_:expiry:isolation:_:)``.
  @discardableResult
  public func fetch<T: Codable>(
    _ key: DiskCache.Key<T>, isolation: isolated (any Actor)? = #isolation,
    _ produce: () async throws -> T
  ) async throws -> T {
    try await fetch(key.name, expiry: key.expiry, isolation: isolation, produce)
  }

  private func lead<T: Codable>(
    _ passenger: InFlightFetches.Passenger, _ key: String, _ expiry: DiskCache.Expiry,
    isolation: isolated (any Actor)?, _ produce: () async throws -> T
  ) async throws -> T {
    if let (stored, value): (StoredValue, T) = try await look(for: key) {
      InFlightFetches.shared.land(passenger, .value(stored))
      return value
    }
    try Task.checkCancellation()
    let value = try await InFlightFetches.$led.withValue(
      InFlightFetches.led + [passenger], operation: produce, isolation: isolation)
    let stored: StoredValue?
    do throws(StorageError) {
      stored = try Codec.encode(value)
    } catch {
      report(error.inContext(of: "set", key: key, path: place))
      // Those who wait cannot share what has no stored form: each produces its own.
      InFlightFetches.shared.handOver(passenger)
      return value
    }
    await keep(stored, forKey: key, expiry, passenger)
    InFlightFetches.shared.land(passenger, .value(stored))
    return value
  }

  /// What is stored already; nil as well when it cannot be used.
  private func look<T: Codable>(
    for key: String, isolation: isolated (any Actor)? = #isolation
  ) async throws -> (StoredValue, T)? {
    let stored = try await perform { store -> StoredValue? in
      do throws(StorageError) {
        return try store.value(key)
      } catch {
        store.report(error.inContext(of: "model", key: key, path: store.place))
        return nil
      }
    }
    guard let stored else { return nil }
    do throws(StorageError) {
      return (stored, try Codec.decode(stored))
    } catch {
      report(error.inContext(of: "model", key: key, path: place))
      return nil
    }
  }

  private func keep(
    _ stored: StoredValue?, forKey key: String, _ expiry: DiskCache.Expiry,
    _ passenger: InFlightFetches.Passenger
  ) async {
    await withCheckedContinuation { continuation in
      BlockingWork.start { [self] in
        let ifStillWanted: KeyLockBody = { goOn throws(StorageError) in
          if InFlightFetches.shared.leads(passenger) { try goOn() }
        }
        do throws(StorageError) {
          if let stored {
            try write(stored, forKey: key, expiry, durable: false, within: ifStillWanted)
          } else {
            try engine.remove(key, within: ifStillWanted)
          }
        } catch {
          report(error.inContext(of: "set", key: key, path: place))
        }
        continuation.resume()
      }
    }
  }

  private func value<T: Codable>(of stored: StoredValue?, _ key: String) throws(StorageError) -> T {
    guard let stored else {
      if let type = T.self as? any ExpressibleByNilLiteral.Type,
        let none = type.init(nilLiteral: ()) as? T
      {
        return none
      }
      throw StorageError(
        .wrongType, operation: "fetch", key: key, path: place,
        reason: "what was produced is nil, asked for was \(T.self)",
        remedy: "Use one type for each key.")
    }
    do throws(StorageError) {
      return try Codec.decode(stored)
    } catch {
      throw error.inContext(of: "fetch", key: key, path: place)
    }
  }

  // MARK: Large values

  /// Stores the contents of a file; where the file system can, the two share them until one
  /// changes.
  ///
  /// The bytes never are in memory as a whole.
  ///
  /// - Throws: ``StorageError``, also when the file cannot be read; the old value is intact then.
  public func set(
    contentsOf file: URL, forKey key: String, expiry: DiskCache.Expiry = .never,
    durable: Bool = false
  ) throws(StorageError) {
    do throws(StorageError) {
      let source = try File(DirectoryFinder.path(of: file, operation: "set"), .read)
      guard let lifespan = Lifespan(expiry, now: WallClock.now) else { return try remove(key) }
      let writer = try engine.startWriting(key)
      try writer.append(contentsOf: source)
      try writer.finish(
        WriteOptions(lifespan: lifespan, isDurable: durable), within: superseding(key))
    } catch {
      throw error.inContext(of: "set", key: key)
    }
  }

  /// Stores what a sequence of chunks yields, such as a download, once it has ended.
  ///
  /// ```swift
  /// try await DiskCache.shared.set(chunks: body, forKey: "film", total: length) { done, total in
  ///   print(done, "of", total ?? 0)
  /// }
  /// ```
  ///
  /// The bytes never are in memory as a whole. Until the end the old value stays; when the sequence
  /// throws or the task is cancelled nothing is left behind.
  ///
  /// Chunks are pieces of any size, such as `Data` or `[UInt8]`. `progress` is called after each,
  /// in the caller's isolation, with the bytes so far and the total to expect, if that was given.
  ///
  /// - Throws: What the sequence throws, `CancellationError`, or a ``StorageError``.
  public func set<Chunks: AsyncSequence>(
    chunks: Chunks, forKey key: String, expiry: DiskCache.Expiry = .never, durable: Bool = false,
    total: Int? = nil, isolation: isolated (any Actor)? = #isolation,
    progress: (_ bytes: Int, _ total: Int?) -> Void = { _, _ in }
  ) async throws where Chunks.Element: Sequence<UInt8> {
    let writer = try await perform { store in
      do throws(StorageError) {
        if let total {
          try DiskCache.require(total, toFit: store.sizeLimit, path: store.place)
        }
        return try store.engine.startWriting(key)
      } catch {
        throw error.inContext(of: "set", key: key)
      }
    }
    var iterator = chunks.makeAsyncIterator()
    while let chunk = try await iterator.next(isolation: isolation) {
      let bytes = Array(chunk)
      try await perform { _ in
        do throws(StorageError) {
          try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in
            try writer.append(bytes)
          }
        } catch {
          throw error.inContext(of: "set", key: key)
        }
      }
      progress(writer.count, total)
    }
    try await perform { store in
      do throws(StorageError) {
        guard let lifespan = Lifespan(expiry, now: WallClock.now) else {
          return try store.remove(key)
        }
        try writer.finish(
          WriteOptions(lifespan: lifespan, isDurable: durable), within: store.superseding(key))
      } catch {
        throw error.inContext(of: "set", key: key)
      }
    }
  }
}
