/// The lock file, whose word tells all processes how far the journal is valid: 24 bits that change
/// with every new file, above 40 bits with the offset.
extension JournalFile {
  private static let offsetMask: UInt64 = (1 << 40) - 1

  /// Validates the table under the lock; false if other writers lock another file, so that `lock`
  /// excludes none of them.
  ///
  /// - Parameter isBrief: Whether the writer only appends, which takes less than a tick of the
  ///   clock. Then one check within each tick tells early enough that the lock file was deleted,
  ///   because a process that makes a new one waits for two ticks before it reads the journal.
  mutating func validate(
    under lock: LockFile, isBrief: Bool
  ) throws(StorageError) -> Bool {
    guard lockFile === lock else { return false }
    if try lock.isDeleted(usingRecentCheck: isBrief && isCurrent) {
      dropLockFile()
      return false
    }
    try validate()
    return lockFile === lock
  }

  /// Tells all processes that the file is valid up to ``offset``.
  ///
  /// - Parameter isReplaced: Whether the file was replaced.
  mutating func publish(isReplaced: Bool = false) throws(StorageError) {
    guard let lockFile else { return }
    validatedWord = nil
    let epoch = (lockFile.word() >> 40) &+ (isReplaced ? 1 : 0)
    let word = epoch << 40 | UInt64(offset) & Self.offsetMask
    try lockFile.publish(word)
    validatedWord = word
  }

  /// Whether the word agrees with the file. If not, a writer is about to publish its records, or
  /// was killed before it could.
  var isPublished: Bool {
    guard let lockFile, handle != nil else { return true }
    return lockFile.word() & Self.offsetMask == UInt64(offset)
  }

  /// Returns true if there are unpublished records and publishing is not scheduled; the caller must
  /// then publish them.
  mutating func claimUnpublishedRecords() -> Bool {
    if isPublished || isPublishingScheduled { return false }
    isPublishingScheduled = true
    return true
  }

  /// The lock file. Opens it if necessary, and creates it if it is missing.
  mutating func openLockFile(
    mayCreate: Bool, timeout: Duration
  ) throws(StorageError) -> LockFile {
    enterGeneration()
    if let lockFile { return lockFile }
    if !mayCreate, try FileSystem.status(location.lockPath) == nil {
      throw StorageError.missing(location.lockPath)
    }
    let mode = try location.prepareDirectory()
    let journal = location.path
    let opened = try LockFile.createOrOpen(location.lockPath, mode: mode, timeout: timeout) {
      () throws(StorageError) in
      // If there is a journal, its lock file was deleted. A process that still uses that one
      // notices within a tick. Wait for two, so that everything it appends until then is read here.
      if try FileSystem.status(journal) != nil {
        BackgroundThread.sleep(for: .nanoseconds(2 * CoarseClock.resolution))
      }
      // A random epoch, so that a process which knows the word of an earlier lock file does not
      // mistake this one for it.
      return [UInt64.random(in: 1...0xFF_FFFF) << 40]
    }
    lockFile = opened
    validatedWord = nil
    return opened
  }

  /// Stops using a lock file that has been deleted or replaced.
  mutating func dropLockFile() {
    // Make the processes that still use it validate their table.
    try? lockFile?.publish(UInt64.random(in: .min ... .max))
    lockFile = nil
    validatedWord = nil
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
    validatedWord = nil
    isUnsynced = false
    isSyncScheduled = false
    isCompacting = false
    isPublishingScheduled = false
    watches = []
  }
}
