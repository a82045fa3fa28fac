import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Settings on a primary with a replica, and what a failover leaves of them.
@Suite(.server, .threadPerTest) struct ReplicaTests {
  private static let patient = ValkeyBacking.Confirmation.replicas(1, timeout: .seconds(60))
  private static let impatient = ValkeyBacking.Confirmation.replicas(1, timeout: .milliseconds(40))

  @Test func replicaConfirms() throws {
    let servers = try Failover()
    let client = servers.client(confirm: Self.patient)
    for number in 1...20 {
      try client.set("a", "\(number)")
      #expect(try servers.replica.values() == ["a": "\(number)"])
    }
    #expect(try client.table.replace(Data("20".utf8), with: Data("21".utf8), forKey: "a"))
    #expect(try servers.replica.values() == ["a": "21"])
    #expect(client.faults.isEmpty)
  }

  /// The change was made, and other calls go on.
  @Test(arguments: [false, true]) func replicaThatDoesNotConfirmIsReported(_ isKilled: Bool) throws
  {
    let servers = try Failover()
    let (strict, other) = (servers.client(confirm: Self.impatient), servers.client())
    #expect(try strict.all() == [:] && other.all() == [:])
    if isKilled { servers.replica.kill() } else { servers.replica.freeze() }
    for number in 1...3 {
      expectFailure(.outcomeUnknown, reason: "fewer than 1 replicas") {
        try strict.set("a", "\(number)")
      }
      #expect(try strict.get("a") == "\(number)")
      other.expectEventually("a", "\(number)")
      #expect(try servers.primary.values()["a"] == "\(number)")
      try other.set("b", "\(number)")
      strict.expectEventually("b", "\(number)")
    }
    // No change is made, so none has to be confirmed.
    #expect(try !strict.table.replace(nil, with: Data("4".utf8), forKey: "a"))
    if isKilled { try servers.replica.start() } else { servers.replica.unfreeze() }
    if isKilled { try servers.replica.follow(servers.replication) }
    waitUntil("the replica did not confirm again") { (try? strict.set("a", "5")) != nil }
    #expect(strict.faults.isEmpty && other.faults.isEmpty)
  }

  @Test func primaryAloneWaitsForNoReplica() throws {
    let servers = try Failover()
    let client = servers.client()
    servers.replica.freeze()
    for number in 1...5 { try client.set("a", "\(number)") }
    #expect(try client.get("a") == "5")
    let statistics = try servers.primary.command("INFO", "commandstats").text ?? ""
    #expect(!statistics.contains("cmdstat_wait"))
    servers.replica.unfreeze()
  }

  // MARK: Failover

  /// Changes that only the primary had are lost with it. Each process hears of it, and has what the
  /// server has.
  @Test func failoverReportsLostChanges() throws {
    let servers = try Failover()
    let (one, two) = (servers.client(), servers.client())
    for number in 1...5 { try one.set("a", "\(number)") }
    #expect(try one.all() == two.all())
    try servers.waitUntilReplicated()
    servers.replication.hold(.toClient)
    for number in 6...10 { try one.set("a", "\(number)") }
    try one.set("new", "1")
    two.expectEventually("new", "1")
    #expect(try two.get("a") == "10")
    try servers.failOver()
    for client in [one, two] {
      client.expectReport(.damaged)
      #expect(client.faults.first?.reason?.contains("lost the last 6 changes") == true)
      client.expectEventuallyEqual(to: servers.replica)
      #expect(try client.all() == ["a": "5"])
    }
    one.setEventually("a", "11")
    two.expectEventually("a", "11")
    two.setEventually("b", "1")
    one.expectEventually("b", "1")
    #expect(one.faults.count == 1 && two.faults.count == 1)
  }

