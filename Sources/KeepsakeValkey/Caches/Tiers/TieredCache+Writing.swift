internal import FoundationEssentials
internal import Keepsake

extension TieredCache {
  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    try files.requireSize(payload.bytes.count, key)
    try publish(payload.kind, payload.bytes, forKey: key, options) {
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
    try publish(nil, Data(), forKey: key, options) { (options) throws(StorageError) in
      try files.writeNoValue(forKey: key, options, hook: hook)
    }
  }

  func renew(
    _ stale: CachedEntry, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) -> Bool {
    let payload = stale.payload
    try publish(payload.kind, payload.bytes, forKey: key, options) {
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
  /// - Parameters:
  ///   - kind: nil for a record that there is no value.
  ///   - write: Stores it on this machine.
  private func publish(
    _ kind: Payload.Kind?, _ payload: Data, forKey key: String, _ options: WriteOptions,
    _ write: (WriteOptions) throws(StorageError) -> Void
  ) throws(StorageError) {
    let isTooLarge = payload.count > SharedEntry.largestPayload
    let content: SharedEntry.Content =
      if let kind { isTooLarge ? .tooLarge : .payload(kind) } else { .noValue }
    try publish(content, payload.span.bytes, forKey: key, options, write)
  }

  fileprivate func publish(
    _ content: SharedEntry.Content, _ payload: RawSpan, forKey key: String,
    _ options: WriteOptions, _ write: (WriteOptions) throws(StorageError) -> Void
  ) throws(StorageError) {
    try files.requireKey(key)
    followOnce()
    let production = options.author.production
    if case .producer = options.author, production?.lease == nil {
      return try storeProduced(key, production, options, write: write)
    }
    let (shared, bytes) = payload.withUnsafeBytes { payload in
      let shared = SharedEntry(content, payload: payload, options)
      return (shared, shared.bytes(with: payload))
    }
    var isShared = content != .tooLarge
    // If this fails, the write is likely to fail as well.
    let changes = try? files.changes(near: key)
    let call = withOrder { $0.beginChange(key, storing: shared.version.name) }
    defer { withOrder { $0.endChange(call) } }
    let number: UInt64
    do throws(StorageError) {
      try pending.send(to: tier, about: key, changeOrder)
      let reply = try tier.write(
        bytes, name: shared.version.name, lifetime: shared.lifetime, forKey: key,
        production: production?.lease?.production)
      if let lease = production?.lease { _ = leases.remove(lease) }
      noteSuccess()
      switch reply {
      case .made(let made): number = made
      case .unconfirmed(let made, let error):
        number = made
        report(error.inContext(of: "set", key: key, path: error.path))
      case .refused(let made, let error):
        number = made
        isShared = false
        noteFailure(error, of: "set", key)
      // Another machine, or another task, has changed the key since the lease was taken.
      case .productionEnded: return
      }
    } catch {
      noteFailure(error, of: "set", key)
      if let told = withOrder({ $0.number(of: call) }) {
        // Only the reply is lost. The server may have refused to store the value.
        number = told
        isShared = false
      } else if production != nil {
        return try storeProduced(key, production, options, after: call, write: write)
      } else {
        withOrder { order in
          if order.noteUnsent(.entry(shared.version), call) { pending.add(key) }
        }
        return try write(options.with(shared.version, if: isLatest(key, shared.version)))
      }
    }
    let version = EntryVersion(number: number, name: shared.version.name)
    withOrder { order in
      let use = shared.use(remaining: shared.lifetime)
      let isLatest = order.note(.entry(version), number, call, use: use)
      if isLatest, production == nil { pending.remove(key) }
    }
    do throws(StorageError) {
      // What is on this machine alone is stored in any case.
      let isOnlyHere = !isShared
      let isStored = Locked(false)
      try write(
        options.with(version) { [self] in
          let isWanted =
            withOrder { $0.isLatest(key, version) }
            && (isOnlyHere || !isOvertaken(key, version, since: changes))
          isStored.withLock { $0 = isWanted }
          return isWanted
        })
      if isStored.withLock({ $0 }) { withOrder { $0.noteStored(key, version) } }
    } catch {
      removeSoon(key)
      guard isShared else { throw error }
      // All machines have the value, and this one reads it from the server.
      report(error.inContext(of: "set", key: key, path: directory))
    }
  }

  /// Whether another process of this machine has stored a later entry of a key, or may have
  /// removed one. The key must be locked.
  ///
  /// - Parameter changes: Those before the server was told.
  private func isOvertaken(
    _ key: String, _ version: EntryVersion, since changes: SubdirectoryChanges?
  ) -> Bool {
    do throws(StorageError) {
      if try files.isUnchanged(near: key, since: changes) { return false }
      guard let present = try files.presentEntry(key) else { return true }
      return present.version?.isLater(than: version) == true
    } catch {
      // Nothing is stored: the next read asks the server.
      return true
    }
  }

  private func isLatest(_ key: String, _ version: EntryVersion) -> @Sendable () -> Bool {
    { self.withOrder { $0.isLatest(key, version) } }
  }

  private func producerCall(_ key: String, _ production: SharedProduction?) -> KeyOrder.Call {
    production.map { KeyOrder.Call(key, began: $0.began) } ?? withOrder { $0.begin(key) }
  }

  /// Stores a value that was produced on this machine alone, unless the key was changed since the
  /// producer began.
  private func storeProduced(
    _ key: String, _ production: SharedProduction?, _ options: WriteOptions,
    after change: KeyOrder.Call? = nil, write: (WriteOptions) throws(StorageError) -> Void
  ) throws(StorageError) {
    let call = producerCall(key, production)
    try write(
      options.with(nil) {
        self.withOrder { $0.noteProduced(.entry(nil), call, after: change) }
      })
  }

  // MARK: Removing

  func remove(
    _ key: String, by author: ChangeAuthor, hook: CommitHook
  ) throws(StorageError) {
    try files.requireKey(key)
    followOnce()
    let production = author.production
    if case .producer = author, production?.lease == nil {
      return try removeProduced(key, production, hook: hook)
    }
    let call = withOrder { $0.beginChange(key) }
    defer { withOrder { $0.endChange(call) } }
    var failure: StorageError?
    do throws(StorageError) {
      try pending.send(to: tier, about: key, changeOrder)
      let reply = try tier.remove(key, production: production?.lease?.production)
      if let lease = production?.lease { _ = leases.remove(lease) }
      noteSuccess()
      guard let made = reply.made else { return }
      failure = made.failure
      withOrder { order in
        if order.note(.nothing, made.number, call), production == nil { pending.remove(key) }
      }
    } catch {
      if production != nil {
        noteFailure(error, of: "remove", key)
        return try removeProduced(key, production, after: call, hook: hook)
      }
      failure = error.becauseOthersWereNotTold
      withOrder { order in
        if order.noteUnsent(.nothing, call) { pending.add(key) }
      }
    }
    let check = withOrder { $0.begin(key) }
    do throws(StorageError) {
      let isNoticed = try files.removeNoticeably(
        key,
        if: { [self] () throws(StorageError) in
          guard let present = try files.presentEntry(key) else { return true }
          return !withOrder { $0.mayUse(key, present.version) }
        }, hook: hook)
      if isNoticed { withOrder { $0.noteNoOlderEntry(check, hasEntry: false) } }
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
    _ key: String, _ production: SharedProduction?, after change: KeyOrder.Call? = nil,
    hook: CommitHook
  ) throws(StorageError) {
    let call = producerCall(key, production)
    _ = try files.removeNoticeably(
      key,
      if: { [self] in withOrder { $0.noteProduced(.nothing, call, after: change) } }, hook: hook)
  }

  func removeAll() throws(StorageError) {
    followOnce()
    var failure: StorageError?
    do throws(StorageError) {
      let reply = try pending.removeAll(on: tier, changeOrder)
      noteSuccess()
      guard let made = reply.made else { return }
      failure = made.failure
    } catch {
      failure = error.becauseOthersWereNotTold
      withOrder { order in
        order.noteUnsentRemovalOfAll()
        pending.addAll()
      }
    }
    do throws(StorageError) {
      try files.removeAll()
    } catch {
      withOrder { $0.outdateAll() }
      throw error
    }
    if let failure { throw failure }
  }
}

extension ChangeAuthor {
  fileprivate var production: SharedProduction? {
    if case .producer(let production) = self { return production }
    return nil
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
      expiry: expiry, details: details, isDurable: isDurable, by: author, if: condition)
  }
}

extension StorageError {
  /// The failure of a removal that was made on this machine.
  fileprivate var becauseOthersWereNotTold: StorageError {
    StorageError(
      code, operation: operation, key: key, path: path,
      reason: "removed on this machine, but the server was not told: "
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
    let isTooLarge = count > SharedEntry.largestPayload
    let bytes = isTooLarge ? [] : try writer.contents()
    try cache.publish(
      isTooLarge ? .tooLarge : .payload(.data), bytes.span.bytes, forKey: key, options
    ) { (options) throws(StorageError) in
      try writer.finish(options, hook: hook)
    }
  }
}
