import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// One of the two hashes of a table is lost alone, as when the server evicts it or another program
/// deletes it.
@Suite(.server, .threadPerTest) struct LostValuesTests {
  private static let table = TableName(app: "app", suite: "suite")
  private let server: TestServer

  init() throws { server = try TestServer() }

  /// Two processes that know the same table, of which the server then loses one hash.
  private func clients(losing hash: String = table.values) throws -> [TestClient] {
    let clients = [server.stranger(), server.stranger()]
    try clients[0].set("a", "1")
    for client in clients { #expect(try client.all() == ["a": "1"]) }
    #expect(try server.command("DEL", hash) == .integer(1))
    return clients
  }

  @Test(arguments: [table.values, table.state]) func isALossUntilPush(_ hash: String) throws {
    let clients = try clients(losing: hash)
    for client in clients {
      expectFailure(.notFound, reason: "has lost the settings") { try client.set("b", "2") }
      expectFailure(.notFound) { try client.set("a", nil) }
      expectFailure(.notFound) { try client.table.removeAll() }
      expectFailure(.notFound) { try client.table.synchronize() }
      expectFailure(.notFound) {
        _ = try client.table.replace(nil, with: Data("2".utf8), forKey: "b")
      }
      #expect(try client.all() == ["a": "1"])
      client.expectReport(.notFound)
    }
    #expect(try server.command("EXISTS", hash) == .integer(0))
    #expect(try clients[0].table.isLost() && clients[0].table.push())
    #expect(try !clients[0].table.isLost() && !clients[0].table.push())
    clients[1].setEventually("b", "2")
    clients[0].expectEventually("b", "2")
    #expect(try server.values() == ["a": "1", "b": "2"])
    #expect(try server.stranger().all() == ["a": "1", "b": "2"])
  }

  @Test(arguments: [table.values, table.state]) func isALossUntilAdoption(_ hash: String) throws {
    let clients = try clients(losing: hash)
    #expect(try clients[0].table.adopt())
    for client in clients {
      waitUntil("the adoption was not followed") { (try? client.all()) == [:] }
    }
    clients[1].expectReport(.damaged)
    try clients[1].set("b", "2")
    clients[0].expectEventually("b", "2")
    // What the lost table had left behind is not in the new one.
    #expect(try server.values() == ["b": "2"] && server.stranger().all() == ["b": "2"])
    #expect(try !clients[0].table.adopt() && !clients[1].table.push())
  }

  /// The process knows the table from the copy of its machine.
  @Test func synchronizingBeginsNoOtherTable() throws {
    let machine = DiskCache.named(DiskCache.Name(UUID().uuidString))
    let old = TestClient(server, cache: machine)
    try old.set("a", "1")
    #expect(try old.get("a") == "1")
    waitUntil("no copy was written") { old.copy?.version == 1 }
    try server.command("FLUSHALL")
    let new = TestClient(server, cache: machine)
    expectFailure(.notFound, reason: "has lost the settings") { try new.table.synchronize() }
    #expect(try server.command("KEYS", "*") == .array([]))
  }

  /// It begins a new table, of which the others hear.
  @Test(arguments: [table.values, table.state]) func aNewProcessBeginsAnew(_ hash: String) throws {
    let clients = try clients(losing: hash)
    let new = server.stranger()
    #expect(try new.all() == [:])
    #expect(try new.table.replace(nil, with: Data("2".utf8), forKey: "a"))
    try new.set("b", "2")
    for client in clients {
      client.expectReport(.notFound)
      expectFailure(.notFound, reason: "has other settings") { try client.set("b", "3") }
      #expect(try client.all() == ["a": "1"])
    }
    #expect(try server.values() == ["a": "2", "b": "2"] && server.version() == "2")
    #expect(try server.stranger().all() == ["a": "2", "b": "2"] && new.faults.isEmpty)
    #expect(try clients[0].table.push())
    waitUntil("the push was not followed") { (try? new.all()) == ["a": "1"] }
    new.setEventually("c", "3")
    clients[1].expectEventually("c", "3")
  }

  /// A process that only reads hears of it when it connects again.
  @Test func aReaderReportsTheLoss() throws {
    let clients = try clients()
    try server.command("CLIENT", "KILL", "TYPE", "pubsub")
    clients[1].expectReport(.notFound)
    #expect(try clients[1].all() == ["a": "1"])
  }

  /// The values of another program under the same name are not those of the table.
  @Test func aHashWithoutTheMarkerIsNoTable() throws {
    let clients = try clients()
    try server.command("HSET", Self.table.values, "foreign", "7")
    #expect(try server.stranger().all() == [:])
    expectFailure(.notFound) { try clients[0].set("a", "2") }
    expectFailure(.notFound) { _ = try clients[0].table.data(forKey: "foreign") }
    expectFailure(.notFound) { _ = try clients[0].table.keys() }
    #expect(try clients[0].table.push())
    #expect(try server.values() == ["a": "1"])
  }

  /// Otherwise a replica that restores an old hash would make two tables one.
  @Test func theMarkerOfAnotherTableDoesNotCount() throws {
    let (old, new) = (server.stranger(), server.stranger())
    try old.set("a", "1")
    let dump = try old.server.link.perform(Command("DUMP", Self.table.values))
    guard case .bytes(let bytes) = dump else { throw CancellationError() }
    try server.command("FLUSHALL")
    try new.set("b", "2")
    #expect(try new.all() == ["b": "2"])
    var restore = Command("RESTORE", Self.table.values, "0")
    restore.append(bytes)
    restore.append("REPLACE")
    _ = try new.server.link.perform(restore)
    expectFailure(.notFound) { try new.set("b", "3") }
    #expect(try new.all() == ["b": "2"] && server.stranger().all() == [:])
  }

  /// Nothing is lost with a table whose keys were all removed; while it is there, it stays.
  @Test func anEmptyTableStays() throws {
    let (one, two) = (server.stranger(), server.stranger())
    for removeAll in [false, true] {
      try one.set("a", "1")
      two.expectEventually("a", "1")
      if removeAll { try one.table.removeAll() } else { try one.set("a", nil) }
      two.expectEventually("a", nil)
      #expect(try server.command("HLEN", Self.table.values) == .integer(1))
      #expect(try one.table.keys() == [] && one.mirror.keys() == [])
    }
    #expect(try server.version() == "4")
    try two.set("b", "2")
    one.expectEventually("b", "2")
    try two.set("b", nil)
    one.expectEventually("b", nil)
    try server.command("DEL", Self.table.values)
    try one.set("c", "3")
    two.expectEventually("c", "3")
    #expect(try server.version() == "1" && one.faults.isEmpty && two.faults.isEmpty)
  }

  @Test func theMarkerIsNotShown() throws {
    let client = server.stranger()
    try client.set("a", "1")
    #expect(try client.table.keys() == ["a"] && client.mirror.keys() == ["a"])
    #expect(try server.stranger().all() == ["a": "1"])
    let backing = ValkeyBacking(client.server)
    #expect(try backing.suites(app: "app") == ["suite"] && !backing.hasVault(app: "app"))
    try client.set("a", nil)
    #expect(try backing.suites(app: "app") == [])
    let vault = backing.table(ofVaultOf: "app")
    try vault.set(Data("1".utf8), forKey: "header")
    #expect(try backing.hasVault(app: "app"))
    try vault.removeAll()
    #expect(try !backing.hasVault(app: "app"))
  }

  // MARK: Secrets

  private static let secrets = TableName(vaultOf: "app").values

  @Test func aLostVaultIsNotTakenForAnEmptyOne() throws {
    let (one, two) = (try VaultClient(server), try VaultClient(server))
    try one.secrets().set("1", forKey: "k")
    #expect(try two.secrets().get("k") == "1")
    try server.command("DEL", Self.secrets)
    for client in [one, two] {
      let store = client.secrets()
      let calls: [(String, () throws -> Void)] = [
        ("set", { try store.set("2", forKey: "k") }), ("add", { try store.set("2", forKey: "l") }),
        ("remove", { try store.remove("k") }), ("removeAll", { try store.removeAll() }),
        ("rotateKeys", { try store.rotateKeys() }), ("eraseVault", { try store.eraseVault() }),
        ("allEntries", { _ = try store.vault.storage.allEntries() }),
        ("isStillStored", { _ = try store.vault.storage.isStillStored() }),
      ]
      for (name, call) in calls {
        let error = #expect(throws: StorageError.self, "\(name)") { try call() }
        #expect(error?.code == .notFound, "\(name): \(String(describing: error))")
      }
      let error = expectFailure(.notFound, reason: "has lost the secrets") {
        try store.set("2", forKey: "k")
      }
      #expect(error?.remedy.contains("pushSecrets") == true)
      #expect(try store.get("k") == "1" && store.keys() == ["k"])
    }
    #expect(try server.command("EXISTS", Self.secrets) == .integer(0))
    #expect(try one.table.push())
    try one.secrets().set("2", forKey: "k")
    two.expectEventually("k", "2")
    try two.secrets().rotateKeys()
    #expect(try VaultClient(server).secrets().get("k") == "2")
  }

  @Test func aLostVaultIsBegunAnewByANewProcess() throws {
    let old = try VaultClient(server)
    try old.secrets().set("1", forKey: "k")
    #expect(try old.secrets().get("k") == "1")
    try server.command("DEL", Self.secrets)
    let new = try VaultClient(server, cache: DiskCache.named(DiskCache.Name(UUID().uuidString)))
    #expect(try new.secrets().get("k") == nil)
    try new.secrets().set("2", forKey: "l")
    expectFailure(.notFound, reason: "has other secrets") {
      try old.secrets().set("2", forKey: "k")
    }
    #expect(try old.secrets().get("k") == "1")
    #expect(try old.table.adopt())
    // It is another vault, which a process that has used the old one accepts when it opens it.
    let store = old.secrets()
    expectFailure(.accessDenied) { _ = try store.get("l") }
    try store.lock()
    try store.unlock()
    #expect(try store.get("l") == "2" && store.keys() == ["l"])
  }
}
