import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Opens a vault on a server that was written once, as every version of the library must.
@Suite struct GoldenSharedVaultTests {
  /// Written once by ``makeVault()``, and never changed: a file for each key of the engine.
  private static let golden = Repository.file("Tests/Golden/vault/engine")
  private static let values = ["a": "first", "b": "second", "new": "third"]
  private let server = SharedServer()

  /// A vault of the app "shop" whose keys were replaced by a machine that stopped before it had
  /// moved all secrets to their new names.
  @Test(.enabled(if: ProcessInfo.processInfo.environment["KEEPSAKE_WRITE_GOLDEN"] != nil))
  func makeVault() throws {
    let one = try Machine(server)
    for key in ["a", "b"] { try one.secrets().set(Self.values[key] ?? "", forKey: key) }
    let applied = Locked(0)
    server.hook.withLock {
      $0 = { name in
        if name == "apply", applied.increment() > 2 { throw CancellationError() }
      }
    }
    try Machine(server).secrets().protect(with: Machine.key)
    server.hook.withLock { $0 = { _ in } }
    try one.secrets().set(Self.values["new"] ?? "", forKey: "new")
    for key in try one.engine.keys() {
      let file = Self.golden.appending(path: key)
      try FileManager.default.createDirectory(
        at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
      try server.data(forKey: key)?.write(to: file)
    }
  }

  private func expectAll() throws {
    let machine = try Machine(server)
    #expect(try machine.secrets().keys() == Self.values.keys.sorted())
    for (key, value) in Self.values { #expect(try machine.secrets().get(key) == value) }
    #expect(machine.failures.all.isEmpty)
  }

  @Test func opensAVaultWithTwoKeysForNames() throws {
    let machine = try Machine(server)
    let entries = try FileManager.default.subpathsOfDirectory(atPath: Self.golden.path)
      .filter { $0 == "header" || $0.contains("/") }
      .map { path in
        StorageEngines.Entry(
          key: path, data: try Data(contentsOf: Self.golden.appending(path: path)))
      }
    #expect(entries.count == 4)
    try #require(try machine.engine.apply(entries, ifCurrent: []))
    try expectAll()
    #expect(try machine.vault.currentSession()?.ring.nameKeyCount == 2)
    #expect(try machine.secrets().protection == .closure("test"))
    try machine.secrets().rotateKeys()
    #expect(try machine.vault.currentSession()?.ring.nameKeyCount == 1)
    try expectAll()
  }
}
