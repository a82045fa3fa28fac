/// What a process has loaded of a journal: the open file, and the table of values read from it.
///
/// It is a value that ``Journal`` keeps under a lock, so no call waits for a file lock.
///
/// There is one verb for each step: `validate` makes the table agree with the file, by `catchUp`
/// (reads what was appended) or `reload` (reads the whole file) where necessary.
struct LoadedJournal: ~Copyable {
  let location: JournalPaths

  var table = ValueTable()
  private(set) var handle: JournalHandle? {
    didSet {
      mappedWord = handle?.mappedWord
      validatedWord = nil
    }
  }
  /// The word in ``handle``. A copy, so that a read retains no object.
  private var mappedWord: SharedMapping.Word?
  /// The word with which `table` agrees; nil if that is not known.
  private(set) var validatedWord: JournalWord?
  /// The file from which the table was read; nil if there was none.
  private(set) var identity: FileStatus?
  /// The file's random id, which seeds its checksums.
  private(set) var id: UInt64 = 0
  /// Where the next record begins that is not in the table.
  private(set) var end = 0
  /// What a writer has to do before it changes anything. It tries that once.
  private(set) var repair: Repair?
  /// The file whose damage is known, so that it is reported once.
  private var damagedFile: FileStatus?
  /// Whether another program has put its own file in place of the one that was read.
  private var isLostToOther = false
  /// A journal with the values that another program's change of the file has dropped.
  private var dropped: [UInt8]?
  /// Whether reading has changed values, which observers have not been told yet.
  private var hasUnsignaledChanges = false
  /// Whether the file has bytes that are not published yet, or never will be.
  var hasUnpublishedBytes = false
  /// How long the file at the path must stay unchanged before it counts; nil if it counts now.
  private(set) var settlingTime: Duration?
  /// The process that opened the file.
  private(set) var generation = ForkGuard.generation
  /// Whether the file was opened since ``passOn(to:)`` was last called, and when that said so.
  private var hasOpenedFile = false
  private var lastOpening: Int64 = 0
  /// When a writer last used the file, by ``CoarseClock``.
  var lastWrite: Int64 = 0

  // Durability, see Journal+Durability.

  /// Whether records may not survive a power cut.
  var isUnsynced = false
  var isDirectoryUnsynced = false
  /// Whether a sync in the background is scheduled. It may be false although ``isUnsynced`` is
  /// true, after a sync that failed.
  var isSyncScheduled = false
  /// Whether a sync of this file failed. The kernel reports that only once, so no later sync of the
  /// file can be trusted.
  var isCondemned = false

  // Compaction, see Journal+Compaction.

  /// No compaction below this size, because it failed there or would not pay.
  var compactionFloor = LoadedJournal.smallestCompaction
  var isCompacting = false
  var lastCompaction: ContinuousClock.Instant?

  // Watching, see Journal+Watching.

  private(set) var watches: [FileWatcher.Watch] = []
  /// The journal that is watched.
  private(set) var watchedFile: FileStatus?
  /// Whether it is watched for observers.
  private(set) var isFollowed = false
  /// Whether the values are those of a journal that a writer has not written into the file.
  private(set) var isUnfinished = false
  /// When to look again for records that are not published yet.
  var publicationPause = Duration.milliseconds(10)
  /// Why the last check for changes failed, so that the same failure is reported once.
  var watchingFailure: StorageError.Code?

  enum Repair {
    /// Records are damaged in that many places, which has not been reported.
    case damaged(Int)
    /// The file is to be written anew: another program has restored an earlier state of it, and no
    /// word may stand for two states; or it is empty; or its writer was killed while replacing it.
    case rewrite
  }

  enum Validity {
    case current
    /// The file does not count yet: the table may be what was known before, and the next read looks
    /// again.
    case unsettled
    /// The path does not lead to the file that the caller has locked.
    case elsewhere
  }

  init(location: JournalPaths) { self.location = location }

  /// Whether the table holds everything that was published. No system call.
  @inline(__always)
  var isCurrent: Bool {
    guard let mappedWord, let validatedWord else { return false }
    return mappedWord.value == validatedWord.bits && generation == ForkGuard.generation
  }

