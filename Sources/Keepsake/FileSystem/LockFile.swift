internal import CKeepsake
internal import KeepsakeLibc
internal import Synchronization

/// A file that processes lock, with words that the lock's holder publishes to all processes.
///
/// The words are mapped, so reading them costs no system call. If another program truncates the
/// file, the mapping turns into zeros instead of ending the process, and ``isLost`` tells so.
///
/// The words are written with a system call, so that a full disk is an error. Only the words of a
/// file with a mark are stored through the mapping, and only on a file system where a store into a
/// page that was written before needs no new block. Should such a store fail nevertheless, the
/// check that follows it finds zeros, and the words are written with a system call.
final class LockFile: Sendable {
  let file: File
  /// The status of the file when it was opened, which identifies it.
  let status: FileStatus
  // Safe because the pointer never changes, all access to the memory is atomic, and it is unmapped
  // with the last reference.
  private nonisolated(unsafe) let mapping: UnsafeMutableRawPointer
  private let mappedSize: Int
  private let wordCount: Int
  /// Whether words are stored through the mapping.
  private let storesWords: Bool
  /// Whether a store found the mapping replaced, so that it may hold that word instead of zeros.
  private let hasFailedStore = Atomic(false)
  /// Whether a part of the reserved space may be missing: a full disk had no room for it, or
  /// another process has used it before this one opened the file.
  private let mayLackReservedSpace = Atomic(true)
  private let waitingCount = Atomic(0)

  private static let wordSize = MemoryLayout<UInt64>.size

  /// The first page of a file with a mark. Older versions only know its first word.
  private enum Page {
    static let size = 4_096
    static let mark = 1
    static let magic = 2
    /// `keepsake` in ASCII. A file without it has no mark.
    static let magicValue = UInt64(littleEndian: 0x656B_6173_7065_656B)

    /// The page from `word` on, of which `words` are the first.
    static func bytes(_ words: [UInt64], from word: Int) -> [UInt64] {
      words + Array(repeating: 0, count: size / wordSize - words.count - word)
    }
  }

  private init?(mapping file: File, wordCount: Int, hasMark: Bool) throws(StorageError) {
    let status = try file.status()
    // The file is too short if another process is still creating it, or if a user truncated it.
    guard status.size >= wordCount * Self.wordSize else { return nil }
    let storesWords = hasMark && file.isWritable && Self.keepsBlocks(file)
    let mappedSize = hasMark ? Page.size : wordCount * Self.wordSize
    var address: UnsafeMutableRawPointer?
    try systemCall(.map, file.path) {
      address = keepsake_map(file.descriptor, mappedSize, storesWords)
      return address == nil ? -1 : 0
    }.get(.map, file.path)
    guard let address else { return nil }
    self.storesWords = storesWords
    self.mappedSize = mappedSize
    self.mapping = address
    self.file = file
    self.status = status
    self.wordCount = wordCount
  }

  deinit { keepsake_unmap(mapping, mappedSize) }

  private static func keepsBlocks(_ file: File) -> Bool {
    // If the file system is unknown, system calls do.
    let result = systemCall(.space, file.path) { Int(keepsake_keeps_blocks(file.descriptor)) }
    return (try? result.get()) == 1
  }

  /// Lets the words be written on a full disk even where a change needs a new block, as on btrfs.
  private static func writeInPlace(_ file: File) {
    // File systems without that choice fail.
    _ = systemCall(.flags, file.path, on: file.descriptor) {
      Int(keepsake_write_in_place(file.descriptor))
    }
  }

  // MARK: Opening

  /// Opens the lock file; nil if it does not exist, is still being created, or may not be used.
  ///
  /// - Parameter hasMark: Whether the file may have a mark.
  static func openExisting(
    _ path: String, wordCount: Int = 1, hasMark: Bool = false,
    _ access: File.Access = .readWriteNoFollow
  ) throws(StorageError) -> LockFile? {
    do throws(StorageError) {
      return try LockFile(mapping: File(path, access), wordCount: wordCount, hasMark: hasMark)
    } catch  where error.code == .notFound || error.code == .accessDenied {
      return nil
    }
  }

