/// A suite on disk: a checksummed journal of JSON lines, shared by threads and processes.
///
/// Readers look in memory and take no file lock: a mapped word says whether there is news. Writers
/// append one line under the lock file's lock, so the cost of a set follows its record and not the
/// store. Lock order: `writer`, then the file lock, then `state`; no file is written under `state`
/// but the lock file's word.
final class Journal: ValueEngine {
  let location: JournalPaths
  let timeout: Duration
  let report: @Sendable (StorageError) -> Void
  let observers = Observers()
  let state: Locked<JournalFile>
  /// Orders this process's writers; every file lock is taken under it. What it holds is where they
  /// put their records together: to get memory anew would cost as much as a record.
  private let writer = Locked<[UInt8]>([])

  init(
    location: JournalPaths, timeout: Duration = .seconds(10),
    report: @escaping @Sendable (StorageError) -> Void
  ) {
    self.location = location
    self.timeout = timeout
    self.report = report
    self.state = Locked(JournalFile(location: location))
  }

  var path: String? { location.path }

  // MARK: Reading

  func value(forKey key: String) throws(StorageError) -> StoredValue? {
    let fast: StoredValue?? = state.withLock { state in
      state.isCurrent ? .some(state.table[key]?.value) : nil
    }
    if let fast { return fast }
    return try read { $0.table[key]?.value }
  }

  func cachedModel(forKey key: String) -> DecodedModel? {
    state.withLock { $0.isCurrent ? $0.table[key]?.model : nil }
  }

  func versionedValue(forKey key: String) throws(StorageError) -> VersionedValue? {
    try read { $0.table.versionedValue(forKey: key) }
  }

  func keys() throws(StorageError) -> [String] {
    try read { $0.table.entries.keys }
  }

  func cache(_ model: DecodedModel, forKey key: String, version: UInt64) {
    state.withLock { $0.cache(model, forKey: key, version: version) }
  }

  /// Runs `body` on the state when it holds all that other processes have published.
  private func read<R: Sendable>(_ body: (borrowing JournalFile) -> R) throws(StorageError) -> R {
    let (result, needsCare) = try state.withLock { state throws(StorageError) in
      // Another look at the file, as of a sync, may have read what nobody has been told of.
      if state.isCurrent { return (body(state), state.hasNews) }
      try state.refresh()
      return (body(state), true)
    }
    if needsCare { careAfterRefresh() }
    return result
  }

  /// Takes note of what others have done to the file, published or not.
  func lookAtFile() throws(StorageError) {
    try state.withLock { state throws(StorageError) in try state.refresh() }
    careAfterRefresh()
  }

  /// What a look at the file asks for that must not be done under the state's lock.
  private func careAfterRefresh() {
    let (hasNews, isDamaged, hasLeftovers) = state.withLock { state in
      defer { state.hasNews = false }
      return (state.hasNews, state.damage != nil, state.takeLeftovers())
    }
    if hasNews { observers.signal() }
    if isDamaged {
      do throws(StorageError) {
        try locked { _ throws(StorageError) in }  // repairs on its way
      } catch {
        // a read-only directory, say
        if let damage = damageReport(.failure(error)) { report(damage) }
      }
    } else if hasLeftovers {
      // Most likely their writer is just about to publish them.
      BackgroundWork.run(after: .milliseconds(100)) { [weak self] in self?.publishLeftovers() }
    }
  }

  /// Publishes what a killed writer had written but not yet published, so that all processes agree.
  private func publishLeftovers() {
    do throws(StorageError) {
      try maintained { journal throws(StorageError) in
        try journal.state.withLock { state throws(StorageError) in
          if !state.isPublished { try state.publish() }
        }
      }
    } catch {
      // The next writer publishes; until then the unacknowledged record shows to new processes
      // only.
    }
    state.withLock { $0.isSettlingLeftovers = false }
  }

  // MARK: Writing

