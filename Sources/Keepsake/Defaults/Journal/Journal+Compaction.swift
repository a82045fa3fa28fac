/// Replacing the file by one without the records that later ones have overridden. A file is never
/// truncated, and never written anywhere but at its end.
extension JournalFile {
  static let smallestCompaction = 64 * 1024

  enum Compaction {
    case inBackground
    /// Earlier processes were killed before they finished one, so it must not wait any longer.
    case now
  }

  /// The compaction that is due because dead records dominate; the caller has to start it.
  mutating func takeDueCompaction() -> Compaction? {
    guard !isCompacting, size >= compactionFloor, isMostlyDead else { return nil }
    // At most one a second unless the file becomes slow to open, because a program that sets
    // without pause would spend more on compactions than on sets.
    if let lastCompaction, size < 1 << 20, ContinuousClock.now - lastCompaction < .seconds(1) {
      return nil
    }
    isCompacting = true
    if size / 16 > table.liveSize + Self.smallestCompaction, lastCompaction == nil { return .now }
    return .inBackground
  }

  fileprivate mutating func endCompaction() {
    isCompacting = false
    lastCompaction = .now
    // The file could not be replaced if it still is mostly dead. Try again when it has doubled.
    if isMostlyDead { compactionFloor = size * 2 }
  }

  /// Whether dead records dominate.
  private var isMostlyDead: Bool { size / 2 > table.liveSize + JournalFormat.headerSize }
}

extension Journal {
  /// Starts a compaction that `takeDueCompaction` has returned. The caller holds no lock.
  func start(_ compaction: JournalFile.Compaction) {
    switch compaction {
    case .inBackground: BackgroundWork.run { [weak self] in self?.compactAndReport() }
    case .now: compactAndReport()
    }
  }

  private func compactAndReport() {
    do throws(StorageError) {
      try compact()
    } catch  where error.code == .notFound {
      // The file has been deleted, as the directory of a temporary scope is.
    } catch {
      report(error.inContext(of: "compact"))
    }
    file.withLock { $0.endCompaction() }
  }

  /// Writes the live records to a new file without a lock, then adds under the lock what was
  /// appended in the meantime, and puts the new file in place of the old one.
  func compact() throws(StorageError) {
    try removeStaleTemporaryFiles()
    let source = try File(location.path, .read)
    let identity = try source.status()
    let bytes = try source.read(from: 0, count: identity.size)
    guard
      case .valid(let oldID, isIntact: true) = bytes.withUnsafeBytes({
        JournalFormat.header(of: $0)
      })
    else { return try repairFromTable() }

    let id = file.withLock { $0.newID() }
    var output = JournalFormat.header(id: id)
    guard
      let end = Self.copyLiveRecords(
        bytes, from: JournalFormat.headerSize, seed: oldID, newSeed: id, to: &output)
    else { return try repairFromTable() }
    let temporary = try makeTemporaryFile()
    try temporary.file.writeAll(output)
    try temporary.file.synchronize()

    try install(
      temporary, madeFrom: source, identity, upTo: end, oldID: oldID, id: id, size: output.count)
  }

  /// A file that has just been replaced may be a restored one with an old time.
  func removeStaleTemporaryFiles() throws(StorageError) {
    try FileSystem.removeStaleTemporaryFiles(for: location.path, countsRenames: true)
  }

  private func install(
    _ temporary: consuming TemporaryFile, madeFrom source: File, _ identity: FileStatus,
    upTo end: Int, oldID: UInt64, id: UInt64, size: Int
  ) throws(StorageError) {
    var waiting: TemporaryFile? = consume temporary
    var isInstalled = false
    try maintain { () throws(StorageError) in
      guard let temporary = waiting.take(),
        file.withLock({ $0.isSameFile(as: identity) && $0.seed == oldID && $0.offset >= end })
      else { return }  // another process has replaced the file, or a program has written over it
      let sourceSize = try source.status().size
      let rest = try source.read(from: end, count: max(0, sourceSize - end))
      var added: [UInt8] = []
      // If the rest is damaged, the next compaction repairs it.
      guard Self.copyAllRecords(rest, seed: oldID, newSeed: id, to: &added) else { return }
      if !added.isEmpty {
        try temporary.file.writeAll(added)
        try temporary.file.synchronize()
      }
      let contents = JournalFile.Contents(
        file: identity, size: sourceSize, journal: (source, oldID))
      try install(temporary, madeFrom: contents, seed: id, size: size + added.count)
      isInstalled = true
    }
    if isInstalled { try synchronizeDirectory() }
  }

  /// Appends the last record of each key, with checksums for the new seed; returns the offset where
  /// the next record begins, or nil if there is damage.
  static func copyLiveRecords(
    _ bytes: [UInt8], from start: Int, seed: UInt64, newSeed: UInt64, to output: inout [UInt8]
  ) -> Int? {
    bytes.withUnsafeBytes { bytes in
      var live = ByteKeyedDictionary<JournalFormat.Record>()
      let parsed = JournalFormat.parse(bytes, from: start, seed: seed) { record in
        switch record.kind {
        case .cleared: live = ByteKeyedDictionary()
        case .removed: live.remove(record.key)
        case .value: live.set(record.key, record)
        }
      }
      guard parsed.damage == 0 else { return nil }
      for (key, record) in live.elements {
        JournalFormat.append(
          record.kind, key: key, value: Array(bytes[record.value]), seed: newSeed, to: &output)
      }
      return parsed.end
    }
  }

  /// Appends all records, with checksums for the new seed; returns false if there is damage.
  private static func copyAllRecords(
    _ bytes: [UInt8], seed: UInt64, newSeed: UInt64, to output: inout [UInt8]
  ) -> Bool {
    bytes.withUnsafeBytes { bytes in
      JournalFormat.parse(bytes, from: 0, seed: seed) { record in
        JournalFormat.append(
          record.kind, key: record.key, value: Array(bytes[record.value]), seed: newSeed,
          to: &output)
      }.damage == 0
    }
  }
}
