internal import CKeepsake
internal import KeepsakeLibc
internal import Synchronization

/// The locks of bytes of a file, which is made where it is missing.
///
/// What was opened for one lock is kept for the next. Nobody shares it meanwhile, so that the lock
/// keeps out threads of the same process as well; a forked child must have its own.
final class ByteRangeLock: Sendable {
  /// All bytes that can be locked.
  static let allBytes: Range<UInt64> = 0..<(1 << 62)

  private let path: String
  /// Open, and nobody's.
  private let spare = Locked<[File]>([])
  private static let mostKept = 4

  init(_ path: String) { self.path = path }

  /// Runs `body` while nobody else holds any of the bytes.
  ///
  /// - Parameter mode: That of the file, if it is made.
  func withLock<R>(
    _ bytes: Range<UInt64>, mode: @autoclosure () throws(StorageError) -> UInt32,
    timeout: Duration, _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    while true {
      let kept = spare.withLock { $0.popLast() }
      let file = if let kept { kept } else { try LockFile.openOrCreate(path, mode: mode()) }
      try LockFile.lock(file, bytes: bytes, timeout: timeout)
      var isThere = false
      defer {
        // Closing would do, but for a child that inherited the descriptor.
        LockFile.unlock(file, bytes: bytes)
        if isThere { spare.withLock { if $0.count < Self.mostKept { $0.append(file) } } }
      }
      // Whoever comes after a deletion locks another file.
      isThere = try file.status().linkCount > 0
      if isThere { return try body() }
    }
  }

  /// The same, for a lock that is rarely taken.
  static func withLock<R>(
    _ bytes: Range<UInt64>, of path: String, mode: UInt32, timeout: Duration,
    _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    try ByteRangeLock(path).withLock(bytes, mode: mode, timeout: timeout, body)
  }
}

/// A file that processes lock, with words that its holder publishes to all the others.
///
/// The words are mapped read-only, so looking at them costs no system call; they are written with a
/// system call, so that a full disk is an error and not a signal. The file starts with a dot: shell
/// patterns do not match it by accident.
final class LockFile: Sendable {
  let file: File
  /// The file's identity when it was opened.
  let status: FileStatus
  // Only ever read, atomically; unmapped with the last reference.
  private nonisolated(unsafe) let mapping: UnsafeMutableRawPointer
  private let wordCount: Int
  private let lastCheck = Atomic<Int64>(0)

  private static let wordSize = MemoryLayout<UInt64>.size

  private init?(mapping file: File, wordCount: Int) throws(StorageError) {
    let status = try file.status()
    // A page beyond the end of a file cannot be read: not ready yet, or emptied by hand.
    guard status.size >= wordCount * Self.wordSize else { return nil }
    var address: UnsafeMutableRawPointer?
    try systemCall(.map, file.path) {
      address = mmap(nil, wordCount * Self.wordSize, PROT_READ, MAP_SHARED, file.descriptor, 0)
      return address == MAP_FAILED ? -1 : 0
    }.get(.map, file.path)
    guard let address else { return nil }
    self.mapping = address
    self.file = file
    self.status = status
    self.wordCount = wordCount
  }

  deinit { munmap(mapping, wordCount * Self.wordSize) }

  /// Opens the lock file if it is there and ready; nil otherwise, or when it cannot be written.
  static func openExisting(_ path: String, wordCount: Int = 1) throws(StorageError) -> LockFile? {
    do throws(StorageError) {
      return try LockFile(mapping: File(path, .readWriteNoFollow), wordCount: wordCount)
    } catch  where error.code == .notFound || error.code == .accessDenied {
      return nil
    }
  }

  /// Opens the lock file and makes it first where it is missing, with the words that `initial`
  /// gives.
  static func createOrOpen(
    _ path: String, mode: UInt32, timeout: Duration, wordCount: Int = 1,
    initial: () throws(StorageError) -> [UInt64]
  ) throws(StorageError) -> LockFile {
    let file = try openOrCreate(path, mode: mode)
    if let ready = try LockFile(mapping: file, wordCount: wordCount) { return ready }
    // Whoever holds the lock of an empty file writes its first words.
    try Self.lock(file, timeout: timeout)
    defer { Self.unlock(file) }
    if try file.status().size < wordCount * wordSize {
      try file.setMode(mode)
      let words = try initial()
      try file.overwrite(words.span.bytes, at: 0, as: .publish)
    }
    guard let ready = try LockFile(mapping: file, wordCount: wordCount) else {
      throw StorageError(
        .damaged, operation: "map", path: path,
        reason: "another program keeps emptying it", remedy: "Find that program and stop it.")
    }
    return ready
  }

  fileprivate static func openOrCreate(_ path: String, mode: UInt32) throws(StorageError) -> File {
    do throws(StorageError) {
      // Where fs.protected_regular is set, O_CREAT on another user's file in a shared directory
      // fails. Never through a link, which another user may have laid there: words are written to
      // the file.
      return try File(path, .readWriteNoFollow)
    } catch  where error.code == .notFound {
      let file = try File(path, .createOrOpen, mode: mode)
      // No umask takes from the user, but many do from others.
      if mode & 0o077 != 0 { try file.setMode(mode) }
      return file
    }
  }

