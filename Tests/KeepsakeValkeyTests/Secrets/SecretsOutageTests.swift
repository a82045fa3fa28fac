import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What becomes of secrets while the server is away, and afterwards.
@Suite(.server, .threadPerTest) struct SecretsOutageTests {
  private static let durable = ["--appendonly", "yes", "--appendfsync", "always"]

  @Test func secretsSurviveAKilledServer() throws {
    let server = try TestServer(Self.durable)
    let (one, two) = (try VaultClient(server), try VaultClient(server))
    var stored: [String] = []
    for round in 0..<3 {
      for number in 0..<5 {
        let key = "\(round) \(number)"
        one.setEventually(key, "value of \(key)")
        stored.append(key)
      }
      server.kill()
      waitUntil("the loss was not noticed") {
        (try? one.secrets().set("x", forKey: "probe")) == nil
      }
      // Reads go on.
      for key in stored { #expect(try one.secrets().get(key) == "value of \(key)") }
      #expect(try one.secrets().keys().count >= stored.count)
      do {
        try one.secrets().set("x", forKey: "probe")
        Issue.record("set without a server")
      } catch {
        #expect(error.code == .unreachable || error.code == .outcomeUnknown)
      }
      try server.start()
      two.setEventually("back", "\(round)")
      one.expectEventually("back", "\(round)")
    }
    let reader = try VaultClient(server)
    for key in stored {
      #expect(try reader.secrets().get(key) == "value of \(key)")
      two.expectEventually(key, "value of \(key)")
    }
    try reader.secrets().rotateKeys()
    #expect(try reader.keyIDs().count == 1)
    #expect([one, two, reader].allSatisfy { $0.faults.isEmpty })
  }

  @Test func aNewProcessReadsTheCopyOfItsMachine() async throws {
    let server = try TestServer(Self.durable)
    try await StorageSystem.withTemporary {
      let copies = DiskCache.named("copies")
      let one = try VaultClient(server, cache: copies)
      try one.secrets().set("1", forKey: "k")
      #expect(try one.secrets().get("k") == "1")
      let key = "\(server.address) keepsake:{app:@vault}:v"
      waitUntil("no copy was written") {
        guard let data = try? copies.get(key) else { return false }
        return TableMessage(Array(data))?.changes?.entries.count == 2
      }
      // The copy is sealed as well.
      let copy = try #require(try copies.get(key))
      #expect(copy.range(of: Data("standard".utf8)) == nil)
      server.kill()
      let two = try VaultClient(server, cache: copies)
      #expect(try two.secrets().get("k") == "1" && two.secrets().keys() == ["k"])
      expectFailure(.unreachable) { try two.secrets().set("2", forKey: "k") }
      waitUntil("the outage was not reported") {
        two.reports.all.contains { $0.reason?.contains("the secrets are the ones") == true }
      }
      expectFailure(.unreachable) { _ = try VaultClient(server).secrets().get("k") }
    }
  }

  /// A program may end right after the call.
  @Test func anErasedVaultIsNotInTheCopyOfItsMachine() async throws {
    let server = try TestServer(Self.durable)
    try await StorageSystem.withTemporary {
      let copies = DiskCache.named("copies")
      let client = try VaultClient(server, cache: copies)
      try client.secrets().set("1", forKey: "k")
      let key = "\(server.address) keepsake:{app:@vault}:v"
      func count() throws -> Int? {
        try copies.get(key).flatMap { TableMessage(Array($0))?.changes?.entries.count }
      }
      waitUntil("no copy was written") { (try? count()) == 2 }
      try client.secrets().set("2", forKey: "k")
      try client.secrets().eraseVault()
      #expect(try count() == 0)
      #expect(client.faults.isEmpty)
    }
  }

  @Test func aLostVaultIsAConflictUntilItIsPushed() throws {
    let server = try TestServer()
    let (one, two) = (try VaultClient(server), try VaultClient(server))
    try one.secrets().set("1", forKey: "k")
    #expect(try two.secrets().get("k") == "1")
    try server.command("FLUSHALL")
    expectFailure(.notFound, reason: "has lost the secrets") {
      try one.secrets().set("2", forKey: "k")
    }
    #expect(try one.secrets().get("k") == "1" && two.secrets().get("k") == "1")
    #expect(try server.command("KEYS", "*") == .array([]))
    do throws(StorageError) {
      try one.secrets().eraseVault()
      Issue.record("erased")
    } catch {
      #expect(error.code == .notFound && error.remedy.contains("pushSecrets"))
    }
    #expect(try one.table.push())
    try one.secrets().set("2", forKey: "k")
    #expect(try VaultClient(server).secrets().get("k") == "2")
    two.expectEventually("k", "2")
  }

  /// The first write fails when it has waited for as long as the URL says, the others at once.
  @Test func aFrozenServerIsNotWaitedForTwice() throws {
    let server = try TestServer()
    let client = try VaultClient(server) { $0.requestTimeout = .milliseconds(300) }
    client.setEventually("k", "1")
    server.freeze()
    defer { server.unfreeze() }
    waitUntil("the server was not given up") {
      do throws(StorageError) {
        try client.secrets().set("2", forKey: "k")
        Issue.record("set on a frozen server")
        return true
      } catch {
        return error.code == .unreachable
      }
    }
    #expect(try client.secrets().contains("k"))
    expectFailure(.unreachable) { try client.secrets().set("2", forKey: "k") }
  }

  // MARK: What the server may lose

  /// - Parameter words: What the only report contains; nil if there is none.
  private func expectReport(
    _ words: String?, _ arguments: [String], confirm: ValkeyBacking.Confirmation = .primary,
    rights: [String] = ["+@all"], sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let server = try TestServer(arguments)
    try server.command(["ACL", "SETUSER", "shop", "on", ">tuna", "~*", "&*"] + rights)
    let client = try VaultClient(server, confirm: confirm) {
      $0.user = "shop"
      $0.password = "tuna"
    }
    for _ in 0..<2 { #expect(try client.secrets().get("k") == nil) }
    func reports() -> [String] {
      client.reports.all.filter { $0.code == .misuse }.map { $0.reason ?? "" }
    }
    // Reports are made in the background.
    if words != nil { waitUntil("nothing was reported") { !reports().isEmpty } }
    let done = Flag()
    BackgroundWork.run { done.value = true }
    done.wait("no work is done in the background")
    let all = reports()
    #expect(all.count == (words == nil ? 0 : 1), "\(all)", sourceLocation: sourceLocation)
    if let words { #expect(all.first?.contains(words) == true, sourceLocation: sourceLocation) }
  }

  @Test func aServerThatMayLoseSecretsIsReportedOnce() throws {
    let late = ["--appendonly", "yes", "--appendfsync", "everysec"]
    try expectReport("appendonly no", [])
    try expectReport("appendfsync everysec", late)
    try expectReport(nil, Self.durable)
    try expectReport(nil, [], confirm: .replicas(1))
    try expectReport(nil, late, rights: ["+@all", "-config"])
    try expectReport(nil, [], rights: ["+@all", "-info"])
  }
}
