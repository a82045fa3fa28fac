import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// The user of the server whose rights "Across machines" lists.
@Suite(.server, .threadPerTest) struct RightsTests {
  private var article: URL {
    URL(filePath: #filePath).deletingLastPathComponent()
      .appending(path: "../../../Sources/KeepsakeValkey/KeepsakeValkey.docc/AcrossMachines.md")
  }

  /// The words of the command in the article.
  private func documentedRights() throws -> [String] {
    let text = try String(contentsOf: article, encoding: .utf8)
    let command = try #require(text.firstMatch(of: /(?ms)^ACL SETUSER shop (.+?)^```/)?.1)
    return command.split(whereSeparator: \.isWhitespace).map(String.init)
  }

  private let app = "com.example.shop"

  /// Makes the user, and returns the URL with which it logs in.
  private func makeUser(on server: TestServer, _ more: [String] = []) throws -> String {
    var rights = try documentedRights().map { $0 == ">PASSWORD" ? ">tuna" : $0 }
    if try server.command("COMMAND", "INFO", "WAITAOF") == .array([.null]) {
      rights.removeAll { $0 == "+waitaof" }
    }
    #expect(try server.command(["ACL", "SETUSER", "shop"] + rights + more).text == "OK")
    return server.url(login: "shop:tuna") + "&db=1"
  }

  @Test func documentedRightsAreEnough() throws {
    let server = try TestServer(["--appendonly", "yes"])
    let backing = try ValkeyBacking.valkey(try makeUser(on: server))
    let engine = try #require(backing.engine(for: "prices", app: app) as? SettingsTable)
    let mirror = StorageEngines.Mirror(engine, report: { Issue.record($0) })
    let one = try StoredValue(engineData: Data("1".utf8), key: "a")
    try mirror.set(one, forKey: "a")
    #expect(try mirror.value(forKey: "a") == one)
    #expect(try engine.keys() == ["a"] && engine.data(forKey: "a") == Data("1".utf8))
    #expect(try backing.suites(app: app) == ["prices"])
    try mirror.synchronize()
    try mirror.removeAll()
    #expect(try backing.suites(app: app).isEmpty)
    // A decision after a loss.
    try mirror.set(one, forKey: "a")
    try server.command("FLUSHALL")
    #expect(try backing.push(.suite("prices"), app: app))
    try server.command("FLUSHALL")
    #expect(try backing.adopt(.suite("prices"), app: app))
    #expect(try mirror.value(forKey: "a") == nil)
    // The vault needs no other rights.
    let vault = backing.table(ofVaultOf: app)
    #expect(
      try vault.apply([StorageEngines.Entry(key: "header", data: Data("1".utf8))], ifCurrent: []))
    let sealed = StorageEngines.Mirror(vault, report: { Issue.record($0) })
    #expect(try sealed.keys() == ["header"] && vault.keys() == ["header"])
    #expect(try backing.suites(app: app).isEmpty)
    try vault.removeAll()
    // Other keys and other channels are out of reach.
    let other = try #require(backing.engine(for: "prices", app: "other"))
    expectFailure(.accessDenied) { try other.set(Data("1".utf8), forKey: "a") }
  }

  @Test func documentedRightsAreEnoughForCaches() async throws {
    let server = try TestServer()
    let address = try ServerAddress(try makeUser(on: server))
    let other = try CacheMachine(server, app: app) { $0.database = address.database }.cache()
    let machine = try CacheMachine(server, app: app) { $0 = address }
    let cache = machine.cache()
    try cache.set("a", forKey: "k", expiry: .idle(.hours(1)))
    #expect(try cache.model("k") == "a")
    other.expectEventually("k", "a")
    try cache.remove("k")
    try cache.removeAll()
    #expect(try await cache.fetch("k") { "b" } == "b")
    other.expectEventually("k", "b")
    #expect(machine.faults.isEmpty, "\(machine.faults)")
  }

  @Test func documentedRightsAreEnoughForTheDoctor() throws {
    let server = try TestServer(["--appendonly", "yes"])
    let article = try String(contentsOf: self.article, encoding: .utf8)
    let more = ["+config|get", "+time"]
    for right in more { #expect(article.contains("`\(right)`")) }
    let url = try makeUser(on: server, more)
    let run = try Keepsakectl().run("doctor", app, "--server", url)
    #expect(run.status == 0 && !run.text.contains("skipped"), "\(run)")
    // The app's user may not read the server's passwords.
    let client = try makeUser(on: server, ["-config|get"])
    let limited = try Keepsakectl().run("doctor", app, "--server", client)
    #expect(limited.status == 0 && limited.text.contains("the app's user should not have it"))
  }
}