  // MARK: Validating

  /// Makes the table agree with the file at the path.
  ///
  /// A reader needs no lock: a file only grows, and a new one gets the name when it is complete.
  /// Readers open the file for reading only: closing one that was open for writing is an event, for
  /// which a follower would look again without end.
  ///
  /// - Parameter locked: The file that the caller has locked.
  @discardableResult
  mutating func validate(_ locked: JournalHandle? = nil) throws(StorageError) -> Validity {
    enterGeneration()
    settlingTime = nil
    while true {
      validatedWord = nil
      guard let status = try FileSystem.status(location.path) else {
        forgetFile()
        return locked == nil ? .current : .elsewhere
      }
      if let locked {
        guard status.isSameFile(as: locked.status) else { return .elsewhere }
        if handle !== locked { change(to: locked) }
      } else if handle.map({ !$0.leads(to: status) }) ?? true {
        let opened = try JournalHandle.open(location.path, forWriting: false)
        guard let opened, status.isSameFile(as: opened.status) else { continue }
        change(to: opened)
      }
      guard let handle else { continue }
      // Load the word first, so that anything published later still counts as a change.
      let word = handle.word
      if try catchUp(to: word, of: status, handle) { return .current }
      if let validity = try reload(word, handle, isLocked: locked != nil) { return validity }
    }
  }

  /// Continues with the file that has the path now. A writer says in the old one that it is being
  /// replaced before the new one gets the name, so this looks once that has it.
  private mutating func change(to new: JournalHandle) {
    if let handle, handle.word != .replaced, !handle.status.isSameFile(as: new.status) {
      isLostToOther = true
    }
    handle = new
    hasOpenedFile = true
  }

  /// Reads what was appended; false if the file has to be reloaded.
  private mutating func catchUp(
    to word: JournalWord, of status: FileStatus, _ handle: JournalHandle
  ) throws(StorageError) -> Bool {
    guard let identity, identity.isSameFile(as: status), repair == nil,
      let newEnd = word.end(of: id),
      // Another process may have appended since the status was read.
      newEnd > end || newEnd == end && status.size >= end
    else { return false }
    isLostToOther = false  // the other program has put it back
    if newEnd > end {
      let bytes = try handle.file.read(from: end, count: newEnd - end)
      let (records, damage) = bytes.withUnsafeBytes {
        JournalFormat.records(in: $0, from: 0, seed: id)
      }
      if damage > 0 || bytes.count < newEnd - end { return false }
      table.apply(records, in: bytes)
      hasUnsignaledChanges = true
      end = newEnd
    }
    hasUnpublishedBytes = newEnd < status.size
    validatedWord = word
    return true
  }

