import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

@Suite(.server, .threadPerTest) struct ValkeyBackingTests {
  private let server: TestServer

  init() throws { server = try TestServer() }

  private func backing(local: Set<Defaults.Suite> = []) throws -> ValkeyBacking {
    try .valkey(server.url, local: local)
  }

  private func clientCount() throws -> Int {
    let text = try server.command("CLIENT", "LIST").text ?? ""
    return text.split(separator: "\n").count - 1
  }

  /// Neither the backing nor its engines connect before a value is read or set.
  @Test func connectsAtTheFirstUse() throws {
    let backing = try backing(local: ["local"])
    #expect(backing.engine(for: "local", app: "app") == nil)
    let engine = try #require(backing.engine(for: "a", app: "app") as? SettingsTable)
    // The server closes the connections of the test itself a little later.
    try waitUntil("it has connected") { try clientCount() == 0 }
    try engine.set(Data("1".utf8), forKey: "k")
    // The second one is for messages.
    try waitUntil("it does not have two connections") { try clientCount() == 2 }
  }

  @Test func suiteHasOneEngine() throws {
    let backing = try backing()
    let engine = backing.engine(for: "a", app: "app") as? SettingsTable
    #expect(engine === backing.engine(for: "a", app: "app") as? SettingsTable)
    #expect(engine !== backing.engine(for: "b", app: "app") as? SettingsTable)
    #expect(engine !== backing.engine(for: "a", app: "other") as? SettingsTable)
  }

  @Test func listsSuitesWithValues() throws {
    let backing = try backing(local: ["local"])
    #expect(try backing.suites(app: "app").isEmpty)
    let names = TableNameTests.names.filter { $0.utf8.count < 100 }
    for name in names + ["removed"] {
      try backing.engine(for: Defaults.Suite(name), app: "app")?
        .set(Data("1".utf8), forKey: "k")
    }
    try backing.engine(for: "removed", app: "app")?.removeAll()
    try backing.engine(for: "elsewhere", app: "app2")?.set(Data("1".utf8), forKey: "k")
    let local = TestClient(server, suite: "local")
    try local.set("k", "1")
    // More keys than one step of the search looks at.
    for number in 0..<5_000 { try server.command("SET", "other \(number)", "x") }
    let found = try backing.suites(app: "app")
    #expect(Set(found.map(\.name)) == Set(names))
    #expect(Set(found) == Set(names.map { Defaults.Suite($0) }) && found.count == names.count)
    #expect(try backing.suites(app: "app2") == ["elsewhere"])
  }

  @Test func pushAndAdoptDecideAboutASuite() throws {
    let (one, two) = (try backing(), try backing())
    let app = StorageSystem.appName
    let mirrors = try [one, two].map { backing in
      let table = try #require(backing.engine(for: .standard, app: app) as? SettingsTable)
      return StorageEngines.Mirror(table, report: { _ in })
    }
    try mirrors[0].set(StoredValue(engineData: Data("1".utf8), key: "a"), forKey: "a")
    func number(_ index: Int) throws -> String? {
      try mirrors[index].value(forKey: "a").map { String(decoding: $0.engineData, as: UTF8.self) }
    }
    #expect(try number(0) == "1" && number(1) == "1")
    try server.command("FLUSHALL")
    expectFailure(.notFound) { try mirrors[0].set(nil, forKey: "a") }
    try one.push()
    try mirrors[0].set(StoredValue(engineData: Data("2".utf8), key: "a"), forKey: "a")
    waitUntil("the other process did not go on") { (try? number(1)) == "2" }
    try server.command("FLUSHALL")
    try two.adopt()
    #expect(try number(1) == nil)
    try waitUntil("the other process did not go on") { try number(0) == nil }
    expectFailure(.notFound, reason: "knows no settings") { try one.push("unknown") }
  }

  @Test func errorsNameNoPassword() throws {
    let failures = Recorder<String>()
    func record(_ body: () throws -> Void) {
      do {
        try body()
        Issue.record("nothing was thrown")
      } catch {
        failures.append("\(error) \((error as? StorageError)?.path ?? "") \(error as NSError)")
        if let cause = (error as? StorageError)?.underlyingError { failures.append("\(cause)") }
      }
    }
    record { _ = try ValkeyBacking.valkey("http://ann:swordfish@host") }
    record { _ = try ValkeyBacking.valkey("valkey://ann:swordfish@host:x") }
    let server = try TestServer(["--requirepass", "tuna"])
    for user in ["ann:swordfish", ":swordfish", "default:swordfish"] {
      let backing = try ValkeyBacking.valkey(server.url(login: user))
      let engine = try #require(backing.engine(for: "a", app: "app"))
      record { try engine.set(Data("1".utf8), forKey: "a") }
      record { _ = try engine.keys() }
      record { _ = try backing.suites(app: "app") }
      record { try backing.adopt() }
    }
    #expect(failures.count >= 14)
    #expect(failures.all.allSatisfy { !$0.contains("swordfish") && !$0.contains("ann") })
    let right = try ValkeyBacking.valkey(server.url, password: { "tuna" })
    #expect(try right.suites(app: "app").isEmpty)
  }
}
