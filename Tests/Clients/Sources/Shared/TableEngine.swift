// Compiled into three programs: conforming to StorageEngines.Engine makes a type nonisolated, even
// with the main actor as default isolation.
import Foundation
import Keepsake
import Synchronization

final class TableEngine: StorageEngines.Engine {
  private let table = Mutex<[String: Data]>([:])

  func data(forKey key: String) -> Data? { table.withLock { $0[key] } }
  func set(_ data: Data?, forKey key: String) { table.withLock { $0[key] = data } }
  func replace(_ old: Data?, with new: Data?, forKey key: String) -> Bool {
    table.withLock { table in
      guard table[key] == old else { return false }
      table[key] = new
      return true
    }
  }
  func keys() -> [String] { table.withLock { Array($0.keys) } }
}
