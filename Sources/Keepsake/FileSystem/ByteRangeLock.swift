/// Locks on byte ranges of a file, which is created if it is missing.
///
/// Open files are kept for the next lock. Each is used by one holder at a time, so that the lock
/// also excludes threads of the same process. A forked child needs an instance of its own.
final class ByteRangeLock: Sendable {
  /// All bytes that can be locked.
  static let allBytes: Range<UInt64> = 0..<(1 << 62)

  /// The byte that a thread holds while it waits for others.
  ///
  /// Waiting threads look from time to time whether their bytes are free, so a process that takes
  /// all bytes again and again, as one that rotates keys, would keep them out. But it has to take
  /// this byte first.
  private static let turn: Range<UInt64> = (1 << 62)..<(1 << 62 + 1)

  private let path: String
  private let idleFiles = Locked<[File]>([])
  private static let maximumIdleCount = 4

  init(_ path: String) { self.path = path }

  /// Keeps all other threads and processes from holding any of the bytes.
  ///
  /// - Parameter mode: The mode of the file if it is created.
  /// - Returns: What the caller unlocks.
  func lock(
    _ bytes: Range<UInt64>, mode: @autoclosure () throws(StorageError) -> UInt32, _ wait: Wait
  ) throws(StorageError) -> HeldLock {
    while true {
      let idle = idleFiles.withLock { $0.popLast() }
      let file = if let idle, idle.isOpen { idle } else { try open(mode()) }
      try Self.lock(file, bytes, wait)
      var exists = false
      // Closing the file would not release the lock if a child inherited the descriptor.
      defer { if !exists { file.unlock(bytes: bytes) } }
      // If the file was deleted, other processes lock a new one. It may still have another name.
      exists = try file.isSame(as: FileSystem.status(path, followsLinks: false))
      if exists { return HeldLock(file: file, bytes: bytes, owner: self) }
    }
  }

  fileprivate func unlock(_ file: File, _ bytes: Range<UInt64>) {
    file.unlock(bytes: bytes)
    idleFiles.withLock { if $0.count < Self.maximumIdleCount { $0.append(file) } }
  }

  private func open(_ mode: UInt32) throws(StorageError) -> File {
    let file = try LockFile.openOrCreate(path, mode: mode)
    _ = try file.keep()
    return file
  }

  private static func lock(
    _ file: File, _ bytes: Range<UInt64>, _ wait: Wait
  ) throws(StorageError) {
    let isSingle = bytes.count == 1
    if isSingle, try file.tryLock(bytes: bytes) { return }
    // A turn ends before the timeout, because the thread may wait for a byte of a stopped process,
    // and the other bytes can still be locked.
    let longestTurn = wait.rest / 4
    if try locks(file, turn, within: longestTurn) {
      defer { file.unlock(bytes: turn) }
      if !isSingle { return try file.lock(bytes: bytes, wait) }
      if try locks(file, bytes, within: longestTurn) { return }
    }
    try file.lock(bytes: bytes, wait)
  }

  private static func locks(
    _ file: File, _ bytes: Range<UInt64>, within timeout: Duration
  ) throws(StorageError) -> Bool {
    do throws(StorageError) {
      try file.lock(bytes: bytes, Wait(timeout: timeout))
      return true
    } catch  where error.code == .timedOut {
      return false
    }
  }
}

/// Bytes of a file that are locked until ``unlock()`` is called.
package struct HeldLock: Sendable {
  fileprivate let file: File
  fileprivate let bytes: Range<UInt64>
  fileprivate let owner: ByteRangeLock

  func unlock() { owner.unlock(file, bytes) }
}
