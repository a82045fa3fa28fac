internal import FoundationEssentials
internal import Keepsake

extension TieredCache {
  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    try files.requireSize(payload.bytes.count, key)
    let content = SharedEntry.Content(payload.kind, size: payload.bytes.count)
    try publish(content, payload.bytes.span.bytes, forKey: key, options) {
      (options) throws(StorageError) in
      try files.write(payload, forKey: key, options, hook: hook)
    }
  }

  func startWriting(_ key: String) throws(StorageError) -> any CacheWriter {
    TieredWriter(self, try files.startWritingFile(key), key)
  }

  func writeNoValue(
    forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    try publish(.noValue, Data().span.bytes, forKey: key, options) {
      (options) throws(StorageError) in
      try files.writeNoValue(forKey: key, options, hook: hook)
    }
  }

  func renew(
    _ stale: CachedEntry, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) -> Bool {
    let payload = stale.payload
    let content = SharedEntry.Content(payload.kind, size: payload.bytes.count)
    try publish(content, payload.bytes.span.bytes, forKey: key, options) {
      (options) throws(StorageError) in
      do throws(StorageError) {
        if try files.renew(stale, forKey: key, options, hook: hook) { return }
      } catch  where error.code == .accessDenied {
        // Only its owner may set the times of a file.
      }
      try files.write(payload, forKey: key, options, hook: hook)
    }
    // If not, a newer change has ended the production, and counts.
    return true
  }

  /// Stores a value on the server, and then on this machine.
  ///
  /// If the server is away, the value is on this machine alone.
  ///
  /// - Parameter write: Stores it on this machine.
  fileprivate func publish(
    _ content: SharedEntry.Content, _ payload: RawSpan, forKey key: String,
    _ options: WriteOptions, _ write: (WriteOptions) throws(StorageError) -> Void
  ) throws(StorageError) {
    try files.requireKey(key)
    followOnce()
    let production = options.production
    if let production, production.lease == nil {
      return try storeProduced(key, production, options, write: write)
    }
    let (shared, bytes) = payload.withUnsafeBytes { payload in
      let shared = SharedEntry(content, payload: payload, options)
      return (shared, shared.bytes(with: payload))
    }
    var isShared = content != .tooLarge
    let call = withKnown { $0.begin(key) }
    defer { withKnown { $0.end(call) } }
    let number: UInt64
    do throws(StorageError) {
      try sendUnsent(about: key)
      let reply = try tier.write(
        bytes, name: shared.version.name, lifetime: shared.lifetime, forKey: key,
        production: production?.lease?.production)
      if let lease = production?.lease { noteEnd(of: lease) }
      noteSuccess()
      // If not, another machine, or another task, has changed the key since the lease was taken.
      guard let reply else { return }
      number = reply.number
      if !reply.isStored { isShared = false }
      if let failure = reply.failure {
        if reply.isStored {
          report(failure.inContext(of: "set", key: key, path: failure.path))
        } else {
          noteFailure(failure, of: "set", key)
        }
      }
    } catch {
      noteFailure(error, of: "set", key)
      if let told = withKnown({ $0.version(named: shared.version.name, of: key) }) {
        // Only the reply is lost. The server may have refused to store the value.
        number = told.number
        isShared = false
      } else if let production {
        return try storeProduced(key, production, options, write: write)
      } else {
        withKnown { $0.noteUnsent(.entry(shared.version), key) }
        return try write(options.with(shared.version, if: isNewest(key, shared.version)))
      }
    }
    let version = EntryVersion(number: number, name: shared.version.name)
    withKnown { known in
      let use = shared.use(remaining: shared.lifetime)
      _ = known.noteChange(.entry(version), number, call, use: use)
    }
    do throws(StorageError) {
      try write(options.with(version, if: isNewest(key, version)))
    } catch {
      removeSoon(key)
      guard isShared else { throw error }
      // All machines have the value, and this one reads it from the server.
      report(error.inContext(of: "set", key: key, path: directory))
    }
  }

  private func isNewest(_ key: String, _ version: EntryVersion) -> @Sendable () -> Bool {
    { self.withKnown { $0.isNewest(key, .entry(version)) } }
  }

  /// Stores a value that was produced on this machine alone, unless the key was changed since the
  /// producer began.
  private func storeProduced(
    _ key: String, _ production: SharedProduction, _ options: WriteOptions,
    write: (WriteOptions) throws(StorageError) -> Void
  ) throws(StorageError) {
    try write(
      options.with(nil) {
        self.withKnown { $0.noteProduced(.entry(nil), key, since: production.began) }
      })
  }

  // MARK: Removing

  func remove(
    _ key: String, by production: SharedProduction?, hook: CommitHook
  ) throws(StorageError) {
    try files.requireKey(key)
    followOnce()
    if let production, production.lease == nil {
      return try removeProduced(key, production, hook: hook)
    }
    let call = withKnown { $0.begin(key) }
    defer { withKnown { $0.end(call) } }
    var failure: StorageError?
    do throws(StorageError) {
      try sendUnsent(about: key)
      let reply = try tier.remove(key, production: production?.lease?.production)
      if let lease = production?.lease { noteEnd(of: lease) }
      noteSuccess()
      guard let reply else { return }
      failure = reply.failure
      withKnown { _ = $0.noteChange(.nothing, reply.number, call) }
    } catch {
      if let production {
        noteFailure(error, of: "remove", key)
        return try removeProduced(key, production, hook: hook)
      }
      failure = error.becauseOthersWereNotTold
      withKnown { $0.noteUnsent(.nothing, key) }
    }
    do throws(StorageError) {
      // Unless it was set in the meantime.
      try files.remove(key, if: { [self] in withKnown { $0.isNewest(key, .nothing) } }, hook: hook)
    } catch {
      removeSoon(key)
      throw error
    }
    guard let failure else { return }
    if production != nil { return noteFailure(failure, of: "remove", key) }
    throw failure
  }

  /// Removes an entry because a producer of this machine alone has found that there is no value.
  private func removeProduced(
    _ key: String, _ production: SharedProduction, hook: CommitHook
  ) throws(StorageError) {
    try files.remove(
      key, if: { [self] in withKnown { $0.noteProduced(.nothing, key, since: production.began) } },
      hook: hook)
  }

  func removeAll() throws(StorageError) {
    followOnce()
    var failure: StorageError?
    do throws(StorageError) {
      failure = try sending.withLock { _ throws(StorageError) in try removeAllOnServer() }
      noteSuccess()
    } catch {
      failure = error.becauseOthersWereNotTold
      withKnown { $0.noteAllUnsent() }
    }
    do throws(StorageError) {
      try files.removeAll()
    } catch {
      withKnown { $0.outdateAll() }
      throw error
    }
    if let failure { throw failure }
  }
}

