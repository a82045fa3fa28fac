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

  /// Writes the values to a new file without a lock, then adds under the lock what has changed in
  /// the meantime, and puts the new file in place of the old one.
  func compact() throws(StorageError) {
    try removeStaleTemporaryFiles()
    try validate()
    let (isMissing, id, changes) = loaded.withReadLock {
      ($0.handle == nil, $0.id, $0.table.changedValues(since: nil))
    }
    if isMissing { return }
    let values = changes.values
    var new = NewJournal(into: try fixedID())
    new.append(values)
    var waiting: TemporaryFile? = try makeTemporaryFile(new.bytes, mode: 0o600)
    var isInstalled = false
    try maintain { writer, _ throws(StorageError) in
      // Another process may have written the file anew.
      guard writer.id == id, loaded.withReadLock({ $0.isCurrent(in: writer.handle) }),
        let temporary = waiting.take()
      else { return }
      let start = new.end
      new.append(loaded.withReadLock { $0.table.changedValues(since: values.version) }.values)
      if new.end > start {
        try temporary.file.requireOpen("write")
        try temporary.file.writeAll(Array(new.bytes[start...]))
        try temporary.file.overwrite(new.word.bytes.span.bytes, at: JournalWord.offset)
        try temporary.file.synchronize()
      }
      try install(temporary, new.id, end: new.end, &writer)
      isInstalled = true
    }
    if isInstalled { try synchronizeDirectory() }
  }
}
