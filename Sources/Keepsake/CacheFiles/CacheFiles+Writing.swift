internal import FoundationEssentials

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension CacheFiles {
  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, if condition: () -> Bool
  ) throws(StorageError) {
    var attempts = 0
    while true {
      let session = try writingSession()
      try DiskCache.require(
        session.footprint(size: payload.bytes.count, keyLength: key.utf8.count), toFit: sizeLimit,
        path: location.root)
      let name = try EntryName(key: key, rules: session.rules)
      do throws(StorageError) {
        let path = session.folder(name.folder) + "/" + session.temporaryName()
        let writer = try FileEntryWriter(self, session, name, key, kind: payload.kind, at: path)
        try payload.bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in
          try writer.append(bytes)
        }
        if try writer.publish(options, if: condition) { return keepToLimit(session) }
        drop(session)
      } catch  where error.code == .notFound && attempts < 3 {
        // Somebody has removed the folder, as emptying the cache does.
        try makeFolder(of: name, session)
      }
      attempts += 1
    }
  }

  func startWriting(_ key: String) throws(StorageError) -> any CacheWriter {
    let session = try writingSession()
    let name = try EntryName(key: key, rules: session.rules)
    // Not inside the cache's folder: what cannot be written twice must not go when that is emptied.
    return try FileEntryWriter(
      self, session, name, key, kind: .data, at: location.temporaryPath(session.temporaryName()))
  }

  /// Makes the subfolder of an entry; with it the cache's own, should that be gone.
  func makeFolder(of name: EntryName, _ session: CacheSession) throws(StorageError) {
    if try FileSystem.status(location.root) == nil {
      drop(session)
      _ = try writingSession()
    }
    try FileSystem.createFolder(
      session.folder(name.folder), mode: session.folderMode, durable: false)
  }

  func remove(_ key: String) throws(StorageError) {
    guard let session = try session() else { return }
    let name = try EntryName(key: key, rules: session.rules)
    if session.ledger == nil {
      if try FileSystem.status(name.path) == nil { return }
      drop(session)
    }
    while true {
      let session = try writingSession()
      let outcome = try session.withKeyLock(name, timeout: timeout) { ledger throws(StorageError) in
        try removeFiles(name, session, ledger)
      }
      if case .done = outcome { return }
      drop(session)
    }
  }

  /// Removes both files, under the key's lock.
  func removeFiles(
    _ name: EntryName, _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) {
    let epoch = ledger.epoch
    let header = try File.ifPresent(name.sidecarPath)?.header() ?? []
    session.memory.forget(name)
    // First the payload: a sidecar alone is nothing.
    try FileSystem.remove(name.path)
    try FileSystem.remove(name.sidecarPath)
    if let size = Sidecar.payloadSize(header) {
      let footprint = session.footprint(size: size, keyLength: Sidecar.keyLength(header))
      try ledger.add(-footprint, to: name.folder, since: epoch)
    }
  }
}

/// An entry that is being written to a temporary file.
///
/// Unchecked because its state is not guarded: its one caller waits for each call before the next.
final class FileEntryWriter: CacheWriter, @unchecked Sendable {
  private let files: CacheFiles
  private let session: CacheSession
  private let name: EntryName
  private let key: String
  private let kind: Payload.Kind
  private var temporary: TemporaryFile
  private var checksum = StreamChecksum()
  private(set) var count = 0

  init(
    _ files: CacheFiles, _ session: CacheSession, _ name: EntryName, _ key: String,
    kind: Payload.Kind, at path: String
  ) throws(StorageError) {
    self.files = files
    self.session = session
    self.name = name
    self.key = key
    self.kind = kind
    temporary = try TemporaryFile.make(at: path, for: name.path, mode: session.fileMode)
  }

