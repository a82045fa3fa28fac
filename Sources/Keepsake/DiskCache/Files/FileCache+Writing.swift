internal import FoundationEssentials
internal import KeepsakeLibc

extension FileCache {
  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, within lock: KeyLockBody
  ) throws(StorageError) {
    let session = try retrying { () throws(StorageError) in
      let session = try writingSession()
      try requireRoom(payload.bytes.count, key, session)
      let name = try EntryName(key: key, rules: session.rules)
      var temporary = try makeTemporary(for: name, session)
      let content = try payload.bytes.span.bytes.withUnsafeBytes {
        (bytes) throws(StorageError) -> EntryContent in
        if let failure = temporary.file.write(bytes).failure { throw failure }
        return EntryContent(
          kind: payload.kind, size: bytes.count, checksum: StreamChecksum.sum(bytes))
      }
      try publish(&temporary, content, name, key, session, options, within: lock)
      return session
    }
    keepTidy(session)
  }

  private func makeTemporary(
    for name: EntryName, _ session: CacheSession
  ) throws(StorageError) -> TemporaryFile {
    let path = session.temporaryName(in: name.directory)
    do throws(StorageError) {
      return try TemporaryFile.make(
        at: path, for: name.path, in: session.directory, mode: session.fileMode)
    } catch  where error.code == .notFound {
      try makeDirectory(of: name, session)
      return try TemporaryFile.make(
        at: path, for: name.path, in: session.directory, mode: session.fileMode)
    }
  }

  /// Runs `body` again when the directory was removed under it, as emptying the cache does; not for
  /// ever, as what is missing may be the caller's own directory.
  func retrying<R>(_ body: () throws(StorageError) -> R) throws(StorageError) -> R {
    for _ in 0..<100 {
      do throws(StorageError) {
        return try body()
      } catch  where error.code == .notFound {}
    }
    return try body()
  }

  func startWriting(_ key: String) throws(StorageError) -> any CacheWriter {
    try retrying { () throws(StorageError) in
      let session = try writingSession()
      let name = try EntryName(key: key, rules: session.rules)
      do throws(StorageError) {
        // Not inside the cache's directory: what cannot be written twice must not go when that is
        // emptied.
        let temporary = try TemporaryFile.make(
          at: location.temporaryPath(session.temporaryName()),
          for: location.root + "/" + name.path, mode: session.fileMode)
        return FileEntryWriter(self, session, name, key, temporary)
      } catch  where error.code == .notFound {
        drop(session)
        throw error
      }
    }
  }

  /// Makes the subfolder of an entry. If the cache's own directory was removed, all is to be opened
  /// again.
  func makeDirectory(of name: EntryName, _ session: CacheSession) throws(StorageError) {
    do throws(StorageError) {
      // In the directory that is open, even if the cache is being emptied at this moment: then the
      // entry goes with the others, as if it had been stored a moment earlier.
      try FileSystem.makeDirectory(
        EntryName.directoryName(name.directory), in: session.directory, mode: session.directoryMode)
      session.durableDirectories.withLock { _ = $0.remove(name.directory) }
    } catch  where error.code == .notFound {
      drop(session)
      throw error
    }
  }

  /// Refuses what could not stay.
  func requireRoom(_ size: Int, _ key: String, _ session: CacheSession) throws(StorageError) {
    guard let sizeLimit else { return }
    try DiskCache.require(
      session.footprint(size: size, keyLength: key.utf8.count), toFit: sizeLimit,
      path: location.root)
  }

  func remove(_ key: String, within lock: KeyLockBody) throws(StorageError) {
    guard let session = try session() else { return try lock {} }
    let name = try EntryName(key: key, rules: session.rules)
    if session.ledger == nil, try FileSystem.status(name.path, in: session.directory) == nil {
      return
    }
    try retrying { () throws(StorageError) in
      let session = try writingSession()
      _ = try session.withKeyLock(name, timeout: timeout) { ledger throws(StorageError) in
        try lock { () throws(StorageError) in try removeFiles(name, session, ledger) }
      }
    }
  }

  /// Removes both files, under the key's lock.
  func removeFiles(
    _ name: EntryName, _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) {
    let sidecarPath = name.sidecarPath
    var sizes: Sidecar.Sizes?
    if let file = try ScopedFile(ifPresent: sidecarPath, in: session.directory) {
      sizes = try file.head().sizes
    }
    let payload = try FileSystem.status(name.path, in: session.directory)
    session.memory.forget(name)
    // First the payload: a sidecar alone is nothing.
    try FileSystem.remove(name.path, in: session.directory)
    try FileSystem.remove(sidecarPath, in: session.directory)
    if let payload, payload.size != sizes?.payload {
      // A program was killed between the two: which of them was counted, nobody can tell.
      try ledger.add(nil, to: name.directory, since: session.epoch)
    } else if let sizes {
      let footprint = session.footprint(size: sizes.payload, keyLength: sizes.key)
      try ledger.add(-footprint, to: name.directory, since: session.epoch)
    }
  }
}

