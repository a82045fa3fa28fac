import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What a process of an app has: a link of its own, and a suite that is mirrored in memory.
final class TestClient: Sendable {
  let testServer: TestServer
  let server: Server
  let table: SettingsTable
  let mirror: StorageEngines.Mirror
  /// What was reported to `onFailure`.
  let reports = Recorder<StorageError>()
  /// The key of the copy on disk.
  let copyKey: String
  private let cache: DiskCache.Store

  /// - Parameters:
  ///   - cache: Holds the copy on disk. Clients of one machine share it.
  ///   - change: Changes the address.
  init(
    _ testServer: TestServer, suite: String = "suite",
    confirm confirmation: ValkeyBacking.Confirmation = .primary,
    cache: DiskCache.Store = DiskCache.named(.memory), options: LinkOptions = .quick,
    maximumByteCount: Int = 32 << 20, _ change: (inout ServerAddress) -> Void = { _ in }
  ) {
    self.testServer = testServer
    server = testServer.backend(confirm: confirmation, options: options, change)
    let name = TableName(app: "app", suite: suite, database: server.address.database)
    self.cache = cache
    copyKey = name.copyKey(server.address)
    table = SettingsTable(
      name, on: server, cache: cache, maximumByteCount: maximumByteCount,
      report: { [reports] in reports.append($0) })
    mirror = StorageEngines.Mirror(table, report: { [reports] in reports.append($0) })
  }

  /// What was reported, apart from outages: on a busy machine any one may be long enough.
  var faults: [StorageError] { reports.all.filter { $0.code != .unreachable } }

  /// The copy on disk; nil if there is none.
  var copy: TableMessage? { cache.tableCopy(copyKey) }

  /// The value in the mirror, as JSON.
  func get(_ key: String) throws -> String? {
    try mirror.value(forKey: key).map { String(decoding: $0.engineData, as: UTF8.self) }
  }

  func set(_ key: String, _ json: String?) throws {
    try table.set(json.map { Data($0.utf8) }, forKey: key)
  }

  /// All values in the mirror, as JSON.
  func all() throws -> [String: String] {
    var values: [String: String] = [:]
    for key in try mirror.keys() { values[key] = try get(key) }
    return values
  }

  /// Sets a value, again and again until that succeeds.
  func setEventually(
    _ key: String, _ json: String, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    waitUntil("the server did not accept a change", sourceLocation: sourceLocation) {
      (try? set(key, json)) != nil
    }
  }

  func expectEventually(
    _ key: String, _ json: String?, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    waitUntil("the change did not arrive", sourceLocation: sourceLocation) {
      (try? get(key)) == json
    }
  }

  func expectReport(
    _ code: StorageError.Code, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    waitUntil("nothing was reported", sourceLocation: sourceLocation) {
      reports.all.contains { $0.code == code }
    }
  }
}

extension DiskCache.Store {
  /// The copy of a table; nil if there is none.
  func tableCopy(_ key: String) -> TableMessage? {
    (try? get(key)).flatMap { $0 }.flatMap { TableMessage(Array($0)) }
  }
}

extension TestServer {
  /// A process on another machine, which knows nothing.
  func stranger() -> TestClient {
    TestClient(self, cache: DiskCache.named(DiskCache.Name(UUID().uuidString)))
  }

  /// Sends a command on a connection of its own.
  @discardableResult
  func command(_ words: String...) throws -> Reply { try command(words) }

  @discardableResult
  func command(_ words: [String]) throws -> Reply {
    let link = Link(address)
    defer { link.close() }
    return try link.perform(Command(words: words))
  }
}
