internal import Synchronization

/// Changing values. Each change is a record that is appended under the file lock.
extension Journal {
  /// What the writers of this process share.
  struct Writer {
    /// Where a writer encodes its records, kept because allocating it would cost as much as
    /// encoding a record.
    fileprivate var buffer: [UInt8] = []
    /// The lock file that the last writer locked, and the process that opened it: a forked child
    /// must open its own, because it shares the lock of an inherited one with its parent.
    fileprivate var lockFile: LockFile?
    fileprivate var generation: UInt64 = 0

    /// A larger buffer is not kept. Most settings need less.
    fileprivate static let largestBuffer = 4 << 10

    /// Closes a lock file that is not in use any more. A forked child that only reads would
    /// otherwise keep the lock of its parent, even after the parent was killed.
    mutating func releaseLockFile(unless current: LockFile?) {
      if lockFile !== current { lockFile = nil }
    }
  }

  /// What a writer does after it has released its locks, because it may take long or write itself.
  struct FollowUp {
    fileprivate var damage: StorageError?
    /// Whether values have changed that this writer did not change.
    fileprivate var hasChanges = false
    fileprivate var isSyncDue = false
    fileprivate var hasOpenedFiles = false
    /// Whether a full disk made the writer use the space that is reserved for removals.
    fileprivate var hasUsedReserve = false
    fileprivate var compaction: JournalFile.Compaction?
  }

  func set(_ value: StoredValue?, forKey key: String) throws(StorageError) {
    try append(ValueChange(key: key, value: value))
  }

  func apply(_ changes: [ValueChange]) throws(StorageError) {
    _ = try changes.withUnsafeBufferPointer { changes throws(StorageError) in
      try append(changes) { _ in true }
    }
  }

  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool {
    try append(ValueChange(key: key, value: new)) { $0[key]?.value == old }
  }

  func update(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError) {
    var isAttempted = false
    defer { if isAttempted { observers.signal(key) } }
    var isDone = false
    while !isDone {
      isDone = try locked { file in
        file.table[key]?.value
      } _: { old, writer, followUp throws(StorageError) in
        let generation = ForkGuard.generation
        guard let new = try change(old), new != nil || old != nil else { return true }
        guard generation == ForkGuard.generation else {
          throw StorageError(
            .misuse, operation: "update", path: path, reason: "the closure forked the process",
            remedy: "Fork outside the closure.")
        }
        isAttempted = true
        return try withUnsafePointer(to: ValueChange(key: key, value: new)) {
          change throws(StorageError) in
          try append(
            UnsafeBufferPointer(start: change, count: 1), file.withLock { $0.appendPlan() },
            &writer, &followUp)
        }
      }
    }
  }

  func removeAll() throws(StorageError) {
    try locked { _ in
    } _: { _, writer, followUp throws(StorageError) in
      guard file.withLock({ $0.handle != nil }) else { return }
      defer {
        followUp.hasChanges = file.withLock { $0.takeUnsignaledChanges() } || followUp.hasChanges
      }
      guard let plan = file.withLock({ $0.appendPlan() }) else {
        try rewrite(asEmpty: true)
        return
      }
      // The removal counts from the moment that this record is published. The new file only
      // spares the space; without it, the record has to survive a power cut.
      do throws(StorageError) {
        try append(nil, plan, &writer, &followUp)
      } catch  where error.code == .diskFull {
        return try deleteFile()
      }
      do throws(StorageError) {
        try rewrite()
      } catch  where error.code == .diskFull {
        try deleteFile()
      } catch {
        if file.withLock({ $0.isCondemned }) { throw error }
        try plan.handle.synchronize()
      }
    }
  }

  /// Removes all values by deleting the file, durably: that needs no space. The caller holds the
  /// file lock.
  private func deleteFile() throws(StorageError) {
    try mark()
    try FileSystem.remove(location.path)
    try file.withLock { file throws(StorageError) in
      file.forgetFile()
      try file.publish()
    }
    try synchronizeDirectory()
  }

  // MARK: Appending

  @discardableResult
  private func append(
    _ change: ValueChange, if condition: (borrowing ValueTable) -> Bool = { _ in true }
  ) throws(StorageError) -> Bool {
    try withUnsafePointer(to: change) { change throws(StorageError) in
      try append(UnsafeBufferPointer(start: change, count: 1), if: condition)
    }
  }

