/// The file of a journal, and the table of values that was read from it.
///
/// It is a value that ``Journal`` keeps under a lock, so no call waits for a file lock.
///
/// There is one verb for each step: `validate` makes the table agree with the file, by `catchUp`
/// (reads what was appended) or `reload` (reads the whole file) where necessary; `publish` tells
/// other processes how far the file is valid.
struct JournalFile: ~Copyable {
  let location: JournalPaths

  private(set) var table = ValueTable()
  private(set) var handle: File?
  private(set) var identity: FileStatus?
  /// The file's random id, which seeds its checksums.
  private(set) var seed: UInt64 = 0
  /// Where the next record begins that is not in the table.
  private(set) var offset = 0
  /// The file's size when it was last checked.
  private(set) var size = 0
  private var tail = JournalFormat.Tail.complete
  /// Whether the file does not end with a part of a record, which a killed writer has left.
  var endsWithRecord: Bool { tail != .torn }
  /// Whether there was no file when it was last validated.
  private(set) var isMissing = true
  /// Whether there was no file at an earlier validation, and none was adopted since.
  var wasMissing = false
  /// The file at the path that was last read, which may be no journal.
  private var lastRead: FileStatus?
  /// The file whose damage is known, so that it is reported once.
  private var damagedFile: FileStatus?
  /// How many places of the file are damaged; nil once that has been reported.
  var damage: Int?
  /// Whether reading has changed values, which observers have not been told yet.
  private(set) var hasUnsignaledChanges = false
  /// Whether the file has bytes that were not read because they are not published yet.
  var hasUnpublishedRecords = false
  /// How long the file at the path must stay unchanged before it can be used; nil if time does not
  /// matter.
  var settlingTime: Duration?
  /// What a writer has to complete after another program replaced the file; see
  /// JournalFile+Restoration.
  var restoration: Restoration?

  // The lock file, see JournalFile+Lock.

  var lockFile: LockFile? {
    didSet {
      word = lockFile?.mappedWord
      validatedWord = nil
      if lockFile != nil { hasOpenedFiles = true }
    }
  }
  /// The word in ``lockFile``. A copy, so that a read retains no object.
  private var word: LockFile.Word?
  /// The published word with which `table` agrees; nil if that is not known.
  var validatedWord: UInt64?
  /// The published word with which `table` last agreed.
  var tableWord: UInt64?
  /// When a writer last looked at the files, by ``CoarseClock``.
  var lastCheck: Int64 = 0
  /// When the header was last found to be the one that was read, by ``CoarseClock``; 0 if it was
  /// not.
  var lastHeaderCheck: Int64 = 0
  /// The process that opened the files.
  var generation = ForkGuard.generation
  /// Whether files were opened since ``takeHasOpenedFiles()``, and when it last returned true.
  private var hasOpenedFiles = false
  private var lastOpening: Int64 = 0

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
  var compactionFloor = JournalFile.smallestCompaction
  var isCompacting = false
  var lastCompaction: ContinuousClock.Instant?

  // Watching, see Journal+Watching.

  var watches: [FileWatcher.Watch] = []
  /// The journal that is watched.
  var watchedFile: FileStatus?
  /// When to look again for records that are not published yet.
  var publicationPause = Duration.milliseconds(10)
  /// Why the last check for changes failed, so that the same failure is reported once.
  var watchingFailure: StorageError.Code?

  init(location: JournalPaths) { self.location = location }

  /// Whether the table holds everything that was published. No system call.
  @inline(__always)
  var isCurrent: Bool {
    guard let word, let validatedWord else { return false }
    return word.value == validatedWord && generation == ForkGuard.generation
  }

  mutating func takeUnsignaledChanges() -> Bool {
    defer { hasUnsignaledChanges = false }
    return hasUnsignaledChanges
  }

  mutating func cache(_ model: DecodedModel, forKey key: String, version: UInt64) {
    table.cache(model, forKey: key, version: version)
  }

  // MARK: Validating