extension WriteOptions {
  /// The same for an entry of this version.
  fileprivate func with(
    _ version: EntryVersion?, if condition: @escaping @Sendable () -> Bool
  ) -> WriteOptions {
    let details = EntryDetails(
      kept: details?.kept ?? 0, tags: details?.tags ?? [:], version: version)
    return WriteOptions(
      expiry: expiry, details: details, isDurable: isDurable, by: production, if: condition)
  }
}

extension StorageError {
  /// The failure of a removal that was made on this machine.
  fileprivate var becauseOthersWereNotTold: StorageError {
    StorageError(
      code, operation: operation, key: key, path: path,
      reason: "removed on this machine, but the server may not know: "
        + (reason ?? code.description),
      remedy: remedy, underlyingError: underlyingError)
  }
}

/// Writes an entry in pieces to a file of this machine, and then stores it on the server too.
private final class TieredWriter: CacheWriter {
  private let cache: TieredCache
  private let writer: FileEntryWriter
  private let key: String

  init(_ cache: TieredCache, _ writer: FileEntryWriter, _ key: String) {
    self.cache = cache
    self.writer = writer
    self.key = key
  }

  var count: Int { writer.count }

  func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError) { try writer.append(bytes) }

  func append(contentsOf file: File) throws(StorageError) {
    try writer.append(contentsOf: file)
  }

  func finish(_ options: WriteOptions, hook: CommitHook) throws(StorageError) {
    let content = SharedEntry.Content(.data, size: count)
    let bytes = content == .tooLarge ? [] : try writer.contents()
    try cache.publish(content, bytes.span.bytes, forKey: key, options) {
      (options) throws(StorageError) in
      try writer.finish(options, hook: hook)
    }
  }
}
