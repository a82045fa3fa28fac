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
      let error = #expect(throws: StorageError.self) {
        try one.secrets().set("x", forKey: "probe")
      }
      #expect(error?.code == .unreachable || error?.code == .outcomeUnknown)
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
      waitUntil("no copy was written") { one.copy?.changes?.entries.count == 2 }
      // The copy is sealed as well.
      let copy = try #require(try copies.get(one.copyKey))
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
      let client = try VaultClient(server, cache: DiskCache.named("copies"))
      try client.secrets().set("1", forKey: "k")
      waitUntil("no copy was written") { client.copy?.changes?.entries.count == 2 }
      try client.secrets().set("2", forKey: "k")
      try client.secrets().eraseVault()
      #expect(client.copy?.changes?.entries.isEmpty == true)
      #expect(client.faults.isEmpty)
    }
  }

  // MARK: What the server may lose

  /// - Parameter words: What the only report contains; nil if there is none.
  private func expectReport(
    _ words: String?, _ arguments: [String], confirm: ValkeyBacking.Confirmation = .primary,
    rights: [String] = ["+@all"], sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let server = try TestServer(arguments)
    try server.command(["ACL", "SETUSER", "shop", "on", ">tuna", "~*", "&*"] + rights)
    let client = try VaultClient(server, confirm: confirm) { $0.logIn(as: "shop", "tuna") }
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