  /// Makes the table agree with the file at the path: for a reader with what is published, for the
  /// holder of the lock with everything.
  ///
  /// A reader needs no lock: a file only grows, and a new one gets the name when it is complete.
  /// Readers open files for reading only: closing one that was open for writing is an event, for
  /// which a follower would look again without end.
  ///
  /// - Returns: Whether the file is what a writer of this journal left. If not, the table may be
  ///   what was known before, and the next read looks again.
  @discardableResult
  mutating func validate(isLocked: Bool = false) throws(StorageError) -> Bool {
    enterGeneration()
    while true {
      if lockFile?.isLost == true { lockFile = nil }
      if lockFile == nil {
        lockFile = try LockFile.openExisting(location.lockPath, hasMark: true, .readNoFollow)
      }
      // Load the word first, so that anything published later still counts as a change.
      let published = word?.value
      validatedWord = nil
      if try validateTable(published, isLocked: isLocked) {
        // Of a lock file that was truncated only now, all words are 0 from here on: it has to be
        // opened again.
        validatedWord = published == 0 ? nil : published
        tableWord = published
        return true
      }
      // A writer that replaced the file after the word was loaded has published another one by now.
      guard !isLocked, let word, word.value != published else { return false }
    }
  }

  private mutating func validateTable(
    _ published: UInt64?, isLocked: Bool
  ) throws(StorageError) -> Bool {
    hasUnpublishedRecords = false
    settlingTime = nil
    let current = try FileSystem.status(location.path)
    isMissing = current == nil
    guard let current else {
      wasMissing = true
      try dropReplacedLockFile()
      forgetFile()
      // The file may come back: some programs delete a file before they restore it.
      return isLocked || !Self.isOfJournal(published)
    }
    let isShorterThanPublished =
      Self.offset(of: published, id: seed, size: .max).map { $0 > current.size } ?? false
    if let identity, current.isSameFile(as: identity), current.size >= offset,
      !isShorterThanPublished, try reopen(forWriting: isLocked), try hasOwnHeader()
    {
      if !isLocked, try wasPublished(seed, size: current.size, since: published) { return false }
      let covered = isLocked ? nil : Self.offset(of: published, id: seed, size: current.size)
      let end = max(offset, covered ?? current.size)
      if try catchUp(to: end, of: current.size) { return true }
    }
    // The file is being replaced. What was published in the old one counts until the new one is.
    // A word that is damaged may say any size.
    if identity != nil, let handle,
      let end = Self.offset(of: published, id: seed, size: try handle.status().size), end > offset
    {
      _ = try catchUp(to: end, of: end)
    }
    try dropReplacedLockFile()
    return try reload(published, isLocked: isLocked)
  }

  /// Whether the journal with this id was published after a word was loaded that says nothing about
  /// it. If so, the last records that were read may not be published yet.
  ///
  /// - Parameter size: How much of the journal was read.
  private mutating func wasPublished(
    _ id: UInt64, size: Int, since published: UInt64?
  ) throws(StorageError) -> Bool {
    guard Self.offset(of: published, id: id, size: size) == nil else { return false }
    // The writer may have created the lock file as well.
    if lockFile == nil {
      lockFile = try LockFile.openExisting(location.lockPath, hasMark: true, .readNoFollow)
    }
    let current = word?.value
    return current != published && Self.offset(of: current, id: id, size: .max) != nil
  }

  /// Whether the file still begins with the header that was read, by a check within this tick of
  /// the clock.
  private mutating func hasOwnHeader(usingRecentCheck: Bool = true) throws(StorageError) -> Bool {
    guard let handle else { return false }
    let now = CoarseClock.now
    if usingRecentCheck, now == lastHeaderCheck { return true }
    lastHeaderCheck = 0
    guard try Self.hasHeader(seed, handle) else { return false }
    lastHeaderCheck = now
    return true
  }

  private static func hasHeader(_ seed: UInt64, _ handle: File) throws(StorageError) -> Bool {
    let bytes = try handle.read(from: 0, count: JournalFormat.headerSize)
    guard case .valid(seed, _) = bytes.withUnsafeBytes({ JournalFormat.header(of: $0) }) else {
      return false
    }
    return true
  }

