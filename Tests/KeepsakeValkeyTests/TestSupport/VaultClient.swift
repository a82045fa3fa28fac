import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What a process of an app has that keeps its secrets on a server.
final class VaultClient: Sendable {
  let table: SettingsTable
  let directory: ServerDirectory
  /// What was reported to `onFailure`.
  let reports = Recorder<StorageError>()
  private let testServer: TestServer
  private let cache: DiskCache.Store
  let copyKey: String
  private let scope: StorageScope

  /// - Parameters:
  ///   - cache: Holds the copy on disk. Clients of one machine share it.
  ///   - environment: The environment variables of the process.
  ///   - change: Changes the address.
  init(
    _ testServer: TestServer, confirm confirmation: ValkeyBacking.Confirmation = .primary,
    cache: DiskCache.Store = DiskCache.named(.memory), maximumByteCount: Int = 32 << 20,
    keySources: [SecureVault.KeySource] = [Machine.key], environment: [String: String] = [:],
    _ change: (inout ServerAddress) -> Void = { _ in }
  ) throws {
    self.testServer = testServer
    directory = try ServerDirectory()
    let server = testServer.backend(confirm: confirmation, change)
    let name = TableName(vaultOf: "app", database: server.address.database)
    self.cache = cache
    copyKey = name.copyKey(server.address)
    table = SettingsTable(
      name, on: server, cache: cache, maximumByteCount: maximumByteCount,
      report: { [reports] in reports.append($0) })
    let url = URL(filePath: directory.path)
    scope = StorageScope(
      finder: DirectoryFinder(
        app: "app", chosen: .init(data: url, state: url), environment: { environment[$0] }),
      backing: VaultEngine(table), vaultOptions: VaultOptions(sources: keySources),
      handler: { [reports] in reports.append($0) })
  }

  // A scope and its stores reference each other.
  deinit { scope.close() }

  func secrets(_ service: SecureVault.Service = .standard) -> SecureVault.Store {
    scope.vault(service)
  }

  /// The copy of the secrets on disk; nil if there is none.
  var copy: TableMessage? { cache.tableCopy(copyKey) }

  /// What was reported, apart from outages, and from what the server may lose.
  var faults: [StorageError] {
    reports.all.filter { $0.code != .unreachable && $0.operation != "open" }
  }

  func setEventually(
    _ key: String, _ value: String, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    waitUntil("the server did not accept a secret", sourceLocation: sourceLocation) {
      (try? secrets().set(value, forKey: key)) != nil
    }
  }

  func expectEventually(
    _ key: String, _ value: String?, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    waitUntil("the secret did not arrive", sourceLocation: sourceLocation) {
      (try? secrets().get(key)) == value
    }
  }

  /// The ids of the vault's keys.
  func keyIDs() throws -> Set<UInt32> {
    try #require(try secrets().vault.currentSession()).ring.keyIDs
  }
}
