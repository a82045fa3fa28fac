import FoundationEssentials
import KeepsakeTesting
import Synchronization
import Testing

@testable import Keepsake

/// The engine of the documentation.
final class TableEngine: StorageEngine {
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

@Suite struct StorageEngineTests {
  @Test func theJournalConforms() async throws {
    let folder = try TemporaryFolder()
    try await StorageEngineConformance.check {
      try folder.store().journal
    } reopening: {
      try folder.store().journal
    }
  }

  @Test func theEngineInMemoryConforms() async throws {
    try await StorageEngineConformance.check { MemoryEngine() }
  }

  @Test func theEngineOfFilesConforms() async throws {
    let folder = try TemporaryFolder(isQuick: true)
    try await StorageEngineConformance.check {
      FileEngine(Folder(folder.file("settings")))
    } reopening: {
      FileEngine(Folder(folder.file("settings")))
    }
  }

  @Test func theEngineOfTheDocumentationConforms() async throws {
    try await StorageEngineConformance.check { TableEngine() }
  }
}
