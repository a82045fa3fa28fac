import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Secrets on a server.
@Suite(.server, .threadPerTest) struct SecretsTests {
  private static let values = "keepsake:{app:@vault}:v"
  private let server: TestServer

  init() throws { server = try TestServer() }

  @Test func secretsAreShared() throws {
    let (one, two) = (try VaultClient(server), try VaultClient(server))
    try one.secrets("auth").set("tok", forKey: "token")
    #expect(try two.secrets("auth").get("token") == "tok")
    try two.secrets("auth").set("new", forKey: "token")
    waitUntil("the secret did not arrive") {
      (try? one.secrets("auth").get("token")) == "new"
    }
    try one.secrets().set("1", forKey: "k")
    two.expectEventually("k", "1")
    #expect(try two.secrets().keys() == ["k"])
    #expect(try two.secrets().vault.services() == ["auth", "standard"])
    let entry = try #require(try two.secrets("auth").entry("token"))
    #expect(entry.modified > entry.created)
    try one.secrets("auth").remove("token")
    waitUntil("the removal did not arrive") {
      (try? two.secrets("auth").contains("token")) == false
    }
    try two.secrets().eraseVault()
    waitUntil("the removal did not arrive") { (try? one.secrets().protection) == .some(nil) }
    #expect(try server.command("HLEN", Self.values) == .integer(1))
    #expect(one.faults.isEmpty && two.faults.isEmpty)
    for client in [one, two] {
      #expect(try FileManager.default.contentsOfDirectory(atPath: client.directory.path) == [])
    }
  }

  @Test func removalsMakeNoVault() throws {
    let store = try VaultClient(server).secrets()
    try store.remove("k")
    try store.removeAll()
    try store.rotateKeys()
    try store.forgetOldKeys()
    try store.removeAllRecoveries()
    #expect(try server.command("DBSIZE") == .integer(0))
  }

  /// Each round begins with clients that know nothing, in a database of its own.
  @Test func twoMachinesCreateTheVaultAtOnce() throws {
    for round in 0..<12 {
      func client() throws -> VaultClient { try VaultClient(server) { $0.database = round } }
      let clients = try (0..<4).map { _ in try client() }
      let errors = Recorder<StorageError>()
      onThreads(4) { number in
        do throws(StorageError) {
          try clients[number].secrets().set("\(number)", forKey: "k\(number)")
        } catch {
          errors.append(error)
        }
      }
      #expect(errors.all.isEmpty, "\(errors.all)")
      let reader = try client()
      for number in 0..<4 {
        #expect(try reader.secrets().get("k\(number)") == "\(number)", "round \(round)")
      }
    }
  }

  /// The server refuses the channel, so the client learns of no changes but its own.
  @Test func noKeyIsDroppedThatAnUnseenSecretNeeds() throws {
    let rights = ["on", ">tuna", "~*", "&*", "+@all"]
    for user in ["one", "two"] {
      try server.command(["ACL", "SETUSER", user] + rights)
    }
    let (one, two) = (
      try VaultClient(server) { $0.logIn(as: "one", "tuna") },
      try VaultClient(server) { $0.logIn(as: "two", "tuna") }
    )
    try one.secrets().set("1", forKey: "a")
    #expect(try two.secrets().get("a") == "1")
    try server.command("ACL", "SETUSER", "one", "-subscribe")
    try server.command("CLIENT", "KILL", "TYPE", "pubsub")
    try two.secrets().set("2", forKey: "b")
    #expect(try one.secrets().get("b") == nil)
    try one.secrets().rotateKeys()
    let reader = try VaultClient(server)
    #expect(try reader.secrets().get("a") == "1" && reader.secrets().get("b") == "2")
    #expect(try reader.keyIDs().count == 1)
    // It does not have the new header, and gets it.
    try two.secrets().rotateKeys()
    expectFailure(.unreachable, reason: "have not arrived in time") {
      try one.secrets().set("3", forKey: "c")
    }
    try server.command("ACL", "SETUSER", "one", "+subscribe")
    try server.command("CLIENT", "KILL", "USER", "one")
    one.setEventually("c", "3")
    #expect(try VaultClient(server).secrets().keys() == ["a", "b", "c"])
  }

  @Test func tooLargeSecretsAreRefused() throws {
    let client = try VaultClient(server, maximumByteCount: 20_000)
    try client.secrets().set("1", forKey: "k")
    expectFailure(.misuse, reason: "the secrets would take more than") {
      try client.secrets().set(Data(repeating: 1, count: 20_000), forKey: "large")
    }
    #expect(try client.secrets().keys() == ["k"])
  }

  @Test func theVaultIsNoSuite() throws {
    let backing = try ValkeyBacking.valkey(server.url)
    let engine = backing.table(ofVaultOf: "app")
    #expect(engine === backing.table(ofVaultOf: "app"))
    for suite in ["@vault", "%40vault", "vault"] as [Defaults.Suite] {
      #expect(engine !== backing.engine(for: suite, app: "app") as? SettingsTable)
    }
    _ = try engine.set(Data("1".utf8), forKey: "k")
    #expect(try server.command("HGET", Self.values, "k").text == "1")
    #expect(try backing.suites(app: "app").isEmpty)
    for suite in TableNameTests.names + ["@vault"] {
      let name = TableName(app: "app", suite: suite)
      #expect(name.values != TableName(vaultOf: "app").values)
    }
  }

  // MARK: Hostile values

  @Test func valuesOfOtherProgramsAreDamaged() throws {
    let client = try VaultClient(server)
    try client.secrets().set("1", forKey: "k")
    try client.secrets().set("2", forKey: "l")
    let path = try #require(try client.secrets().vault.currentSession())
      .entryPath(service: "standard", key: "k").subpath
    let good = try #require(try server.command("HGET", Self.values, path).text)
    for bad in ["", "x", "7", "{\"$data\": \"%%\"}", String(good.prefix(60)) + "\"}", "\u{0}"] {
      try server.command("HSET", Self.values, path, bad)
      let other = try VaultClient(server)
      expectFailure(.damaged) { _ = try other.secrets().get("k") }
      #expect(try other.secrets().get("l") == "2" && other.secrets().keys() == ["l"])
    }
    // A set replaces what is damaged.
    let other = try VaultClient(server)
    try other.secrets().set("3", forKey: "k")
    #expect(try VaultClient(server).secrets().get("k") == "3")
    for name in ["a/b", "header/", "/", "../x", String(repeating: "a", count: 65)] {
      try server.command("HSET", Self.values, name, good)
    }
    #expect(try VaultClient(server).secrets().keys() == ["k", "l"])
    try server.command("HSET", Self.values, "header", "7")
    expectFailure(.damaged) { _ = try VaultClient(server).secrets().get("k") }
    expectFailure(.damaged) { try VaultClient(server).secrets().set("4", forKey: "k") }
  }
}