  /// Reads what was appended up to `end`; false if the file has to be reloaded.
  private mutating func catchUp(to end: Int, of size: Int) throws(StorageError) -> Bool {
    guard let handle else { return false }
    if end > offset {
      let bytes = try handle.read(from: offset, count: end - offset)
      var records: [JournalFormat.Record] = []
      let parsed = bytes.withUnsafeBytes { bytes in
        JournalFormat.parse(bytes, from: 0, seed: seed) { records.append($0) }
      }
      // Either damage or another journal, with the same inode number or written over this one.
      if parsed.damage > 0 || bytes.count < end - offset { return false }
      if parsed.tail == .torn {
        guard try hasOwnHeader(usingRecentCheck: false) else { return false }
        // The published offset is not the end of a record, so it says nothing about this file.
        if end < size { return try catchUp(to: size, of: size) }
      }
      apply(records, in: bytes)
      if !records.isEmpty { hasUnsignaledChanges = true }
      offset += parsed.end
      tail = parsed.tail
    }
    self.size = size
    hasUnpublishedRecords = end < size
    return true
  }

  /// Reads the whole file into an empty table, unless another program may still be writing it.
  ///
  /// - Returns: Whether the file is what a writer of this journal left.
  mutating func reload(
    _ published: UInt64?, isLocked: Bool
  ) throws(StorageError) -> Bool {
    let handle = try openFile(forWriting: isLocked)
    let status = try handle.status(withTimes: true)
    if status.isDirectory { throw StorageError.directoryInTheWay(location.path) }
    // A pipe would look like an empty file.
    guard status.isRegularFile else {
      throw StorageError(
        .damaged, operation: "open", path: location.path,
        reason: "the settings file is not a regular file",
        remedy: "Move the file away; it was left as it is.")
    }
    let bytes = try handle.read(from: 0, count: status.size)
    lastRead = status
    size = bytes.count
    let mayWait = isLocked || identity != nil
    // The file was truncated in the meantime.
    if bytes.count < status.size, knowsJournal(published), mayWait { return false }
    let id: UInt64
    var damage = 0
    switch bytes.withUnsafeBytes({ JournalFormat.header(of: $0) }) {
    case .valid(let validID, let isIntact):
      id = validID
      if !isIntact { damage += 1 }
    case .incomplete:
      if let isSettled = keepTable(insteadOf: status, published, isLocked: isLocked) {
        return isSettled
      }
      forgetFile()
      lastRead = status
      size = bytes.count
      // An empty file is not damage: the user may have truncated it. Any other file had a complete
      // header before it was renamed into place.
      if !bytes.isEmpty { noteDamage(1, of: status) }
      return isLocked || !knowsJournal(published)
    case .unsupported:
      throw StorageError(
        .unsupportedVersion, operation: "open", path: location.path,
        reason: "a newer version of Keepsake wrote the file",
        remedy: "Update Keepsake; nothing was changed.")
    case .foreign:
      if let isSettled = keepTable(insteadOf: status, published, isLocked: isLocked) {
        return isSettled
      }
      throw StorageError(
        .damaged, operation: "open", path: location.path,
        reason: "the file is not a Keepsake journal",
        remedy: "Move the file away or restore it from a backup; it was left as it is.")
    }
    if !isLocked, try wasPublished(id, size: bytes.count, since: published) { return false }
    let covered = Self.offset(of: published, id: id, size: bytes.count)
    let (records, parsed) = Self.records(in: bytes, upTo: isLocked ? nil : covered, seed: id)
    damage += parsed.damage
    let isComplete = damage == 0 && parsed.tail == .complete
    // Another process has published the file, even if it is of a version with other words.
    let isPublished =
      covered != nil
      || isComplete && published != tableWord
        && Self.ends(published, at: parsed.end)
    let isSettled =
      isPublished || !knowsJournal(published)
      || (isLocked || isComplete || identity == nil)
        && !isUnsettled(status, isComplete: isComplete, published)
    let isReplacement = !isLocked && isComplete && isReplacedUnseen(published)
    if !isSettled, mayWait, !isReplacement { return false }
    let restoration =
      isReplacement
      ? nil
      : restoration(
        by: id, upTo: parsed.end, isPublished: isPublished, isComplete: isComplete, published,
        isLocked: isLocked)

    table.removeAll()
    apply(records, in: bytes)
    let (damagedFile, wasMissing) = (damagedFile, wasMissing)
    adopt(handle, status, seed: id, size: parsed.end)
    // The next call has to look again: a program may write more, or change what was read.
    if !isSettled, !isReplacement {
      identity = nil
      self.wasMissing = wasMissing
    }
    size = bytes.count
    tail = parsed.tail
    self.restoration = restoration
    hasUnpublishedRecords = !isLocked && covered.map { $0 < size } ?? false
    // Another process may have replaced the damaged file.
    if damagedFile?.isSameFile(as: status) != true { self.damage = nil }
    if damage > 0 {
      self.damagedFile = damagedFile
      noteDamage(damage, of: status)
    }
    return isSettled
  }

