internal import Synchronization

/// One of the 256 subdirectories of a cache that is open for writing.
struct CacheSubdirectory {
  let cache: OpenCache
  let ledger: CacheLedger
  let number: Int

  /// The valid entries that a scan found. Those without a value have no payload.
  struct Scan {
    var entries: [(name: EntryName, payload: FileStatus?, footprint: Int)] = []
    var earliestExpiry = Int64.max
    var size = 0
    /// The number of expired entries that were removed.
    var expiredCount = 0
  }

  /// Determines the size, and removes what is expired, incomplete or abandoned.
  @discardableResult
  func scan() throws(StorageError) -> Scan {
    var expiredCount = 0
    // Repeated if the size changed in the meantime, as it does if an entry is removed; but not
    // endlessly.
    for _ in 0..<3 {
      let unrecordedSize = cache.takeUnrecordedSize(of: number)
      let sizeBefore = ledger.size(of: number)
      var scan = Scan()
      do throws(StorageError) {
        let start = try ledger.beginScan(of: number)
        scan = try scanFiles()
        expiredCount += scan.expiredCount
        scan.expiredCount = expiredCount
        // A writer adds an entry's size after its files, which the scan may have listed already.
        try cache.awaitWriters(in: number)
        let isSizeKnown = try ledger.endScan(
          of: number, earliestExpiry: scan.earliestExpiry, size: scan.size,
          sizeBefore: sizeBefore, start: start, since: cache.epoch)
        if isSizeKnown { return scan }
      } catch {
        cache.putBackUnrecordedSize(unrecordedSize, of: number)
        // On some file systems, not even the ledger can be changed when the disk is full.
        guard error.code == .diskFull else { throw error }
        break
      }
    }
    var scan = try scanFiles()
    scan.expiredCount += expiredCount
    return scan
  }

  private func scanFiles() throws(StorageError) -> Scan {
    var scan = Scan()
    let fileNames = try cache.fileNames(inSubdirectory: number)
    let now = WallClock.now
    var hasEnded: [UInt64: Bool] = [:]
    for fileName in fileNames {
      if fileName.utf8.first == UInt8(ascii: ".") {
        if try cache.isAbandoned(fileName, &hasEnded) {
          let path = EntryName.directoryName(number) + "/" + fileName
          try FileSystem.unlink(path, in: cache.directory)
        }
        continue
      }
      let payloadName = Sidecar.payloadName(of: fileName)
      // A sidecar is handled with its payload.
      if let payloadName, fileNames.contains(payloadName) { continue }
      guard let name = EntryName(fileName: payloadName ?? fileName) else { continue }
      if payloadName != nil, let expires = try cache.expiryOfNoValue(name, key: nil), expires > now
      {
        let footprint = try cache.footprint(of: name, size: 0)
        scan.earliestExpiry = min(scan.earliestExpiry, expires)
        scan.size += footprint
        scan.entries.append((name, nil, footprint))
        continue
      }
      if payloadName != nil || !fileNames.contains(fileName + Sidecar.suffix) {
        try removeIncomplete(name)
        continue
      }
      guard let payload = try FileSystem.status(name.path, in: cache.directory, withTimes: true)
      else { continue }
      if payload.canExpire {
        switch try checkExpiry(of: name, payload, now: now) {
        case .expires(let time): scan.earliestExpiry = min(scan.earliestExpiry, time)
        case .expired:
          scan.expiredCount += 1
          continue
        case .missing: continue
        }
      }
      let footprint = try cache.footprint(of: name, size: payload.size)
      scan.size += footprint
      scan.entries.append((name, payload, footprint))
    }
    return scan
  }

  private enum ExpiryCheck {
    /// At this time or later.
    case expires(Int64)
    /// It had expired and was removed.
    case expired
    /// It is missing, or was damaged and removed.
    case missing
  }

  /// Determines when an entry expires, and removes it if it has expired or is damaged.
  private func checkExpiry(
    of name: EntryName, _ payload: FileStatus, now: Int64
  ) throws(StorageError) -> ExpiryCheck {
    if let time = payload.expiryHint(now: now) { return .expires(time) }
    do throws(StorageError) {
      let check = try cache.withKeyLock(name, timeout: cache.timeout) {
        entry throws(StorageError) -> ExpiryCheck in
        var result = try cache.lookUpOnce(name, nil, [])
        if case .mismatch = result { result = try entry.resolveMismatch(key: nil) }
        switch result {
        case .found(let found, _):
          let used = found.lastRecordedUse
          return .expires(found.expiry.time(created: found.created, lastUsed: used))
        case .stale(let stale, _, _):
          // In the past, so that listings look at each entry of the subdirectory.
          return .expires(stale.expiry.time(created: stale.created, lastUsed: stale.lastUsed))
        case .expired:
          try entry.remove()
          return .expired
        case .missing, .mismatch: return .missing
        }
      }
      return check ?? .expires(.max)
    } catch  where error.code == .unsupportedVersion {
      // Only a newer version of Keepsake can tell.
      return .expires(.max)
    }
  }

  /// Removes one file of two, unless a writer has added the other in the meantime.
  private func removeIncomplete(_ name: EntryName) throws(StorageError) {
    _ = try cache.withKeyLock(name, timeout: cache.timeout) {
      entry throws(StorageError) -> Void in
      let payload = try entry.fileStatus(name.path)
      let sidecar = try entry.fileStatus(name.sidecarPath)
      if payload != nil, sidecar != nil { return }
      if payload == nil, let expires = try cache.expiryOfNoValue(name, key: nil),
        expires > WallClock.now
      {
        return
      }
      if payload != nil { cache.counts.damaged.add(1, ordering: .relaxed) }
      try entry.remove()
    }
  }
}
