/// A suite on disk: a checksummed journal of JSON lines, shared by threads and processes.
///
/// Readers look in memory and take no file lock: a mapped word tells them whether another process
/// has written. Writers append one line under the lock file's lock, so the cost of a set depends on
/// the size of its record and not on the size of the store.
///
/// Locks are taken in this order: `writer`, the file lock, `file`. No record is written while
/// `file` is locked, only the lock file's word.
final class Journal: ValueEngine {
  let location: JournalPaths
  let timeout: Duration
  let report: @Sendable (StorageError) -> Void
  let observers = Observers()
  /// The journal's file and the table that was read from it.
  let file: Locked<JournalFile>
  /// Orders the writers of this process. The file lock is only taken under it.
  let writer = Locked(Writer())

  init(
    location: JournalPaths, timeout: Duration = .seconds(10),
    report: @escaping @Sendable (StorageError) -> Void
  ) {
    self.location = location
    self.timeout = timeout
    self.report = report
    self.file = Locked(JournalFile(location: location))
  }

  var path: String? { location.path }

  // MARK: Reading

  func value(forKey key: String) throws(StorageError) -> StoredValue? {
    let current: StoredValue?? = file.withLock { file in
      file.isCurrent ? .some(file.table[key]?.value) : nil
    }
    if let current { return current }
    return try read { $0[key]?.value }
  }

  func versionedValue(forKey key: String) throws(StorageError) -> VersionedValue? {
    try read { $0.versionedValue(forKey: key) }
  }

  func cachedModel(forKey key: String) -> DecodedModel? {
    file.withLock { $0.isCurrent ? $0.table[key]?.model : nil }
  }

  func cache(_ model: DecodedModel, forKey key: String, version: UInt64) {
    file.withLock { $0.cache(model, forKey: key, version: version) }
  }

  func keys() throws(StorageError) -> [String] { try read { $0.entries.keys } }

  /// Reads the table, which then holds everything that other processes have published.
  private func read<R: Sendable>(
    _ body: (borrowing ValueTable) -> R
  ) throws(StorageError) -> R {
    let (result, needsFollowUp) = try file.withLock { file throws(StorageError) in
      // An earlier validation, as part of a sync, may have left changes to signal.
      if file.isCurrent { return (body(file.table), file.hasUnsignaledChanges) }
      try file.validate()
      return (body(file.table), true)
    }
    if needsFollowUp { followUpValidation() }
    return result
  }

  /// Brings the table up to date with the file, including records that are not published.
  func validate() throws(StorageError) {
    try file.withLock { file throws(StorageError) in try file.validate() }
    followUpValidation()
  }

  /// Does what a validation requires but must not do while `file` is locked.
  private func followUpValidation() {
    let (hasChanges, isDamaged, mustPublish, lockFile) = file.withLock { file in
      (
        file.takeUnsignaledChanges(), file.damage != nil, file.claimUnpublishedRecords(),
        file.lockFile
      )
    }
    writer.withLockIfAvailable { $0.releaseLockFile(unless: lockFile) }
    if hasChanges { observers.signal() }
    if isDamaged {
      do throws(StorageError) {
        try locked { () throws(StorageError) in }  // taking the lock repairs the file
      } catch {
        // The directory may be read-only, for example.
        if let damage = damageReport(.failure(error)) { report(damage) }
      }
    } else if mustPublish {
      // Most likely their writer is about to publish them.
      BackgroundWork.run(after: .milliseconds(100)) { [weak self] in
        self?.publishUnpublishedRecords()
      }
    }
  }

  /// Publishes records whose writer was killed before it could, so that all processes agree.
  private func publishUnpublishedRecords() {
    do throws(StorageError) {
      try maintain { () throws(StorageError) in
        try file.withLock { file throws(StorageError) in
          if !file.isPublished { try file.publish() }
        }
      }
    } catch {
      // The next writer publishes them. Until then only new processes see them.
    }
    file.withLock { $0.isPublishingScheduled = false }
  }

  // MARK: Changes

  func changes(where isRelevant: @escaping @Sendable (String) -> Bool) -> AsyncStream<Void> {
    // Before the watch begins, as a watch without observers ends.
    let changes = observers.changes(where: isRelevant)
    watch()
    return changes
  }
}