  /// Whether a writer is replacing the published journal by the file at the path, and the table is
  /// of an earlier one. The published one cannot be read any more, and its replacement has the same
  /// values.
  private func isReplacedUnseen(_ published: UInt64?) -> Bool {
    guard identity != nil, lockFile?.isMarked == true, Self.isOfJournal(published) else {
      return false
    }
    return Self.offset(of: published, id: seed, size: .max).map { $0 > offset } ?? true
  }

  /// The records up to an offset; all of them if it is not the end of a record.
  private static func records(
    in bytes: [UInt8], upTo end: Int?, seed: UInt64
  ) -> ([JournalFormat.Record], JournalFormat.Parsed) {
    var records: [JournalFormat.Record] = []
    let parsed = bytes.withUnsafeBytes { bytes in
      JournalFormat.parse(
        UnsafeRawBufferPointer(rebasing: bytes[..<(end ?? bytes.count)]),
        from: JournalFormat.headerSize, seed: seed
      ) { records.append($0) }
    }
    if end != nil, parsed.tail == .torn { return Self.records(in: bytes, upTo: nil, seed: seed) }
    return (records, parsed)
  }

  private mutating func apply(_ records: [JournalFormat.Record], in bytes: [UInt8]) {
    bytes.withUnsafeBytes { bytes in
      for record in records {
        switch record.kind {
        case .cleared: table.removeAll()
        case .removed: table.apply(ValueChange(key: record.key, value: nil))
        case .value(let kind):
          let json = UnsafeRawBufferPointer(rebasing: bytes[record.value])
          // A value that cannot be read counts as removed: its checksum is right, so a newer
          // version of Keepsake wrote it.
          let value = StoredValue(kind: kind, json: json)
          table.apply(ValueChange(key: record.key, value: value), size: record.size)
        }
      }
    }
  }

  /// Notes damage to be reported, unless the damage of this file is already known: a file that
  /// cannot be repaired is reported once.
  private mutating func noteDamage(_ count: Int, of status: FileStatus) {
    if damagedFile?.isSameFile(as: status) != true { damage = count }
    damagedFile = status
  }

  // MARK: Files

  /// When the files were last used, by ``CoarseClock``. Reads of a current table do not count: they
  /// use no file.
  var lastUse: Int64 { max(lastCheck, lastOpening) }

  @inline(__always)
  mutating func takeHasOpenedFiles() -> Bool {
    guard hasOpenedFiles else { return false }
    hasOpenedFiles = false
    lastOpening = CoarseClock.now
    return true
  }

  /// Closes the files. The table stays, and the next validation opens them again; returns false if
  /// they have to stay open.
  mutating func closeFiles() -> Bool {
    if isCompacting || isCondemned || restoration != nil || damage != nil { return false }
    handle = nil
    lockFile = nil
    hasOpenedFiles = false
    return true
  }

  private func openFile(forWriting: Bool) throws(StorageError) -> File {
    try forWriting ? File.openForAppending(location.path) : File(location.path, .read)
  }

  /// Opens the journal after ``closeFiles()``, or for writing after a reader has opened it; false
  /// if it is another file now.
  mutating func reopen(forWriting: Bool) throws(StorageError) -> Bool {
    if let handle, handle.isWritable || !forWriting { return true }
    guard let identity else { return false }
    let opened = try openFile(forWriting: forWriting)
    guard try opened.status().isSameFile(as: identity) else { return false }
    handle = opened
    hasOpenedFiles = true
    // A new file may have got the inode number of the old one.
    lastHeaderCheck = 0
    return true
  }

  /// Starts over with no file and no values.
  mutating func forgetFile() {
    if table.entries.count > 0 { hasUnsignaledChanges = true }
    table.removeAll()
    handle = nil
    identity = nil
    lastRead = nil
    offset = 0
    size = 0
    tail = .complete
    isCondemned = false
    restoration = nil
    // The next read looks at the file, even if it cannot be opened now.
    validatedWord = nil
  }

