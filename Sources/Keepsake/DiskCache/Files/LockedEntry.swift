internal import Synchronization

/// An entry whose key is locked: no other thread or process writes it at the same time.
struct LockedEntry {
  let cache: OpenCache
  let name: EntryName

  /// Adds to the size of the entry's subdirectory; nil if the difference is unknown.
  private func addSize(_ bytes: Int?) { cache.addSize(bytes, to: name.directory) }

  // MARK: Removing

  /// Removes both files.
  func remove() throws(StorageError) {
    let sidecarPath = name.sidecarPath
    cache.verifiedEntries.remove(name)
    let payload = try FileSystem.status(name.path, in: cache.directory, followsLinks: false)
    guard let payload else {
      let sidecar = try FileSystem.status(sidecarPath, in: cache.directory, followsLinks: false)
      if sidecar == nil { return }
      try FileSystem.remove(sidecarPath, in: cache.directory)
      // It is unknown whether the missing payload was counted.
      return addSize(nil)
    }
    let keyLength = try cache.keyLength(of: name)
    // The payload goes first, because a sidecar without one counts as missing.
    try FileSystem.remove(name.path, in: cache.directory)
    try FileSystem.remove(sidecarPath, in: cache.directory)
    addSize(
      payload.isRegularFile ? -cache.footprint(size: payload.size, keyLength: keyLength) : nil)
  }

  /// Removes the entry if it has expired; it may have been replaced since it was looked up.
  func removeIfExpired(key: String?) throws(StorageError) {
    if case .expired = try cache.lookUpOnce(name, key, .revalidate) { try remove() }
  }

  /// Looks up files that did not match each other while they were not locked, and removes them
  /// unless they are a valid entry.
  func resolveMismatch(key: String?) throws(StorageError) -> LookupResult {
    let result = try cache.lookUpOnce(name, key, [.readPayload, .revalidate])
    switch result {
    case .found, .missing: return result
    case .expired: break
    case .mismatch: cache.counts.damaged.add(1, ordering: .relaxed)
    }
    try remove()
    return result
  }

  // MARK: Publishing

  /// Makes the payload in a temporary file, and the contents of its sidecar, visible as the entry.
  ///
  /// The new record is written before the payload gets its name, together with the header of the
  /// record before it. So there is an old or a new value at any moment, even if this process is
  /// killed.
  func publish(
    _ payload: inout TemporaryFile, size: Int, sidecar contents: UnsafeMutableRawBufferPointer,
    expires: Int64, isDurable: Bool
  ) throws(StorageError) {
    let file = try openSidecar(name.sidecarPath)
    let oldSize = try readOld(file, contents)
    do throws(StorageError) {
      try write(contents, to: file, isNew: oldSize == nil)
      // Before the payload gets its name, so that no power cut leaves a payload without a record.
      if isDurable { try file.synchronize() }
      try move(&payload, isNew: oldSize == nil)
    } catch {
      // A sidecar alone counts as missing.
      if oldSize == nil { try? FileSystem.unlink(name.sidecarPath, in: cache.directory) }
      throw error
    }
    do throws(StorageError) {
      // Recorded before and after: a process that is killed in between, or a scan that runs in
      // between, must not lose it.
      try cache.ledger?.recordExpiry(expires, in: name.directory)
      if isDurable { try synchronizeNames() }
    } catch {
      try remove()
      throw error
    }
    cache.notePublished(Sidecar.Claim(header: UnsafeRawBufferPointer(contents)), as: name)
    let keyLength = contents.count - Sidecar.fileSize(keyLength: 0)
    let growth = cache.footprint(size: size, keyLength: keyLength)
    addSize(growth - (oldSize.map { cache.footprint(size: $0, keyLength: keyLength) } ?? 0))
  }

  /// The size of the payload that is going to be replaced, whose header is added to the contents of
  /// the new sidecar; nil if there is none.
  private func readOld(
    _ file: File, _ contents: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Int? {
    let end = contents.count - Sidecar.headerSize
    let header = UnsafeMutableRawBufferPointer(rebasing: contents[end...])
    if try file.read(from: 0, into: header) == 0 {
      if cache.fileMode & 0o077 != 0 { try file.setMode(cache.fileMode) }
      return nil
    }
    let claim = Sidecar.Claim(header: UnsafeRawBufferPointer(header))
    // The payload of a record that another process wrote may not have got its name.
    if cache.hasPublished(claim, as: name) { return Int(clamping: claim.size) }
    let payload = try FileSystem.status(name.path, in: cache.directory, withTimes: true)
    guard let payload else {
      header.initializeMemory(as: UInt8.self, repeating: 0)
      return nil
    }
    if !claim.fits(payload) { _ = try file.read(from: end, into: header) }
    return payload.size
  }

  /// Writes a sidecar so that it holds the old record, the new one, or both, whenever the process
  /// is killed.
  private func write(
    _ contents: UnsafeMutableRawBufferPointer, to file: File, isNew: Bool
  ) throws(StorageError) {
    let contents = UnsafeRawBufferPointer(contents)
    let end = contents.count - Sidecar.headerSize
    let header = UnsafeRawBufferPointer(rebasing: contents[end...])
    do throws(StorageError) {
      // The kernel completes what it writes to one page. On a longer sidecar, the old header goes
      // first.
      if !isNew, contents.count > 4_096 { try file.overwrite(header.bytes, at: end) }
      try file.overwrite(contents.bytes, at: 0)
    } catch {
      if !isNew {
        do throws(StorageError) {
          try file.overwrite(header.bytes, at: 0)
        } catch {
          // A miss costs readers less than a mismatch.
          try remove()
        }
      }
      throw error
    }
  }

  private func openSidecar(_ path: String) throws(StorageError) -> File {
    do throws(StorageError) {
      return try File(path, in: cache.directory, .createOrOpen, mode: cache.fileMode)
    } catch  where error.code == .isDirectory || error.code == .symbolicLink {
      // The cache makes no directories or links of this name.
      try FileSystem.remove(path, in: cache.directory)
      return try File(path, in: cache.directory, .createOrOpen, mode: cache.fileMode)
    }
  }

  private func move(_ payload: inout TemporaryFile, isNew: Bool) throws(StorageError) {
    do throws(StorageError) {
      if isNew { try payload.moveToDestination() } else { try payload.exchangeWithDestination() }
    } catch  where error.code == .isDirectory {
      // The cache makes no directories of this name.
      try FileSystem.remove(name.path, in: cache.directory)
      try payload.moveToDestination()
    }
  }

  /// Makes the names of an entry's files survive a power cut, and those of the directories above,
  /// which may be new.
  private func synchronizeNames() throws(StorageError) {
    try FileSystem.synchronizeDirectory(cache.path(ofSubdirectory: name.directory))
    let durable = cache.durableDirectories.withLock { $0 }
    if durable.contains(name.directory) { return }
    try FileSystem.synchronizeDirectory(cache.directory.path)
    if durable.isEmpty {
      // Each of the directories above may also be new.
      var path = cache.directory.path
      while path != "/", path.hasPrefix("/") {
        try FileSystem.synchronizeParent(of: path)
        path = FileSystem.parent(of: path)
      }
    }
    cache.durableDirectories.withLock { _ = $0.insert(name.directory) }
  }
}
