extension OpenCache {
  /// Scans all subdirectories, starting with this one, and deletes emptied ones.
  ///
  /// - Returns: The number of expired entries that were removed.
  /// - Throws: The first error, after the other subdirectories were scanned.
  func sweep(from first: Int) throws(StorageError) -> Int {
    guard let ledger else { return 0 }
    try paths.removeTemporaryTags()
    try ledger.checkClock()
    var count = 0
    var failure: StorageError?
    for subdirectory in try subdirectoriesToScan(ledger) where subdirectory.number >= first {
      do throws(StorageError) {
        let scan = try subdirectory.scan()
        count += scan.expiredCount
        failure = failure ?? scan.failure
      } catch {
        failure = failure ?? error
      }
      try ledger.setNextSweep(from: subdirectory.number + 1)
    }
    try ledger.setNextSweep(from: EntryName.directoryCount)
    try deleteTrash()
    if let failure { throw failure }
    return count
  }

  /// Counts the subdirectories again whose sizes may be wrong. Changes nothing but the ledger.
  ///
  /// - Parameter timeout: How long to wait for the writers of an entry; nil for the usual time.
  /// - Throws: The first error, after the other subdirectories were counted.
  func countAgain(timeout: Duration? = nil) throws(StorageError) {
    guard var ledger else { return }
    if let timeout { ledger = ledger.waiting(timeout) }
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
  func subdirectoriesToScan(_ ledger: CacheLedger) throws(StorageError) -> [CacheSubdirectory] {
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

  /// The names in a subdirectory, without those of directories in it; none if it is missing, or if
  /// a link, a mount or a file is in its place.
  func fileNames(inSubdirectory number: Int) throws(StorageError) -> Set<String> {
    var names: Set<String> = []
    do throws(StorageError) {
      let path = EntryName.directoryName(number)
      if try FileSystem.status(path, in: directory, followsLinks: false)?.isMountPoint == true {
        return []
      }
      try FileSystem.scan(path, in: directory, followsLinks: false) { entry throws(StorageError) in
        if try entry.kind() != .directory { names.insert(String(cString: entry.rawName)) }
      }
    } catch  where [.notFound, .notDirectory, .symbolicLink].contains(error.code) {}
    return names
  }

  /// Deletes emptied subdirectories.
  ///
  /// - Throws: The first error, after the others were deleted.
  func deleteTrash() throws(StorageError) {
    var failure: StorageError?
    for (name, number) in try trash() {
      do throws(StorageError) {
        try deleteTrash(name, ofSubdirectory: number)
      } catch {
        failure = failure ?? error
      }
    }
    if let failure { throw failure }
  }

  /// The names of emptied subdirectories, and their numbers.
  func trash() throws(StorageError) -> [(name: String, number: Int)] {
    try FileSystem.list(in: directory).compactMap { name in
      Self.number(ofTrash: name).map { (name, $0) }
    }
  }

  /// Whether an error concerns one entry, so that a scan or a listing goes on with the others.
  func isOfEntry(_ error: StorageError) -> Bool {
    error.code != .timedOut && !error.isDescriptorLimit && isOpen
  }

  /// Removes temporary files whose process has ended.
  ///
  /// - Throws: The first error, after the others were removed.
  func removeAbandonedFiles(
    _ fileNames: Set<String>, inSubdirectory number: Int
  ) throws(StorageError) {
    var hasEnded: [UInt64: Bool] = [:]
    var failure: StorageError?
    for name in fileNames where name.utf8.first == UInt8(ascii: ".") {
      do throws(StorageError) {
        if try isAbandoned(name, &hasEnded) {
          try FileSystem.unlink(EntryName.directoryName(number) + "/" + name, in: directory)
        }
      } catch {
        failure = failure ?? error
      }
    }
    if let failure { throw failure }
  }
}