  /// Continues with another file, of which the first `size` bytes are in the table.
  ///
  /// - Parameter isEmpty: Whether the file has no records.
  mutating func adopt(
    _ handle: File, _ status: FileStatus, seed: UInt64, size: Int, isEmpty: Bool = false
  ) {
    if isEmpty { table.removeAll() }
    self.handle = handle
    hasOpenedFiles = true
    self.identity = status
    lastRead = status
    wasMissing = false
    self.seed = seed
    offset = size
    self.size = size
    tail = .complete
    hasUnsignaledChanges = true
    // The process that made the file may have been killed before it synced the directory.
    isDirectoryUnsynced = true
    isCondemned = false
    restoration = nil
    lastHeaderCheck = 0
    damagedFile = nil  // a later file may have its inode number
    compactionFloor = Self.smallestCompaction
  }

  func isSameFile(as other: FileStatus) -> Bool { identity?.isSameFile(as: other) ?? false }

  /// The file that was at the path when the values of a new one were taken.
  struct Contents {
    let file: FileStatus
    let size: Int
    /// nil if the file is no journal, so that there is no header to compare.
    let journal: (handle: File, seed: UInt64)?

    /// Whether a file is this one, and was not changed since.
    func areUnchanged(_ other: FileStatus) throws(StorageError) -> Bool {
      guard file.isSameFile(as: other), other.size == size else { return false }
      guard let journal else { return true }
      return try JournalFile.hasHeader(journal.seed, journal.handle)
    }
  }

  /// The file at the path as it was last read; nil if there was none.
  var contents: Contents? {
    guard let lastRead else { return nil }
    var journal: (File, UInt64)?
    if case .unreadable = restoration {
    } else if let handle, isSameFile(as: lastRead) {
      journal = (handle, seed)
    }
    return Contents(file: lastRead, size: size, journal: journal)
  }

  // MARK: Appending

  /// What a writer has to know to append records.
  struct AppendPlan {
    let handle: File
    fileprivate let seed: UInt64
    fileprivate let offset: Int
    fileprivate let size: Int
    /// What completes the last record of a writer that was killed.
    fileprivate let closing: [UInt8]

    /// Appends the records of the changes to `bytes`; nil removes all keys.
    @inline(__always)
    func encode(_ changes: UnsafeBufferPointer<ValueChange>?, to bytes: inout [UInt8]) {
      if !closing.isEmpty { bytes.append(contentsOf: closing) }
      guard let changes else {
        return JournalFormat.append(.cleared, key: "", value: [], seed: seed, to: &bytes)
      }
      for index in changes.indices {
        JournalFormat.append(changes[index].value, key: changes[index].key, seed: seed, to: &bytes)
      }
    }

    /// Whether the file needs another block of the usual size for this number of bytes.
    @inline(__always)
    func takesBlock(for count: Int) -> Bool {
      (size &- 1) >> 12 != (size &+ count &- 1) >> 12
    }
  }

  /// nil if there is no file, or none that can be written.
  func appendPlan() -> AppendPlan? {
    guard let handle, handle.isWritable else { return nil }
    return AppendPlan(
      handle: handle, seed: seed, offset: offset, size: size, closing: tail.closing)
  }

  /// Notes changes that have been written to the end of the file, and publishes them.
  ///
  /// - Parameter written: The number of bytes; nil if the write failed.
  mutating func finishAppend(
    of changes: UnsafeBufferPointer<ValueChange>?, _ plan: AppendPlan, written: Int?
  ) throws(StorageError) {
    if let written, handle === plan.handle, offset == plan.offset {
      guard let changes else {
        table.removeAll()
        hasUnsignaledChanges = true
        return try finishAppend(at: plan.size + written)
      }
      // The sizes only decide when a compaction pays, so the mean suffices.
      let mean = written / max(1, changes.count)
      for index in changes.indices { table.apply(changes[index], size: mean) }
      try finishAppend(at: plan.size + written)
    } else {
      // A part was written, or another thread has read the records already.
      try validate(isLocked: true)
      try publishRecords()
    }
  }

  private mutating func finishAppend(at end: Int) throws(StorageError) {
    size = end
    offset = end
    tail = .complete
    try publish()
  }
}
