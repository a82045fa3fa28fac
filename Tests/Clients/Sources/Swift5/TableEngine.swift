import Foundation
import Keepsake

/// `@unchecked` because the compiler does not know that the lock protects the table.
final class TableEngine: StorageEngine, @unchecked Sendable {
  private let lock = NSLock()
  private var table: [String: Data] = [:]

  func data(forKey key: String) -> Data? { lock.withLock { table[key] } }
  func set(_ data: Data?, forKey key: String) { lock.withLock { table[key] = data } }
  func replace(_ old: Data?, with new: Data?, forKey key: String) -> Bool {
    lock.withLock {
      guard table[key] == old else { return false }
      table[key] = new
      return true
    }
  }
  func keys() -> [String] { lock.withLock { Array(table.keys) } }
}