  /// Reads the whole file, unless another program may still be writing it.
  ///
  /// - Returns: nil if the file was changed meanwhile.
  private mutating func reload(
    _ word: JournalWord, _ handle: JournalHandle, isLocked: Bool
  ) throws(StorageError) -> Validity? {
    // A writer is about to replace the file by one with the same values.
    let isBeingReplaced = word == .replaced && !isLocked
    let status = try handle.file.status(withTimes: true)
    let bytes = try bytes(of: handle, word, size: status.size)
    let contents = try contents(bytes, word, of: status, isLocked: isLocked)
    // What a writer has appended since is read by the next call: it may append faster than this
    // reads. Any other change of the word means other contents.
    let latest = handle.word
    let isAppended =
      !isLocked && word.end(of: contents.id) == contents.end
      && (latest.end(of: contents.id) ?? 0) >= contents.end
    if latest != word, !isAppended { return nil }
    if !contents.isComplete {
      // A writer that fills the file has overwritten a part of it, or finished that meanwhile.
      if isBeingReplaced, contents.damage > 0 {
        if identity != nil || table.entries.count > 0 { return .unsettled }
        if try self.bytes(of: handle, word, size: status.size) != bytes { return nil }
      }
      if !isBeingReplaced, isUnsettled(status), isLocked || identity != nil { return .unsettled }
    }

    // Only another program makes a file older than the table, or puts one in place of the journal.
    let isSameFile = identity?.isSameFile(as: status) ?? false
    let isForeign =
      identity != nil
      && (isSameFile
        ? !contents.header.isOfSameFile(as: id) || contents.id == id && contents.end < end
        : isLostToOther)
    var isRestored = isForeign && contents.id == id
    // A read has found that before.
    if case .rewrite = repair, isSameFile, contents.id == id { isRestored = true }
    let known = table.entries
    defer { noteChanges(from: known, mayDrop: isForeign || contents.damage > 0) }
    // Damage is reported once, also of a file that cannot be repaired.
    let isReported = damagedFile?.isSameFile(as: status) == true && !isDamaged
    table.removeAll()
    identity = nil
    isLostToOther = false
    repair = nil
    (id, end) = (contents.id, contents.end)
    isUnfinished = contents.isInOtherFile
    switch contents.header {
    case .valid, .incomplete: break
    case .unsupported:
      throw StorageError(
        .unsupportedVersion, operation: "open", path: location.path,
        reason: "a newer version of Keepsake wrote the file",
        remedy: "Update Keepsake; nothing was changed.")
    case .foreign:
      throw StorageError(
        .damaged, operation: "open", path: location.path,
        reason: "the file is not a Keepsake journal",
        remedy: "Move the file away or restore it from a backup; it was left as it is.")
    }
    table.apply(contents.records, in: contents.bytes)
    // Bytes without a header are damage, not what a writer has left.
    hasUnpublishedBytes = end > 0 && end < status.size
    if settlingTime != nil || isBeingReplaced { return .unsettled }
    adopt(status, isKnown: isSameFile)
    if contents.damage > 0 {
      if !isReported { repair = .damaged(contents.damage) }
      damagedFile = status
    } else {
      damagedFile = nil
      if isRestored || word.end(of: id) == nil { repair = .rewrite }
    }
    // The mapping of an empty file does not show what is written to it.
    if !handle.isLost { validatedWord = word }
    return .current
  }

  /// The bytes of the file up to its word. Of another program's file, which may have any size, only
  /// the start.
  private func bytes(
    of handle: JournalHandle, _ word: JournalWord, size: Int
  ) throws(StorageError) -> [UInt8] {
    let start = try handle.file.read(from: 0, count: min(size, JournalFormat.headerSize))
    switch start.withUnsafeBytes({ JournalFormat.header(of: $0) }) {
    case .valid(let id, _):
      let end = word.end(of: id) ?? size
      return try handle.file.read(from: 0, count: end <= size ? end : size)
    case .incomplete: return try handle.file.read(from: 0, count: size)
    case .foreign, .unsupported: return start
    }
  }

  private struct Contents {
    let header: JournalFormat.Header
    var bytes: [UInt8]
    var id: UInt64 = 0
    var records: [JournalFormat.Record] = []
    /// Where the records end.
    var end = 0
    var damage = 0
    /// Whether the file has everything that its word says.
    var isComplete = false
    /// Whether they are those of a journal that is being written into the file.
    var isInOtherFile = false
  }

  private func contents(
    _ bytes: [UInt8], _ word: JournalWord, of status: FileStatus, isLocked: Bool
  ) throws(StorageError) -> Contents {
    let header = bytes.withUnsafeBytes { JournalFormat.header(of: $0) }
    var contents = Contents(header: header, bytes: bytes)
    switch header {
    case .valid(let id, let isIntact):
      contents.id = id
      // A writer that replaces the file, or was killed while it did, leaves it or another one
      // complete.
      let isBeingReplaced = word == .replaced
      // Readers go on without one that they may not read.
      if isBeingReplaced,
        let new = try isLocked
          ? location.nextJournal(id: id, for: status)
          : (try? location.nextJournal(id: id, for: status)) ?? nil
      {
        contents.bytes = new
        contents.isInOtherFile = true
      }
      let isWhole = word.end(of: id) == bytes.count
      contents.end = contents.bytes.count
      (contents.records, contents.damage) = contents.bytes.withUnsafeBytes {
        JournalFormat.records(in: $0, from: JournalFormat.headerSize, seed: id)
      }
      if !isIntact || !isWhole && !isBeingReplaced && contents.damage == 0 {
        contents.damage += 1
      }
      contents.isComplete = contents.damage == 0 && isWhole
      if isBeingReplaced, isLocked { contents.isComplete = contents.damage == 0 }
    case .incomplete:
      // An empty file is not damage: the user may have emptied it. Any other file had a complete
      // header before it got its name.
      if !bytes.isEmpty { contents.damage = 1 }
    case .foreign: break
    case .unsupported: contents.isComplete = true
    }
    return contents
  }

