import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeValkey

@Suite struct TableSnapshotTests {
  /// It never connects.
  private let table = SettingsTable(
    TableName(app: "app", suite: "suite"),
    on: Server(ServerAddress(endpoint: .unix(path: "/nowhere"))), cache: DiskCache.named(.memory),
    report: { _ in })

  private func contents(_ version: Int64, _ id: String) throws -> TableContents {
    let fields = ["a", "1"].map { Reply.bytes(Array($0.utf8)) }
    return try table.contents(
      of: .array([
        .integer(1), .integer(version), .bytes(Array(id.utf8)), .bytes(Array("c1".utf8)),
        .bytes([]), .array(fields),
      ])
    ).0
  }

  @Test(arguments: [(0, ""), (1, "id"), (9_007_199_254_740_991, "id")])
  func isRead(_ version: Int64, _ id: String) throws {
    let contents = try contents(version, id)
    #expect(contents.version == version && contents.id == id)
    #expect(contents.entries == [EngineEntry(key: "a", data: Data("1".utf8))])
  }

  /// A server that replies with other versions must not end the process by an overflow later, and
  /// the copy on disk must be readable.
  @Test(arguments: [
    (0, "id"), (-1, "id"), (.min, "id"), (9_007_199_254_740_992, "id"), (.max, "id"), (1, ""),
    (1, "two words"), (1, " "),
  ])
  func refusesWhatNoServerHas(_ version: Int64, _ id: String) {
    #expect(throws: StorageError.self) { try contents(version, id) }
  }
}
