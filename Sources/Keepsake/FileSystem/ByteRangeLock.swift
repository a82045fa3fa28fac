/// Locks on byte ranges of a file, which is created if it is missing.
///
/// Open files are kept for the next lock. Each is used by one holder at a time, so that the lock
/// also excludes threads of the same process. A forked child needs an instance of its own.
final class ByteRangeLock: Sendable {
  /// All bytes that can be locked.
  static let allBytes: Range<UInt64> = 0..<(1 << 62)

  private let path: String
  private let idleFiles = Locked<[File]>([])
  private static let maximumIdleCount = 4

  init(_ path: String) { self.path = path }

  /// Runs `body` while no other thread or process holds any of the bytes.
  ///
  /// - Parameter mode: The mode of the file if it is created.
  func withLock<R>(
    _ bytes: Range<UInt64>, mode: @autoclosure () throws(StorageError) -> UInt32,
    timeout: Duration, _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    while true {
      let idle = idleFiles.withLock { $0.popLast() }
      let file = if let idle { idle } else { try LockFile.openOrCreate(path, mode: mode()) }
      try LockFile.lock(file, bytes: bytes, timeout: timeout)
      var exists = false
      defer {
        // Closing the file would not release the lock if a child inherited the descriptor.
        LockFile.unlock(file, bytes: bytes)
        if exists { idleFiles.withLock { if $0.count < Self.maximumIdleCount { $0.append(file) } } }
      }
      // If the file was deleted, other processes lock a new one.
      exists = try file.status().linkCount > 0
      if exists { return try body() }
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