  /// Whether a program may still be writing the file. Such a program does not tell when it has
  /// finished, so the file has to stay unchanged for a while.
  private mutating func isUnsettled(_ status: FileStatus) -> Bool {
    // A clock that was set back must not make the file wait.
    let age = WallClock.now.subtractingSaturated(status.changed).magnitude
    let quietTime = (2 * WallClock.second).magnitude
    guard age < quietTime else { return false }
    settlingTime = .nanoseconds(quietTime - age)
    return true
  }

  /// Compares the values that were known with those that were read. Observers would read again
  /// without end if they were told of a file that is the same.
  ///
  /// - Parameter mayDrop: Whether to keep the known ones if the file does not have them any more.
  private mutating func noteChanges(
    from known: ByteKeyedDictionary<ValueTable.Entry>, mayDrop: Bool
  ) {
    let isKept = known.elements.allSatisfy { table[$0.key]?.value == $0.value.value }
    if !isKept || table.entries.count != known.count { hasUnsignaledChanges = true }
    if !isKept, mayDrop { dropped = NewJournal(known).bytes }
  }

  // MARK: What reading leaves to do

  /// Leaves to the caller what it may do only without a lock.
  @inline(__always)
  mutating func passOn(to deferred: inout Journal.DeferredWork) {
    if hasUnsignaledChanges {
      hasUnsignaledChanges = false
      deferred.hasChanges = true
    }
    if hasOpenedFile {
      hasOpenedFile = false
      lastOpening = CoarseClock.now
      deferred.hasOpenedFile = true
    }
    if let values = dropped.take() { deferred.dropped = values }
  }

  /// The number of damaged places, once.
  mutating func takeDamage() -> Int? {
    guard case .damaged(let count) = repair else { return nil }
    repair = nil
    return count
  }

  /// Whether there is damage that has not been reported.
  var isDamaged: Bool { if case .damaged = repair { true } else { false } }

  /// Whether the file has a header, and no writer was killed while replacing it.
  var isAppendable: Bool { end > 0 && !isUnfinished }

  /// Leaves the file as it is, because it could not be repaired; false if it cannot stay so.
  mutating func giveUpRepair() -> Bool {
    if !isAppendable { return false }
    if case .rewrite = repair { repair = nil }
    return true
  }

  /// Notes that the file is not at the path any more, before the readers of other processes are
  /// told in the way in which a writer tells them. Those readers then keep no values, so this
  /// process first reads what it does not know.
  mutating func noteLoss(of handle: JournalHandle, _ status: FileStatus) {
    let word = handle.word
    guard word != .replaced, identity?.isSameFile(as: status) == true else { return }
    _ = try? catchUp(to: word, of: status, handle)
    (validatedWord, isLostToOther) = (nil, true)
  }

  /// Makes the table agree with the file that the caller has locked.
  mutating func makeCurrent(_ locked: JournalHandle?) throws(StorageError) {
    if !isCurrent(in: locked) { try validate(locked) }
  }

  /// Whether the table has all values of the file that the caller has locked. A read may have found
  /// no file at the path, or another one.
  func isCurrent(in locked: JournalHandle?) -> Bool {
    guard isCurrent, let locked else { return isCurrent }
    return identity?.isSameFile(as: locked.status) ?? false
  }

  /// Makes the table current, and its file usable if the program has closed the descriptor.
  mutating func requireOpen() throws(StorageError) {
    if !isCurrent || handle?.file.isOpen == false { try validate() }
  }

  // MARK: Files

  /// When the file was last used, by ``CoarseClock``. Reads of a current table do not count: they
  /// use no file.
  var lastUse: Int64 { max(lastWrite, lastOpening) }

