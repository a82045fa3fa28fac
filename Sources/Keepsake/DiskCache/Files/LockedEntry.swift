internal import Synchronization

/// An entry whose key is locked: no other thread or process writes it at the same time.
struct LockedEntry {
  let cache: OpenCache
  let name: EntryName

  /// Adds to the size of the entry's subdirectory; nil if the difference is unknown.
  private func addSize(_ bytes: Int?) { cache.addSize(bytes, to: name.directory) }

  /// The same for a removal, which counts as a change in any case.
  private func countRemoval(_ bytes: Int?) -> Bool {
    cache.addSize(bytes, to: name.directory, isCounted: true)
  }

  // MARK: Removing

  /// The status of a file of the entry, or of a link in its place; nil for a directory, which the
  /// cache has not made and does not remove.
  func fileStatus(_ path: String) throws(StorageError) -> FileStatus? {
    let status = try FileSystem.status(path, in: cache.directory, followsLinks: false)
    return status?.isDirectory == true ? nil : status
  }

  /// Removes both files.
  ///
  /// - Parameter noticeably: Whether other processes are to notice this even if there are none.
  /// - Returns: Whether they do.
  @discardableResult
  func remove(noticeably: Bool = false) throws(StorageError) -> Bool {
    let sidecarPath = name.sidecarPath
    cache.verifiedEntries.remove(name)
    guard let payload = try fileStatus(name.path) else {
      let sidecar = try fileStatus(sidecarPath)
      if sidecar == nil { return noticeably && countRemoval(0) }
      let keyLength = try cache.keyLength(of: name)
      let hasNoValue = try cache.expiryOfNoValue(name, key: nil) != nil
      try FileSystem.unlink(sidecarPath, in: cache.directory)
      // Otherwise it is unknown whether the missing payload was counted.
      return countRemoval(hasNoValue ? -cache.footprint(size: 0, keyLength: keyLength) : nil)
    }
    let keyLength = try cache.keyLength(of: name)
    // The payload goes first, because a sidecar without one counts as missing.
    try FileSystem.unlink(name.path, in: cache.directory)
    do throws(StorageError) {
      try FileSystem.unlink(sidecarPath, in: cache.directory)
    } catch  where error.code == .isDirectory {}
    return countRemoval(
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
    case .found, .missing, .stale: return result
    case .expired: break
    case .mismatch: cache.counts.damaged.add(1, ordering: .relaxed)
    }
    try remove()
    return result
  }

  // MARK: Publishing

  /// What a change of an entry replaces.
  private struct Replaced {
    /// nil if there is no payload.
    var payloadSize: Int?
    /// The number of bytes that the entry takes on disk.
    var footprint = 0
    /// Set if the old or the new record has details: the whole sidecar, and its record to keep.
    var detailed: (sidecar: [UInt8], record: [UInt8])?
  }

