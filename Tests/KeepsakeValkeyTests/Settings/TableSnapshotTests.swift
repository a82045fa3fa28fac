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
    #expect(contents.entries.map(\.key) == ["a"])
    #expect(contents.entries.map(\.data) == [Data("1".utf8)])
  }

  /// The reply has the keys and values as its last element.
  private func reply(_ entries: [StorageEngines.Entry]) -> [UInt8] {
    var bytes = Array("*6\r\n:1\r\n:1\r\n$2\r\nid\r\n$2\r\nc1\r\n$0\r\n\r\n".utf8)
    bytes += Array("*\(2 * entries.count)\r\n".utf8)
    for entry in entries {
      for part in [Array(entry.key.utf8), Array(entry.data ?? Data())] {
        bytes += Array("$\(part.count)\r\n".utf8) + part + Array("\r\n".utf8)
      }
    }
    return bytes
  }

  /// A table that a process may write fits the limit for replies, which is twice as large, even if
  /// the values are tiny.
  @Test(arguments: [0, 1, 10_000]) func permittedTableCanBeRead(_ size: Int) throws {
    let entries = (0..<500).map {
      StorageEngines.Entry(key: "\($0)", data: Data(repeating: UInt8(ascii: "1"), count: size))
    }
    let contents = TableContents(id: "id", version: 1, name: "c1", entries: entries)
    let changes = TableChanges(entries)
    #expect(TableContents().byteCount(after: changes) == contents.byteCount)
    var parser = ReplyParser(limit: 2 * contents.byteCount)
    let parsed = try reply(entries).withUnsafeBytes { bytes in
      var rest = bytes
      return try parser.next(&rest)
    }
    #expect(try table.contents(of: #require(parsed)).0.entries.count == entries.count)
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