  /// What a writer decides as soon as its table is current.
  private enum Decision {
    case refuse
    /// The changes only remove keys that do not exist.
    case skip
    /// nil if there is no file that can be written.
    case append(JournalFile.AppendPlan?)
  }

  /// Appends the changes if `condition` holds for the current table; returns whether it does.
  private func append(
    _ changes: UnsafeBufferPointer<ValueChange>, if condition: (borrowing ValueTable) -> Bool
  ) throws(StorageError) -> Bool {
    var isAttempted = false
    // Even after an error: a part of the changes may have been written.
    defer { if isAttempted { observers.signal(changes.count == 1 ? changes[0].key : nil) } }
    while true {
      let isDone: Bool? = try locked(isBrief: true) { file in
        guard condition(file.table) else { return Decision.refuse }
        guard changes.contains(where: { $0.value != nil || file.table[$0.key] != nil }) else {
          return .skip
        }
        return .append(file.appendPlan())
      } _: { decision, writer, followUp throws(StorageError) in
        switch decision {
        case .refuse: return false
        case .skip: return true
        case .append(let plan):
          isAttempted = true
          return try append(changes, plan, &writer, &followUp) ? true : nil
        }
      }
      if let isDone { return isDone }
    }
  }

  /// Appends the changes in one write, under the file lock, and publishes them.
  ///
  /// - Parameter changes: nil to remove all keys.
  /// - Returns: Whether they were appended; false if another program has made the file in the
  ///   meantime, so that the table has to be validated again.
  @discardableResult
  private func append(
    _ changes: UnsafeBufferPointer<ValueChange>?, _ plan: JournalFile.AppendPlan?,
    _ writer: inout Writer, _ followUp: inout FollowUp
  ) throws(StorageError) -> Bool {
    guard let plan = if let plan { plan } else { try makeFile() } else { return false }
    do throws(StorageError) {
      try write(changes, plan, &writer, &followUp)
    } catch  where error.code == .diskFull {
      guard changes?.allSatisfy({ $0.value == nil }) ?? true, let lockFile = writer.lockFile else {
        throw error
      }
      try writeRemovals(changes, lockFile, &writer, &followUp)
    }
    return true
  }

  /// Appends removals on a full disk, or a user could not free space.
  private func writeRemovals(
    _ changes: UnsafeBufferPointer<ValueChange>?, _ lockFile: LockFile, _ writer: inout Writer,
    _ followUp: inout FollowUp
  ) throws(StorageError) {
    followUp.hasUsedReserve = true
    var pauseCount = 0
    while true {
      guard let plan = file.withLock({ $0.appendPlan() }) else {
        throw StorageError.notPermitted(location.path)
      }
      try lockFile.releaseSpace()
      do throws(StorageError) {
        try write(changes, plan, &writer, &followUp)
        break
      } catch {
        lockFile.reserveSpace()
        guard error.code == .diskFull, pauseCount < 10 else { throw error }
        // The blocks of a journal that was replaced are free when it is closed everywhere: by a
        // sync in the background, or by a child process when it executes its program.
        pauseCount += 1
        BackgroundThread.sleep(for: .milliseconds(20))
      }
    }
    guard changes != nil else { return }
    // Frees the space of the removed values. There may be no room for the new file, but the removal
    // is complete.
    do throws(StorageError) { try rewrite() } catch { lockFile.reserveSpace() }
  }

  private func write(
    _ changes: UnsafeBufferPointer<ValueChange>?, _ plan: JournalFile.AppendPlan,
    _ writer: inout Writer, _ followUp: inout FollowUp
  ) throws(StorageError) {
    defer {
      writer.buffer.removeAll(keepingCapacity: writer.buffer.capacity <= Writer.largestBuffer)
    }
    plan.encode(changes, to: &writer.buffer)
    let count = writer.buffer.count
    if plan.takesBlock(for: count), !followUp.hasUsedReserve {
      writer.lockFile?.reserveMissingSpace()
    }
    try writer.lockFile?.mark()
    let (written, failure) = writer.buffer.withUnsafeBytes { plan.handle.write($0) }
    try file.withLock { file throws(StorageError) in
      followUp.isSyncDue = file.noteUnsyncedRecords() || followUp.isSyncDue
      try file.requireLockFile(writer.lockFile)
      try file.finishAppend(of: changes, plan, written: failure == nil ? count : nil)
      followUp.hasChanges = file.takeUnsignaledChanges() || followUp.hasChanges
      if failure == nil { followUp.compaction = file.takeDueCompaction() }
    }
    // The last two bytes only end the line: a record without them counts.
    if let failure, written < count - 2 { throw failure }
  }

