internal import CKeepsake

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A file that processes lock, with one word that its holder publishes to all the others.
///
/// The word is mapped read-only, so looking at it costs no system call; it is written with a system
/// call, so that a full disk is an error and not a signal. The file starts with a dot: shell
/// patterns do not match it by accident.
final class LockFile: Sendable {
  let file: File
  /// The file's identity when it was opened.
  let status: FileStatus
  // Only ever read, atomically; unmapped with the last reference.
  private nonisolated(unsafe) let mapping: UnsafeMutableRawPointer

  private static let wordSize = MemoryLayout<UInt64>.size

  private init?(mapping file: File) throws(StorageError) {
    let status = try file.status()
    // A page beyond the end of a file cannot be read: not ready yet, or emptied by hand.
    guard status.size >= Self.wordSize else { return nil }
    var address: UnsafeMutableRawPointer?
    try systemCall(.map, file.path) {
      address = mmap(nil, Self.wordSize, PROT_READ, MAP_SHARED, file.descriptor, 0)
      return address == MAP_FAILED ? -1 : 0
    }.get(.map, file.path)
    guard let address else { return nil }
    self.mapping = address
    self.file = file
    self.status = status
  }

  deinit { munmap(mapping, Self.wordSize) }

  /// Opens the lock file if it is there and ready; nil otherwise, or when it cannot be written.
  static func openExisting(_ path: String) throws(StorageError) -> LockFile? {
    do throws(StorageError) {
      return try LockFile(mapping: File(path, .readWrite))
    } catch  where error.code == .notFound || error.code == .accessDenied {
      return nil
    }
  }

  /// Opens the lock file and makes it first where it is missing.
  static func createOrOpen(
    _ path: String, mode: UInt32, timeout: Duration
  ) throws(StorageError) -> LockFile {
    let file: File
    do throws(StorageError) {
      // Where fs.protected_regular is set, O_CREAT on another user's file in a shared folder fails.
      file = try File(path, .readWrite)
    } catch  where error.code == .notFound {
      file = try File(path, .createOrOpen, mode: mode)
    }
    if let ready = try LockFile(mapping: file) { return ready }
    // Whoever holds the lock of an empty file writes its first word. It starts anywhere, so that
    // a process which still knows an earlier file's word does not take this one for it.
    try Self.lock(file, timeout: timeout)
    defer { Self.unlock(file) }
    if try file.status().size < wordSize {
      try file.setMode(mode)
      try file.publish(UInt64.random(in: 1...0xFF_FFFF) << 40, at: 0)
    }
    guard let ready = try LockFile(mapping: file) else {
      throw StorageError(
        .damaged, operation: "map", path: path,
        reason: "another program keeps emptying it", remedy: "Find that program and stop it.")
    }
    return ready
  }

  /// The published word, to look at for as long as the lock file is kept.
  ///
  /// Unchecked because it holds a pointer, through which nothing but atomic loads are made.
  struct Word: @unchecked Sendable {
    // Only ever read, atomically.
    private let address: UnsafePointer<UInt64>

    fileprivate init(_ address: UnsafePointer<UInt64>) { self.address = address }

    @inline(__always)
    var value: UInt64 { keepsake_load(address) }
  }

  var mappedWord: Word { Word(mapping.assumingMemoryBound(to: UInt64.self)) }
  var word: UInt64 { mappedWord.value }

  func publish(_ word: UInt64) throws(StorageError) { try file.publish(word, at: 0) }

  /// Whether the file has been deleted since it was opened: then others lock another one.
  func isDeleted() throws(StorageError) -> Bool { try file.status().links == 0 }

  /// Whether another file stands at the path by now.
  func isReplaced() throws(StorageError) -> Bool {
    guard let current = try FileSystem.status(file.path) else { return true }
    return !current.isSameFile(as: status)
  }

  func lock(timeout: Duration) throws(StorageError) { try Self.lock(file, timeout: timeout) }
  func unlock() { Self.unlock(file) }

  /// Takes the lock, or gives up with an error: a process that was stopped while it held the lock
  /// must not hang all others.
  private static func lock(_ file: File, timeout: Duration) throws(StorageError) {
    if try attempt(file) { return }
    // A holder needs microseconds: stay close at first, then back off.
    let deadline = ContinuousClock.now + timeout
    var pause: UInt32 = 10
    while ContinuousClock.now < deadline {
      if pause < 40 { sched_yield() } else { usleep(pause) }
      if try attempt(file) { return }
      pause = min(pause * 2, 2_000)
    }
    throw StorageError(
      .timedOut, operation: "lock", path: file.path,
      reason: "another process held the lock for more than \(timeout)",
      remedy: "Look for a stopped or hanging process that has this file open, and end it.")
  }

  private static func attempt(_ file: File) throws(StorageError) -> Bool {
    switch systemCall(.lock, file.path, { Int(keepsake_lock(file.descriptor, true)) }) {
    case .success: return true
    case .failure(let error) where error.code == EAGAIN || error.code == EACCES: return false
    case .failure(let error):
      throw StorageError(errno: error.code, operation: "lock", path: file.path)
    }
  }

  private static func unlock(_ file: File) {
    // Cannot fail on an open descriptor; closing it would release the lock too.
    _ = keepsake_lock(file.descriptor, false)
  }
}
