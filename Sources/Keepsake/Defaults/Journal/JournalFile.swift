internal import KeepsakeLibc

/// What a process knows of one journal: its values, how far it has read, and its open files.
struct JournalFile {
  let location: JournalPaths

  private(set) var table = ValueTable()
  private(set) var file: File?
  private var identity: FileStatus?
  /// The id of the file, which seeds its checksums.
  private(set) var seed: UInt64 = 0
  /// Where reading goes on.
  private(set) var offset = 0
  /// The file's size when it was last looked at.
  private(set) var size = 0
  private(set) var tail = JournalFormat.Tail.complete

  private(set) var lockFile: LockFile? {
    didSet { word = lockFile?.mappedWord }
  }
  /// The word in ``lockFile``, beside it so that a read counts no references.
  private var word: LockFile.Word?
  /// The published word that `table` agrees with; nil when that is not known.
  private var seen: UInt64?
  private var generation = ForkGuard.generation

  /// Places in the file that do not read as they were written; nil once that is dealt with.
  var damage: Int?
  /// Set when values changed by reading: others made the change.
  var hasNews = false
  /// Set while somebody is going to look after records that are not published.
  var isSettlingLeftovers = false

  // Durability, see Journal+Durability.
  var isUnsynced = false
  var isDirectoryUnsynced = false
  /// The housekeeper knows; apart from `isUnsynced`, which stays after a sync that failed.
  var isSyncDue = false
  /// A sync of this file failed: the kernel will not report that again, so it is never trusted.
  var isCondemned = false
  /// No compaction below this size, because it failed there or would not pay.
  var compactionFloor = JournalFile.smallestCompaction
  var isCompacting = false
  var lastCompaction: ContinuousClock.Instant?
  var watches: [FileWatcher.Watch] = []
  /// What was wrong the last time that somebody looked for changes: said once.
  var watchingFailure: StorageError.Code?

  static let smallestCompaction = 64 * 1024

  enum Compaction {
    case inBackground
    /// Each process so far was killed before it was done with it: it must not wait any longer.
    case atOnce
  }

  /// The compaction that is due now, which the caller then starts: when dead records dominate.
  mutating func takeDueCompaction() -> Compaction? {
    guard !isCompacting, size >= compactionFloor, isMostlyDead else { return nil }
    // Who sets without pause would spend more on compactions than on sets: one a second, unless the
    // file becomes slow to open.
    if let lastCompaction, size < 1 << 20, ContinuousClock.now - lastCompaction < .seconds(1) {
      return nil
    }
    isCompacting = true
    if size / 16 > table.liveSize + Self.smallestCompaction, lastCompaction == nil {
      return .atOnce
    }
    return .inBackground
  }

  /// Whether dead records dominate.
  var isMostlyDead: Bool { size / 2 > table.liveSize + JournalFormat.headerSize }

  init(location: JournalPaths) { self.location = location }

  /// Whether the table holds all that was published. No system call.
  @inline(__always)
  var isCurrent: Bool {
    guard let word, let seen else { return false }
    return word.value == seen && generation == ForkGuard.generation
  }

  // MARK: Reading

  /// Makes the table agree with the file at the path. Needs no lock: records are only ever added
  /// to a file, and a rewritten one arrives under the name whole.
  mutating func refresh() throws(StorageError) {
    enterGeneration()
    if lockFile == nil { lockFile = try LockFile.openExisting(location.lockPath) }
    // Taken before the file is looked at: what is published later is news again.
    let word = lockFile?.word()
    seen = nil
    try read()
    seen = word
  }

  /// The same under the lock, one look at the file when nothing has changed.
  mutating func refreshLocked() throws(StorageError) {
    if isCurrent, tail == .complete, let identity,
      let current = try FileSystem.status(location.path),
      current.isSameFile(as: identity), current.size == offset
    {
      return
    }
    try refresh()
  }

  private mutating func read() throws(StorageError) {
    guard let current = try FileSystem.status(location.path) else {
      try dropReplacedLockFile()
      forgetFile()
      return
    }
    if let identity, current.isSameFile(as: identity), current.size >= offset {
      size = current.size
      if current.size > offset { try catchUp(to: current.size) }
      return
    }
    try dropReplacedLockFile()
    try load()
  }

  /// The whole directory may have been exchanged or deleted: the lock goes with it.
  mutating func dropReplacedLockFile() throws(StorageError) {
    if let lockFile, try lockFile.isReplaced() { dropLockFile() }
  }

