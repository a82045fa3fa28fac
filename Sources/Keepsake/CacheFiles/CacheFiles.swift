internal import FoundationEssentials
internal import Synchronization

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A cache of payload files with sidecars; see the article on its format.
final class CacheFiles: CacheEngine {
  let location: CacheLocation
  let timeout: Duration
  let counts = CacheCounts()
  private let onFailure: @Sendable (StorageError) -> Void
  private let current = Locked<CacheSession?>(nil)
  private let limit = Atomic(Int.max)
  let evicting = Locked(())

  init(
    location: CacheLocation, timeout: Duration = .seconds(10),
    onFailure: @escaping @Sendable (StorageError) -> Void
  ) {
    self.location = location
    self.timeout = timeout
    self.onFailure = onFailure
  }

  var folder: String? { location.root }
  var container: String? { location.host.path }

  var sizeLimit: Int? {
    get {
      let bytes = limit.load(ordering: .relaxed)
      return bytes == .max ? nil : bytes
    }
    set {
      limit.store(newValue.map { max(0, $0) } ?? .max, ordering: .relaxed)
      if newValue != nil { evictSoon() }
    }
  }

  /// Hands on what failed where there is no caller.
  func report(_ error: StorageError) { onFailure(error) }

  // MARK: Sessions

  /// What is open; nil when there is no cache yet.
  func session() throws(StorageError) -> CacheSession? {
    try current.withLock { session throws(StorageError) in
      if let session, session.generation == ForkGuard.generation { return session }
      session = try location.openForReading(timeout: timeout)
      return session
    }
  }

  /// What is open for writing, made where it is missing.
  func writingSession() throws(StorageError) -> CacheSession {
    let (session, isNew) = try current.withLock { session throws(StorageError) in
      if let session, session.ledger != nil, session.generation == ForkGuard.generation {
        return (session, false)
      }
      let opened = try location.openForWriting(timeout: timeout)
      session = opened
      return (opened, true)
    }
    if isNew { tidyUp(session) }
    return session
  }

  /// Lets go of what is open: its lock file or its folder was removed.
  func drop(_ session: CacheSession) {
    current.withLock { if $0 === session { $0 = nil } }
  }

  // MARK: Reading

  /// What looking at an entry's files found.
  enum Look {
    case absent
    /// Or not tied to each other: one is newer, or damaged, or a writer is between the two.
    case mixed
    case expired
    case present(EntryMemory.Known, Data?)
  }

  func read(_ key: String) throws(StorageError) -> Payload? {
    let found = try find(key, readsPayload: true)
    counts.count(found == nil ? \.misses : \.hits)
    guard let found, let data = found.data else { return nil }
    return Payload(bytes: data, kind: found.known.kind)
  }

  func contains(_ key: String) throws(StorageError) -> Bool {
    try find(key, readsPayload: false) != nil
  }

  func path(_ key: String) throws(StorageError) -> String? {
    try find(key, readsPayload: false)?.name.path
  }

  func entry(_ key: String) throws(StorageError) -> DiskCache.Entry? {
    guard let known = try find(key, readsPayload: false)?.known else { return nil }
    return DiskCache.Entry(
      size: known.size, created: known.created,
      end: known.lifespan.end(created: known.created, used: known.used))
  }

  private func find(
    _ key: String, readsPayload: Bool
  ) throws(StorageError) -> (name: EntryName, known: EntryMemory.Known, data: Data?)? {
    guard let session = try session() else { return nil }
    let name = try EntryName(key: key, rules: session.rules)
    // A writer needs microseconds between its two files: then they fit again.
    for _ in 0..<3 {
      switch try look(name, key, session, readsPayload: readsPayload) {
      case .absent: return nil
      case .present(let known, let data):
        noteUse(name, known, session)
        return (name, known, data)
      case .expired:
        // Waiting for another writer is not a reader's business: who sees it next removes it.
        _ = try withoutWaiting(name, session) { ledger throws(StorageError) in
          try removeIfOver(name, key, session, ledger)
        }
        return nil
      case .mixed: continue
      }
    }
    let last = try withoutWaiting(name, session) { ledger throws(StorageError) in
      try settle(name, key, session, ledger, readsPayload: readsPayload)
    }
    guard case .present(let known, let data)? = last else { return nil }
    return (name, known, data)
  }