  func set(_ value: StoredValue?, forKey key: String) throws(StorageError) {
    try writing(isBrief: true) { journal, record throws(StorageError) in
      try journal.append(ValueChange(key: key, value: value), &record)
    }
  }

  func apply(_ changes: [ValueChange]) throws(StorageError) {
    try writing(isBrief: true) { journal, record throws(StorageError) in
      try changes.withUnsafeBufferPointer { changes throws(StorageError) in
        try journal.append(changes, &record)
      }
    }
  }

  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool {
    try writing(isBrief: true) { journal, record throws(StorageError) in
      guard journal.state.withLock({ $0.table[key]?.value }) == old else { return false }
      try journal.append(ValueChange(key: key, value: new), &record)
      return true
    }
  }

  func update(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError) {
    try writing { journal, record throws(StorageError) in
      let generation = ForkGuard.generation
      guard let replacement = try change(journal.state.withLock { $0.table[key]?.value }) else {
        return
      }
      guard generation == ForkGuard.generation else {
        throw StorageError(
          .misuse, operation: "update", path: journal.path, reason: "the closure forked",
          remedy: "Fork outside the closure.")
      }
      try journal.append(ValueChange(key: key, value: replacement), &record)
    }
  }

  func removeAll() throws(StorageError) {
    try locked { journal throws(StorageError) in
      guard journal.state.withLock({ $0.file != nil }) else { return }
      try journal.rewrite(asEmpty: true)
    }
  }

  /// Runs `body` while no other thread or process can write, with a state that holds all writes so
  /// far.
  ///
  /// - Parameter mayCreate: Whether to make the directory and the lock file where they are missing.
  func locked<R>(
    mayCreate: Bool = true, _ body: (Journal) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    try writing(mayCreate: mayCreate) { journal, _ throws(StorageError) in try body(journal) }
  }

  /// The same for a body that appends, which puts its records together in the buffer that it is
  /// given.
  ///
  /// - Parameter isBrief: Whether `body` does no more than append, which is over within a tick.
  private func writing<R>(
    mayCreate: Bool = true, isBrief: Bool = false,
    _ body: (Journal, inout [UInt8]) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    var damage: StorageError?
    // Under no lock: whoever hears of it may write here.
    defer { if let damage { report(damage) } }
    let result = try writer.withLock(timeout: timeout) { buffer throws(StorageError) in
      let held = try takeLock(mayCreate: mayCreate, isBrief: isBrief)
      defer { if held.isOwn { held.lock.unlock() } }
      if held.isDamaged { damage = repair() }
      return try body(self, &buffer)
    }
    guard let result else {
      throw StorageError(
        .timedOut, operation: "lock", path: location.path,
        reason: "another thread was writing for more than \(timeout)",
        remedy: "Do not wait for other threads inside the closure of an update.")
    }
    let (hasNews, compaction) = state.withLock { state in
      defer { state.hasNews = false }
      return (state.hasNews, mayCreate ? state.takeDueCompaction() : nil)
    }
    if hasNews { observers.signal() }
    if let compaction { start(compaction) }
    return result
  }

  /// The same for what nobody asked for: where the files have been deleted there is nothing to do.
  func maintained(_ body: (Journal) throws(StorageError) -> Void) throws(StorageError) {
    do throws(StorageError) {
      try locked(mayCreate: false, body)
    } catch  where error.code == .notFound && error.path == location.lockPath {
      return
    }
  }

  /// A held lock, whether this process still is the one that took it, and whether the file that it
  /// guards is damaged.
  private struct HeldLock {
    let lock: LockFile
    let generation: UInt64
    let isDamaged: Bool
    /// A child must not release what its parent holds through the shared descriptor.
    var isOwn: Bool { generation == ForkGuard.generation }
  }

