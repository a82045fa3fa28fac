internal import Synchronization

/// The lock of the writers: the journal's own inode.
///
/// Under it, one look at the path tells whether it still leads to the file that was locked, and by
/// its size whether anything was appended since this process looked last. What is beyond the word
/// then was left by a writer that was killed, and is cut off.
extension Journal {
  /// What the writers of this process share, and only they change.
  struct Writer {
    /// Where a writer encodes its records, kept because allocating it would cost as much as
    /// encoding a record.
    var buffer: [UInt8] = []
    /// The journal that the last writer locked.
    var handle: JournalHandle?
    /// The state of that journal when its lock was released, or since it was taken; the word is nil
    /// if the file has to be validated.
    var word: JournalWord?
    var id: UInt64 = 0
    var end = 0
    /// Up to where the file has blocks.
    var reservedEnd = 0
    private var generation = ForkGuard.generation

    /// A larger buffer is not kept. Most settings need less.
    static let largestBuffer = 4 << 10

    /// Makes a forked child open its own file, because it shares the lock of an inherited one with
    /// its parent.
    @inline(__always)
    mutating func enterGeneration() {
      if generation != ForkGuard.generation { self = Writer() }
    }

    /// Continues with a journal as this process knows it.
    mutating func adopt(_ handle: JournalHandle, _ id: UInt64, end: Int) {
      if self.handle !== handle { reservedEnd = 0 }
      (self.handle, self.id, self.end) = (handle, id, end)
      word = JournalWord(id: id, end: end)
    }

    mutating func forget() {
      handle = nil
      word = nil
    }
  }

  enum Obstacle: UInt8, AtomicRepresentable {
    case none
    /// Another process holds the lock.
    case lock
    /// Another program is replacing the file.
    case replacement
  }

  /// Work for after the writer has released its locks, because it may take long or write itself.
  struct DeferredWork {
    /// Whether values have changed that this writer did not change.
    var hasChanges = false
    var isSyncDue = false
    var hasOpenedFile = false
    var compaction: LoadedJournal.Compaction?
    var dropped: [UInt8]?
    var damage: StorageError?
  }

  /// Runs `body` while no other thread or process can write, with a table that is current. If there
  /// is no journal, the writer has no handle, and nothing is locked.
  ///
  /// - Parameters:
  ///   - timeout: How long to wait for other writers; nil for as long as every writer does.
  ///   - body: Returns false if it needs a journal; then one is made, and it is called again.
  func locked(
    timeout: Duration? = nil,
    _ body: (inout Writer, inout DeferredWork) throws(StorageError) -> Bool
  ) throws(StorageError) {
    let wait = Wait(timeout: timeout ?? self.timeout)
    var deferred = DeferredWork()
    defer { finish(deferred) }
    let done: Void? = try writer.withLock(timeout: wait.timeout) { writer throws(StorageError) in
      writer.enterGeneration()
      defer {
        if obstacle.load(ordering: .relaxed) != .none { obstacle.store(.none, ordering: .relaxed) }
      }
      while true {
        let generation = ForkGuard.generation
        let handle = try takeLock(&writer, wait, &deferred)
        // A child that was forked in the meantime must not release the lock, which is its parent's.
        defer {
          if generation == ForkGuard.generation {
            handle?.file.unlock()
            // The body may have replaced the journal.
            if let current = writer.handle, current !== handle { current.file.unlock() }
          }
        }
        if try body(&writer, &deferred) { return }
        try makeFile()
      }
    }
    if done == nil { throw threadTimeout(wait.timeout) }
  }

  /// The error of a writer that waited too long for another thread, which may itself be waiting.
  @inline(never)
  private func threadTimeout(_ timeout: Duration) -> StorageError {
    switch obstacle.load(ordering: .relaxed) {
    case .replacement: replacementTimeout(timeout)
    case .lock: File.lockTimeout(location.path, timeout)
    case .none:
      LockFile.threadTimeoutError(
        timeout, path: location.path, lockFile: nil,
        remedy: "Do not wait for other threads inside the closure of an update.")
    }
  }

  /// The same for background work: does nothing if there is no journal.
  func maintain(
    timeout: Duration? = nil,
    _ body: (inout Writer, inout DeferredWork) throws(StorageError) -> Void
  ) throws(StorageError) {
    try locked(timeout: timeout) { writer, deferred throws(StorageError) in
      if writer.handle != nil { try body(&writer, &deferred) }
      return true
    }
  }

  /// Takes the lock of the file at the path, and makes the table current.
  ///
  /// - Returns: The locked file; nil if there is none.
  @inline(__always)
  private func takeLock(
    _ writer: inout Writer, _ wait: Wait, _ deferred: inout DeferredWork
  ) throws(StorageError) -> JournalHandle? {
    if let handle = writer.handle, let word = writer.word, handle.file.isOpen,
      try handle.file.tryLock()
    {
      do throws(StorageError) {
        let status = try FileSystem.status(location.path)
        let isSameFile = status?.isSameFile(as: handle.status) ?? false
        if isSameFile, status?.size == writer.end, handle.word == word { return handle }
        if !isSameFile { try leave(handle) }
      } catch {
        handle.file.unlock()
        throw error
      }
      handle.file.unlock()
    }
    return try takeLockSlowly(&writer, wait, &deferred)
  }