/// What a payload file holds.
struct EntryContent {
  let kind: Payload.Kind
  let size: Int
  let checksum: UInt64
}

// MARK: - Publishing

extension FileCache {
  /// Puts what a temporary file holds in the place of an entry.
  fileprivate func publish(
    _ temporary: inout TemporaryFile, _ content: EntryContent, _ name: EntryName, _ key: String,
    _ session: CacheSession, _ options: WriteOptions, within lock: KeyLockBody
  ) throws(StorageError) {
    let created = WallClock.now
    let end = options.lifespan.end(created: created, used: created)
    let modified = try stamp(temporary.file, session, created: created, end: end)
    // By its times an entry is told from a mix of two.
    if options.isDurable { try temporary.file.synchronize(withTimes: true) }
    let sidecar = Sidecar(
      kind: content.kind, lifespan: options.lifespan, size: content.size, modified: modified,
      checksum: content.checksum, created: created)
    // Before and after: whoever is killed between, or looks the directory through, misses none.
    try session.ledger?.note(expiry: end, in: name.directory)
    try sidecar.withRecord(of: key) { (record) throws(StorageError) in
      _ = try session.withKeyLock(name, timeout: timeout) { ledger throws(StorageError) in
        try lock { () throws(StorageError) in
          try place(
            &temporary, size: content.size, record, name, session, ledger,
            isDurable: options.isDurable)
        }
      }
    }
    try session.ledger?.note(expiry: end, in: name.directory)
  }

  /// Gives the payload its times; returns the one that its sidecar must say.
  ///
  /// The nanoseconds are random, so that no other payload of this name has the same; odd when the
  /// entry never ends. The time of the last access says when it ends, which spares sweeps a look at
  /// the sidecar.
  private func stamp(
    _ file: File, _ session: CacheSession, created: Int64, end: Int64
  ) throws(StorageError) -> Int64 {
    let random = Int64(session.randomNumber() % UInt64(WallClock.second / 2)) * 2
    let second = created / WallClock.second * WallClock.second
    let modified = second + random + (end == .max ? 1 : 0)
    try file.setTimes(accessed: end == .max ? created : end, modified: modified)
    if let isKept = session.keepsTimes { return isKept ? modified : 0 }
    let isKept = try file.status(withTimes: true).modified == modified
    session.keepsTimes = isKept
    return isKept ? modified : 0
  }

  private func place(
    _ temporary: inout TemporaryFile, size: Int, _ record: UnsafeRawBufferPointer,
    _ name: EntryName, _ session: CacheSession, _ ledger: CacheLedger, isDurable: Bool
  ) throws(StorageError) {
    let sidecarPath = name.sidecarPath
    let file = try openSidecar(sidecarPath, session)
    let old = try file.head()
    if old.isEmpty, session.fileMode & 0o077 != 0 { try file.setMode(session.fileMode) }
    do throws(StorageError) {
      // A sidecar alone is nothing: the payload's name completes a new entry in one step.
      if old.isEmpty { try file.overwrite(record.bytes, at: 0) }
      try move(&temporary, to: name, session, isNew: old.isEmpty)
    } catch {
      if old.isEmpty { try FileSystem.unlink(sidecarPath, in: session.directory) }
      throw error
    }
    do throws(StorageError) {
      if !old.isEmpty { try file.overwrite(record.bytes, at: 0) }
      if isDurable { try synchronize(file, of: name, session) }
    } catch {
      // Half an entry is none: better a miss than a look at it each time.
      try removeFiles(name, session, ledger)
      throw error
    }
    var growth = session.footprint(size: size, keyLength: record.count - Sidecar.headerSize)
    if let sizes = old.sizes {
      growth -= session.footprint(size: sizes.payload, keyLength: sizes.key)
    }
    try ledger.add(growth, to: name.directory, since: session.epoch)
  }

  private func move(
    _ temporary: inout TemporaryFile, to name: EntryName, _ session: CacheSession, isNew: Bool
  ) throws(StorageError) {
    do throws(StorageError) {
      if isNew {
        try temporary.moveToDestination()
      } else {
        try temporary.exchangeWithDestination()
      }
    } catch  where error.code.systemError == EISDIR {
      // No directory is ours.
      try FileSystem.remove(name.path, in: session.directory)
      try temporary.moveToDestination()
    }
  }