  /// Makes the file if there is none, or throws why it cannot be written; nil if another program
  /// has made it in the meantime.
  private func makeFile() throws(StorageError) -> JournalFile.AppendPlan? {
    let (isNew, isMissing) = file.withLock { ($0.handle == nil, $0.isMissing) }
    if isNew {
      guard try rewrite(mayReplace: !isMissing) else {
        try requireTarget()
        return nil
      }
    } else {
      // Throws unless the file's mode has changed since it was opened.
      _ = try File(location.path, .append)
      let isCurrent = try file.withLock { file throws(StorageError) in
        try file.reload(file.lockFile?.word(), isLocked: true)
      }
      if !isCurrent { return nil }
    }
    if let plan = file.withLock({ $0.appendPlan() }) { return plan }
    throw StorageError.notPermitted(location.path)
  }

  /// Throws if the journal's path is a symbolic link to nothing: there is no file to append to, and
  /// none may be made in place of the link.
  private func requireTarget() throws(StorageError) {
    let isLink = try FileSystem.status(location.path, followsLinks: false)?.isSymbolicLink == true
    guard isLink, try FileSystem.status(location.path) == nil else { return }
    throw StorageError(
      .notFound, operation: "open", path: location.path,
      reason: "the path is a symbolic link to a file that does not exist",
      remedy: "Restore that file, or remove the link.")
  }

  // MARK: Locking

  /// Runs `body` while no other thread or process can write, with a table that is current.
  ///
  /// - Parameters:
  ///   - mayCreate: Whether to make the directory and the lock file if they are missing.
  ///   - timeout: How long to wait for other writers; nil for as long as every writer does.
  func locked(
    mayCreate: Bool = true, timeout: Duration? = nil, _ body: () throws(StorageError) -> Void
  ) throws(StorageError) {
    try locked(mayCreate: mayCreate, timeout: timeout) { _ in
    } _: { _, _, followUp throws(StorageError) in
      try body()
      followUp.hasChanges = file.withLock { $0.takeUnsignaledChanges() } || followUp.hasChanges
    }
  }

  /// The same for background work: does nothing if the files have been deleted.
  func maintain(_ body: () throws(StorageError) -> Void) throws(StorageError) {
    do throws(StorageError) {
      try locked(mayCreate: false, body)
    } catch  where error.code == .notFound && error.path == location.lockPath {
      return
    }
  }

  /// Takes the locks of a writer, makes the table current, passes it to `prepare`, and then runs
  /// `body` with the result while no other thread or process can write.
  ///
  /// - Parameter isBrief: Whether `body` only appends.
  private func locked<Prepared, R>(
    mayCreate: Bool = true, isBrief: Bool = false, timeout: Duration? = nil,
    _ prepare: (borrowing JournalFile) -> Prepared,
    _ body: (Prepared, inout Writer, inout FollowUp) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let timeout = timeout ?? self.timeout
    var followUp = FollowUp()
    defer { finish(followUp) }
    let result = try writer.withLock(timeout: timeout) { writer throws(StorageError) in
      var deadline: ContinuousClock.Instant?
      defer {
        // Not each time, and not by the deadline, whose type makes that slow.
        if isWaitingForOtherProgram.load(ordering: .relaxed) {
          isWaitingForOtherProgram.store(false, ordering: .relaxed)
        }
      }
      while true {
        let lock = try lockFile(of: &writer, mayCreate: mayCreate, timeout: timeout)
        try lock.lock(timeout: timeout)
        let generation = ForkGuard.generation
        // A child that was forked in the meantime must not release the lock, which is its parent's.
        defer { if generation == ForkGuard.generation { lock.unlock() } }
        var validity = JournalFile.Validity.current
        var needsRepair = false
        var prepared = try file.withLock { file throws(StorageError) -> Prepared? in
          validity = try file.validate(under: lock, isBrief: isBrief)
          guard validity == .current else { return nil }
          needsRepair = file.damage != nil || file.restoration != nil
          followUp.hasChanges = file.takeUnsignaledChanges()
          followUp.hasOpenedFiles = file.takeHasOpenedFiles()
          return prepare(file)
        }
        if validity == .overwritten {
          try waitForOtherProgram(lock, at: location.path, until: &deadline, timeout)
          continue
        }
        if needsRepair {
          let isRestored = file.withLock { $0.restoration != nil }
          followUp.damage = isRestored ? try completeRestoration() : repair()
          prepared = file.withLock { file in
            followUp.hasChanges = file.takeUnsignaledChanges() || followUp.hasChanges
            return prepare(file)
          }
        }
        guard let prepared else {
          writer.lockFile = nil
          try waitForOtherProgram(lock, at: location.lockPath, until: &deadline, timeout)
          continue
        }
        return try body(prepared, &writer, &followUp)
      }
    }
    if let result { return result }
    if isWaitingForOtherProgram.load(ordering: .relaxed) {
      throw replacementTimeout(location.path, timeout)
    }
    throw LockFile.threadTimeoutError(
      timeout, path: location.path, lockFile: file.withLock { $0.lockFile },
      remedy: "Do not wait for other threads inside the closure of an update.")
  }

