@testable import Keepsake

extension ByteRangeLock {
  /// Runs `body` while no other thread or process holds any of the bytes.
  func withLock<R>(
    _ bytes: Range<UInt64>, mode: UInt32, _ wait: Wait, _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let held = try lock(bytes, mode: mode, wait)
    defer { held.unlock() }
    return try body()
  }
}