  /// Takes the lock and reads what others have written.
  private func takeLock(mayCreate: Bool, isBrief: Bool) throws(StorageError) -> HeldLock {
    while true {
      let lock = try state.withLock { state throws(StorageError) in
        try state.openLockFile(mayCreate: mayCreate, timeout: timeout)
      }
      try lock.lock(timeout: timeout)
      do throws(StorageError) {
        if let held = try refresh(under: lock, isBrief: isBrief) { return held }
      } catch {
        lock.unlock()
        throw error
      }
      lock.unlock()
    }
  }

  /// Makes the state agree with the file; nil where the lock is not the one that others take.
  private func refresh(
    under lock: LockFile, isBrief: Bool
  ) throws(StorageError) -> HeldLock? {
    try state.withLock { state throws(StorageError) in
      // Somebody who deleted it would let two processes in, each with a file of its own. Who makes
      // the next one waits before the first look, so that one look within each tick will do for an
      // append.
      if try lock.isDeleted(usingRecentCheck: isBrief && state.isCurrent) {
        state.dropLockFile()
        return nil
      }
      try state.refreshLocked()
      guard state.lockFile === lock else { return nil }
      return HeldLock(
        lock: lock, generation: ForkGuard.generation, isDamaged: state.damage != nil)
    }
  }

  private func append(
    _ change: ValueChange, _ record: inout [UInt8]
  ) throws(StorageError) {
    try withUnsafePointer(to: change) { change throws(StorageError) in
      try append(UnsafeBufferPointer(start: change, count: 1), &record)
    }
  }

  /// Appends the changes under the lock, and publishes them.
  private func append(
    _ changes: UnsafeBufferPointer<ValueChange>, _ bytes: inout [UInt8]
  ) throws(StorageError) {
    if changes.allSatisfy({ $0.value == nil }), !state.withLock({ $0.hasAny(of: changes) }) {
      return
    }
    var plan = state.withLock { $0.plan() }
    if plan == nil {
      try prepareFile()
      plan = state.withLock { $0.plan() }
    }
    guard let plan else { return }
    bytes.append(contentsOf: plan.closing)
    defer { bytes.removeAll(keepingCapacity: bytes.capacity <= Self.mostBufferKept) }
    for number in changes.indices {
      JournalFormat.append(
        changes[number].value, key: changes[number].key, seed: plan.seed, to: &bytes)
    }
    let (written, failure) = bytes.withUnsafeBytes { plan.file.write($0) }
    var isFirstUnsynced = false
    defer {
      if isFirstUnsynced {
        BackgroundWork.syncSoon(
          { self.synchronizeInBackground() }, atExit: { self.synchronizeAtExit() })
      }
      observers.signal(changes.count == 1 ? changes[0].key : nil)
    }
    try state.withLock { state throws(StorageError) in
      isFirstUnsynced = !state.isSyncDue
      state.isSyncDue = true
      state.isUnsynced = true
      if failure == nil, state.file === plan.file, state.offset == plan.offset {
        state.note(changes, at: plan.size, written: bytes.count)
      } else {
        // Part of it, or another thread has read it meanwhile: what counts is what is there.
        try state.refresh()
      }
      try state.publish()
    }
    // The last two bytes only end the line: without them the record counts all the same.
    if let failure, written < bytes.count - 2 { throw failure }
  }

  /// Enough for most settings.
  private static let mostBufferKept = 4 << 10

  /// Makes the file where there is none, and says why where it cannot be written.
  private func prepareFile() throws(StorageError) {
    guard state.withLock({ $0.file != nil }) else { return try rewrite() }
    _ = try File(location.path, .append)  // unless the mode has changed meanwhile
    try state.withLock { state throws(StorageError) in try state.load() }
  }

  func changes(where isRelevant: @escaping @Sendable (String) -> Bool) -> AsyncStream<Void> {
    // First, so that the watch is not taken for unused.
    let changes = observers.changes(where: isRelevant)
    watch()
    return changes
  }
}
