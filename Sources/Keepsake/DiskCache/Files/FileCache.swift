internal import FoundationEssentials
internal import KeepsakeLibc
internal import Synchronization

/// A cache of payload files with sidecars; see the article on its format.
final class FileCache: CacheEngine {
  let location: CachePaths
  let timeout: Duration
  let counts = CacheCounts()
  private let onFailure: @Sendable (StorageError) -> Void
  private let current = Locked<CacheSession?>(nil)
  private let limit = Atomic(Int.max)
  let evicting = Locked(())
  let isEvictionDue = Atomic(false)
  let sweeping = Locked(())

  init(
    location: CachePaths, timeout: Duration = .seconds(10),
    onFailure: @escaping @Sendable (StorageError) -> Void
  ) {
    self.location = location
    self.timeout = timeout
    self.onFailure = onFailure
  }

  var directory: String? { location.root }
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
    try withCurrent { session throws(StorageError) in
      if let open = session, try open.isCurrent() { return open }
      session = try retrying { () throws(StorageError) in
        try location.openForReading(timeout: timeout)
      }
      return session
    }
  }

  /// What is open for writing, made where it is missing.
  func writingSession() throws(StorageError) -> CacheSession {
    let (session, isNew) = try withCurrent { session throws(StorageError) in
      if let open = session, open.ledger != nil, try open.isCurrent() { return (open, false) }
      let opened = try retrying { () throws(StorageError) in
        try location.openForWriting(timeout: timeout)
      }
      session = opened
      return (opened, true)
    }
    if isNew { tidyUp(session) }
    return session
  }

  private func withCurrent<R>(
    _ body: (inout CacheSession?) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    if let result = try current.withLock(timeout: timeout, body) { return result }
    throw StorageError(
      .timedOut, operation: "open", path: location.root,
      reason: "another thread was opening it for more than \(timeout)",
      remedy: "Look for a stopped thread of this program.")
  }

  /// Lets go of what is open: its lock file or its directory was removed.
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
    guard case .present(let known, let data?) = try find(key, readsPayload: true, isUse: true)
    else {
      counts.misses.add(1, ordering: .relaxed)
      return nil
    }
    counts.hits.add(1, ordering: .relaxed)
    return Payload(bytes: data, kind: known.kind)
  }

  func contains(_ key: String) throws(StorageError) -> Bool {
    guard case .present = try find(key, readsPayload: false, isUse: false) else { return false }
    return true
  }

  func path(_ key: String) throws(StorageError) -> String? {
    // Whoever asks for the file is going to read it.
    guard case .present = try find(key, readsPayload: false, isUse: true),
      let session = try session()
    else { return nil }
    let name = try EntryName(key: key, rules: session.rules)
    return DirectoryHandle.path(name.path, in: session.directory)
  }

  func entry(_ key: String) throws(StorageError) -> DiskCache.Entry? {
    guard case .present(let known, _) = try find(key, readsPayload: false, isUse: false) else {
      return nil
    }
    return DiskCache.Entry(
      size: known.size, created: known.created,
      end: known.lifespan.end(created: known.created, used: known.used))
  }

  private func find(
    _ key: String, readsPayload: Bool, isUse: Bool
  ) throws(StorageError) -> Look {
    guard let session = try session() else { return .absent }
    let name = try EntryName(key: key, rules: session.rules)
    // A writer needs microseconds between its two files: then they fit again.
    for _ in 0..<3 {
      let found = try look(name, key, session, readsPayload: readsPayload, isUse: isUse)
      switch found {
      case .absent: return found
      case .present(let known, _):
        if isUse { noteUse(name, known, session) }
        return found
      case .expired:
        // Waiting for another writer is not a reader's business: who sees it next removes it.
        _ = try withoutWaiting(name, session) { ledger throws(StorageError) in
          try removeIfOver(name, key, session, ledger)
        }
        return found
      case .mixed: continue
      }
    }
    return try withoutWaiting(name, session) { ledger throws(StorageError) in
      try settle(name, key, session, ledger)
    } ?? .absent
  }

  /// What `body` returns under the key's lock; nil when somebody else has it, or this process may
  /// not write.
  private func withoutWaiting<R>(
    _ name: EntryName, _ session: CacheSession,
    _ body: (CacheLedger) throws(StorageError) -> R
  ) throws(StorageError) -> R? {
    do throws(StorageError) {
      guard case .done(let result) = try session.withKeyLock(name, timeout: nil, body) else {
        return nil
      }
      return result
    } catch  where error.code == .accessDenied || error.code == .timedOut {
      return nil
    }
  }

  /// Looks at the files of one entry, without a lock.
  ///
  /// - Parameters:
  ///   - isUse: Whether it is looked at to be read, which keeps it from expiring and from eviction.
  ///   - isSettling: Under the lock it matters what the files say, not what is remembered of them,
  ///     and where the payload has another time than its sidecar says, the checksum decides.
  func look(
    _ name: EntryName, _ key: String?, _ session: CacheSession, readsPayload: Bool,
    isUse: Bool = false, isSettling: Bool = false
  ) throws(StorageError) -> Look {
    let known = isSettling ? nil : session.memory.known(name, isUse: isUse)
    guard readsPayload else {
      let seen = try FileSystem.status(name.path, in: session.directory, withTimes: true)
      guard let payload = seen else { return .absent }
      if let known, known.describes(payload, keyID: name.keyID) { return .present(known, nil) }
      return try judge(name, key, session, payload, isUse, isSettling, readsPayload: false) {
        _ in nil
      }
    }
    // A look costs half of what it does to open what is not there. Should another file come between
    // the two, then it is not the one that the sidecar speaks of.
    var seen: FileStatus?
    if known == nil, !session.expectsEntries {
      seen = try FileSystem.status(name.path, in: session.directory, withTimes: true)
      if seen == nil { return .absent }
    }
    let file = try ScopedFile(ifPresent: name.path, in: session.directory)
    if known == nil { session.expectsEntries = file != nil }
    guard let file else { return .absent }
    let payload: FileStatus
    if let seen { payload = seen } else { payload = try file.status(withTimes: true) }
    if let known, known.isSummed, known.describes(payload, keyID: name.keyID) {
      guard let data = try file.data(count: payload.size) else { return .mixed }
      return .present(known, data)
    }
    return try judge(name, key, session, payload, isUse, isSettling, readsPayload: true) {
      isRight throws(StorageError) in try file.data(count: payload.size, where: isRight)
    }
  }

  /// What an entry is of which this process knows nothing, whose payload has that status, and is
  /// read with `read`.
  private func judge(
    _ name: EntryName, _ key: String?, _ session: CacheSession, _ payload: FileStatus,
    _ isUse: Bool, _ isSettling: Bool, readsPayload: Bool,
    _ read: (_ isRight: (UnsafeRawBufferPointer) -> Bool) throws(StorageError) -> Data?
  ) throws(StorageError) -> Look {
    if payload.isDirectory { return .mixed }
    let now = WallClock.now
    let reading = try readSidecar(name, session, keyLength: key?.utf8.count) { found in
      key.map { $0.utf8.isSame(as: found) } ?? true
    }
    guard let (sidecar, touched, isOfKey) = reading else { return .mixed }
    if !isOfKey { return name.isHashed ? .absent : .mixed }
    let isTied = sidecar.belongs(to: payload)
    guard isTied || sidecar.size == payload.size && (isSettling || sidecar.modified == 0) else {
      return .mixed
    }
    var known = EntryMemory.Known(
      inode: payload.inode, size: payload.size, modified: payload.modified,
      changed: payload.changed, keyID: name.keyID, created: sidecar.created, used: touched,
      noted: touched, lifespan: sidecar.lifespan, kind: sidecar.kind, isSummed: false)
    if known.isOver(at: now) { return .expired }
    if isUse { known.used = now }
    var data: Data?
    if readsPayload {
      data = try read { StreamChecksum.sum($0) == sidecar.checksum }
      if data == nil { return .mixed }
      known.isSummed = true
    }
    // Without a time of its own a payload is not to be told from the next one.
    if isTied, key != nil { session.memory.remember(known, of: name) }
    return .present(known, data)
  }

  /// The sidecar, when the entry was last used as far as that matters to its lifespan, and what
  /// `body` makes of the key; nil when it is missing or damaged.
  func readSidecar<R>(
    _ name: EntryName, _ session: CacheSession, keyLength: Int?,
    _ body: (_ key: UnsafeRawBufferPointer) -> R
  ) throws(StorageError) -> (Sidecar, used: Int64, R)? {
    guard let file = try ScopedFile(ifPresent: name.sidecarPath, in: session.directory) else {
      return nil
    }
    let size = Sidecar.headerSize + (keyLength ?? EntryName.longestKey)
    let found = try withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) {
      (buffer) throws(StorageError) -> (Sidecar, R)? in
      do throws(StorageError) {
        let count = try file.read(from: 0, into: buffer)
        let record = UnsafeRawBufferPointer(rebasing: buffer[..<count])
        let sidecar = try Sidecar(record, path: file.path)
        return sidecar.map { ($0, body(Sidecar.key(in: record))) }
      } catch  where error.code.systemError == EISDIR {
        return nil
      }
    }
    guard let (sidecar, result) = found else { return nil }
    guard case .idle = sidecar.lifespan else { return (sidecar, sidecar.created, result) }
    return (sidecar, try file.status(withTimes: true).modified, result)
  }

  private func noteUse(_ name: EntryName, _ known: EntryMemory.Known, _ session: CacheSession) {
    guard known.isNoteDue(at: known.used) else { return }
    // Fails where this process may only read: then others decide what is old.
    _ = try? FileSystem.touch(name.sidecarPath, in: session.directory)
    session.memory.noted(name, at: known.used)
  }
}

extension Sidecar {
  /// nil for what is no record.
  fileprivate init?(
    _ bytes: UnsafeRawBufferPointer, path: @autoclosure () -> String
  ) throws(StorageError) {
    do throws(Failure) {
      try self.init(bytes)
    } catch .newerVersion {
      throw StorageError(
        .unsupportedVersion, operation: "open", path: path(),
        reason: "a newer version of this library wrote it",
        remedy: "Use that version, or remove the entry.")
    } catch {
      return nil
    }
  }
}

extension String.UTF8View {
  fileprivate func isSame(as other: UnsafeRawBufferPointer) -> Bool {
    span.bytes.withUnsafeBytes { bytes in
      guard bytes.count == other.count else { return false }
      guard let first = bytes.baseAddress, let second = other.baseAddress else { return true }
      return memcmp(first, second, bytes.count) == 0
    }
  }
}
