import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What a failover to a replica that lags leaves of secrets.
@Suite(.server, .threadPerTest) struct SecretsFailoverTests {
  private static let impatient = ValkeyBacking.Confirmation.replicas(1, timeout: .milliseconds(40))

  /// A process on a machine of its own, so that it has no copy.
  private func client(
    _ servers: Failover, confirm confirmation: ValkeyBacking.Confirmation = .primary
  ) throws -> VaultClient {
    let cache = DiskCache.named(DiskCache.Name(UUID().uuidString))
    return try VaultClient(servers.primary, confirm: confirmation, cache: cache) {
      $0 = servers.front.address
    }
  }

  /// Expects a process that starts now to open every secret, and returns all of them.
  private func readAll(
    from servers: Failover, sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> [String: String] {
    let reader = try client(servers)
    var secrets: [String: String] = [:]
    for key in try reader.secrets().keys() {
      let value = try reader.secrets().get(key)
      #expect(value != nil, "\(key)", sourceLocation: sourceLocation)
      secrets[key] = value
    }
    #expect(reader.faults.isEmpty, sourceLocation: sourceLocation)
    return secrets
  }

  /// Expects a client to read these secrets, however long it takes to notice the failover.
  private func expectEventually(
    _ secrets: [String: String], _ client: VaultClient,
    sourceLocation: SourceLocation = #_sourceLocation
  ) {
    waitUntil("the secrets differ from the server's", sourceLocation: sourceLocation) {
      guard let keys = try? client.secrets().keys(), Set(keys) == Set(secrets.keys) else {
        return false
      }
      return keys.allSatisfy { (try? client.secrets().get($0)) == secrets[$0] }
    }
  }

  private func wait(for servers: Failover) throws {
    func version(_ server: TestServer) throws -> String? {
      try server.command("HGET", "keepsake:{app:@vault}:s", "n").text
    }
    let newest = try version(servers.primary)
    try waitUntil("the replica does not follow") { try version(servers.replica) == newest }
  }

  /// A secret whose `set` has returned survives, whatever the moment of the failover; those that
  /// may be lost are those whose `set` has failed.
  @Test func noConfirmedSecretIsLost() throws {
    let servers = try Failover()
    let clients = try (0..<2).map { _ in try client(servers, confirm: Self.impatient) }
    clients[0].setEventually("first", "0")
    clients[1].expectEventually("first", "0")
    let (confirmed, failed) = servers.failOver { thread, key, value in
      try clients[thread % 2].secrets().set(value, forKey: key)
    }
    #expect(failed.allSatisfy { $0.code == .outcomeUnknown || $0.code == .unreachable })
    let secrets = try readAll(from: servers)
    let lost = confirmed.filter { secrets[$0.key] != $0.value }
    #expect(lost.isEmpty && secrets["first"] == "0")
    for client in clients { expectEventually(secrets, client) }
    // Nothing confirms it now.
    waitUntil("the server did not accept a secret") {
      (try? clients[0].secrets().set("1", forKey: "last")) != nil
        || (try? clients[0].secrets().get("last")) == "1"
    }
    clients[1].expectEventually("last", "1")
    let unconfirmed = failed.count { $0.code == .outcomeUnknown }
    print(
      "proof: failover, secrets: \(confirmed.count) confirmed, of which \(lost.count) were lost,",
      "\(unconfirmed) not confirmed")
  }

  /// The replica has got the changes of a rotation of keys up to any byte. It then has secrets that
  /// are sealed under old and new keys, and the header with the keys of all of them.
  @Test(arguments: [0, 700, 1_500, 2_500, 4_000, 6_000, 1_000_000])
  func secretsStayReadableIfARotationIsLost(_ byteCount: Int) throws {
    // Neither side ends a replication that gets no time for a while, and begins it anew.
    let servers = try Failover(["--repl-timeout", "600"])
    let (one, two) = (try client(servers), try client(servers))
    let keys = (1...6).map { "\($0)" }
    for key in keys { try one.secrets().set("old", forKey: key) }
    two.expectEventually("6", "old")
    try wait(for: servers)
    servers.replication.forward(to: nil)
    servers.replication.cut(after: byteCount, .toClient)
    try one.secrets().rotateKeys()
    for key in keys { try two.secrets().set("new", forKey: key) }
    one.expectEventually("6", "new")
    if byteCount == 1_000_000 { try wait(for: servers) }
    try servers.failOver()
    waitUntil("a secret cannot be read") {
      // The failover takes effect for a process when it connects again.
      keys.allSatisfy { (try? one.secrets().get($0)) != nil }
        && (try? one.secrets().set("1", forKey: "probe")) != nil
    }
    let secrets = try readAll(from: servers)
    #expect(Set(secrets.keys) == Set(keys + ["probe"]))
    #expect(keys.allSatisfy { secrets[$0] == "old" || secrets[$0] == "new" })
    let newCount = keys.count { secrets[$0] == "new" }
    // A replica has what happened first.
    #expect(keys.prefix(newCount).allSatisfy { secrets[$0] == "new" })
    if byteCount == 0 { #expect(newCount == 0) }
    if byteCount == 1_000_000 { #expect(newCount == 6) }
    for client in [one, two] {
      expectEventually(secrets, client)
      if newCount < 6 { waitUntil("nothing was reported") { !client.faults.isEmpty } }
      #expect(client.faults.allSatisfy { $0.code == .damaged })
    }
    try two.secrets().rotateKeys()
    one.setEventually("last", "1")
    two.expectEventually("last", "1")
    #expect(try readAll(from: servers).count == keys.count + 2)
  }
}