  func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    if let failure = temporary.file.write(bytes).failure { throw failure }
    checksum.update(bytes)
    count += bytes.count
  }

  func append(contentsOf source: File) throws(StorageError) {
    // Shared where the file system can; what is summed is what the entry will say in any case.
    let isShared = count == 0 && temporary.file.clone(source)
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

  func finish(_ options: WriteOptions) throws(StorageError) {
    try DiskCache.require(
      session.footprint(size: count, keyLength: key.utf8.count), toFit: files.sizeLimit,
      path: files.location.root)
    var attempts = 0
    while true {
      do throws(StorageError) {
        if try publish(options, if: { true }) { return files.keepToLimit(session) }
        throw StorageError(
          .notFound, operation: "set", path: name.path,
          reason: "the cache's lock file was removed meanwhile", remedy: "Store the entry again.")
      } catch  where error.code == .notFound && attempts < 3 {
        try files.makeFolder(of: name, session)
      }
      attempts += 1
    }
  }

  /// Puts the entry in its place.
  ///
  /// - Returns: false when the lock file is gone, so that all has to be opened again.
  func publish(_ options: WriteOptions, if condition: () -> Bool) throws(StorageError) -> Bool {
    let created = WallClock.now
    let end = options.lifespan.end(created: created, used: created)
    let modified = try stamp(created: created, end: end)
    if options.isDurable { try temporary.file.synchronize() }
    let sidecar = Sidecar(
      kind: kind, lifespan: options.lifespan, size: count, modified: modified,
      checksum: checksum.value, created: created, key: Array(key.utf8))
    // Before and after: whoever is killed between, or looks the folder through, misses none.
    try session.ledger?.note(expiry: end, in: name.folder)
    let outcome = try session.withKeyLock(name, timeout: files.timeout) {
      ledger throws(StorageError) -> Void in
      if condition() { try place(sidecar, ledger, isDurable: options.isDurable) }
    }
    try session.ledger?.note(expiry: end, in: name.folder)
    guard case .done = outcome else { return false }
    return true
  }

  /// Gives the payload its times; returns the one that its sidecar must say.
  ///
  /// The nanoseconds are random, so that no other payload of this name has the same; odd when the
  /// entry never ends. The time of the last access says when it ends, which spares sweeps a look at
  /// the sidecar.
  private func stamp(created: Int64, end: Int64) throws(StorageError) -> Int64 {
    var random = Int64.random(in: 1..<(WallClock.second / 2)) * 2
    if end == .max { random += 1 }
    let modified = created / WallClock.second * WallClock.second + random % WallClock.second
    try temporary.file.setTimes(accessed: end == .max ? created : end, modified: modified)
    if let isKept = session.keepsTimes { return isKept ? modified : 0 }
    let isKept = try temporary.file.status(withTimes: true).modified == modified
    session.keepsTimes = isKept
    return isKept ? modified : 0
  }

  private func place(
    _ sidecar: Sidecar, _ ledger: CacheLedger, isDurable: Bool
  ) throws(StorageError) {
    let epoch = ledger.epoch
    let file: File
    do throws(StorageError) {
      file = try File(name.sidecarPath, .createOrOpen, mode: session.fileMode)
    } catch  where error.code.systemError == EISDIR || error.code.systemError == ELOOP {
      // Neither folders nor links are ours.
      try FileSystem.remove(name.sidecarPath)
      file = try File(name.sidecarPath, .createOrOpen, mode: session.fileMode)
    }
    let old = try file.header()
    if old.isEmpty, session.fileMode & 0o077 != 0 { try file.setMode(session.fileMode) }
    do throws(StorageError) {
      let isNew = old.isEmpty
      if isNew { try temporary.moveIntoPlace() } else { try temporary.replace() }
    } catch  where error.code.systemError == EISDIR {
      try FileSystem.remove(name.path)
      try temporary.moveIntoPlace()
    } catch {
      if old.isEmpty { try FileSystem.unlink(name.sidecarPath) }
      throw error
    }
    do throws(StorageError) {
      try file.overwrite(sidecar.bytes.span.bytes, at: 0)
      if isDurable {
        try file.synchronize()
        try FileSystem.synchronizeFolder(FileSystem.parent(of: name.path))
      }
    } catch {
      // Half an entry is none: better a miss than a look at it each time.
      try files.removeFiles(name, session, ledger)
      throw error
    }
    var growth = session.footprint(size: sidecar.size, keyLength: sidecar.key.count)
    if let size = Sidecar.payloadSize(old) {
      growth -= session.footprint(size: size, keyLength: Sidecar.keyLength(old))
    }
    try ledger.add(growth, to: name.folder, since: epoch)
  }
}

extension File {
  /// The part of a sidecar that says its sizes; less where there is no whole one.
  fileprivate func header() throws(StorageError) -> [UInt8] {
    do throws(StorageError) {
      return try read(from: 0, count: Sidecar.headerSize)
    } catch  where error.code.systemError == EISDIR {
      return []
    }
  }
}
