internal import Synchronization

/// An entry whose key is locked: no other thread or process writes it at the same time.
struct LockedEntry {
  let cache: OpenCache
  var ledger: CacheLedger
  let name: EntryName

  /// The byte that is locked.
  var byte: Range<UInt64> { CacheLedger.Byte.key(name.hash) }

  func unlock() { cache.unlock(byte, of: name.directory, ledger) }

  /// Runs a change of the files, and records it in the ledger.
  ///
  /// A change that fails, or that cannot be recorded, as on a full disk, leaves the subdirectory
  /// marked. The latter is not thrown, because the files are changed by then.
  ///
  /// - Parameters:
  ///   - expires: When the entry expires.
  ///   - change: Returns what it has added to the size of the subdirectory; nil if that is unknown.
  @inline(__always)
  private func recording(
    expires: Int64 = .max, _ change: () throws(StorageError) -> Int?
  ) throws(StorageError) {
    var isRecorded = false
    defer { if !isRecorded { cache.isCountDue.store(true, ordering: .relaxed) } }
    try ledger.beginChange(in: name.directory, expires: expires)
    let bytes = try change()
    do throws(StorageError) {
      try ledger.endChange(
        in: name.directory, adding: bytes, expires: expires, since: cache.epoch)
      isRecorded = true
    } catch {}
  }

  // MARK: Removing

  /// The status of a file of the entry, or of a link in its place; nil for a directory, which the
  /// cache has not made and does not remove.
  func fileStatus(_ path: String) throws(StorageError) -> FileStatus? {
    let status = try FileSystem.status(path, in: cache.directory, followsLinks: false)
    return status?.isDirectory == true ? nil : status
  }

  /// Removes both files.
  func remove() throws(StorageError) {
    let sidecarPath = name.sidecarPath
    cache.verifiedEntries.remove(name)
    guard let payload = try fileStatus(name.path) else {
      if try fileStatus(sidecarPath) == nil { return }
      return try recording { () throws(StorageError) in
        let footprint = try cache.footprint(of: name, size: 0)
        let hasNoValue = try cache.recordOfNoValue(name, key: nil) != nil
        try FileSystem.unlink(sidecarPath, in: cache.directory)
        // Otherwise it is unknown whether the missing payload was counted.
        return hasNoValue ? -footprint : nil
      }
    }
    let footprint = try cache.footprint(of: name, size: payload.size)
    try recording { () throws(StorageError) in
      // The payload goes first, because a sidecar without one counts as missing.
      try FileSystem.unlink(name.path, in: cache.directory)
      do throws(StorageError) {
        try FileSystem.unlink(sidecarPath, in: cache.directory)
      } catch  where error.code == .isDirectory {}
      return payload.isRegularFile ? -footprint : nil
    }
  }

  /// Looks up an entry that had expired, or whose files did not match each other, while it was not
  /// locked, and removes it unless it is valid. If that fails, it counts as missing nevertheless.
  func resolve(
    _ key: String?, _ options: LookupOptions
  ) throws(StorageError) -> LookupResult {
    let result = try cache.lookUpOnce(name, key, options.union(.revalidate))
    switch result {
    case .found, .detailed, .missing, .stale: return result
    case .expired: break
    case .mismatch: cache.counts.damaged.add(1, ordering: .relaxed)
    }
    try? remove()
    return result
  }

  /// Removes the entry if it still has the payload that was found to be damaged.
  func removeDamaged(_ damaged: VerifiedEntry) {
    let payload = try? FileSystem.status(name.path, in: cache.directory, withTimes: true)
    guard let payload, damaged.matches(payload, keyID: name.keyID) else { return }
    cache.counts.damaged.add(1, ordering: .relaxed)
    try? remove()
  }

  // MARK: Publishing

