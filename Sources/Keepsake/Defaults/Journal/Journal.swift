internal import Synchronization

/// A suite on disk: a checksummed journal of JSON lines, shared by threads and processes.
///
/// Readers look in memory and take no file lock: a mapped word tells them whether another process
/// has written. Writers append one line under the lock file's lock, so the cost of a set depends on
/// the size of its record and not on the size of the store.
///
/// Locks are taken in this order: `writer`, the file lock, `file`. No record is written while
/// `file` is locked, only the lock file's word.
final class Journal: ValueEngine, FileHoldingStore {
  let location: JournalPaths
  let timeout: Duration
  let report: @Sendable (StorageError) -> Void
  let observers = Observers()
  /// The journal's file and the table that was read from it.
  let file: ReadWriteLocked<JournalFile>
  /// Orders the writers of this process. The file lock is only taken under it.
  let writer = Locked(Writer(), afterFork: { Writer() })
  /// Whether the writer waits for a program that is replacing the files.
  let isWaitingForOtherProgram = Atomic(false)
  /// Whether damage is about to be repaired in the background.
  private let isRepairDue = Atomic(false)
  /// Whether a follower is about to look for changes without an event.
  let isLookDue = Atomic(false)

  init(
    location: JournalPaths, timeout: Duration = .seconds(10),
    report: @escaping @Sendable (StorageError) -> Void
  ) {
    self.location = location
    self.timeout = timeout
    self.report = report
    self.file = ReadWriteLocked(
      JournalFile(location: location), afterFork: { JournalFile(location: location) })
  }

  var path: String? { location.path }

  // MARK: Reading

  func value(forKey key: String) throws(StorageError) -> StoredValue? {
    let current: StoredValue?? = file.withReadLock { file in
      file.isCurrent ? .some(file.table.value(forKey: key)) : nil
    }
    if let current { return current }
    return try read { $0.value(forKey: key) }
  }

  func versionedValue(forKey key: String) throws(StorageError) -> VersionedValue? {
    try read { $0.versionedValue(forKey: key) }
  }

  func cachedModel(forKey key: String) -> DecodedModel? {
    file.withReadLock { $0.isCurrent ? $0.table[key]?.model : nil }
  }

  func cache(_ model: DecodedModel, forKey key: String, version: UInt64) {
    file.withLock { $0.cache(model, forKey: key, version: version) }
  }

  func keys() throws(StorageError) -> [String] { try read { $0.entries.copiedKeys }.keys }

  func changedValues(since version: UInt64?) throws(StorageError) -> ChangedValues {
    try read { $0.changedValues(since: version) }.values
  }

  /// Reads the table, which then holds everything that other processes have published.
  private func read<R: Sendable>(
    _ body: (borrowing ValueTable) -> R
  ) throws(StorageError) -> R {
    let current = file.withReadLock { file in
      // An earlier validation, as part of a sync, may have left changes to signal.
      file.isCurrent && !file.hasUnsignaledChanges ? body(file.table) : nil
    }
    if let current { return current }
    var (result, needsFollowUp, hasUnpublishedRecords) = try file.withLock {
      file throws(StorageError) in
      if file.isCurrent { return (body(file.table), file.hasUnsignaledChanges, false) }
      try file.validate()
      return (body(file.table), true, file.hasUnpublishedRecords)
    }
    if hasUnpublishedRecords, publishRecordsOfKilledWriter() {
      result = file.withLock { body($0.table) }
    }
    if needsFollowUp { followUpValidation() }
    return result
  }

  /// Brings the table up to date with the file.
  ///
  /// - Returns: When to look again, because a change is under way that will cause no event.
  @discardableResult
  func validate() throws(StorageError) -> Duration? {
    try file.withLock { file throws(StorageError) in _ = try file.validate() }
    if file.withLock({ $0.hasUnpublishedRecords }) { publishRecordsOfKilledWriter() }
    followUpValidation()
    return file.withLock { file in
      guard file.hasUnpublishedRecords else {
        file.publicationPause = .milliseconds(10)
        return file.settlingTime.map { min($0, .seconds(1)) }
      }
      // Their writer may have been stopped.
      defer { file.publicationPause = min(file.publicationPause * 2, .seconds(1)) }
      return file.publicationPause
    }
  }

  /// Publishes records beyond the word, whose writer was killed if no process holds the lock. If
  /// the lock is held, it does nothing and does not wait.
  ///
  /// - Returns: Whether the table has all records now.
  @discardableResult
  private func publishRecordsOfKilledWriter() -> Bool {
    try? file.withLock { file throws(StorageError) in try file.makeLockFileWritable() }
    let isDone = withLockIfAvailable { lock in
      file.withLock { file in
        guard lock.file.isWritable else {
          // No writer is at work. What is not published now is left to the next one, which causes
          // an event.
          let isCurrent = (try? file.validate()) == true && !file.hasUnpublishedRecords
          file.hasUnpublishedRecords = false
          return isCurrent
        }
        file.hasUnpublishedRecords = false
        return (try? file.validate(under: lock, isBrief: false)) == .current
      }
    }
    return isDone ?? false
  }

  /// Runs `body` while no other thread or process can write; does nothing and returns nil if one
  /// does, or if there is no lock file.
  func withLockIfAvailable<R>(_ body: (LockFile) -> R) -> R? {
    let result: R?? = writer.withLockIfAvailable { _ in
      guard let lock = file.withLock({ $0.lockFile }), (try? lock.tryLock()) == true else {
        return nil
      }
      let generation = ForkGuard.generation
      defer { if generation == ForkGuard.generation { lock.unlock() } }
      return body(lock)
    }
    return result ?? nil
  }

  /// Does what a validation requires but must not do while `file` is locked.
  private func followUpValidation() {
    let (hasChanges, isDamaged, lockFile, hasOpenedFiles) = file.withLock { file in
      (
        file.takeUnsignaledChanges(), file.damage != nil, file.lockFile, file.takeHasOpenedFiles()
      )
    }
    writer.withLockIfAvailable { $0.releaseLockFile(unless: lockFile) }
    if hasOpenedFiles { OpenStores.shared.add(self) }
    if hasChanges { observers.signal() }
    if isDamaged { repairDamage(timeout: .zero) }
  }

  /// Repairs the damage that a read has found. The read must not wait for another process: if one
  /// holds the lock, this happens in the background, and in a forked child by the next writer.
  private func repairDamage(timeout: Duration) {
    do throws(StorageError) {
      try locked(timeout: timeout) { () throws(StorageError) in }  // taking the lock repairs it
    } catch  where error.code == .timedOut && timeout == .zero {
      if ForkGuard.isForkedChild || isRepairDue.exchange(true, ordering: .relaxed) { return }
      BackgroundWork.run { [self] in
        isRepairDue.store(false, ordering: .relaxed)
        repairDamage(timeout: self.timeout)
      }
    } catch {
      // The directory may be read-only, for example.
      if let damage = damageReport(.failure(error)) { report(damage) }
    }
  }

  // MARK: Closing files

  var lastUse: Int64? { file.withLockIfAvailable { $0.lastUse } }

  func closeIdleFiles() -> Bool {
    let isClosed = writer.withLockIfAvailable { writer in
      guard file.withLockIfAvailable({ $0.closeFiles() }) == true else { return false }
      writer.releaseLockFile(unless: nil)
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
