import FoundationEssentials
import KeepsakeTesting
import Testing

@testable import Keepsake

/// The engine of the documentation.
final class TableEngine: StorageEngine {
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

@Suite struct StorageEngineTests {
  /// All other tests run beside these, under a sanitizer too.
  private static let timeLimit = Duration.seconds(600)

  @Test func theJournalConforms() async throws {
    let directory = try TemporaryDirectory()
    try await StorageEngineConformance.check(timeLimit: Self.timeLimit) {
      try directory.store().journal
    } reopening: {
      try directory.store().journal
    }
  }

  @Test func theEngineInMemoryConforms() async throws {
    try await StorageEngineConformance.check(timeLimit: Self.timeLimit) { MemoryEngine() }
  }

  @Test func theEngineOfFilesConforms() async throws {
    let directory = try TemporaryDirectory(isQuick: true)
    try await StorageEngineConformance.check(timeLimit: Self.timeLimit) {
      FileEngine(Folder(directory.file("settings")))
    } reopening: {
      FileEngine(Folder(directory.file("settings")))
    }
  }

  @Test func theEngineOfTheDocumentationConforms() async throws {
    try await StorageEngineConformance.check(timeLimit: Self.timeLimit) { TableEngine() }
  }
}
