import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Settings over the network, with and without TLS.
@Suite(.server, .threadPerTest) struct SettingsTransportTests {
  private static let hosts = "DNS:localhost,IP:127.0.0.1"

  @Test(arguments: ["valkey", "valkeys"]) func changesAreShared(_ scheme: String) throws {
    let server = try TLSServer(hosts: Self.hosts)
    let isEncrypted = scheme == "valkeys"
    let port = isEncrypted ? server.port : server.plainPort
    let address = try server.address(
      "\(scheme)://localhost:\(port)", authorities: isEncrypted ? "authority.pem" : nil)
    let (one, two) = (
      TestClient(server.server) { $0 = address }, TestClient(server.server) { $0 = address }
    )
    #expect(try one.all() == [:] && two.all() == [:])
    try one.set("a", "1")
    #expect(try one.get("a") == "1")
    two.expectEventually("a", "1")
    #expect(try two.table.replace(Data("1".utf8), with: Data("2".utf8), forKey: "a"))
    one.expectEventually("a", "2")
    // Published, and read from the server because it is too large to publish.
    for size in [100_000, 1_000_000] {
      let text = "\"" + String(repeating: "x", count: size) + "\""
      try one.set("large", text)
      #expect(try one.get("large") == text)
      two.expectEventually("large", text)
    }
    try two.table.removeAll()
    one.expectEventually("a", nil)
    #expect(try one.all() == [:] && one.faults.isEmpty && two.faults.isEmpty)
  }

  // MARK: What is refused

  /// Expects reads and writes to fail, with an error that names neither user nor password.
  private func expectRefusal(
    _ address: ServerAddress, _ server: TLSServer, _ reason: String, remedy: String = "?ca="
  ) {
    let client = TestClient(server.server) {
      $0 = address
      $0.logIn(as: "zelda", "swordfish")
    }
    func check(_ body: () throws -> Void) {
      do {
        try body()
        Issue.record("nothing was thrown")
      } catch {
        let text = "\(error) \(String(reflecting: error)) \(error as NSError)"
        let failure = error as? StorageError
        #expect(failure?.code == .accessDenied)
        #expect(failure?.reason?.contains(reason) == true, "\(text)")
        #expect(failure?.remedy.contains(remedy) == true)
        #expect(!text.contains("swordfish") && !text.contains("zelda"))
      }
    }
    check { try client.set("a", "1") }
    check { _ = try client.get("a") }
    check { _ = try client.table.keys() }
    check { _ = try client.table.adopt() }
    for error in client.reports.all {
      #expect(!"\(error)".contains("swordfish") && !"\(error)".contains("zelda"))
    }
  }

  @Test func wrongServersAndLogins() throws {
    let server = try TLSServer(hosts: Self.hosts)
    let other = try TLSServer(hosts: "DNS:other.example,IP:127.0.0.2")
    let url = "valkeys://localhost:\(server.port)"
    expectRefusal(
      try other.address("valkeys://localhost:\(other.port)"), other, "hostname mismatch")
    expectRefusal(
      try other.address("valkeys://127.0.0.1:\(other.port)"), other, "IP address mismatch")
    expectRefusal(try server.address(url, authorities: "stranger.pem"), server, "certificate")
    expectRefusal(try server.address(url, authorities: nil), server, "certificate")
    // None of these servers was told the password.
    for server in [server, other] {
      let statistics = try server.server.command("INFO", "commandstats").text ?? ""
      #expect(!statistics.contains("cmdstat_auth") && statistics.contains("cmdstat_ping"))
    }
    expectRefusal(
      try server.address(url), server, "refused the user or the password",
      remedy: "the user and the password")
    #expect(try server.server.command("KEYS", "*") == .array([]))
  }

  /// A password that was changed on the server.
  @Test func readsGoOnWhenTheLoginIsRefused() throws {
    let server = try TestServer()
    let client = TestClient(server) { $0.password = "swordfish" }
    let administrator = server.link()
    func setPassword(_ password: String) throws {
      _ = try administrator.perform(Command("CONFIG", "SET", "requirepass", password))
    }
    try setPassword("swordfish")
    client.setEventually("a", "1")
    try setPassword("tuna")
    for type in ["normal", "pubsub"] {
      _ = try administrator.perform(Command("CLIENT", "KILL", "TYPE", type))
    }
    waitForFailure(.accessDenied) { try client.set("a", "2") }
    #expect(try client.get("a") == "1")
    try setPassword("swordfish")
    client.setEventually("a", "3")
    #expect(try client.get("a") == "3")
    // An outage of more than a second is reported.
    #expect(client.faults.allSatisfy { $0.code == .accessDenied })
    #expect(!client.reports.all.contains { "\($0)".contains("swordfish") })
  }
}
