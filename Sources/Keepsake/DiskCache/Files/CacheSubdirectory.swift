internal import Synchronization

/// One of the 256 subdirectories of a cache that is open for writing.
struct CacheSubdirectory {
  let cache: OpenCache
  /// Its timeout is also how long to wait for the writers of an entry.
  let ledger: CacheLedger
  let number: Int

  /// The valid entries that a scan found. Those without a value have no payload.
  struct Scan {
    var entries: [(name: EntryName, payload: FileStatus?, footprint: Int)] = []
    var earliestExpiry = Int64.max
    var size = 0
    /// The number of expired entries that were removed.
    var expiredCount = 0
    /// The first failure. An entry that cannot be read or removed counts as present.
    var failure: StorageError?
  }

  /// Determines the size, and removes what is expired, incomplete or abandoned.
  @discardableResult
  func scan() throws(StorageError) -> Scan {
    let sizeBefore = try settledSize()
    var start: UInt64?
    do throws(StorageError) {
      start = try ledger.beginScan(of: number)
    } catch  where error.code == .diskFull {
      // Some file systems do not even let the ledger be changed.
    }
    let scan = try scanFiles()
    guard let start else { return scan }
    do throws(StorageError) {
      try ledger.endScan(
        of: number, earliestExpiry: scan.earliestExpiry, start: start, since: cache.epoch)
      // As the size changes if an entry is removed.
      let isRecorded = try record(scan.size, sizeBefore, knowsExpiries: true)
      if !isRecorded { try count() }
    } catch  where [.diskFull, .timedOut].contains(error.code) {
      // What is not recorded stays marked.
    }
    return scan
  }

  // MARK: Counting

  /// Counts the entries again if their recorded size may be wrong. Changes nothing but the ledger.
  ///
  /// - Throws: The first error, after the other entries were counted.
  func count() throws(StorageError) {
    var failure: StorageError?
    try count(&failure)
    if let failure { throw failure }
  }

  private func count(_ failure: inout StorageError?) throws(StorageError) {
    // A count is void if an entry is written in the meantime. The third time, writers wait for it.
    for _ in 0..<2 {
      let sizeBefore = try settledSize()
      if !sizeBefore.mayBeWrong { return }
      if try record(countFiles(&failure), sizeBefore) { return }
    }
    try excludeWriters()
    defer { admitWriters() }
    _ = try ledger.endCount(
      of: number, countFiles(&failure), sizeBefore: ledger.size(of: number), since: cache.epoch)
  }

  /// Waits until no entry of the subdirectory is being written, and lets later writers wait.
  private func excludeWriters() throws(StorageError) {
    try ledger.file.requireOpen()
    try cache.lock(CacheLedger.Byte.directory(number), of: number, ledger, timeout: ledger.timeout)
  }

  private func admitWriters() {
    cache.unlock(CacheLedger.Byte.directory(number), of: number, ledger)
  }

  /// The recorded size, once no entry is being written.
  private func settledSize() throws(StorageError) -> CacheLedger.DirectorySize {
    try excludeWriters()
    defer { admitWriters() }
    return ledger.size(of: number)
  }

  /// Records a size that was counted. A writer adds an entry's size after its files, which the
  /// count may have found already.
  private func record(
    _ size: Int, _ sizeBefore: CacheLedger.DirectorySize, knowsExpiries: Bool = false
  ) throws(StorageError) -> Bool {
    try excludeWriters()
    defer { admitWriters() }
    return try ledger.endCount(
      of: number, size, sizeBefore: sizeBefore, knowsExpiries: knowsExpiries, since: cache.epoch)
  }

  /// The size of all files that are counted, without a look at what they contain.
  private func countFiles(_ failure: inout StorageError?) throws(StorageError) -> Int {
    let fileNames = try cache.fileNames(inSubdirectory: number)
    var size = 0
    for fileName in fileNames {
      let payloadName = Sidecar.payloadName(of: fileName)
      // A sidecar is counted with its payload.
      if let payloadName, fileNames.contains(payloadName) { continue }
      guard let name = EntryName(fileName: payloadName ?? fileName) else { continue }
      if payloadName != nil {
        do throws(StorageError) {
          if try cache.recordOfNoValue(name, key: nil) == nil { continue }
        } catch  where cache.isOfEntry(error) {
          failure = failure ?? error
        }
        size += try cache.footprint(of: name, size: 0)
      } else if let payload = try FileSystem.status(name.path, in: cache.directory) {
        size += try cache.footprint(of: name, size: payload.size)
      }
    }
    return size
  }