  /// Opens the lock file, or creates it with the words that `initial` returns.
  ///
  /// - Parameter hasMark: Whether the file gets a page with a mark, where the file system allows to
  ///   store it through a mapping.
  static func createOrOpen(
    _ path: String, mode: UInt32, timeout: Duration, wordCount: Int = 1, hasMark: Bool = false,
    initial: () throws(StorageError) -> [UInt64]
  ) throws(StorageError) -> LockFile {
    let file = try openOrCreate(path, mode: mode)
    if let ready = try LockFile(mapping: file, wordCount: wordCount, hasMark: hasMark),
      !ready.isLost, !ready.lacksMark
    {
      return ready
    }
    // The process that locks the unfinished file writes the first words.
    try Self.lock(file, timeout: timeout)
    defer { Self.unlock(file) }
    let found = try LockFile(mapping: file, wordCount: wordCount, hasMark: hasMark)
    var reservesSpace = false
    if found?.isLost ?? true {
      try file.setMode(mode)
      var words = try initial()
      if hasMark {
        let magic = keepsBlocks(file) ? Page.magicValue : 0
        if magic == 0 { writeInPlace(file) }
        words = Page.bytes(words + [0, magic], from: 0)
      }
      try file.overwrite(words.span.bytes, at: 0, as: .publish)
      reservesSpace = hasMark
    } else if let found, found.lacksMark {
      // An older version made the file. Its word stays, and the file can do without a mark.
      let words = Page.bytes([0, Page.magicValue], from: Page.mark)
      try? file.overwrite(words.span.bytes, at: Page.mark * wordSize, as: .publish)
    }
    guard let ready = try LockFile(mapping: file, wordCount: wordCount, hasMark: hasMark) else {
      throw StorageError(
        .damaged, operation: "map", path: path, reason: "another program keeps truncating the file",
        remedy: "Find that program and stop it.")
    }
    if reservesSpace { ready.reserveSpace() }
    return ready
  }

  static func openOrCreate(_ path: String, mode: UInt32) throws(StorageError) -> File {
    do throws(StorageError) {
      // Without O_CREAT, which fails on another user's file in a shared directory if
      // fs.protected_regular is set. Never through a link, which another user may have planted:
      // words are written to the file.
      return try File(path, .readWriteNoFollow)
    } catch  where error.code == .notFound {
      let file = try File(path, .createOrOpen, mode: mode)
      // The umask rarely restricts the user, but often restricts other users.
      if mode & 0o077 != 0 { try file.setMode(mode) }
      return file
    }
  }

  // MARK: Reserving space

  /// How many blocks are reserved for removals. One needs a block for its record and, while the
  /// journal is small, one for the new journal. Twice as many are reserved, because a process that
  /// has the old journal open keeps its blocks; and twice that where a change may need a new block.
  private var reservedBlockCount: UInt64 { storesWords ? 4 : 8 }

  /// Keeps space for removals on a full disk, where the file system can; of the blocks, as many as
  /// are free. The caller holds the lock: another process may have freed them for its removal.
  func reserveSpace() {
    for block in 0..<reservedBlockCount {
      // One call for each, so that some are reserved if there is no space for all. Without them,
      // removing one key may fail on a full disk, which is then reported.
      let result = systemCall(.reserve, file.path, on: file.descriptor) {
        Int(keepsake_reserve(file.descriptor, UInt64(Page.size) + block * 4_096, 4_096))
      }
      if case .failure(let error) = result {
        mayLackReservedSpace.store(
          error.code == ENOSPC || error.code == EDQUOT, ordering: .relaxed)
        return
      }
    }
    mayLackReservedSpace.store(false, ordering: .relaxed)
  }

  /// Reserves what may be missing, for a writer that is about to take a new block: blocks that have
  /// become free belong to removals first. The caller holds the lock.
  @inline(__always)
  func reserveMissingSpace() {
    if mayLackReservedSpace.load(ordering: .relaxed) { reserveSpace() }
  }

  /// Frees the reserved space, for the caller to use at once.
  func releaseSpace() throws(StorageError) {
    mayLackReservedSpace.store(true, ordering: .relaxed)
    // Beyond the end of the file, this also works where punching a hole does nothing, as on ext4.
    try file.truncate(to: file.status().size)
  }

  /// Whether the file has been deleted since it was opened, and other processes lock another one.
  func isDeleted() throws(StorageError) -> Bool { try file.status().linkCount == 0 }

  /// Whether the path now names another file, or this file was truncated and its words cannot be
  /// read any more.
  func isReplaced() throws(StorageError) -> Bool {
    if isLost { return true }
    guard let current = try FileSystem.status(file.path) else { return true }
    return !current.isSameFile(as: status) || current.size < wordCount * Self.wordSize
  }

  /// Whether the mapping only shows zeros, because another program truncated the file. It has to be
  /// opened again. No first word is 0.
  var isLost: Bool { word() == 0 || hasFailedStore.load(ordering: .acquiring) }

  // MARK: Words

  /// A published word. It can be read while the lock file is referenced.
  ///
  /// Unchecked because it holds a pointer, which is only used for atomic loads.
  struct Word: @unchecked Sendable {
    private let address: UnsafePointer<UInt64>