  /// Closes the file. The table stays, and the next validation opens it again; returns false if it
  /// has to stay open.
  mutating func closeFile() -> Bool {
    if isCompacting || isCondemned || repair != nil { return false }
    handle = nil
    hasOpenedFile = false
    if !isFollowed { endWatch() }
    return true
  }

  mutating func watch(
    _ watches: [FileWatcher.Watch], of file: FileStatus?, isFollowed: Bool
  ) {
    self.watches = watches
    watchedFile = file
    self.isFollowed = isFollowed
  }

  mutating func endWatch() { watch([], of: nil, isFollowed: false) }

  /// Starts over with no file and no values.
  private mutating func forgetFile() {
    if table.entries.count > 0 { hasUnsignaledChanges = true }
    table.removeAll()
    handle = nil
    identity = nil
    isLostToOther = false
    repair = nil
    damagedFile = nil  // a later file may have its inode number
    hasUnpublishedBytes = false
    isCondemned = false
  }

  /// - Parameter isKnown: Whether the table was read from the same file before.
  private mutating func adopt(_ status: FileStatus, isKnown: Bool = false) {
    identity = status
    // The process that made the file may have been killed before it synced the directory.
    isDirectoryUnsynced = true
    if isKnown { return }
    isCondemned = false
    compactionFloor = Self.smallestCompaction
  }

  /// Continues with a file that has the values of the table.
  ///
  /// - Parameter isEmpty: Whether it has no values instead.
  mutating func adopt(_ handle: JournalHandle, _ id: UInt64, end: Int, isEmpty: Bool) {
    if isEmpty {
      table.removeAll()
      hasUnsignaledChanges = true
    }
    self.handle = handle
    hasOpenedFile = true
    adopt(handle.status)
    self.id = id
    self.end = end
    repair = nil
    isUnfinished = false
    damagedFile = nil  // a later file may have its inode number
    hasUnpublishedBytes = false
    validatedWord = JournalWord(id: id, end: end)
  }

  /// Reads the file at the path whatever the table has, after this process has replaced it.
  mutating func readAgain(_ locked: JournalHandle) throws(StorageError) {
    identity = nil
    try validate(locked)
    hasUnsignaledChanges = true
  }

  /// Publishes changes that have been written from `start` to `end`, and makes them in the table.
  ///
  /// - Parameters:
  ///   - changes: nil if all keys were removed.
  ///   - word: Says `end`. A read may have found another file at the path, of which it says
  ///     nothing.
  mutating func publish(
    _ changes: UnsafeBufferPointer<ValueChange>?, _ word: JournalWord, _ handle: JournalHandle,
    from start: Int, to end: Int
  ) throws(StorageError) {
    let isInTable = validatedWord != nil && self.handle === handle && self.end == start
    validatedWord = nil
    try handle.publish(word)
    // Otherwise the next read reads them.
    guard isInTable else { return }
    if let changes {
      // The sizes only decide when a compaction pays, so the mean suffices.
      let mean = (end - start) / max(1, changes.count)
      for index in changes.indices { table.apply(changes[index], size: mean) }
    } else {
      table.removeAll()
      hasUnsignaledChanges = true
    }
    self.end = end
    if !handle.isLost { validatedWord = word }
  }

  /// Makes a forked child open its own file, because the lock of an inherited one is its parent's.
  mutating func enterGeneration() {
    guard generation != ForkGuard.generation else { return }
    generation = ForkGuard.generation
    forgetFile()
    isUnsynced = false
    isSyncScheduled = false
    isCompacting = false
    endWatch()
  }
}

extension ValueTable {
  /// Makes the changes of records that `bytes` begin with.
  mutating func apply(_ records: [JournalFormat.Record], in bytes: [UInt8]) {
    bytes.withUnsafeBytes { bytes in
      for record in records {
        switch record.kind {
        case .cleared: removeAll()
        case .removed: apply(ValueChange(key: record.key, value: nil))
        case .value(let kind):
          let json = UnsafeRawBufferPointer(rebasing: bytes[record.value])
          // A value that cannot be read counts as removed: its checksum is right, so a newer
          // version of Keepsake wrote it.
          let value = StoredValue(kind: kind, json: json)
          apply(ValueChange(key: record.key, value: value), size: record.size)
        }
      }
    }
  }
}
