extension OpenCache {
  /// The keys in all subdirectories that this process may read, and the first error of the others.
  func keys() throws(StorageError) -> (keys: [String], failure: StorageError?) {
    try ledger?.withoutWaiting().checkClock()
    var keys: [String] = []
    var failure: StorageError?
    let now = WallClock.now
    for number in try subdirectoryNumbers() {
      do throws(StorageError) {
        try addKeys(inSubdirectory: number, now: now, to: &keys)
      } catch  where !error.isDescriptorLimit && isOpen {
        failure = failure ?? error
      }
    }
    return (keys, failure)
  }

  private func addKeys(
    inSubdirectory number: Int, now: Int64, to keys: inout [String]
  ) throws(StorageError) {
    let fileNames = try fileNames(inSubdirectory: number)
    let mayHaveExpired = ledger.map { $0.earliestExpiry(in: number) <= now } ?? true
    for sidecarName in fileNames {
      guard let fileName = Sidecar.payloadName(of: sidecarName), fileNames.contains(fileName)
      else { continue }
      var key = EntryName.key(fileName: fileName)
      if mayHaveExpired || key == nil {
        guard let name = EntryName(fileName: fileName) else { continue }
        if mayHaveExpired, try !isUnexpired(name, now: now) { continue }
        if key == nil { key = try readKey(name) }
      }
      if let key { keys.append(String(decoding: key, as: UTF8.self)) }
    }
  }

  private func isUnexpired(_ name: EntryName, now: Int64) throws(StorageError) -> Bool {
    guard let payload = try FileSystem.status(name.path, in: directory, withTimes: true) else {
      return false
    }
    if !payload.canExpire || payload.expiryHint(now: now) != nil { return true }
    guard case .found = try lookUpOnce(name, nil, []) else { return false }
    return true
  }

  /// The key that the sidecar records; nil if it cannot be read.
  private func readKey(_ name: EntryName) throws(StorageError) -> [UInt8]? {
    do throws(StorageError) {
      var key: [UInt8]?
      _ = try readSidecar(name, of: nil, keyLength: nil) {
        key = Array($0)
        return true
      }
      return key
    } catch  where error.code == .unsupportedVersion {
      return nil
    }
  }

  /// The size of all subdirectories that this process may read, and the first error of the others.
  func totalSize() throws(StorageError) -> (size: Int, failure: StorageError?) {
    guard let ledger = ledger?.withoutWaiting() else { return (try totalSizeOfEntries(), nil) }
    try ledger.checkClock()
    let now = WallClock.now
    var unknownSize = 0
    var failure: StorageError?
    for number in 0..<EntryName.directoryCount
    where ledger.size(of: number).bytes == nil || ledger.earliestExpiry(in: number) <= now {
      do throws(StorageError) {
        let size = try size(of: subdirectory(number, ledger, timeout: .zero))
        // Still unknown if the ledger could not be changed.
        if ledger.size(of: number).bytes == nil { unknownSize += size }
      } catch  where !error.isDescriptorLimit && isOpen {
        failure = failure ?? error
      }
    }
    return (ledger.totalSize.bytes + unknownSize, failure)
  }

  /// Removes what has expired, unless that would wait for another process.
  private func size(of subdirectory: CacheSubdirectory) throws(StorageError) -> Int {
    do throws(StorageError) {
      return try subdirectory.scan().size
    } catch  where error.code == .timedOut {
      return try subdirectory.countFiles()
    }
  }

  /// The total size for a process that may not write, and so cannot use the ledger.
  private func totalSizeOfEntries() throws(StorageError) -> Int {
    var size = 0
    let (keys, failure) = try keys()
    if let failure { throw failure }
    for key in keys {
      guard case .found(let entry, _) = try lookUp(key, []) else { continue }
      size += try footprint(of: EntryName(key: key, rules: rules), size: entry.size)
    }
    return size
  }
}
