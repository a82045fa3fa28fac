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

  /// - Parameters:
  ///   - copies: The cache that holds the copy on disk. Clients of one machine share it.
  ///   - cache: The same cache, if it is not one of the test process.
  ///   - change: Changes the address.
  init(
    _ testServer: TestServer, suite: String = "suite",
    confirm confirmation: ValkeyBacking.Confirmation = .primary,
    copies: DiskCache.Name = .memory, cache: DiskCache.Store? = nil,
    maximumByteCount: Int = 32 << 20, options: LinkOptions? = nil,
    _ change: (inout ServerAddress) -> Void = { _ in }
  ) {
    self.testServer = testServer
    var address = testServer.address
    change(&address)
    var quick = LinkOptions()
    quick.minimumBackoff = .milliseconds(5)
    quick.maximumBackoff = .milliseconds(50)
    server = Server(address, options: options ?? quick, confirm: confirmation)
    table = SettingsTable(
      TableName(app: "app", suite: suite, database: address.database), on: server,
      cache: cache ?? DiskCache.named(copies), maximumByteCount: maximumByteCount,
      report: { [reports] in reports.append($0) })
    mirror = StorageEngines.Mirror(table, report: { [reports] in reports.append($0) })
  }

  /// What was reported, apart from outages: on a busy machine any one may be long enough.
  var faults: [StorageError] { reports.all.filter { $0.code != .unreachable } }

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

extension TestServer {
  /// Sends a command on a connection of its own.
  @discardableResult
  func command(_ words: String...) throws -> Reply { try command(words) }

  @discardableResult
  func command(_ words: [String]) throws -> Reply {
    var command = Command(words[0])
    for word in words.dropFirst() { command.append(word) }
    let link = Link(address)
    defer { link.close() }
    return try link.perform(command)
  }
}
