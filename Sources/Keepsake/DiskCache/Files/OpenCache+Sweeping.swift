extension OpenCache {
  /// Scans all subdirectories, starting with this one, and removes abandoned files.
  ///
  /// - Returns: The number of expired entries that were removed.
  func sweep(from first: Int) throws(StorageError) -> Int {
    guard let ledger else { return 0 }
    try removeAbandonedFiles()
    try paths.removeTemporaryTags()
    try ledger.checkClock()
    var count = 0
    for subdirectory in try subdirectoriesToScan() where subdirectory.number >= first {
      count += try subdirectory.scan().expiredCount
      try ledger.setNextSweep(from: subdirectory.number + 1)
    }
    try ledger.setNextSweep(from: EntryName.directoryCount)
    return count
  }

  /// The subdirectories that exist, or that the ledger has a size or an expiry for.
  func subdirectoriesToScan() throws(StorageError) -> [CacheSubdirectory] {
    guard let ledger else { return [] }
    let present = Set(try subdirectoryNumbers())
    return (0..<EntryName.directoryCount).filter { number in
      present.contains(number) || ledger.size(of: number).bytes != 0
        || ledger.earliestExpiry(in: number) != .max
    }.map { CacheSubdirectory(cache: self, ledger: ledger, number: $0) }
  }

  /// The numbers of the subdirectories that exist.
  func subdirectoryNumbers() throws(StorageError) -> [Int] {
    try FileSystem.list(directory.path).compactMap { name in
      guard name.utf8.count == 2, let number = Int(name, radix: 16) else { return nil }
      return EntryName.directoryName(number) == name ? number : nil
    }
  }

  /// Removes emptied directories, and temporary files whose process has ended.
  func removeAbandonedFiles() throws(StorageError) {
    var hasEnded: [UInt64: Bool] = [:]
    for fileName in try paths.temporaryNames() {
      let path = paths.parent.path + "/" + fileName
      let isTrash = CachePaths.isTrash(fileName)
      let isAbandoned = try isAbandoned(fileName, &hasEnded)
      if isTrash || isAbandoned { try FileSystem.remove(path) }
    }
  }
}
