internal import Synchronization

/// A suite on disk: a checksummed journal of JSON lines, shared by threads and processes.
///
/// Readers look in memory and take no file lock: a mapped word tells them whether another process
/// has written. Writers append one line under the journal's lock, so the cost of a set depends on
/// the size of its record and not on the size of the store.
///
/// Locks are taken in this order: `writer`, the file lock, `loaded`. No record is written while
/// `loaded` is locked, only the word.
final class Journal: ValueEngine, FileHoldingStore {
  let location: JournalPaths
  let timeout: Duration
  let report: @Sendable (StorageError) -> Void
  let observers = Observers()
  /// What this process has loaded of the journal.
  let loaded: ReadWriteLocked<LoadedJournal>
  /// Orders the writers of this process. The file lock is only taken under it.
  let writer = Locked(Writer(), afterFork: { Writer() })
  /// What the writer waits for, for the errors of threads that wait for the writer.
  let obstacle = Atomic(Obstacle.none)
  /// Whether damage is about to be repaired in the background.
  private let isRepairDue = Atomic(false)
  /// Whether a follower is about to look for changes without an event.
  let isLookDue = Atomic(false)
  /// Whether the way to the file is about to be watched.
  let isWatchDue = Atomic(false)

  init(
    location: JournalPaths, timeout: Duration = .seconds(10),
    report: @escaping @Sendable (StorageError) -> Void
  ) {
    self.location = location
    self.timeout = timeout
    self.report = report
    self.loaded = ReadWriteLocked(
      LoadedJournal(location: location), afterFork: { LoadedJournal(location: location) })
  }

  var path: String? { location.path }

  // MARK: Reading

  func value(forKey key: String) throws(StorageError) -> StoredValue? {
    let current: StoredValue?? = loaded.withReadLock { file in
      file.isCurrent ? .some(file.table.value(forKey: key)) : nil
    }
    if let current { return current }
    return try read { $0.value(forKey: key) }
  }

  func cachedModel(forKey key: String) -> DecodedModel? {
    loaded.withReadLock { $0.isCurrent ? $0.table.model(forKey: key) : nil }
  }

  func cache(_ model: DecodedModel, of value: StoredValue, forKey key: String) {
    loaded.withLock { $0.table.cache(model, of: value, forKey: key) }
  }

  func keys() throws(StorageError) -> [String] { try read { $0.entries.copiedKeys }.keys }

  func changedValues(since version: UInt64?) throws(StorageError) -> ChangedValues {
    try read { $0.changedValues(since: version) }.values
  }

  /// Reads the table, which then holds everything that other processes have published.
  private func read<R: Sendable>(
    _ body: (borrowing ValueTable) -> R
  ) throws(StorageError) -> R {
    if let current = loaded.withReadLock({ $0.isCurrent ? body($0.table) : nil }) { return current }
    defer { followUpValidation() }
    return try loaded.withLock { file throws(StorageError) in
      try file.makeCurrent(nil)
      return body(file.table)
    }
  }

  /// Brings the table up to date with the file.
  ///
  /// - Returns: When to look again, because a change is under way that will cause no event.
  @discardableResult
  func validate() throws(StorageError) -> Duration? {
    defer { followUpValidation() }
    let (handle, settlingTime) = try loaded.withLock { file throws(StorageError) in
      try file.validate()
      return (file.hasUnpublishedBytes ? file.handle : nil, file.settlingTime)
    }
    // What a killed writer has left is of no interest. One that is at work holds the lock.
    if let handle, try !isUnlocked(handle) {
      return loaded.withLock { file in
        // It may have been stopped.
        defer { file.publicationPause = min(file.publicationPause * 2, .seconds(1)) }
        return file.publicationPause
      }
    }
    loaded.withLock { $0.publicationPause = .milliseconds(10) }
    return settlingTime.map { min($0, .seconds(1)) }
  }

  private func isUnlocked(_ handle: JournalHandle) throws(StorageError) -> Bool {
    // Not while a thread of this process may hold the lock through the same descriptor.
    try writer.withLockIfAvailable { _ throws(StorageError) in
      guard handle.file.isOpen, try handle.file.tryLock() else { return false }
      handle.file.unlock()
      return true
    } ?? false
  }

  /// Does what a validation requires but must not do while `loaded` is locked.
  func followUpValidation() {
    var deferred = DeferredWork()
    let needsRepair = loaded.withLock { file in
      file.passOn(to: &deferred)
      // If a killed writer was replacing the file, each read would read all of it.
      return file.isDamaged || file.handle?.word == .replaced
    }
    // A forked child that only reads would otherwise keep the lock of its parent, even after the
    // parent was killed.
    if deferred.hasOpenedFile { writer.withLockIfAvailable { $0.enterGeneration() } }
    finish(deferred)
    if needsRepair { repairSoon(timeout: .zero) }
  }

  /// Repairs the damage that a read has found, or finishes what a killed writer began. The read
  /// must not wait for another process: if one holds the lock, this happens in the background, and
  /// in a forked child by the next writer.
  private func repairSoon(timeout: Duration) {
    do throws(StorageError) {
      // Taking the lock repairs the file, unless it may not be written.
      try maintain(timeout: timeout) { writer, _ throws(StorageError) in
        if writer.handle?.file.isWritable == false { throw writingError() }
      }
    } catch  where error.code == .timedOut && timeout == .zero {
      if ForkGuard.isForkedChild || isRepairDue.exchange(true, ordering: .relaxed) { return }
      BackgroundWork.run { [self] in
        isRepairDue.store(false, ordering: .relaxed)
        repairSoon(timeout: self.timeout)
      }
    } catch {
      guard let count = loaded.withLock({ $0.takeDamage() }) else { return }
      report(damageReport(count, .failure(error)))
    }
  }

  // MARK: Closing files

  var lastUse: Int64? { loaded.withLockIfAvailable { $0.lastUse } }

  func closeIdleFiles() -> Bool {
    let isClosed = writer.withLockIfAvailable { writer in
      guard loaded.withLockIfAvailable({ $0.closeFile() }) == true else { return false }
      writer.forget()
      return true
    }
    return isClosed ?? false
  }

  // MARK: Changes

  func changes(where isRelevant: @escaping @Sendable (String) -> Bool) -> AsyncStream<Void> {
    // Before the watch begins, as a watch without observers ends.
    let changes = observers.changes(where: isRelevant)
    watch()
    return changes
  }
}