  /// Reads what was added.
  private mutating func catchUp(to size: Int) throws(StorageError) {
    guard let file else { return try load() }
    let bytes = try file.read(from: offset, count: size - offset)
    var changes: [(ValueChange?, Int)] = []
    let parsed = bytes.withUnsafeBytes { bytes in
      JournalFormat.parse(bytes, from: 0, seed: seed) { record in
        changes.append((Self.change(record, bytes), record.size))
      }
    }
    // Either damage, or another file's bytes under the same inode: only a whole look can tell.
    if parsed.damage > 0 { return try load() }
    for (change, size) in changes { apply(change, size: size) }
    if !changes.isEmpty { hasNews = true }
    offset += parsed.end
    tail = parsed.tail
  }

  /// Reads the whole file, into a fresh table.
  mutating func load() throws(StorageError) {
    let file = try File.openForAppending(location.path)
    let status = try file.status()
    // A pipe would look empty.
    guard status.isRegularFile else {
      throw StorageError(
        .damaged, operation: "open", path: location.path, reason: "it is no regular file",
        remedy: "Move it away; it was left as it is.")
    }
    let bytes = try file.read(from: 0, count: status.size)
    var records: [(ValueChange?, Int)] = []
    var seed: UInt64 = 0
    var end = 0
    var tail = JournalFormat.Tail.complete
    var damage = 0
    switch bytes.withUnsafeBytes({ JournalFormat.header(of: $0) }) {
    case .valid(let id, let isIntact):
      seed = id
      if !isIntact { damage += 1 }
      bytes.withUnsafeBytes { bytes in
        let parsed = JournalFormat.parse(bytes, from: JournalFormat.headerSize, seed: id) {
          records.append((Self.change($0, bytes), $0.size))
        }
        end = parsed.end
        tail = parsed.tail
        damage += parsed.damage
      }
    case .unborn:
      forgetFile()
      // Emptied by hand it is a clean start; else it had a whole header before it got its name.
      if !bytes.isEmpty { noteDamage(1, of: status) }
      return
    case .unsupported:
      throw StorageError(
        .unsupportedVersion, operation: "open", path: location.path,
        reason: "a newer version of Keepsake wrote it",
        remedy: "Update this program; the file was left as it is.")
    case .foreign:
      throw StorageError(
        .damaged, operation: "open", path: location.path,
        reason: "it does not start as a Keepsake journal does",
        remedy: "Move the file away or restore it from a backup; it was left as it is.")
    }
    table.removeAll()
    for (change, size) in records { apply(change, size: size) }
    let damageSeen = self.damageSeen
    adopt(file, status, seed: seed, size: end)
    size = bytes.count
    self.tail = tail
    // Another process may have repaired the other one.
    if damageSeen?.isSameFile(as: status) != true { self.damage = nil }
    if damage > 0 {
      self.damageSeen = damageSeen
      noteDamage(damage, of: status)
    }
  }

  /// A file that cannot be rewritten is reported once, not at each look.
  private mutating func noteDamage(_ places: Int, of status: FileStatus) {
    if damageSeen?.isSameFile(as: status) != true { damage = places }
    damageSeen = status
  }
  private var damageSeen: FileStatus?

  private mutating func apply(_ change: ValueChange?, size: Int) {
    if let change { table.apply(change, size: size) } else { table.removeAll() }
  }

  /// The change that a record makes; nil if it removes all values.
  ///
  /// A value that cannot be read counts as removed: its checksum is right, so a newer version of the
  /// library wrote it.
  private static func change(
    _ record: JournalFormat.Record, _ bytes: UnsafeRawBufferPointer
  ) -> ValueChange? {
    switch record.kind {
    case .cleared: return nil
    case .removed: return ValueChange(key: record.key, value: nil)
    case .value(let kind):
      let json = UnsafeRawBufferPointer(rebasing: bytes[record.value])
      return ValueChange(key: record.key, value: StoredValue(kind: kind, json: json))
    }
  }

  // MARK: Files

  /// Starts over with nothing stored.
  private mutating func forgetFile() {
    if !table.entries.keys.isEmpty { hasNews = true }
    table.removeAll()
    file = nil
    identity = nil
    offset = 0
    size = 0
    tail = .complete
    isCondemned = false
  }

