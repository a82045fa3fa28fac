import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// How all processes of an app follow the decision of one, after a server has lost its settings.
@Suite(.server, .threadPerTest) struct AdoptionTests {
  private let server: TestServer

  init() throws { server = try TestServer() }

  /// Clients that know the same table, which the server then loses.
  private func clientsOfALostTable(
    _ count: Int = 2, on server: TestServer? = nil
  ) throws -> [TestClient] {
    let server = server ?? self.server
    let clients = (0..<count).map { _ in TestClient(server) }
    try clients[0].set("a", "1")
    for client in clients { #expect(try client.all() == ["a": "1"]) }
    try server.command("FLUSHALL")
    return clients
  }

  /// What a client has reported about losses. It may have reported the loss itself, too, on another
  /// thread.
  private func expectReplacement(
    _ client: TestClient, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    client.expectReport(.damaged, sourceLocation: sourceLocation)
    let faults = client.faults
    let losses = faults.filter { $0.code == .notFound }
    let others = faults.filter { $0.code != .notFound }
    #expect(
      losses.count <= 1 && others.map(\.code) == [.damaged], "\(faults)",
      sourceLocation: sourceLocation)
    #expect(
      others.first?.reason?.contains("push or adopt has replaced") == true,
      sourceLocation: sourceLocation)
  }

  /// Also for a process that has not noticed the loss.
  @Test(arguments: [false, true]) func emptyServerIsAdoptedByAll(_ isNoticed: Bool) throws {
    let clients = try clientsOfALostTable(3)
    if isNoticed {
      for client in clients { expectFailure(.notFound) { try client.set("a", "2") } }
      #expect(try clients[1].get("a") == "1" && server.command("KEYS", "*") == .array([]))
    }
    #expect(try clients[0].table.adopt())
    #expect(try clients[0].all() == [:])
    for client in clients.dropFirst() {
      waitUntil("the adoption was not followed") { (try? client.all()) == [:] }
      expectReplacement(client)
    }
    try clients[2].set("b", "2")
    for client in clients { client.expectEventually("b", "2") }
    // There is nothing left to decide.
    #expect(try !clients[1].table.adopt() && !clients[1].table.push())
    #expect(clients[0].faults.allSatisfy { $0.code == .notFound })
    // A process that starts now knows nothing of it.
    let new = server.stranger()
    #expect(try new.all() == ["b": "2"] && new.faults.isEmpty)
  }

  @Test func settingsOfANewProcessAreAdoptedByAll() throws {
    let clients = try clientsOfALostTable()
    let new = server.stranger()
    try new.set("b", "2")
    #expect(try new.all() == ["b": "2"])
    for client in clients {
      expectFailure(.notFound, reason: "has other settings") { try client.set("a", "2") }
    }
    #expect(try clients[1].table.adopt())
    waitUntil("the adoption was not followed") { (try? clients[0].all()) == ["b": "2"] }
    expectReplacement(clients[0])
    for (number, client) in (clients + [new]).enumerated() {
      try client.set("c", "\(number)")
      for other in clients + [new] { other.expectEventually("c", "\(number)") }
    }
    #expect(new.faults.isEmpty)
    #expect(try new.all() == ["b": "2", "c": "2"])
  }

  /// A write finds the adoption out, if it comes before the message.
  @Test func writeAfterTheAdoptionSucceeds() throws {
    let clients = try clientsOfALostTable()
    #expect(try clients[0].table.adopt())
    try clients[1].set("b", "2")
    #expect(try clients[1].all() == ["b": "2"])
    clients[0].expectEventually("b", "2")
    expectReplacement(clients[1])
  }

  /// It had no connection when the others decided.
  @Test func processThatWasAwayFollowsLater() throws {
    let front = try Forwarder(to: server.socketPath)
    defer { front.end() }
    let away = TestClient(server) { $0 = front.address }
    let here = TestClient(server)
    try here.set("a", "1")
    #expect(try away.all() == ["a": "1"] && here.all() == ["a": "1"])
    front.forward(to: nil)
    front.cut()
    try server.command("FLUSHALL")
    #expect(try here.table.adopt())
    try here.set("b", "2")
    #expect(try away.all() == ["a": "1"])
    front.forward(to: server.socketPath)
    waitUntil("the adoption was not followed") { (try? away.all()) == ["b": "2"] }
    expectReplacement(away)
    away.setEventually("c", "3")
    here.expectEventually("c", "3")
  }

  /// The copy of the first process is of the table that was given up.
  @Test func processThatStartsLaterReportsItOnce() throws {
    let machine = DiskCache.named(DiskCache.Name(UUID().uuidString))
    let first = TestClient(server, cache: machine)
    try first.set("a", "1")
    #expect(try first.all() == ["a": "1"])
    waitUntil("no copy was written") { first.copy != nil }
    let id = first.copy?.id
    // The first process ends; another one decides, and has its copy elsewhere.
    let other = TestClient(server)
    #expect(try other.all() == ["a": "1"])
    try server.command("FLUSHALL")
    first.server.link.close()
    #expect(try other.table.adopt())
    try other.set("b", "2")
    let second = TestClient(server, cache: machine)
    #expect(try second.all() == ["b": "2"])
    expectReplacement(second)
    waitUntil("no copy was written") { first.copy?.id != id }
    let third = TestClient(server, cache: machine)
    #expect(try third.all() == ["b": "2"] && third.faults.isEmpty)
  }

  @Test func processThatKnowsAThirdTableRefuses() throws {
    let third = server.stranger()
    try third.set("x", "9")
    #expect(try third.all() == ["x": "9"])
    try server.command("FLUSHALL")
    expectFailure(.notFound) { try third.set("x", "8") }
    let clients = (0..<2).map { _ in server.stranger() }
    try clients[0].set("a", "1")
    for client in clients { #expect(try client.all() == ["a": "1"]) }
    try server.command("FLUSHALL")
    #expect(try clients[0].table.adopt())
    try clients[0].set("b", "2")
    clients[1].expectEventually("b", "2")
    waitForFailure(.notFound, reason: "has other settings") {
      try third.set("x", "8")
      Issue.record("a change was made to a table that is not known")
    }
    #expect(try third.all() == ["x": "9"])
    // Its own decision makes no difference to the others.
    #expect(try third.table.adopt())
    #expect(try third.all() == ["b": "2"])
    try third.set("c", "3")
    for client in clients { client.expectEventually("c", "3") }
    #expect(try replacedTables().count == 2)
  }

  /// Those that use what is on the server follow the push, too.
  @Test func pushReplacesOtherSettingsForAll() throws {
    let clients = try clientsOfALostTable()
    let new = (0..<2).map { _ in server.stranger() }
    try new[0].set("b", "2")
    for client in new { #expect(try client.all() == ["b": "2"]) }
    #expect(try clients[0].table.push())
    for client in new {
      waitUntil("the push was not followed") { (try? client.all()) == ["a": "1"] }
      expectReplacement(client)
    }
    for client in clients + new {
      client.setEventually("c", "3")
      #expect(try client.get("c") == "3")
    }
    #expect(clients.allSatisfy { $0.faults.allSatisfy { $0.code == .notFound } })
    #expect(try !new[0].table.push() && !new[1].table.adopt())
  }

  /// Otherwise each process would undo the decision of the others.
  @Test func settingsThatWereGivenUpAreNotPushed() throws {
    let machine = DiskCache.named(DiskCache.Name(UUID().uuidString))
    let old = TestClient(server, cache: machine)
    let client = try clientsOfALostTable(1)[0]
    #expect(try client.table.adopt())
    try client.set("b", "2")
    let id = try #require(try replacedTables().first)
    let copy = TableMessage.bytes(
      id: id, version: 1, name: "c",
      TableChanges([StorageEngines.Entry(key: "a", data: Data("1".utf8))], removesAll: true))
    try machine.set(Data(copy), forKey: old.copyKey)
    expectFailure(.misuse, reason: "given up") { _ = try old.table.push() }
    #expect(try server.values() == ["b": "2"] && old.all() == ["b": "2"])
  }

  /// The identities of the tables that were given up for the server's.
  private func replacedTables() throws -> [String] {
    guard case .array(let names) = try server.command("HKEYS", "keepsake:{app:suite}:s")
    else { return [] }
    return names.compactMap(\.text).filter { $0.hasPrefix("r") }.map { String($0.dropFirst()) }
  }

  /// Whoever comes first decides, and all processes agree.
  @Test func decisionsAtTheSameTime() throws {
    for round in 0..<Coverage.count(sample: 6, complete: 30) {
      let server = try TestServer()
      let clients = try clientsOfALostTable(4, on: server)
      let failures = Recorder<String>()
      onThreads(4) { thread in
        do {
          switch (thread + round) % 4 {
          case 0, 1: _ = try clients[thread].table.adopt()
          case 2: _ = try clients[thread].table.push()
          default: try? clients[thread].set("b", "2")
          }
        } catch {
          let error = error as? StorageError
          if error?.code != .misuse, error?.code != .notFound {
            failures.append("\(String(describing: error))")
          }
        }
      }
      #expect(failures.all == [])
      for client in clients { client.expectEventuallyEqual(to: server) }
      for (number, client) in clients.enumerated() {
        client.setEventually("last", "\(number)")
        for other in clients { other.expectEventually("last", "\(number)") }
      }
    }
  }

  // MARK: What the server refuses

  /// Nothing is changed, and the process keeps what it knows.
  @Test(arguments: ["publish", "hset", "full", "format"])
  func refusedAdoptionChangesNothing(_ reason: String) throws {
    try server.command("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all")
    let client = TestClient(server) { $0.logIn(as: "ann", "pw") }
    try client.set("a", "1")
    #expect(try client.all() == ["a": "1"])
    try server.command("FLUSHALL")
    if reason == "format" {
      try server.stranger().set("b", "2")
      try server.command("HSET", "keepsake:{app:suite}:s", "format", "2")
    } else if reason == "full" {
      try server.command("CONFIG", "SET", "maxmemory", "1")
    } else {
      try server.command("ACL", "SETUSER", "ann", "-\(reason)")
    }
    let keys = try server.command("HKEYS", "keepsake:{app:suite}:s")
    let code: StorageError.Code =
      switch reason {
      case "full": .diskFull
      case "format": .unsupportedVersion
      default: .accessDenied
      }
    expectFailure(code) { _ = try client.table.adopt() }
    #expect(try server.command("HKEYS", "keepsake:{app:suite}:s") == keys)
    #expect(try client.all() == ["a": "1"])
  }

  @Test func replicaConfirmsAnAdoption() throws {
    let servers = try Failover()
    let patient = ValkeyBacking.Confirmation.replicas(1, timeout: .seconds(60))
    let (one, two) = (servers.client(confirm: patient), servers.client())
    try one.set("a", "1")
    #expect(try one.all() == two.all())
    try servers.primary.command("FLUSHALL")
    #expect(try one.table.adopt())
    waitUntil("the adoption was not followed") { (try? two.all()) == [:] }
    try one.set("b", "2")
    try servers.failOver()
    for client in [one, two] { client.expectEventuallyEqual(to: servers.replica) }
    two.setEventually("c", "3")
    one.expectEventually("c", "3")
    expectReplacement(two)
  }
}
