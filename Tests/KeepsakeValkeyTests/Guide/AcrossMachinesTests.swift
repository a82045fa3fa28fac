import Foundation
import Keepsake
import KeepsakeTesting
import KeepsakeValkey
import Testing

@testable import KeepsakeTestSupport

/// The snippets of "Across machines". A test run uses no backing, so that they need no server.
@Suite(.temporaryStorage, .threadPerTest) struct AcrossMachinesTests {
  @Test func settingsAreSharedAfterBootstrap() async throws {
    await #expect(processExitsWith: .success) {
      try StorageSystem.bootstrap(
        app: "com.example.shop",
        on: .valkey("valkeys://cache.internal:6379", local: ["window"]))

      Defaults.set(0.2, forKey: "rollout")
      Defaults.update("orders", default: 0) { $0 += 1 }
      #expect(Defaults.get("rollout") == 0.2 && Defaults.get("orders") == 1)
      func render() async throws -> String { "page" }
      let page = try await DiskCache.fetch("home", expiry: .minutes(5)) { try await render() }
      #expect(page == "page" && DiskCache.model("home") == "page")
      let applied = Recorder<Double>()
      @Sendable func apply(_ rollout: Double) { applied.append(rollout) }
      let follower = Task {
        for await rollout in Defaults.changes("rollout", default: 0.0) { apply(rollout) }
      }
      // The loop may begin after some of these. None comes while the process ends, which removes
      // its directory.
      var number = 0.0
      try await eventually("no change was applied") {
        if applied.count > 0 { return true }
        number += 1
        Defaults.set(number, forKey: "rollout")
        return false
      }
      follower.cancel()
      await follower.value
      #expect(applied.all.first.map { $0 >= 1 } == true)
    }
  }

  @Test func secretsAreSharedAfterBootstrap() {
    SecureVault.set("tok", forKey: "apiToken")
    #expect(SecureVault.get("apiToken") == "tok")
  }

  /// The snippet of the page before it.
  @Test func bootstrapNamesTheServer() async throws {
    await #expect(processExitsWith: .success) {
      try StorageSystem.bootstrap(
        app: "com.example.shop", on: .valkey("valkeys://cache.internal:6379"))
      Defaults.set(0.2, forKey: "rollout")
      func render() async throws -> String { "page" }
      let page = try await DiskCache.fetch("home", expiry: .minutes(5)) { try await render() }
      #expect(Defaults.get("rollout") == 0.2 && page == "page")
    }
  }

  @Test(.temporaryStorage(engines: [.standard: Unreachable()])) func outageIsReported() {
    let alerts = Recorder<StorageError.Code>()
    @Sendable func alert(_ error: StorageError) { alerts.append(error.code) }
    StorageSystem.onFailure = { error in
      if error.code == .unreachable { alert(error) }
    }
    #expect(!Defaults.set(1, forKey: "a"))
    #expect(alerts.all == [.unreachable])
  }

  @Test func settingsMoveToAServerAndBack() throws {
    let directory = try ServerDirectory()
    let file = URL(filePath: directory.path + "/settings.json")
    Defaults.set(0.2, forKey: "rollout")
    try Defaults.shared.export(as: .json).write(to: file)
    Defaults.removeAll()
    try Defaults.shared.import(Data(contentsOf: file))
    #expect(Defaults.get("rollout") == 0.2)
  }

  @Test func secretsMoveToAServer() throws {
    let other = try ServerDirectory()
    let directory = URL(filePath: other.path)
    let old = SecureVault.service(SecureVault.Service("standard", in: directory))
    try old.set("tok", forKey: "apiToken")
    for key in try old.keys() {
      try SecureVault.shared.set(old.get(key), forKey: key)
    }
    #expect(SecureVault.get("apiToken") == "tok")
  }

  /// A service in the directory above `vault` opens the secrets that the machine had before.
  @Test func oldSecretsAreOpenedByTheirDirectory() throws {
    SecureVault.set("tok", forKey: "apiToken")
    let directory = try SecureVault.shared.folderURL.deletingLastPathComponent()
    let old = SecureVault.service(SecureVault.Service("standard", in: directory))
    #expect(try old.get("apiToken") == "tok" && old.keys() == ["apiToken"])
  }
}

private struct Unreachable: StorageEngines.Engine {
  func data(forKey key: String) -> Data? { nil }
  func set(_ data: Data?, forKey key: String) throws { throw error }
  func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool { throw error }
  func keys() -> [String] { [] }
  private var error: StorageError {
    StorageError(.unreachable, operation: "connect", remedy: "Start the server.")
  }
}
