extension OpenCache {
  /// The keys in all subdirectories that this process may read, and the first error of the others.
  func keys() throws(StorageError) -> (keys: [String], failure: StorageError?) {
    try ledger?.waiting(.zero).checkClock()
    var keys: [String] = []
    var failure: StorageError?
    let now = WallClock.now
    for number in try subdirectoryNumbers() {
      do throws(StorageError) {
        try addKeys(inSubdirectory: number, now: now, to: &keys, &failure)
      } catch  where !error.isDescriptorLimit && isOpen {
        failure = failure ?? error
      }
    }
    return (keys, failure)
  }

  private func addKeys(
    inSubdirectory number: Int, now: Int64, to keys: inout [String],
    _ failure: inout StorageError?
  ) throws(StorageError) {
    let fileNames = try fileNames(inSubdirectory: number)
    let mayHaveExpired = ledger?.mayHaveExpired(in: number, at: now) ?? true
    for sidecarName in fileNames {
      guard let fileName = Sidecar.payloadName(of: sidecarName), fileNames.contains(fileName)
      else { continue }
      var key = EntryName.key(fileName: fileName)
      if mayHaveExpired || key == nil {
        guard let name = EntryName(fileName: fileName) else { continue }
        if mayHaveExpired,
          try unexpiredPayload(of: name, now: now, &failure)?.isStale != false
        {
          continue
        }
        if key == nil { key = try readKey(name, &failure) }
      }
      if let key { keys.append(String(decoding: key, as: UTF8.self)) }
    }
  }

  /// The payload of an entry, and whether the entry is stale; nil if it is missing, damaged or
  /// expired. One that cannot be read counts as present.
  private func unexpiredPayload(
    of name: EntryName, now: Int64, _ failure: inout StorageError?
  ) throws(StorageError) -> (status: FileStatus, isStale: Bool)? {
    guard let payload = try FileSystem.status(name.path, in: directory, withTimes: true) else {
      return nil
    }
    if !payload.canExpire || payload.expiryHint(now: now) != nil { return (payload, false) }
    do throws(StorageError) {
      switch try lookUpOnce(name, nil, []) {
      case .found, .detailed: return (payload, false)
      case .stale: return (payload, true)
      case .missing, .mismatch, .expired: return nil
      }
    } catch  where error.code == .unsupportedVersion {
      // Only a newer version of Keepsake can tell.
      return (payload, false)
    } catch  where isOfEntry(error) {
      failure = failure ?? error
      return (payload, false)
    }
  }

  /// The key that the sidecar records; nil if it cannot be read.
  private func readKey(
    _ name: EntryName, _ failure: inout StorageError?
  ) throws(StorageError) -> [UInt8]? {
    do throws(StorageError) {
      let path = (name.path, Sidecar.pathSuffix)
      guard let file = try ScopedFile(ifPresent: path.0, suffix: path.1, in: directory) else {
        return nil
      }
      return try file.withSidecar(keyLength: nil) { contents in
        (try? SidecarRecord(contents)).map { Array($0.key) }
      }
    } catch  where isOfEntry(error) {
      if error.code != .isDirectory { failure = failure ?? error }
      return nil
    }
  }

  /// The size of all subdirectories that this process may read, and the first error of the others.
  func totalSize() throws(StorageError) -> (size: Int, failure: StorageError?) {
    let ledger = ledger?.waiting(.zero)
    try ledger?.checkClock()
    let now = WallClock.now
    var total = 0
    var failure: StorageError?
    for number in try ledger == nil ? subdirectoryNumbers() : Array(0..<EntryName.directoryCount) {
      if let ledger, ledger.earliestExpiry(in: number) > now {
        let size = ledger.size(of: number)
        if let bytes = size.bytes, !size.mayBeWrong {
          total += Int(bytes)
          continue
        }
      }
      do throws(StorageError) {
        total += try unexpiredSize(ofSubdirectory: number, ledger, now: now, &failure)
      } catch  where !error.isDescriptorLimit && isOpen {
        failure = failure ?? error
      }
    }
    return (total, failure)
  }

  /// The size of a subdirectory without what has expired. It is scanned, so that the next call
  /// knows it, unless that would wait for writers: then what a scan would leave is counted.
  private func unexpiredSize(
    ofSubdirectory number: Int, _ ledger: CacheLedger?, now: Int64,
    _ failure: inout StorageError?
  ) throws(StorageError) -> Int {
    if let ledger {
      do throws(StorageError) {
        let scan = try CacheSubdirectory(cache: self, ledger: ledger, number: number).scan()
        failure = failure ?? scan.failure
        return scan.size
      } catch  where error.code == .timedOut {}
    }
    let fileNames = try fileNames(inSubdirectory: number)
    var size = 0
    for sidecarName in fileNames {
      guard let fileName = Sidecar.payloadName(of: sidecarName),
        let name = EntryName(fileName: fileName)
      else { continue }
      if fileNames.contains(fileName) {
        guard let payload = try unexpiredPayload(of: name, now: now, &failure) else { continue }
        size += try footprint(of: name, size: payload.status.size)
      } else if let expires = try recordOfNoValue(name, key: nil)?.expires, expires > now {
        size += try footprint(of: name, size: 0)
      }
    }
    return size
  }
}
