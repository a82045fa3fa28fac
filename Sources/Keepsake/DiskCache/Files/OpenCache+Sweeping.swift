extension OpenCache {
  /// Scans all subdirectories, starting with this one, and removes abandoned files.
  ///
  /// - Returns: The number of expired entries that were removed.
  /// - Throws: The first error, after the other subdirectories were scanned.
  func sweep(from first: Int) throws(StorageError) -> Int {
    guard let ledger else { return 0 }
    try paths.removeTemporaryTags()
    try ledger.checkClock()
    var count = 0
    var failure: StorageError?
    for subdirectory in try subdirectoriesToScan() where subdirectory.number >= first {
      do throws(StorageError) {
        count += try subdirectory.scan().expiredCount
      } catch {
        failure = failure ?? error
      }
      try ledger.setNextSweep(from: subdirectory.number + 1)
    }
    try ledger.setNextSweep(from: EntryName.directoryCount)
    try removeAbandonedFiles()
    if let failure { throw failure }
    return count
  }

  /// Counts the subdirectories again whose sizes may be wrong. Changes nothing but the ledger.
  ///
  /// - Throws: The first error, after the other subdirectories were counted.
  func countAgain() throws(StorageError) {
    guard let ledger else { return }
    var failure: StorageError?
    for number in 0..<EntryName.directoryCount where ledger.size(of: number).mayBeWrong {
      do throws(StorageError) {
        try CacheSubdirectory(cache: self, ledger: ledger, number: number).count()
      } catch {
        failure = failure ?? error
      }
    }
    if let failure { throw failure }
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

  /// The numbers of the subdirectories that exist, and of links in their place.
  func subdirectoryNumbers() throws(StorageError) -> [Int] {
    var numbers: [Int] = []
    try FileSystem.scan(in: directory) { entry throws(StorageError) in
      guard let name = entry.name, name.utf8.count == 2, let number = Int(name, radix: 16),
        EntryName.directoryName(number) == name
      else { return }
      let kind = try entry.kind()
      if kind == .directory || kind == .symbolicLink { numbers.append(number) }
    }
    return numbers
  }

  /// The names in a subdirectory, without those of directories in it; none if it is missing, or a
  /// link or a file in its place.
  func fileNames(inSubdirectory number: Int) throws(StorageError) -> Set<String> {
    var names: Set<String> = []
    do throws(StorageError) {
      let path = EntryName.directoryName(number)
      try FileSystem.scan(path, in: directory, followsLinks: false) { entry throws(StorageError) in
        if try entry.kind() != .directory { names.insert(String(cString: entry.rawName)) }
      }
    } catch  where [.notFound, .notDirectory, .symbolicLink].contains(error.code) {}
    return names
  }

  /// Removes emptied subdirectories, and temporary files whose process has ended.
  ///
  /// - Throws: The first error, after the other files were removed.
  func removeAbandonedFiles() throws(StorageError) {
    var hasEnded: [UInt64: Bool] = [:]
    var failure: StorageError?
    for name in try temporaryNames() {
      do throws(StorageError) {
        if let number = Self.number(ofTrash: name) {
          try deleteTrash(name, ofSubdirectory: number)
        } else if try isAbandoned(name, &hasEnded) {
          try FileSystem.unlink(name, in: directory)
        }
      } catch {
        failure = failure ?? error
      }
    }
    if let failure { throw failure }
  }

  /// The names of emptied subdirectories and of temporary files, some of which may be in use.
  func temporaryNames() throws(StorageError) -> [String] {
    try FileSystem.list(in: directory).filter { name in
      Self.number(ofTrash: name) != nil || Self.token(ofTemporary: name) != nil
    }
  }
}