  // MARK: Scanning

  private func scanFiles() throws(StorageError) -> Scan {
    var scan = Scan()
    let fileNames = try cache.fileNames(inSubdirectory: number)
    do throws(StorageError) {
      try cache.removeAbandonedFiles(fileNames, inSubdirectory: number)
    } catch  where cache.isOfEntry(error) {
      scan.failure = error
    }
    for fileName in fileNames where fileName.utf8.first != UInt8(ascii: ".") {
      let payloadName = Sidecar.payloadName(of: fileName)
      // A sidecar is handled with its payload.
      if let payloadName, fileNames.contains(payloadName) { continue }
      guard let name = EntryName(fileName: payloadName ?? fileName) else { continue }
      let isWhole = fileNames.contains(fileName + Sidecar.suffix)
      var payload: FileStatus?
      if payloadName == nil {
        payload = try FileSystem.status(
          name.path, in: cache.directory, followsLinks: isWhole, withTimes: true)
        if payload == nil { continue }
      }
      // In the past, so that listings look at each entry of the subdirectory.
      var expires: Int64? = .min
      do throws(StorageError) {
        expires = try checkExpiry(of: name, payload, isWhole: isWhole, &scan)
      } catch  where cache.isOfEntry(error) {
        scan.failure = scan.failure ?? error
      }
      guard let expires else { continue }
      let footprint = try cache.footprint(of: name, size: payload?.size ?? 0)
      scan.earliestExpiry = min(scan.earliestExpiry, expires)
      scan.size += footprint
      scan.entries.append((name, payload, footprint))
    }
    return scan
  }

  /// Determines when an entry expires, and removes it if it has expired or is damaged.
  ///
  /// - Parameters:
  ///   - payload: nil for a sidecar without one.
  ///   - isWhole: Whether the payload has a sidecar.
  /// - Returns: This time or an earlier one; nil if the entry is missing by now.
  private func checkExpiry(
    of name: EntryName, _ payload: FileStatus?, isWhole: Bool, _ scan: inout Scan
  ) throws(StorageError) -> Int64? {
    let now = WallClock.now
    if payload == nil, let expires = try cache.recordOfNoValue(name, key: nil)?.expires,
      expires > now
    {
      return expires
    }
    guard let payload, isWhole else {
      try removeIncomplete(name)
      return nil
    }
    if !payload.canExpire { return .max }
    if let time = payload.expiryHint(now: now) { return time }
    do throws(StorageError) {
      let entry = try cache.lock(name, timeout: ledger.timeout)
      defer { entry.unlock() }
      var result = try cache.lookUpOnce(name, nil, [])
      if case .mismatch = result { result = try entry.resolve(nil, []) }
      switch result {
      case .found(let found, _), .detailed(let found, _, _):
        let used = found.lastRecordedUse
        return found.expiry.time(created: found.created, lastUsed: used)
      case .stale(let stale, _, _):
        // In the past, so that listings look at each entry of the subdirectory.
        return stale.expires
      case .expired:
        try entry.remove()
        scan.expiredCount += 1
      case .mismatch: try entry.remove()
      case .missing: break
      }
      return nil
    } catch  where error.code == .unsupportedVersion {
      // Only a newer version of Keepsake can tell.
      return .max
    }
  }

  /// Removes one file of two, unless a writer has added the other in the meantime.
  private func removeIncomplete(_ name: EntryName) throws(StorageError) {
    let entry = try cache.lock(name, timeout: ledger.timeout)
    defer { entry.unlock() }
    let payload = try entry.fileStatus(name.path)
    let sidecar = try entry.fileStatus(name.sidecarPath)
    if payload != nil, sidecar != nil { return }
    if payload == nil, let expires = try cache.recordOfNoValue(name, key: nil)?.expires,
      expires > WallClock.now
    {
      return
    }
    if payload != nil { cache.counts.damaged.add(1, ordering: .relaxed) }
    try entry.remove()
  }
}
