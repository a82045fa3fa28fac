@testable import Keepsake

extension OpenCache {
  /// Runs `body` while no other thread or process writes the key.
  func withKeyLock<R>(
    _ name: EntryName, timeout: Duration, _ body: (LockedEntry) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let entry = try lock(name, timeout: timeout)
    defer { entry.unlock() }
    return try body(entry)
  }
}