  @inline(never)
  private func takeLockSlowly(
    _ writer: inout Writer, _ wait: Wait, _ deferred: inout DeferredWork
  ) throws(StorageError) -> JournalHandle? {
    var attempts = 0
    while true {
      attempts += 1
      // A program that replaces the file without pause.
      if attempts > 10 { try waitForOtherProgram(wait) }
      writer.word = nil
      guard let handle = try openFile(&writer) else {
        writer.forget()
        let isMissing = try loaded.withLock { file throws(StorageError) in
          defer { file.passOn(to: &deferred) }
          try file.validate()
          return file.handle == nil
        }
        if isMissing { return nil }
        continue  // another process has just made it
      }
      try lock(handle, wait)
      var isKept = false
      defer {
        if !isKept {
          handle.file.unlock()
          // A repair may have replaced the journal before it failed.
          if let current = writer.handle, current !== handle { current.file.unlock() }
        }
      }
      let validity = try loaded.withLock { file throws(StorageError) in
        defer { file.passOn(to: &deferred) }
        return try file.validate(handle)
      }
      switch validity {
      case .elsewhere:
        try leave(handle)
        writer.forget()
      case .unsettled:
        handle.file.unlock()
        try waitForOtherProgram(wait)
      case .current:
        if handle.isLost, try handle.file.status().size != handle.status.size {
          writer.forget()
        } else if try prepare(handle, &writer, &deferred) {
          isKept = true
          return writer.handle
        }
      }
    }
  }

  /// Tells the readers of a file that has lost its name to look at the path. The caller holds its
  /// lock.
  func leave(_ handle: JournalHandle) throws(StorageError) {
    guard !handle.isLost, handle.file.isWritable else { return }
    let status = try handle.file.status()
    guard status.linkCount == 0 else { return }
    loaded.withLock { $0.noteLoss(of: handle, status) }
    try handle.publish(.replaced)
  }

  private func openFile(_ writer: inout Writer) throws(StorageError) -> JournalHandle? {
    if let handle = writer.handle, handle.file.isWritable, !handle.isLost, handle.file.isOpen {
      return handle
    }
    let opened = try JournalHandle.open(location.path, forWriting: true)
    writer.handle = opened
    return opened
  }

  /// Why the journal cannot be written.
  func writingError() -> StorageError {
    do throws(StorageError) {
      _ = try File(location.path, .readWrite)
      return StorageError.notPermitted(location.path)
    } catch {
      return error
    }
  }

  private func lock(_ handle: JournalHandle, _ wait: Wait) throws(StorageError) {
    if try handle.file.tryLock() { return }
    obstacle.store(.lock, ordering: .relaxed)
    try handle.file.lock(wait)
    obstacle.store(.none, ordering: .relaxed)
  }

  /// Makes the file ready to be appended to: cuts off what a killed writer has left, and repairs
  /// it.
  ///
  /// - Returns: Whether it is ready; false if another program has replaced it meanwhile.
  private func prepare(
    _ handle: JournalHandle, _ writer: inout Writer, _ deferred: inout DeferredWork
  ) throws(StorageError) -> Bool {
    let (repair, id, end, hasRest) = loaded.withLock {
      ($0.repair, $0.id, $0.end, $0.hasUnpublishedBytes)
    }
    writer.adopt(handle, id, end: end)
    guard handle.file.isWritable else {
      writer.word = nil  // the next writer tries to open it again
      return true
    }
    if hasRest {
      try handle.file.truncate(to: end)
      writer.reservedEnd = end
      loaded.withLock { $0.hasUnpublishedBytes = false }
    }
    if repair == nil, loaded.withLock({ $0.isAppendable }) { return true }
    defer { loaded.withLock { $0.passOn(to: &deferred) } }
    var failure: StorageError?
    if case .rewrite = repair {
      do throws(StorageError) { try rewrite(&writer) } catch { failure = error }
    } else {
      failure = repairDamage(&writer)
      deferred.damage = failure
    }
    if writer.handle == nil { return false }
    if let failure, !loaded.withLock({ $0.giveUpRepair() }) { throw failure }
    return true
  }

  /// Waits a moment for a program that is replacing the journal. The caller holds no lock.
  private func waitForOtherProgram(_ wait: Wait) throws(StorageError) {
    guard wait.rest > .zero else { throw replacementTimeout(wait.timeout) }
    obstacle.store(.replacement, ordering: .relaxed)
    BackgroundThread.sleep(for: .milliseconds(10))
  }

  private func replacementTimeout(_ timeout: Duration) -> StorageError {
    StorageError(
      .timedOut, operation: "lock", path: location.path,
      reason: "another program has been replacing the file for more than \(timeout)",
      remedy: "Try again when that program has finished.")
  }

  func finish(_ deferred: DeferredWork) {
    if deferred.isSyncDue { synchronizeSoon() }
    if deferred.hasOpenedFile {
      OpenStores.shared.add(self)
      watchPathSoon()
    }
    if deferred.hasChanges { observers.signal() }
    if let values = deferred.dropped { keepSoon(values) }
    if let compaction = deferred.compaction { start(compaction) }
    if let damage = deferred.damage { report(damage) }
  }
}