  /// What `body` returns under the key's lock; nil when somebody else has it, or this process may not
  /// write.
  private func withoutWaiting<R>(
    _ name: EntryName, _ session: CacheSession,
    _ body: (CacheLedger) throws(StorageError) -> R
  ) throws(StorageError) -> R? {
    do throws(StorageError) {
      guard case .done(let result) = try session.withKeyLock(name, timeout: nil, body) else {
        return nil
      }
      return result
    } catch  where error.code == .accessDenied {
      return nil
    }
  }

  /// Looks at the files of one entry, without a lock.
  ///
  /// - Parameter trusting: Whether a payload may be known already, and must have the very time that
  ///   its sidecar says; otherwise its checksum decides alone.
  func look(
    _ name: EntryName, _ key: String?, _ session: CacheSession, readsPayload: Bool,
    trusting: Bool = true
  ) throws(StorageError) -> Look {
    var file: File?
    let payload: FileStatus
    if readsPayload {
      guard let opened = try File.ifPresent(name.path) else { return .absent }
      file = opened
      payload = try opened.status(withTimes: true)
    } else {
      guard let status = try FileSystem.status(name.path, withTimes: true) else { return .absent }
      payload = status
    }
    if payload.isFolder { return .mixed }
    let now = WallClock.now
    if trusting, let known = session.memory.known(name, as: payload), !known.isOver(at: now),
      known.isSummed || !readsPayload
    {
      guard let file else { return .present(known, nil) }
      guard let data = try file.data(count: payload.size) else { return .mixed }
      return .present(known, data)
    }

    guard let (sidecar, touched) = try readSidecar(name, keyLength: key?.utf8.count) else {
      return .mixed
    }
    if let key, !sidecar.key.elementsEqual(key.utf8) { return name.isHashed ? .absent : .mixed }
    let isTied = sidecar.belongs(to: payload)
    guard isTied || sidecar.size == payload.size && (!trusting || sidecar.modified == 0) else {
      return .mixed
    }
    var known = EntryMemory.Known(
      inode: payload.inode, size: payload.size, modified: payload.modified,
      changed: payload.changed, keyID: name.keyID, kind: sidecar.kind,
      lifespan: sidecar.lifespan, created: sidecar.created, used: touched, noted: touched,
      isSummed: false)
    if known.isOver(at: now) { return .expired }
    var data: Data?
    if let file {
      guard let bytes = try file.data(count: payload.size),
        bytes.withUnsafeBytes({ StreamChecksum.sum($0) }) == sidecar.checksum
      else { return .mixed }
      data = bytes
      known.isSummed = true
    }
    // Without a time of its own a payload is not to be told from the next one.
    if isTied, key != nil { session.memory.remember(known, of: name) }
    return .present(known, data)
  }

  /// The sidecar, and when the entry was last used as far as that matters to its lifespan; nil when
  /// it is missing or damaged.
  func readSidecar(
    _ name: EntryName, keyLength: Int?
  ) throws(StorageError) -> (Sidecar, used: Int64)? {
    guard let file = try File.ifPresent(name.sidecarPath) else { return nil }
    let bytes: [UInt8]
    do throws(StorageError) {
      bytes = try file.read(
        from: 0, count: Sidecar.headerSize + (keyLength ?? EntryName.longestKey))
    } catch  where error.code.systemError == EISDIR {
      return nil
    }
    let sidecar: Sidecar
    do throws(Sidecar.Failure) {
      sidecar = try Sidecar(bytes)
    } catch .newerVersion {
      throw StorageError(
        .unsupportedVersion, operation: "open", path: name.sidecarPath,
        reason: "a newer version of this library wrote it",
        remedy: "Use that version, or remove the entry.")
    } catch {
      return nil
    }
    guard case .idle = sidecar.lifespan else { return (sidecar, sidecar.created) }
    return (sidecar, try file.status(withTimes: true).modified)
  }

  private func noteUse(_ name: EntryName, _ known: EntryMemory.Known, _ session: CacheSession) {
    let now = WallClock.now
    var noted = known.noted
    if known.isNoteDue(at: now) {
      noted = now
      // Fails where this process may only read: then others decide what is old.
      _ = try? FileSystem.touch(name.sidecarPath)
    }
    session.memory.note(name, used: now, noted: noted)
  }
}