  /// Makes the payload in a temporary file, and the record of its sidecar, visible as the entry.
  ///
  /// The new record is written before the payload gets its name, together with the record before
  /// it. So there is an old or a new value at any moment, even if this process is killed.
  func publish(
    _ payload: inout TemporaryFile, _ sidecar: Sidecar, record: UnsafeRawBufferPointer,
    expires: Int64, isDurable: Bool
  ) throws(StorageError) {
    try replaceSidecar(
      with: record, size: sidecar.size, expires: expires, isDurable: isDurable
    ) { hasPayload throws(StorageError) in
      if hasPayload {
        try payload.exchangeWithDestination()
        try payload.removeReplaced()
      } else {
        try payload.moveToDestination()
      }
    }
    if isDurable {
      do throws(StorageError) {
        try synchronizeNames()
      } catch {
        try remove()
        throw error
      }
    }
    cache.notePublished(sidecar, as: name)
  }

  /// Removes the payload, and makes a record visible that there is no value.
  func publishNoValue(
    record: UnsafeRawBufferPointer, expires: Int64
  ) throws(StorageError) {
    try replaceSidecar(with: record, size: 0, expires: expires, isDurable: false) {
      hasPayload throws(StorageError) in
      // Until then, the record before counts, because the payload belongs to it.
      if hasPayload { try FileSystem.unlink(name.path, in: cache.directory) }
    }
    cache.verifiedEntries.remove(name)
  }

  /// Gives the entry a new record. Its payload stays, with other times.
  func renew(
    _ sidecar: Sidecar, record: UnsafeRawBufferPointer, times: PayloadTimes, expires: Int64
  ) throws(StorageError) {
    let payload = try File(name.path, in: cache.directory, .readNoFollow)
    try replaceSidecar(with: record, size: sidecar.size, expires: expires, isDurable: false) {
      _ throws(StorageError) in
      // Until then, the record before counts, because the payload belongs to it.
      try payload.setTimes(accessed: times.accessed, modified: times.modified)
    }
    cache.notePublished(sidecar, as: name)
  }

  /// Writes a sidecar that holds the new and the old record, runs `change`, which makes the new one
  /// count, and records the size and the expiry.
  ///
  /// - Parameters:
  ///   - size: The size of the payload to which the new record belongs.
  ///   - change: It is told whether there is a payload already.
  private func replaceSidecar(
    with record: UnsafeRawBufferPointer, size: Int, expires: Int64, isDurable: Bool,
    _ change: (_ hasPayload: Bool) throws(StorageError) -> Void
  ) throws(StorageError) {
    let (file, isNew) = try openSidecar()
    func replace(_ contents: UnsafeRawBufferPointer) throws(StorageError) {
      let old = try findOldEntry(contents)
      do throws(StorageError) {
        if contents.isEmpty, cache.fileMode & 0o077 != 0 { try file.setMode(cache.fileMode) }
        try recording(expires: expires) { () throws(StorageError) in
          let sidecarSize = try write(record, to: file, over: contents, old, isDurable: isDurable)
          try change(old.hasPayload)
          let footprint = cache.footprint(of: name, size: size, sidecar: sidecarSize)
          return footprint - old.footprint
        }
      } catch {
        // A sidecar alone counts as missing.
        if !old.hasPayload {
          try? FileSystem.unlink(name.sidecarPath, in: cache.directory)
        }
        throw error
      }
    }
    if isNew { return try replace(UnsafeRawBufferPointer(start: nil, count: 0)) }
    let keyLength = record.count - Sidecar.headerSize
    return try file.withSidecar(keyLength: keyLength) { contents throws(StorageError) in
      try replace(contents)
    }
  }

  /// What a change of an entry replaces.
  private struct OldEntry {
    var hasPayload = false
    /// The record that the payload belongs to; empty if there is none.
    var record = UnsafeRawBufferPointer(start: nil, count: 0)
    /// The number of bytes that the entry takes on disk.
    var footprint = 0
  }