  /// Makes the payload in a temporary file, and the contents of its sidecar, visible as the entry.
  ///
  /// The new record is written before the payload gets its name, together with the record before
  /// it. So there is an old or a new value at any moment, even if this process is killed.
  func publish(
    _ payload: inout TemporaryFile, size: Int, sidecar contents: UnsafeMutableRawBufferPointer,
    expires: Int64, isDurable: Bool
  ) throws(StorageError) {
    let replaced = try replaceSidecar(with: contents, isDurable: isDurable) {
      replaced throws(StorageError) in
      if replaced.payloadSize == nil {
        try payload.moveToDestination()
      } else {
        try payload.exchangeWithDestination()
        try payload.removeReplaced()
      }
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
    addSize(footprint(size: size, sidecar: contents.count) - replaced.footprint)
  }

  /// Removes the payload, and makes a record visible that there is no value.
  func publishNoValue(
    sidecar contents: UnsafeMutableRawBufferPointer, expires: Int64
  ) throws(StorageError) {
    let replaced = try replaceSidecar(with: contents, isDurable: false) {
      replaced throws(StorageError) in
      // Until then, the record before counts, because the payload belongs to it.
      if replaced.payloadSize != nil { try FileSystem.unlink(name.path, in: cache.directory) }
    }
    cache.verifiedEntries.remove(name)
    try cache.ledger?.recordExpiry(expires, in: name.directory)
    addSize(footprint(size: 0, sidecar: contents.count) - replaced.footprint)
  }

  /// Gives the entry a new record. Its payload stays, with other times.
  func renew(
    sidecar contents: UnsafeMutableRawBufferPointer, times: PayloadTimes, expires: Int64
  ) throws(StorageError) {
    let payload = try File(name.path, in: cache.directory, .readNoFollow)
    let size = try payload.status().size
    let replaced = try replaceSidecar(with: contents, isDurable: false) { _ throws(StorageError) in
      // Until then, the record before counts, because the payload belongs to it.
      try payload.setTimes(accessed: times.accessed, modified: times.modified)
    }
    try cache.ledger?.recordExpiry(expires, in: name.directory)
    cache.notePublished(Sidecar.Claim(header: UnsafeRawBufferPointer(contents)), as: name)
    addSize(footprint(size: size, sidecar: contents.count) - replaced.footprint)
  }

  /// Writes a sidecar that holds the new and the old record, and then runs `change`, which makes
  /// the new one count.
  private func replaceSidecar(
    with contents: UnsafeMutableRawBufferPointer, isDurable: Bool,
    _ change: (Replaced) throws(StorageError) -> Void
  ) throws(StorageError) -> Replaced {
    let (file, isNew) = try openSidecar()
    let replaced = try readOld(file, contents, isNew: isNew)
    do throws(StorageError) {
      if let detailed = replaced.detailed {
        try writeDetailed(
          contents, to: file, detailed, isNew: replaced.payloadSize == nil, isDurable: isDurable)
      } else {
        try write(contents, to: file, isNew: replaced.payloadSize == nil)
        // Before the payload gets its name, so that no power cut leaves a payload without a record.
        if isDurable { try file.synchronize() }
      }
      try change(replaced)
    } catch {
      // A sidecar alone counts as missing.
      if replaced.payloadSize == nil {
        try? FileSystem.unlink(name.sidecarPath, in: cache.directory)
      }
      throw error
    }
    return replaced
  }

  /// - Parameter sidecar: The size of the sidecar, which counts only if the name is a hash, because
  ///   scans do not look at other sidecars.
  private func footprint(size: Int, sidecar: Int) -> Int {
    let keyLength = name.keyLength ?? max(0, sidecar - Sidecar.fileSize(keyLength: 0))
    return cache.footprint(size: size, keyLength: keyLength)
  }

  /// Reads what is going to be replaced. Unless a record has details, the old header is added to
  /// the contents of the new sidecar.
  private func readOld(
    _ file: File, _ contents: UnsafeMutableRawBufferPointer, isNew: Bool
  ) throws(StorageError) -> Replaced {
    let end = contents.count - Sidecar.headerSize
    let header = UnsafeMutableRawBufferPointer(rebasing: contents[end...])
    let isEmpty = try isNew ? true : file.read(from: 0, into: header) == 0
    if isEmpty {
      if cache.fileMode & 0o077 != 0 { try file.setMode(cache.fileMode) }
      return Replaced()
    }
    if Sidecar.isDetailed(header: UnsafeRawBufferPointer(header))
      || Sidecar.isDetailed(header: UnsafeRawBufferPointer(contents))
    {
      header.initializeMemory(as: UInt8.self, repeating: 0)
      return try readOldDetailed(file, UnsafeRawBufferPointer(contents))
    }
    let claim = Sidecar.Claim(header: UnsafeRawBufferPointer(header))
    // The payload of a record that another process wrote may not have got its name.
    if cache.hasPublished(claim, as: name) {
      let size = Int(clamping: claim.size)
      return Replaced(
        payloadSize: size, footprint: footprint(size: size, sidecar: contents.count))
    }
    let payload = try FileSystem.status(name.path, in: cache.directory, withTimes: true)
    guard let payload else {
      header.initializeMemory(as: UInt8.self, repeating: 0)
      return Replaced()
    }
    if !claim.fits(payload) { _ = try file.read(from: end, into: header) }
    return Replaced(
      payloadSize: payload.size,
      footprint: footprint(size: payload.size, sidecar: contents.count))
  }

  private func readOldDetailed(
    _ file: File, _ contents: UnsafeRawBufferPointer
  ) throws(StorageError) -> Replaced {
    let keyLength = Sidecar.key(in: contents).count
    let sidecar = try file.read(
      from: 0, count: Sidecar.largestFileSize(keyLength: keyLength))
    let payload = try FileSystem.status(name.path, in: cache.directory, withTimes: true)
    return sidecar.withUnsafeBytes { bytes in
      let footprint = footprint(size: payload?.size ?? 0, sidecar: bytes.count)
      if let payload {
        let record = Sidecar.bytesOfRecord(of: payload, in: bytes)
        return Replaced(
          payloadSize: payload.size, footprint: footprint, detailed: (sidecar, record))
      }
      let isCounted = (try? Sidecar(bytes)).map { $0.kind == nil } ?? false
      return Replaced(
        footprint: isCounted ? footprint : 0,
        detailed: (sidecar, Array(repeating: 0, count: Sidecar.headerSize)))
    }
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
      if !isNew, contents.count > Self.pageSize { try file.overwrite(header.bytes, at: end) }
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

  /// The same if a record has details, so that the new sidecar is laid out differently.
  private func writeDetailed(
    _ contents: UnsafeMutableRawBufferPointer, to file: File,
    _ old: (sidecar: [UInt8], record: [UInt8]), isNew: Bool, isDurable: Bool
  ) throws(StorageError) {
    let bytes = Array(contents.dropLast(Sidecar.headerSize)) + old.record
    guard isNew || bytes.count <= Self.pageSize else {
      return try replaceFile(with: bytes, isDurable: isDurable)
    }
    do throws(StorageError) {
      try file.overwrite(bytes.span.bytes, at: 0)
    } catch {
      if !isNew {
        do throws(StorageError) {
          try file.overwrite(old.sidecar.span.bytes, at: 0)
        } catch {
          try remove()
        }
      }
      throw error
    }
    if isDurable { try file.synchronize() }
  }

  /// Replaces a sidecar that is too long to be overwritten at once.
  private func replaceFile(with bytes: [UInt8], isDurable: Bool) throws(StorageError) {
    var temporary = try TemporaryFile.make(
      at: cache.temporaryName(in: name.directory), for: name.sidecarPath, in: cache.directory,
      mode: cache.fileMode)
    try temporary.file.writeAll(bytes)
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
