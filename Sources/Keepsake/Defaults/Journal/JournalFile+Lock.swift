/// The lock file, whose word tells all processes how far the journal is valid: the upper 24 bits of
/// the journal's id, and 40 bits with the offset.
///
/// - A record is valid, for every process, from the moment that the word covers it. Under the lock
///   nothing else changes the values: a file that replaces another one has the same.
/// - A word whose id is another journal's, or whose offset is beyond the file, says nothing: it was
///   restored from a backup, or another version wrote it. Then every well-formed record is valid.
/// - A writer marks the lock file before it changes the journal, and removes the mark when it
///   stores the new word. As long as there is no mark, and the word is as this process left it, no
///   writer has changed the journal. Only programs that ignore the lock, such as `rm`, may have.
/// - If there is a mark, or records beyond the word, while no process holds the lock, their writer
///   was killed. The next process that takes the lock publishes what it left.
extension JournalFile {
  private static let offsetMask: UInt64 = (1 << 40) - 1

  enum Validity {
    case current
    /// Other writers lock another file, so that the lock excludes none of them.
    case lockFileReplaced
    /// Another program may be replacing the journal; the table is what was known before.
    case overwritten
  }

  /// Validates the table under the lock.
  ///
  /// The files are only looked at once in a tick of the clock, unless another process has written:
  /// a process that makes a new lock file waits for two ticks before it reads the journal.
  ///
  /// - Parameter isBrief: Whether the writer only appends.
  mutating func validate(
    under lock: LockFile, isBrief: Bool
  ) throws(StorageError) -> Validity {
    guard lockFile === lock else { return .lockFileReplaced }
    let now = CoarseClock.now
    let isRecent = isBrief && now == lastCheck && isCurrent && restoration == nil
    if isRecent, lock.isUnmarked { return .current }
    lastCheck = now
    if !isRecent, try lock.isDeleted() {
      dropLockFile()
      return .lockFileReplaced
    }
    // A file that a program has restored within this tick must not be replaced.
    if !isBrief { lastHeaderCheck = 0 }
    let isSettled = try validate(isLocked: true)
    guard lockFile === lock else { return .lockFileReplaced }
    guard isSettled else { return .overwritten }
    try publishRecords()
    // Publishing may have found that the lock file was truncated.
    return lockFile === lock ? .current : .lockFileReplaced
  }

  /// Throws if the lock file may have been deleted before what was just written.
  ///
  /// The process that makes a new one reads what was written within the tick of the last check. If
  /// that has ended, the file is looked at again: one that is deleted after this look is replaced
  /// by a process that reads everything.
  mutating func requireLockFile(_ lock: LockFile?) throws(StorageError) {
    // If this look fails, the change counts all the same: it was written.
    guard let lock, lastCheck != CoarseClock.now, (try? lock.isDeleted()) == true else { return }
    // The next call finds out what the journal has.
    dropLockFile()
    throw StorageError(
      .outcomeUnknown, operation: "lock", path: location.lockPath,
      reason: "the lock file was deleted while the change was written, so that it may be lost",
      remedy: "Do not delete the lock file while programs run. Make the change again.")
  }

  /// Publishes the records of the table, unless the word covers them already.
  ///
  /// A part of a record does not count, so the word stays the same. Only the mark tells the other
  /// processes of it, until the next writer has appended a record behind it.
  mutating func publishRecords() throws(StorageError) {
    if !isPublished || lockFile?.isMarked == true && endsWithRecord { try publish() }
  }

  /// Tells all processes that the file is valid up to ``offset``.
  mutating func publish() throws(StorageError) {
    // A reader may have opened it again after it was truncated.
    try makeLockFileWritable()
    guard let lockFile else { return }
    validatedWord = nil
    let word = word(upTo: offset)
    try lockFile.publish(word)
    tableWord = word
    if lockFile.isLost {
      self.lockFile = nil
    } else {
      validatedWord = word
    }
  }

  private func word(upTo offset: Int) -> UInt64 {
    seed & ~Self.offsetMask | UInt64(offset) & Self.offsetMask
  }

  /// Whether the word covers all records of the table.
  private var isPublished: Bool {
    guard let lockFile, handle != nil else { return true }
    return lockFile.word() == word(upTo: offset)
  }

  /// The offset up to which the word says that the journal with this id is valid; nil if it says
  /// nothing about the journal.
  static func offset(of word: UInt64?, id: UInt64, size: Int) -> Int? {
    guard let word, word & ~offsetMask == id & ~offsetMask, word & offsetMask <= size else {
      return nil
    }
    return Int(word & offsetMask)
  }

  /// Whether the word says that there is a journal.
  static func isOfJournal(_ word: UInt64?) -> Bool { word.map { $0 & offsetMask > 0 } ?? false }

  /// Whether the word says that a journal ends here, whatever its id.
  static func ends(_ word: UInt64?, at offset: Int) -> Bool {
    word.map { $0 & offsetMask == offset } ?? false
  }

  /// An id for a new journal, whose word differs from that of the journal before.
  func newID() -> UInt64 {
    let current = lockFile?.word() ?? 0
    while true {
      let id = UInt64.random(in: .min ... .max)
      let bits = id & ~Self.offsetMask
      if bits != 0, bits != current & ~Self.offsetMask, bits != seed & ~Self.offsetMask {
        return id
      }
    }
  }

  /// The lock file if a writer can use it as it is.
  mutating func lockFileForWriting() -> LockFile? {
    enterGeneration()
    guard let lockFile, lockFile.file.isWritable, !lockFile.lacksMark else { return nil }
    return lockFile
  }

  /// Opens the lock file for writing if a reader has opened it, unless that is not permitted.
  mutating func makeLockFileWritable() throws(StorageError) {
    guard let lockFile, !lockFile.file.isWritable,
      let opened = try LockFile.openExisting(location.lockPath, hasMark: true)
    else { return }
    self.lockFile = opened
  }

  /// Stops using a lock file that has been deleted or replaced.
  mutating func dropLockFile() {
    // Make the processes that still use it validate their table.
    if let lockFile, lockFile.file.isWritable, !lockFile.isLost {
      try? lockFile.publish(UInt64.random(in: 1 ... .max))
    }
    lockFile = nil
  }

  /// Drops the lock file if its path leads to another one, as after the whole directory was deleted
  /// or replaced.
  mutating func dropReplacedLockFile() throws(StorageError) {
    if let lockFile, try lockFile.isReplaced() { dropLockFile() }
  }

  /// Makes a forked child open its own files, because locks of inherited ones are its parent's.
  mutating func enterGeneration() {
    guard generation != ForkGuard.generation else { return }
    generation = ForkGuard.generation
    forgetFile()
    lockFile = nil
    isUnsynced = false
    isSyncScheduled = false
    isCompacting = false
    restoration = nil
    watches = []
  }
}
