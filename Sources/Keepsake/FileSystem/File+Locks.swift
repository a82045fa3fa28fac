internal import CKeepsake
internal import KeepsakeLibc

/// Locks that other descriptors of the file respect, in this process too. The lock on the whole
/// file and those on bytes are independent of each other.
extension File {
  // MARK: The whole file

  /// Takes the lock until it is released or the file is closed; false if it is held elsewhere.
  func tryLock() throws(StorageError) -> Bool { try Self.tryLock(descriptor, path) }

  /// The same for an open file or directory of any kind.
  static func tryLock(
    _ descriptor: Int32, _ path: @autoclosure () -> String
  ) throws(StorageError) -> Bool {
    try attempt(path()) { Int(keepsake_lock(descriptor, true)) }
  }

  /// Takes the lock, or throws after a time: a process that was stopped while holding it must not
  /// hang all others.
  func lock(_ wait: Wait) throws(StorageError) {
    try retry(wait) { Int(keepsake_lock(descriptor, true)) }
  }

  func unlock() {
    // Cannot fail on an open descriptor; closing it would release the lock too.
    _ = keepsake_lock(descriptor, false)
  }

  // MARK: Bytes

  /// Takes the lock on some bytes; false if it is held elsewhere.
  func tryLock(bytes: Range<UInt64>) throws(StorageError) -> Bool {
    try Self.attempt(path) { setLock(bytes, isExclusive: true) }
  }

  func lock(bytes: Range<UInt64>, _ wait: Wait) throws(StorageError) {
    do throws(StorageError) {
      try lockInParts(bytes, wait)
    } catch {
      // Some parts may be locked.
      unlock(bytes: bytes)
      throw error
    }
  }

  /// Takes the lock on all bytes at once if it can, and otherwise on one half after the other:
  /// while many others lock single bytes, there may never be a moment when all are free.
  ///
  /// Each caller takes the bytes in ascending order, so no two wait for each other.
  private func lockInParts(_ bytes: Range<UInt64>, _ wait: Wait) throws(StorageError) {
    let count = bytes.upperBound - bytes.lowerBound
    guard count > 1, wait.timeout > .zero else {
      return try retry(wait) { setLock(bytes, isExclusive: true) }
    }
    if try tryLock(bytes: bytes) { return }
    let middle = bytes.lowerBound + count / 2
    for half in [bytes.lowerBound..<middle, middle..<bytes.upperBound] {
      try lockInParts(half, wait)
    }
  }

  func unlock(bytes: Range<UInt64>) { _ = setLock(bytes, isExclusive: false) }

  private func setLock(_ bytes: Range<UInt64>, isExclusive: Bool) -> Int {
    let count = bytes.upperBound - bytes.lowerBound
    return Int(keepsake_lock_bytes(descriptor, bytes.lowerBound, count, isExclusive))
  }

  // MARK: Waiting

  private func retry(_ wait: Wait, _ call: () -> Int) throws(StorageError) {
    if try Self.attempt(path, call) { return }
    // The lock is usually held for microseconds: retry quickly at first, then back off.
    var pause: UInt32 = 10
    while wait.rest > .zero {
      if pause < 40 { sched_yield() } else { usleep(pause) }
      if try Self.attempt(path, call) { return }
      pause = min(pause * 2, 2_000)
    }
    throw Self.lockTimeout(path, wait.timeout)
  }

  private static func attempt(
    _ path: @autoclosure () -> String, _ call: () -> Int
  ) throws(StorageError) -> Bool {
    let result = systemCall(.lock, path(), call)
    if result.errorCode == EAGAIN || result.errorCode == EACCES { return false }
    try result.get(.lock, path())
    return true
  }

  static func lockTimeout(_ path: String, _ timeout: Duration) -> StorageError {
    StorageError(
      .timedOut, operation: "lock", path: path,
      reason: "another process held the lock for more than \(timeout)",
      remedy: "Resume or end a stopped process that has this file open (fuser shows it), or try "
        + "again.")
  }
}