  /// Goes on with another file, of which `size` bytes are in the table, or one that has no record.
  mutating func adopt(
    _ file: File, _ status: FileStatus, seed: UInt64, size: Int, isEmpty: Bool = false
  ) {
    if isEmpty { table.removeAll() }
    self.file = file
    self.identity = status
    self.seed = seed
    offset = size
    self.size = size
    tail = .complete
    hasNews = true
    // Whoever made the file may have been killed before its name was safe.
    isDirectoryUnsynced = true
    isCondemned = false
    damageSeen = nil  // a later file may have its inode number
    compactionFloor = Self.smallestCompaction
  }

  /// What a writer needs to know to append.
  struct AppendPlan {
    let file: File
    let seed: UInt64
    let offset: Int
    let size: Int
    /// What must stand in front of the first record.
    let closing: [UInt8]
  }

  /// nil where there is no file, or none that can be written.
  func plan() -> AppendPlan? {
    guard let file, file.isWritable else { return nil }
    return AppendPlan(file: file, seed: seed, offset: offset, size: size, closing: tail.closing)
  }

  func hasAny(of changes: UnsafeBufferPointer<ValueChange>) -> Bool {
    changes.contains { table[$0.key] != nil }
  }

  /// Notes changes that this process has just written at the end of its file, which had `oldSize`
  /// bytes.
  mutating func note(_ changes: UnsafeBufferPointer<ValueChange>, at oldSize: Int, written: Int) {
    // Their sizes only tell when a compaction pays: the mean will do.
    let mean = written / max(1, changes.count)
    for number in changes.indices { table.apply(changes[number], size: mean) }
    size = oldSize + written
    offset = size
    tail = .complete
  }

  mutating func cache(_ model: DecodedModel, forKey key: String, version: UInt64) {
    table.cache(model, forKey: key, version: version)
  }

  func isReading(_ other: FileStatus) -> Bool { identity?.isSameFile(as: other) ?? false }

  // MARK: The lock file's word

  private static let offsetMask: UInt64 = (1 << 40) - 1

  /// Whether the word says what the file holds: otherwise its writer is at it, or was killed.
  var isPublished: Bool {
    guard let lockFile, file != nil else { return true }
    return lockFile.word() & Self.offsetMask == UInt64(offset)
  }

  /// Whether there are records to publish that nobody looks after yet; the caller then does.
  mutating func takeLeftovers() -> Bool {
    if isPublished || isSettlingLeftovers { return false }
    isSettlingLeftovers = true
    return true
  }

  /// Tells all processes that the file is good up to ``offset``; `replaced` that it is another one.
  mutating func publish(replaced: Bool = false) throws(StorageError) {
    guard let lockFile else { return }
    seen = nil
    let epoch = (lockFile.word() >> 40) &+ (replaced ? 1 : 0)
    let word = epoch << 40 | UInt64(offset) & Self.offsetMask
    try lockFile.publish(word)
    seen = word
  }

  /// The lock file, made where it is missing.
  mutating func openLockFile(
    mayCreate: Bool, timeout: Duration
  ) throws(StorageError) -> LockFile {
    enterGeneration()
    if let lockFile { return lockFile }
    if !mayCreate, try FileSystem.status(location.lockPath) == nil {
      throw StorageError(errno: ENOENT, operation: "open", path: location.lockPath)
    }
    let mode = try location.prepareDirectory()
    let journal = location.path
    let opened = try LockFile.createOrOpen(location.lockPath, mode: mode, timeout: timeout) {
      () throws(StorageError) in
      // Where the journal is there already somebody has deleted its lock file. Who goes on with
      // that one notices within a tick; what they write until then is to be read here before
      // anything else.
      if try FileSystem.status(journal) != nil {
        BackgroundThread.sleep(for: .nanoseconds(2 * CoarseClock.resolution))
      }
      // It starts anywhere, so that a process which still knows an earlier file's word does not
      // take this one for it.
      return [UInt64.random(in: 1...0xFF_FFFF) << 40]
    }
    lockFile = opened
    seen = nil
    return opened
  }

  /// Lets go of a lock file that others cannot see any more.
  mutating func dropLockFile() {
    // Processes that still look at it shall look again.
    try? lockFile?.publish(UInt64.random(in: .min ... .max))
    lockFile = nil
    seen = nil
  }

  /// A child process opens files of its own: what it inherited shares the parent's locks.
  private mutating func enterGeneration() {
    guard generation != ForkGuard.generation else { return }
    generation = ForkGuard.generation
    forgetFile()
    lockFile = nil
    seen = nil
    isUnsynced = false
    isSyncDue = false
    isCompacting = false
    isSettlingLeftovers = false
    watches = []
  }
}
