/// Replacing the file by one without the records that later ones have overridden.
extension LoadedJournal {
  static let smallestCompaction = 64 * 1024

  enum Compaction {
    case inBackground
    /// Earlier processes were killed before they finished one, so it must not wait any longer.
    case now
  }

  /// The compaction that is due because dead records dominate; the caller has to start it.
  mutating func takeDueCompaction() -> Compaction? {
    guard !isCompacting, end >= compactionFloor, isMostlyDead else { return nil }
    // At most one a second unless the file becomes slow to open, because a program that sets
    // without pause would spend more on compactions than on sets.
    if let lastCompaction, end < 1 << 20, ContinuousClock.now - lastCompaction < .seconds(1) {
      return nil
    }
    isCompacting = true
    if end / 16 > table.liveSize + Self.smallestCompaction, lastCompaction == nil { return .now }
    return .inBackground
  }

  fileprivate mutating func endCompaction() {
    isCompacting = false
    lastCompaction = .now
    // The file could not be replaced if it still is mostly dead. Try again when it has doubled.
    if isMostlyDead { compactionFloor = end * 2 }
  }

  /// Whether dead records dominate.
  private var isMostlyDead: Bool { end / 2 > table.liveSize + JournalFormat.headerSize }
}

extension Journal {
  /// Starts a compaction that `takeDueCompaction` has returned. The caller holds no lock.
  func start(_ compaction: LoadedJournal.Compaction) {
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
    loaded.withLock { $0.endCompaction() }
  }

  /// Writes the live records to a new file without a lock, then adds under the lock what was
  /// appended in the meantime, and puts the new file in place of the old one.
  func compact() throws(StorageError) {
    try removeStaleTemporaryFiles()
    guard let source = try JournalHandle.open(location.path, forWriting: false) else { return }
    let word = source.word
    let bytes = try source.file.read(from: 0, count: source.file.status().size)
    guard let end = Self.end(of: bytes, word) else { return try repairFile() }
    var new = try NewJournal(into: fixedID())
    guard Self.copyLiveRecords(of: bytes, upTo: end, to: &new) else { return try repairFile() }
    let temporary = try makeTemporaryFile(new.bytes, mode: 0o600)
    try install(temporary, new, madeFrom: source, upTo: end)
  }

  /// Repairs damage that happened after the file was read, so the table still has all values.
  private func repairFile() throws(StorageError) {
    loaded.withLock { $0.noteDamage() }
    try maintain { writer, deferred throws(StorageError) in
      if loaded.withLock({ $0.isDamaged }) { deferred.damage = repairDamage(&writer) }
    }
  }

  private func install(
    _ temporary: consuming TemporaryFile, _ new: NewJournal, madeFrom source: JournalHandle,
    upTo end: Int
  ) throws(StorageError) {
    var waiting: TemporaryFile? = consume temporary
    var new = new
    var isInstalled = false
    try maintain { writer, _ throws(StorageError) in
      // Another process may have replaced the file, or a program has written over it.
      guard let temporary = waiting.take(), let handle = writer.handle,
        handle.status.isSameFile(as: source.status), writer.end >= end,
        Self.end(of: try source.file.read(from: 0, count: JournalFormat.headerSize), source.word)
          == writer.end
      else { return }
      let rest = try source.file.read(from: end, count: writer.end - end)
      let start = new.end
      // If the rest is damaged, the next compaction repairs it.
      guard Self.copyAllRecords(rest, seed: writer.id, to: &new) else { return }
      if !rest.isEmpty {
        try temporary.file.writeAll(Array(new.bytes[start...]))
        try temporary.file.overwrite(new.word.bytes.span.bytes, at: JournalWord.offset)
        try temporary.file.synchronize()
      }
      try install(temporary, new.id, end: new.end, &writer)
      isInstalled = true
    }
    if isInstalled { try synchronizeDirectory() }
  }

  /// Up to where the journal is valid that has these first bytes; nil if it is damaged.
  private static func end(of bytes: [UInt8], _ word: JournalWord) -> Int? {
    guard
      case .valid(let id, isIntact: true) = bytes.withUnsafeBytes({ JournalFormat.header(of: $0) })
    else { return nil }
    return word.end(of: id)
  }

  /// Appends the last record of each key; false if there is damage.
  static func copyLiveRecords(
    of journal: [UInt8], upTo end: Int, to new: inout NewJournal
  ) -> Bool {
    journal.withUnsafeBytes { bytes in
      guard end <= bytes.count, case .valid(let id, _) = JournalFormat.header(of: bytes) else {
        return false
      }
      var live = ByteKeyedDictionary<JournalFormat.Record>()
      let damage = JournalFormat.parse(
        UnsafeRawBufferPointer(rebasing: bytes[..<end]), from: JournalFormat.headerSize, seed: id
      ) { record in
        switch record.kind {
        case .cleared: live = ByteKeyedDictionary()
        case .removed: live.remove(record.key)
        case .value: live.set(record.key, record)
        }
      }
      for (_, record) in live.elements { new.append(record, of: bytes) }
      return damage == 0
    }
  }

  /// Appends all records; false if there is damage.
  private static func copyAllRecords(
    _ bytes: [UInt8], seed: UInt64, to new: inout NewJournal
  ) -> Bool {
    bytes.withUnsafeBytes { bytes in
      JournalFormat.parse(bytes, from: 0, seed: seed) { new.append($0, of: bytes) } == 0
    }
  }
}