    fileprivate init(_ address: UnsafePointer<UInt64>) { self.address = address }

    @inline(__always)
    var value: UInt64 { keepsake_load(address) }
  }

  private var words: UnsafeMutablePointer<UInt64> {
    mapping.assumingMemoryBound(to: UInt64.self)
  }

  /// The first word.
  var mappedWord: Word { Word(words) }

  /// The value of a word. `index` must be less than the `wordCount` that the file was opened with.
  func word(_ index: Int = 0) -> UInt64 { Word(words + index).value }

  /// Calls `body` with the values of words. All must be less than the `wordCount` that the file was
  /// opened with.
  @inline(__always)
  func forEachWord(from index: Int, count: Int, _ body: (UInt64) -> Void) {
    let words = words + index
    var position = 0
    while position < count {
      body(Word(words + position).value)
      position &+= 1
    }
  }

  func publish(_ word: UInt64, at index: Int) throws(StorageError) {
    try withUnsafeBytes(of: word) { bytes throws(StorageError) in
      try file.overwrite(bytes.bytes, at: index * Self.wordSize, as: .publish)
    }
  }

  // MARK: Marking

  /// Whether the file has a mark.
  private var isMarkable: Bool { word(Page.magic) == Page.magicValue }

  /// Whether an older version made the file, so that creating it again would add a mark.
  var lacksMark: Bool { storesWords && !isMarkable }

  /// Whether the mark is missing because no process is writing, and not because the file has none.
  var isUnmarked: Bool { isMarkable && word(Page.mark) == 0 }

  var isMarked: Bool { isMarkable && word(Page.mark) != 0 }

  /// Marks that the holder of the lock is about to write. The mark stays if it is killed before it
  /// publishes a word.
  func mark() throws(StorageError) {
    guard isMarkable else { return }
    try withUnsafeBytes(of: UInt64(1)) { bytes throws(StorageError) in
      try put(bytes, at: Page.mark) { keepsake_store(words + Page.mark, 1) }
    }
  }

  /// Publishes the first word, and removes the mark.
  func publish(_ word: UInt64) throws(StorageError) {
    guard isMarkable else { return try publish(word, at: 0) }
    try withUnsafeBytes(of: (word, UInt64(0))) { bytes throws(StorageError) in
      try put(bytes, at: 0) {
        keepsake_store(words, word)
        keepsake_store(words + Page.mark, 0)
      }
    }
  }

  /// Stores words through the mapping, or writes them if that is not possible.
  private func put(
    _ bytes: UnsafeRawBufferPointer, at index: Int, _ store: () -> Void
  ) throws(StorageError) {
    let offset = index * Self.wordSize
    if storesWords {
      try systemCall(.publish, file.path, on: file.descriptor, bytes: bytes, offset: offset) {
        store()
        return bytes.count
      }.get(.publish, file.path)
      if isMarkable { return }
      hasFailedStore.store(true, ordering: .releasing)
    }
    try file.overwrite(bytes.bytes, at: offset, as: .publish)
  }

  // MARK: Locking the file

  /// Takes the lock, or throws after `timeout`: a process that was stopped while holding the lock
  /// must not hang all others.
  func lock(timeout: Duration) throws(StorageError) {
    if try Self.tryLock(file.descriptor, file.path) { return }
    try waiting { () throws(StorageError) in try Self.lock(file, timeout: timeout) }
  }

  func unlock() { Self.unlock(file) }

  /// Takes the lock; false if it is held elsewhere.
  func tryLock() throws(StorageError) -> Bool { try Self.tryLock(file.descriptor, file.path) }

  private static func lock(_ file: File, timeout: Duration) throws(StorageError) {
    try wait(file, timeout: timeout) { Int(keepsake_lock(file.descriptor, true)) }
  }

  private static func unlock(_ file: File) {
    // Cannot fail on an open descriptor; closing it would release the lock too.
    _ = keepsake_lock(file.descriptor, false)
  }

  /// Locks an open file or directory of any kind until it is closed; false if another descriptor
  /// holds the lock.
  static func tryLock(_ descriptor: Int32, _ path: String) throws(StorageError) -> Bool {
    try attempt(path) { Int(keepsake_lock(descriptor, true)) }
  }

  // MARK: Locking bytes

  /// Takes the lock on some bytes, which is independent of the lock on the file.
  func lock(bytes: Range<UInt64>, timeout: Duration) throws(StorageError) {
    if try tryLock(bytes: bytes) { return }
    try waiting { () throws(StorageError) in
      try Self.lock(file, bytes: bytes, timeout: timeout)
    }
  }

