extension FileCache {
  func keys() throws(StorageError) -> [String] {
    guard let session = try session() else { return [] }
    try session.ledger?.checkClock()
    var keys: [String] = []
    let now = WallClock.now
    for directory in try directories(session) {
      let path = session.path(ofDirectory: directory)
      let names = Set(try FileSystem.list(path))
      let mayHaveExpired = session.ledger.map { $0.earliestExpiry(in: directory) <= now } ?? true
      for sidecarName in names {
        guard let fileName = Sidecar.payloadName(of: sidecarName), names.contains(fileName) else {
          continue
        }
        var key = EntryName.key(fileName: fileName)
        if mayHaveExpired || key == nil {
          guard let name = EntryName(fileName: fileName) else { continue }
          if mayHaveExpired {
            let payload = try FileSystem.status(name.path, in: session.directory, withTimes: true)
            guard let payload else { continue }
            if payload.mayEnd, payload.hintedEnd(now: now) == nil {
              guard case .present = try look(name, nil, session, readsPayload: false) else {
                continue
              }
            }
          }
          if key == nil { key = try sidecarKey(name, session) }
        }
        if let key { keys.append(String(decoding: key, as: UTF8.self)) }
      }
    }
    return keys
  }

  private func sidecarKey(
    _ name: EntryName, _ session: CacheSession
  ) throws(StorageError) -> [UInt8]? {
    do throws(StorageError) {
      return try readSidecar(name, session, keyLength: nil) { Array($0) }?.2
    } catch  where error.code == .unsupportedVersion {
      return nil
    }
  }

  /// The numbers of the subdirectories that are there.
  func directories(_ session: CacheSession) throws(StorageError) -> [Int] {
    try FileSystem.list(session.directory.path).compactMap { name in
      guard name.utf8.count == 2, let number = Int(name, radix: 16) else { return nil }
      return EntryName.directoryName(number) == name ? number : nil
    }
  }

  func totalSize() throws(StorageError) -> Int {
    guard let session = try session() else { return 0 }
    guard let ledger = session.ledger else { return try measure(session) }
    try ledger.checkClock()
    let now = WallClock.now
    for directory in 0..<EntryName.directoryCount
    where ledger.size(of: directory).bytes == nil || ledger.earliestExpiry(in: directory) <= now {
      try survey(directory, session, ledger)
    }
    return ledger.total
  }

  /// The size as far as a process can tell that may not write.
  private func measure(_ session: CacheSession) throws(StorageError) -> Int {
    var size = 0
    for key in try keys() {
      guard let entry = try entry(key) else { continue }
      size += session.footprint(size: entry.size, keyLength: key.utf8.count)
    }
    return size
  }
}
