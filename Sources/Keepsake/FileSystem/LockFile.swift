internal import Synchronization

/// A file whose bytes processes lock, with words that they publish to each other.
///
/// The words are mapped, so reading them costs no system call. They are written with a system call,
/// so that a full disk is an error, or added to through the mapping.
final class LockFile: Sendable {
  let file: File
  /// The status of the file when it was opened, which identifies it.
  let status: FileStatus
  private let mapping: SharedMapping
  /// Whether a store through the mapping needs no new block.
  let storesWords: Bool
  private let waitingCount = Atomic(0)

  private static let wordSize = MemoryLayout<UInt64>.size

  private init?(mapping file: File, wordCount: Int) throws(StorageError) {
    let size = wordCount * Self.wordSize
    // The file is too short if another process is still creating it, or if a user truncated it.
    status = try file.keep()
    guard status.size >= size else { return nil }
    storesWords = file.isWritable && SharedMapping.keepsBlocks(file)
    mapping = try SharedMapping(file, size: size, isWritable: storesWords)
    self.file = file
  }

  // MARK: Opening

  /// Opens the lock file; nil if it does not exist, is still being created, or may not be used.
  static func openExisting(_ path: String, wordCount: Int) throws(StorageError) -> LockFile? {
    do throws(StorageError) {
      return try LockFile(mapping: File(path, .readWriteNoFollow), wordCount: wordCount)
    } catch  where error.code == .notFound || error.code == .accessDenied {
      return nil
    }
  }

  /// Opens the lock file, or creates it with the words that `initial` returns.
  static func createOrOpen(
    _ path: String, mode: UInt32, timeout: Duration, wordCount: Int,
    initial: () throws(StorageError) -> [UInt64]
  ) throws(StorageError) -> LockFile {
    let file = try openOrCreate(path, mode: mode)
    if let ready = try LockFile(mapping: file, wordCount: wordCount), !ready.isLost {
      return ready
    }
    // The process that locks the unfinished file writes the first words.
    try file.lock(Wait(timeout: timeout))
    defer { file.unlock() }
    if try LockFile(mapping: file, wordCount: wordCount)?.isLost ?? true {
      try file.setMode(mode)
      let words = try initial()
      try file.overwrite(words.span.bytes, at: 0, as: .publish)
    }
    guard let ready = try LockFile(mapping: file, wordCount: wordCount) else {
      throw StorageError(
        .damaged, operation: "map", path: path, reason: "another program keeps truncating the file",
        remedy: "Find that program and stop it.")
    }
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

  /// Whether the path now names another file, or this file was truncated and its words cannot be
  /// read any more, or the program has closed its descriptor.
  func isReplaced() throws(StorageError) -> Bool {
    if isLost || !file.isOpen { return true }
    guard let current = try FileSystem.status(file.path) else { return true }
    return !current.isSameFile(as: status) || current.size < status.size
  }

  /// Throws if the descriptor may be that of another file. Asked before the lock of a writer.
  func requireOpen() throws(StorageError) {
    try file.requireOpen("lock")
  }

  // MARK: Words

  /// Whether the mapping only shows zeros, because another program truncated the file. It has to be
  /// opened again. No first word is 0.
  var isLost: Bool { word() == 0 }

  /// The value of a word. `index` must be less than the `wordCount` that the file was opened with.
  func word(_ index: Int = 0) -> UInt64 { mapping.word(at: index * Self.wordSize).value }

  /// Calls `body` with the values of words. All must be less than the `wordCount` that the file was
  /// opened with.
  @inline(__always)
  func forEachWord(from index: Int, count: Int, _ body: (UInt64) -> Void) {
    let words = mapping.word(at: index * Self.wordSize)
    var position = 0
    while position < count {
      body(words.advanced(by: position).value)
      position &+= 1
    }
  }

  func publish(_ word: UInt64, at index: Int) throws(StorageError) {
    try withUnsafeBytes(of: word) { bytes throws(StorageError) in
      try file.overwrite(bytes.bytes, at: index * Self.wordSize, as: .publish)
    }
  }

  /// Adds to a word through the mapping, which takes no lock; without effect on a file system where
  /// a store may need a new block.
  @inline(__always)
  func add(_ value: UInt64, at index: Int) {
    if storesWords { mapping.word(at: index * Self.wordSize).add(value) }
  }

  // MARK: Locking bytes

  /// Takes the lock on some bytes, and counts the thread as one that waits meanwhile.
  func lock(bytes: Range<UInt64>, _ wait: Wait) throws(StorageError) {
    if try file.tryLock(bytes: bytes) { return }
    waitingCount.add(1, ordering: .relaxed)
    defer { waitingCount.subtract(1, ordering: .relaxed) }
    try file.lock(bytes: bytes, wait)
  }

  func unlock(bytes: Range<UInt64>) { file.unlock(bytes: bytes) }

  /// Whether a thread of this process waits for a lock that is held elsewhere.
  var isAwaited: Bool { waitingCount.load(ordering: .relaxed) > 0 }

  /// The error of a call that waited too long for another thread of this process, which may itself
  /// be waiting for a process that holds the lock.
  ///
  /// - Parameters:
  ///   - lockFile: The lock file that the other thread may be waiting for.
  ///   - remedy: Says what to do about the thread if it is not.
  @inline(never)
  static func threadTimeoutError(
    _ timeout: Duration, path: String?, lockFile: LockFile?, remedy: String
  ) -> StorageError {
    if let lockFile, lockFile.isAwaited { return File.lockTimeout(lockFile.file.path, timeout) }
    return StorageError(
      .timedOut, operation: "lock", path: path,
      reason: "another thread was writing for more than \(timeout)", remedy: remedy)
  }
}
