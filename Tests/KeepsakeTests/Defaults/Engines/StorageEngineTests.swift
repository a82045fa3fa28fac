import FoundationEssentials
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// The engine of the documentation.
final class TableEngine: StorageEngines.Engine {
  private let table = Locked<[String: Data]>([:])

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

/// The journal, which stores values, as an engine that stores bytes.
private struct JournalEngine: StorageEngines.Engine {
  let journal: Journal

  func data(forKey key: String) throws -> Data? { try journal.value(forKey: key)?.engineData }

  func set(_ data: Data?, forKey key: String) throws {
    try journal.set(StoredValue(engineData: data, key: key), forKey: key)
  }

  func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool {
    let old = try StoredValue(engineData: old, key: key)
    let new = try StoredValue(engineData: new, key: key)
    return try journal.replace(old, with: new, forKey: key)
  }

  func keys() throws -> [String] { try journal.keys() }
  func removeAll() throws { try journal.removeAll() }
  func synchronize() throws { try journal.synchronize() }
  func changes() throws -> AsyncStream<Void>? { journal.changes { _ in true } }
}

@Suite struct StorageEngineTests {
  /// Generous, because all other tests run at the same time, possibly under a sanitizer.
  private static let timeLimit = Duration.seconds(600)

  @Test func journalConforms() async throws {
    let directory = try TemporaryDirectory(isQuick: true)
    try await StorageEngineConformance.check(timeLimit: Self.timeLimit) {
      try JournalEngine(journal: directory.store().journal)
    } reopening: {
      try JournalEngine(journal: directory.store().journal)
    }
  }

  @Test func memoryEngineConforms() async throws {
    try await StorageEngineConformance.check(timeLimit: Self.timeLimit) { MemoryEngine() }
  }

  @Test func fileEngineConforms() async throws {
    let directory = try TemporaryDirectory(isQuick: true)
    try await StorageEngineConformance.check(timeLimit: Self.timeLimit) {
      FileEngine(Folder(directory.file("settings")))
    } reopening: {
      FileEngine(Folder(directory.file("settings")))
    }
  }
}