  /// What a replica has confirmed survives a failover, whatever the moment.
  @Test func failoverLosesNothingThatWasConfirmed() throws {
    let servers = try Failover()
    let clients = (0..<2).map { _ in servers.client(confirm: Self.impatient) }
    for client in clients { #expect(try client.all() == [:]) }
    let (confirmed, _) = servers.failOver { thread, key, value in
      try clients[thread % 2].set(key, value)
    }
    let values = try servers.replica.values()
    #expect(confirmed.allSatisfy { values[$0.key] == $0.value })
    for client in clients { client.expectEventuallyEqual(to: servers.replica) }
  }

  /// A write that reaches the new primary before the process knows of the failover.
  @Test func writeDiscoversTheLoss() throws {
    let servers = try Failover()
    let (one, two) = (servers.client(), servers.client())
    try one.set("a", "1")
    #expect(try one.all() == two.all())
    try servers.waitUntilReplicated()
    servers.replication.hold(.toClient)
    for number in 2...9 { try one.set("a", "\(number)") }
    try servers.promote()
    // The old primary goes on, and so do the subscriptions.
    servers.front.forward(to: servers.replica.socketPath)
    try servers.primary.command("CLIENT", "KILL", "TYPE", "normal")
    one.setEventually("b", "1")
    #expect(try one.get("b") == "1")
    one.expectReport(.damaged)
    one.expectEventuallyEqual(to: servers.replica)
    #expect(try one.all() == ["a": "1", "b": "1"])
    two.expectEventuallyEqual(to: servers.replica)
    two.setEventually("c", "1")
    one.expectEventually("c", "1")
  }

  /// The old primary is made a replica of the new one, and its connections stay.
  @Test func oldPrimaryRefusesWrites() throws {
    let servers = try Failover()
    let client = servers.client()
    try client.set("a", "1")
    #expect(try client.get("a") == "1")
    try servers.waitUntilReplicated()
    servers.replication.hold(.toClient)
    for number in 2...5 { try client.set("a", "\(number)") }
    try servers.promote()
    let back = try servers.demotePrimary()
    defer { back.end() }
    try waitUntil("the old primary does not follow") { try servers.primary.values()["a"] == "1" }
    // Its data is that of the new primary now, and a condition must not be checked against it.
    expectFailure(.unreachable, reason: "replica") {
      _ = try client.table.replace(Data("5".utf8), with: Data("6".utf8), forKey: "a")
    }
    // When it has made another connection.
    waitForFailure(.unreachable, reason: "READONLY") {
      try client.set("a", "6")
      Issue.record("a replica has accepted a change")
    }
    client.expectReport(.damaged)
    #expect(try client.get("a") == "1")
    #expect(try servers.replica.values() == ["a": "1"])
    servers.front.forward(to: servers.replica.socketPath)
    client.setEventually("a", "7")
    #expect(try client.get("a") == "7")
    #expect(try servers.replica.values() == ["a": "7"])
  }

  /// A process that only reads, and whose server was made a replica, without a cut.
  @Test func readerOfTheOldPrimary() throws {
    let servers = try Failover()
    let (reader, writer) = (servers.client(), servers.client())
    try writer.set("a", "1")
    #expect(try reader.get("a") == "1")
    try servers.waitUntilReplicated()
    servers.replication.hold(.toClient)
    for number in 2...5 { try writer.set("a", "\(number)") }
    reader.expectEventually("a", "5")
    try servers.promote()
    let direct = TestClient(servers.replica)
    // As many changes as were lost, so that the versions are the same.
    for number in 2...5 { try direct.set("z", "\(number)") }
    let back = try servers.demotePrimary()
    defer { back.end() }
    try waitUntil("the old primary does not follow") { try servers.primary.values()["z"] == "5" }
    try direct.set("y", "6")
    reader.expectEventually("y", "6")
    reader.expectEventuallyEqual(to: servers.replica)
    reader.expectReport(.damaged)
  }

  /// A replica that has lost its primary may refuse everything.
  @Test func replicaWithoutAPrimaryIsLeft() throws {
    let servers = try Failover(["--replica-serve-stale-data", "no"])
    let client = servers.client()
    try client.set("a", "1")
    #expect(try client.get("a") == "1")
    try servers.waitUntilReplicated()
    try servers.replica.command("REPLICAOF", "NO", "ONE")
    try servers.primary.command("REPLICAOF", "127.0.0.1", "1")
    servers.front.forward(to: servers.replica.socketPath)
    client.setEventually("a", "2")
    #expect(try client.get("a") == "2")
    #expect(try servers.replica.values() == ["a": "2"])
    #expect(client.faults.isEmpty)
  }
}