  static func lock(
    _ file: File, bytes: Range<UInt64>, timeout: Duration
  ) throws(StorageError) {
    do throws(StorageError) {
      try lockInParts(file, bytes, start: .now, timeout: timeout)
    } catch {
      // Some parts may be locked.
      unlock(file, bytes: bytes)
      throw error
    }
  }

  /// Takes the lock on all bytes at once if it can, and otherwise on one half after the other:
  /// while many others lock single bytes, there may never be a moment when all are free.
  ///
  /// Each caller takes the bytes in ascending order, so no two wait for each other.
  private static func lockInParts(
    _ file: File, _ bytes: Range<UInt64>, start: ContinuousClock.Instant, timeout: Duration
  ) throws(StorageError) {
    let count = bytes.upperBound - bytes.lowerBound
    guard count > 1 else {
      return try wait(file, start: start, timeout: timeout) {
        setLock(file, bytes, isExclusive: true)
      }
    }
    if try tryLock(file, bytes: bytes) { return }
    let middle = bytes.lowerBound + count / 2
    for half in [bytes.lowerBound..<middle, middle..<bytes.upperBound] {
      try lockInParts(file, half, start: start, timeout: timeout)
    }
  }

  /// Takes the lock on some bytes; false if it is held elsewhere.
  func tryLock(bytes: Range<UInt64>) throws(StorageError) -> Bool {
    try Self.tryLock(file, bytes: bytes)
  }

  static func tryLock(
    _ file: File, bytes: Range<UInt64>
  ) throws(StorageError) -> Bool {
    try attempt(file.path) { setLock(file, bytes, isExclusive: true) }
  }

  func unlock(bytes: Range<UInt64>) { Self.unlock(file, bytes: bytes) }

  static func unlock(_ file: File, bytes: Range<UInt64>) {
    _ = setLock(file, bytes, isExclusive: false)
  }

  private static func setLock(_ file: File, _ bytes: Range<UInt64>, isExclusive: Bool) -> Int {
    let count = bytes.upperBound - bytes.lowerBound
    return Int(keepsake_lock_bytes(file.descriptor, bytes.lowerBound, count, isExclusive))
  }

  // MARK: Waiting

  /// Runs `body`, which waits for a lock that is held elsewhere.
  private func waiting(_ body: () throws(StorageError) -> Void) throws(StorageError) {
    waitingCount.add(1, ordering: .relaxed)
    defer { waitingCount.subtract(1, ordering: .relaxed) }
    try body()
  }

  /// Whether a thread of this process waits for a lock that is held elsewhere.
  var isAwaited: Bool { waitingCount.load(ordering: .relaxed) > 0 }

  private static func wait(
    _ file: File, start: ContinuousClock.Instant = .now, timeout: Duration, _ call: () -> Int
  ) throws(StorageError) {
    if try attempt(file.path, call) { return }
    // The lock is usually held for microseconds: retry quickly at first, then back off.
    let deadline = start + timeout
    var pause: UInt32 = 10
    while ContinuousClock.now < deadline {
      if pause < 40 { sched_yield() } else { usleep(pause) }
      if try attempt(file.path, call) { return }
      pause = min(pause * 2, 2_000)
    }
    throw timeoutError(file.path, timeout)
  }

  private static func timeoutError(_ path: String, _ timeout: Duration) -> StorageError {
    StorageError(
      .timedOut, operation: "lock", path: path,
      reason: "another process held the lock for more than \(timeout)",
      remedy: "Resume or end a stopped process that has this file open (fuser shows it), or try "
        + "again.")
  }

  /// The error of a call that waited too long for another thread of this process, which may itself
  /// be waiting for a process that holds the lock.
  ///
  /// - Parameters:
  ///   - lockFile: The lock file that the other thread may be waiting for.
  ///   - remedy: Says what to do about the thread if it is not.
  static func threadTimeoutError(
    _ timeout: Duration, path: String, lockFile: LockFile?, remedy: String
  ) -> StorageError {
    if let lockFile, lockFile.isAwaited { return timeoutError(lockFile.file.path, timeout) }
    return StorageError(
      .timedOut, operation: "lock", path: path,
      reason: "another thread was writing for more than \(timeout)", remedy: remedy)
  }

  private static func attempt(
    _ path: @autoclosure () -> String, _ call: () -> Int
  ) throws(StorageError) -> Bool {
    switch systemCall(.lock, path(), call) {
    case .success: return true
    case .failure(let error) where error.code == EAGAIN || error.code == EACCES: return false
    case .failure(let error):
      throw StorageError(errno: error.code, operation: "lock", path: path())
    }
  }
}