  /// Makes the entry survive a power cut: its sidecar, its names, and those of the directories
  /// above, which may be new.
  private func synchronize(
    _ sidecar: File, of name: EntryName, _ session: CacheSession
  ) throws(StorageError) {
    try sidecar.synchronize()
    try FileSystem.synchronizeDirectory(session.path(ofDirectory: name.directory))
    let known = session.durableDirectories.withLock { $0 }
    if known.contains(name.directory) { return }
    try FileSystem.synchronizeDirectory(session.directory.path)
    if known.isEmpty {
      // Any of the directories above may be as new.
      var path = session.directory.path
      while path != "/", path.hasPrefix("/") {
        try FileSystem.synchronizeParent(of: path)
        path = FileSystem.parent(of: path)
      }
    }
    session.durableDirectories.withLock { _ = $0.insert(name.directory) }
  }

  private func openSidecar(
    _ path: String, _ session: CacheSession
  ) throws(StorageError) -> File {
    do throws(StorageError) {
      return try File(path, in: session.directory, .createOrOpen, mode: session.fileMode)
    } catch  where error.code.systemError == EISDIR || error.code.systemError == ELOOP {
      // Neither directories nor links are ours.
      try FileSystem.remove(path, in: session.directory)
      return try File(path, in: session.directory, .createOrOpen, mode: session.fileMode)
    }
  }
}

/// What a sidecar's first bytes say.
private struct SidecarHead {
  var isEmpty = true
  var sizes: Sidecar.Sizes?
}

extension ReadableFile where Self: ~Copyable {
  fileprivate func head() throws(StorageError) -> SidecarHead {
    do throws(StorageError) {
      return try withUnsafeTemporaryAllocation(byteCount: Sidecar.headerSize, alignment: 8) {
        (buffer) throws(StorageError) -> SidecarHead in
        let count = try read(from: 0, into: buffer)
        let header = UnsafeRawBufferPointer(rebasing: buffer[..<count])
        return SidecarHead(isEmpty: header.isEmpty, sizes: Sidecar.sizes(header))
      }
    } catch  where error.code.systemError == EISDIR {
      return SidecarHead()
    }
  }
}

// MARK: - Writing in pieces

/// An entry that is being written to a temporary file.
///
/// Unchecked because its state is not guarded: its one caller waits for each call before the next.
final class FileEntryWriter: CacheWriter, @unchecked Sendable {
  private let files: FileCache
  /// Whose mark the temporary file bears: while it lives, no sweep takes that away.
  private let origin: CacheSession
  private let name: EntryName
  private let key: String
  private var temporary: TemporaryFile
  private var checksum = StreamChecksum()
  private(set) var count = 0

  init(
    _ files: FileCache, _ session: CacheSession, _ name: EntryName, _ key: String,
    _ temporary: consuming TemporaryFile
  ) {
    self.files = files
    origin = session
    self.name = name
    self.key = key
    self.temporary = temporary
  }

  func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    // As soon as it is too much: a disk may be smaller than what is still to come.
    try files.requireRoom(count + bytes.count, key, origin)
    if let failure = temporary.file.write(bytes).failure { throw failure }
    checksum.update(bytes)
    count += bytes.count
  }

  func append(contentsOf source: File) throws(StorageError) {
    // Shared where the file system can; what is summed is what the entry will say in any case.
    let isShared = count == 0 && temporary.file.clone(from: source)
    let file = isShared ? temporary.file : source
    let size = 1 << 20
    var position = 0
    while true {
      let bytes = try file.read(from: position, count: size)
      if isShared {
        bytes.withUnsafeBytes { checksum.update($0) }
        count += bytes.count
      } else {
        try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in try append(bytes) }
      }
      if bytes.count < size { return }
      position += size
    }
  }

  func finish(_ options: WriteOptions, within lock: KeyLockBody) throws(StorageError) {
    let content = EntryContent(kind: .data, size: count, checksum: checksum.value)
    let session = try files.retrying { () throws(StorageError) in
      // The cache may have been emptied since the first piece came.
      let session = try files.writingSession()
      do throws(StorageError) {
        try files.publish(&temporary, content, name, key, session, options, within: lock)
      } catch  where error.code == .notFound {
        try files.makeDirectory(of: name, session)
        throw error
      }
      return session
    }
    files.keepTidy(session)
  }
}
