extension OpenCache {
  func keys() throws(StorageError) -> [String] {
    try ledger?.checkClock()
    var keys: [String] = []
    let now = WallClock.now
    for number in try subdirectoryNumbers() {
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
    return keys
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

  func totalSize() throws(StorageError) -> Int {
    guard let ledger else { return try totalSizeOfEntries() }
    try ledger.checkClock()
    let now = WallClock.now
    var unknownSize = 0
    for number in 0..<EntryName.directoryCount
    where ledger.size(of: number).bytes == nil || ledger.earliestExpiry(in: number) <= now {
      let scan = try CacheSubdirectory(cache: self, ledger: ledger, number: number).scan()
      // Still unknown if the ledger cannot be changed because the disk is full.
      if ledger.size(of: number).bytes == nil { unknownSize += scan.size }
    }
    return recordedSize(ledger).bytes + unknownSize
  }

  /// The total size for a process that may not write, and so cannot use the ledger.
  private func totalSizeOfEntries() throws(StorageError) -> Int {
    var size = 0
    for key in try keys() {
      guard case .found(let entry, _) = try lookUp(key, []) else { continue }
      size += footprint(size: entry.size, keyLength: key.utf8.count)
    }
    return size
  }
}