  /// Waits a moment for a program that is replacing the journal or its lock file, without the lock.
  private func waitForOtherProgram(
    _ lock: LockFile, at path: String, until deadline: inout ContinuousClock.Instant?,
    _ timeout: Duration
  ) throws(StorageError) {
    lock.unlock()
    let end = deadline ?? .now + timeout
    deadline = end
    guard ContinuousClock.now < end else { throw replacementTimeout(path, timeout) }
    isWaitingForOtherProgram.store(true, ordering: .relaxed)
    BackgroundThread.sleep(for: .milliseconds(10))
  }

  private func replacementTimeout(_ path: String, _ timeout: Duration) -> StorageError {
    StorageError(
      .timedOut, operation: "lock", path: path,
      reason: "another program has been replacing the file for more than \(timeout)",
      remedy: "Try again when that program has finished.")
  }

  @inline(__always)
  private func lockFile(
    of writer: inout Writer, mayCreate: Bool, timeout: Duration
  ) throws(StorageError) -> LockFile {
    if let lockFile = writer.lockFile, writer.generation == ForkGuard.generation {
      return lockFile
    }
    let usable = file.withLock { $0.lockFileForWriting() }
    let lockFile =
      if let usable { usable } else { try openLockFile(mayCreate: mayCreate, timeout: timeout) }
    writer.lockFile = lockFile
    writer.generation = ForkGuard.generation
    return lockFile
  }

  /// Opens the lock file, and creates it if it is missing. May wait for another process, so the
  /// caller must not have locked `file`, for which reads would wait.
  private func openLockFile(
    mayCreate: Bool, timeout: Duration
  ) throws(StorageError) -> LockFile {
    if !mayCreate, try FileSystem.status(location.lockPath) == nil {
      throw StorageError.missing(location.lockPath)
    }
    let opened = try LockFile.createOrOpen(
      location.lockPath, mode: location.prepareDirectory(), timeout: timeout, hasMark: true
    ) { () throws(StorageError) in
      // If there is a journal, its lock file was deleted. A process that still uses that one
      // notices within a tick. Wait for two, so that everything it appends until then is read here.
      // What it appends later fails.
      if try FileSystem.status(location.path) != nil {
        BackgroundThread.sleep(for: .nanoseconds(2 * CoarseClock.resolution))
      }
      // Random, so that a process which knows the word of an earlier lock file does not mistake
      // this one for it.
      return [UInt64.random(in: 1...0xFF_FFFF) << 40]
    }
    file.withLock { $0.lockFile = opened }
    return opened
  }

  @inline(__always)
  private func finish(_ followUp: FollowUp) {
    if followUp.isSyncDue { synchronizeSoon() }
    if followUp.hasOpenedFiles { OpenStores.shared.add(self) }
    if followUp.hasChanges { observers.signal() }
    // Again, because only now is the old file closed.
    if followUp.hasUsedReserve { withLockIfAvailable { $0.reserveSpace() } }
    if let compaction = followUp.compaction { start(compaction) }
    if let damage = followUp.damage { report(damage) }
  }
}