  /// A published word, to look at for as long as the lock file is kept.
  ///
  /// Unchecked because it holds a pointer, through which nothing but atomic loads are made.
  struct Word: @unchecked Sendable {
    // Only ever read, atomically.
    private let address: UnsafePointer<UInt64>

    fileprivate init(_ address: UnsafePointer<UInt64>) { self.address = address }

    @inline(__always)
    var value: UInt64 { keepsake_load(address) }
  }

  /// The first word.
  var mappedWord: Word { Word(mapping.assumingMemoryBound(to: UInt64.self)) }

  /// A word by its number, which must be less than the count that the file was opened with.
  func word(_ number: Int = 0) -> UInt64 {
    Word(mapping.assumingMemoryBound(to: UInt64.self) + number).value
  }

  func publish(_ word: UInt64, at number: Int = 0) throws(StorageError) {
    try withUnsafeBytes(of: word) { bytes throws(StorageError) in
      try file.overwrite(bytes.bytes, at: number * Self.wordSize, as: .publish)
    }
  }

  /// Whether the file has been deleted since it was opened: then others lock another one.
  ///
  /// - Parameter usingRecentCheck: Whether a check made within ``CoarseClock/resolution`` suffices.
  func isDeleted(usingRecentCheck: Bool) throws(StorageError) -> Bool {
    let tick = CoarseClock.now
    if usingRecentCheck, tick == lastCheck.load(ordering: .relaxed) { return false }
    lastCheck.store(tick, ordering: .relaxed)
    return try file.status().linkCount == 0
  }

  /// Whether another file stands at the path by now, or this one was cut off, so that its words
  /// cannot be looked at any more.
  func isReplaced() throws(StorageError) -> Bool {
    guard let current = try FileSystem.status(file.path) else { return true }
    return !current.isSameFile(as: status) || current.size < wordCount * Self.wordSize
  }

  func lock(timeout: Duration) throws(StorageError) { try Self.lock(file, timeout: timeout) }
  func unlock() { Self.unlock(file) }

  /// Takes the lock, or gives up with an error: a process that was stopped while it held the lock
  /// must not hang all others.
  private static func lock(_ file: File, timeout: Duration) throws(StorageError) {
    try wait(file, timeout: timeout) { Int(keepsake_lock(file.descriptor, true)) }
  }

  /// Takes the lock of an open file or directory of any kind, which it has until it is closed;
  /// false when somebody else has it.
  static func tryLock(_ descriptor: Int32, _ path: String) throws(StorageError) -> Bool {
    try attempt(path) { Int(keepsake_lock(descriptor, true)) }
  }

  /// Takes the lock of some bytes, independent of that of the whole file; see ``lock(timeout:)``.
  func lock(bytes: Range<UInt64>, timeout: Duration) throws(StorageError) {
    try Self.lock(file, bytes: bytes, timeout: timeout)
  }

  fileprivate static func lock(
    _ file: File, bytes: Range<UInt64>, timeout: Duration
  ) throws(StorageError) {
    try wait(file, timeout: timeout) { lock(file, bytes, true) }
  }

  /// Takes the lock of some bytes; false when somebody else has it.
  func tryLock(bytes: Range<UInt64>) throws(StorageError) -> Bool {
    try Self.attempt(file.path) { Self.lock(file, bytes, true) }
  }

  func unlock(bytes: Range<UInt64>) { Self.unlock(file, bytes: bytes) }

  fileprivate static func unlock(_ file: File, bytes: Range<UInt64>) {
    _ = lock(file, bytes, false)
  }

  private static func lock(_ file: File, _ bytes: Range<UInt64>, _ exclusive: Bool) -> Int {
    let count = bytes.upperBound - bytes.lowerBound
    return Int(keepsake_lock_bytes(file.descriptor, bytes.lowerBound, count, exclusive))
  }

  private static func wait(
    _ file: File, timeout: Duration, _ call: () -> Int
  ) throws(StorageError) {
    if try attempt(file.path, call) { return }
    // A holder needs microseconds: stay close at first, then back off.
    let deadline = ContinuousClock.now + timeout
    var pause: UInt32 = 10
    while ContinuousClock.now < deadline {
      if pause < 40 { sched_yield() } else { usleep(pause) }
      if try attempt(file.path, call) { return }
      pause = min(pause * 2, 2_000)
    }
    throw StorageError(
      .timedOut, operation: "lock", path: file.path,
      reason: "another process held the lock for more than \(timeout)",
      remedy: "Look for a stopped or hanging process that has this file open, and end it.")
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

  private static func unlock(_ file: File) {
    // Cannot fail on an open descriptor; closing it would release the lock too.
    _ = keepsake_lock(file.descriptor, false)
  }
}