  /// - Parameter contents: Those of the sidecar.
  private func findOldEntry(
    _ contents: UnsafeRawBufferPointer
  ) throws(StorageError) -> OldEntry {
    if contents.isEmpty { return OldEntry() }
    func footprint(_ size: Int) -> Int {
      cache.footprint(of: name, size: size, sidecar: contents.count)
    }
    let latest = try? SidecarRecord(contents)
    // The payload of a record that another process wrote may not have got its name.
    if let latest, cache.hasPublished(latest.sidecar, as: name) {
      return OldEntry(
        hasPayload: true, record: latest.bytes, footprint: footprint(latest.sidecar.size))
    }
    let payload = try FileSystem.status(name.path, in: cache.directory, withTimes: true)
    guard let payload else {
      let hasNoValue = latest.map { $0.sidecar.kind == nil } ?? false
      return OldEntry(footprint: hasNoValue ? footprint(0) : 0)
    }
    var old = OldEntry(hasPayload: true, footprint: footprint(payload.size))
    if let record = try? SidecarRecord.find(for: payload, in: contents),
      record.sidecar.fits(payload)
    {
      old.record = record.bytes
    }
    return old
  }

  /// Writes a sidecar so that it holds the old record, the new one, or both, whenever the process
  /// is killed.
  ///
  /// - Returns: The size of the sidecar.
  private func write(
    _ record: UnsafeRawBufferPointer, to file: File, over contents: UnsafeRawBufferPointer,
    _ old: OldEntry, isDurable: Bool
  ) throws(StorageError) -> Int {
    let size = record.count + old.record.count
    return try withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) {
      (both) throws(StorageError) -> Int in
      both.copyMemory(from: record)
      UnsafeMutableRawBufferPointer(rebasing: both[record.count...]).copyMemory(from: old.record)
      let both = UnsafeRawBufferPointer(both)
      // The kernel completes what it writes to one page.
      if old.hasPayload, size > Self.pageSize {
        try replaceFile(with: both, isDurable: isDurable)
        return size
      }
      do throws(StorageError) {
        try file.overwrite(both.bytes, at: 0)
      } catch {
        if old.hasPayload {
          do throws(StorageError) {
            try file.overwrite(old.record.bytes, at: 0)
          } catch {
            // A miss costs readers less than a mismatch.
            try remove()
          }
        }
        throw error
      }
      // Before the payload gets its name, so that no power cut leaves a payload without a record.
      if isDurable { try file.synchronize() }
      // What is left of a longer sidecar has no meaning.
      return max(size, contents.count)
    }
  }

  /// Replaces a sidecar that is too long to be overwritten at once.
  private func replaceFile(
    with bytes: UnsafeRawBufferPointer, isDurable: Bool
  ) throws(StorageError) {
    var temporary = try TemporaryFile.make(
      at: cache.temporaryName(in: name.directory), for: name.sidecarPath, in: cache.directory,
      mode: cache.fileMode)
    try temporary.write(bytes)
    if isDurable { try temporary.file.synchronize() }
    try temporary.moveToDestination()
    if isDurable {
      try FileSystem.synchronizeDirectory(cache.path(ofSubdirectory: name.directory))
    }
  }

  private static let pageSize = 4_096

  /// Opens the sidecar, and creates it if there is none.
  ///
  /// - Returns: The file, and whether this call created it, so that there is nothing to read.
  private func openSidecar() throws(StorageError) -> (file: File, isNew: Bool) {
    func open() throws(StorageError) -> File {
      try File(
        name.path, suffix: Sidecar.pathSuffix, in: cache.directory, .createOrOpen,
        mode: cache.fileMode)
    }
    // An entry that this process has not published lately is probably new.
    if !cache.mayHavePublished(name),
      let file = try File.createUnlessPresent(
        name.path, suffix: Sidecar.pathSuffix, in: cache.directory, mode: cache.fileMode)
    {
      return (file, true)
    }
    do throws(StorageError) {
      return (try open(), false)
    } catch  where error.code == .symbolicLink {
      // The cache makes no links.
      try FileSystem.unlink(name.sidecarPath, in: cache.directory)
      return (try open(), false)
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
