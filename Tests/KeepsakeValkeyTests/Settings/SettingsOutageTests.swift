import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What reads and writes of settings do while the server is away, and afterwards.
@Suite(.server, .threadPerTest) struct SettingsOutageTests {
  private static let durable = ["--appendonly", "yes", "--appendfsync", "always"]
  private let server: TestServer

  init() throws { server = try TestServer() }

  /// Reads without pause until `body` has ended; how often there was no value, or an older one.
  private func countingBadReads(
    of client: TestClient, _ key: String, while body: () throws -> Void
  ) rethrows -> Int {
    let (isOver, bad) = (Flag(), Recorder<String>())
    let hasEnded = startThread {
      var last = 0
      while !isOver.value {
        let number = (try? client.get(key)).flatMap { Int($0) }
        if number == nil || number! < last { bad.append("\(number ?? -1) after \(last)") }
        last = max(last, number ?? 0)
      }
    }
    defer {
      isOver.value = true
      hasEnded.wait()
    }
    try body()
    return bad.count
  }

  @Test func emptiedServerIsAConflictUntilPush() throws {
    let (one, two) = (TestClient(server), TestClient(server))
    try one.set("a", "1")
    try one.set("b", "\"x\"")
    #expect(try one.all() == two.all())
    server.kill()
    try server.start()
    for client in [one, two] {
      client.expectReport(.notFound)
      #expect(try client.all() == ["a": "1", "b": "\"x\""])
      expectFailure(.notFound, reason: "has lost the settings") { try client.set("a", "2") }
      expectFailure(.notFound) { try client.table.removeAll() }
    }
    #expect(try server.command("KEYS", "*") == .array([]))
    #expect(try one.table.push())
    try one.set("a", "2")
    two.expectEventually("a", "2")
    two.setEventually("b", "3")
    one.expectEventually("b", "3")
    #expect(try one.all() == ["a": "2", "b": "3"] && two.all() == one.all())
    let version = try server.version()
    // Nothing is lost now.
    #expect(try !two.table.push() && !two.table.adopt())
    #expect(try server.version() == version)
    #expect(one.faults.count == 1 && two.faults.count == 1)
  }

  @Test func nothingIsPushedByAProcessThatKnowsNothing() throws {
    let client = TestClient(server)
    expectFailure(.notFound, reason: "knows no settings") { _ = try client.table.push() }
    #expect(try !client.table.adopt())
    #expect(try client.all() == [:])
    expectFailure(.notFound, reason: "knows no settings") { _ = try client.table.push() }
    #expect(try client.testServer.command("KEYS", "*") == .array([]))
  }

  @Test func frozenServer() throws {
    var options = LinkOptions.quick
    options.keepAlive = .seconds(600)  // a sign of life that is late would end the connection
    let client = TestClient(server, options: options) {
      $0.requestTimeout = .milliseconds(400)
      // The attempt to connect again goes on for as long as the server is frozen.
      $0.connectTimeout = .seconds(600)
    }
    client.setEventually("n", "1")
    client.expectEventually("n", "1")
    server.freeze()
    let badCount = try countingBadReads(of: client, "n") {
      var failures: [StorageError] = []
      for _ in 0..<1_000 {
        let error = #expect(throws: StorageError.self) { try client.set("n", "2") }
        failures.append(try #require(error))
      }
      // The first one waits, and all others have its reason. One that waited for a connection
      // would have another reason.
      let reason = "the server did not answer within 0.4 seconds"
      #expect(failures.allSatisfy { $0.reason == reason }, "\(Set(failures.map(\.reason)))")
      #expect([.unreachable, .outcomeUnknown].contains(failures.first?.code))
      #expect(failures.dropFirst().allSatisfy { $0.code == .unreachable })
    }
    #expect(badCount == 0)
    server.unfreeze()
    client.setEventually("n", "3")
    client.expectEventually("n", "3")
    let other = TestClient(server)
    #expect(try other.get("n") == "3")
  }

  /// Whatever connection is cut, and at whatever moment: the reader has every value in its order,
  /// and the last one at the end.
  @Test(arguments: ["normal", "pubsub"]) func cutConnectionsMissNothing(_ type: String) throws {
    let (writer, reader) = (TestClient(server), TestClient(server))
    try writer.set("n", "0")
    #expect(try writer.get("n") == "0" && reader.get("n") == "0")
    let badCount = try countingBadReads(of: reader, "n") {
      for number in 1...300 {
        if number % 15 == 0 { try server.command("CLIENT", "KILL", "TYPE", type) }
        // It fails until there is another connection.
        try? writer.set("n", "\(number)")
        if number % 50 == 0 {
          writer.setEventually("n", "\(number)")
          reader.expectEventually("n", "\(number)")
        }
      }
    }
    #expect(badCount == 0)
    #expect(reader.faults.isEmpty, "\(reader.reports.all)")
    #expect(try writer.all() == ["n": "300"])
  }

  /// A process that starts while the server is away reads what another one has left on the machine.
  @Test func coldStartReadsTheCopyOnDisk() throws {
    let server = try TestServer(Self.durable)
    let machine = DiskCache.named(DiskCache.Name(UUID().uuidString))
    let first = TestClient(server, cache: machine)
    try first.set("a", "1")
    #expect(try first.all() == ["a": "1"])
    try first.set("b", "\"größe\"")
    waitUntil("no copy was written") { first.copy?.version == 2 }
    server.kill()
    let second = TestClient(server, cache: machine)
    let known = try second.all()
    #expect(known == ["a": "1", "b": "\"größe\""])
    waitUntil("the outage was not reported") { !second.reports.all.isEmpty }
    #expect(second.reports.all.map(\.code) == [.unreachable])
    #expect(second.reports.all.first?.reason?.contains(", stored at 2") == true)
    expectFailure(.unreachable) { try second.set("a", "2") }
    let stranger = server.stranger()
    expectFailure(.unreachable) { _ = try stranger.get("a") }
    try server.start()
    second.setEventually("a", "3")
    first.expectEventually("a", "3")
    stranger.expectEventually("a", "3")
    #expect(try second.all() == first.all())
  }

  /// Otherwise the next process that starts in an outage would read old values.
  @Test func processThatStartedInAnOutageWritesTheCopy() throws {
    let server = try TestServer(Self.durable)
    let machine = DiskCache.named(DiskCache.Name(UUID().uuidString))
    do {
      let first = TestClient(server, cache: machine)
      try first.set("a", "1")
      #expect(try first.get("a") == "1")
      waitUntil("no copy was written") { first.copy?.version == 1 }
    }
    server.kill()
    let second = TestClient(server, cache: machine)
    #expect(try second.get("a") == "1")
    try server.start()
    second.setEventually("a", "3")
    waitUntil("no copy was written") { (second.copy?.version ?? 0) > 1 }
  }

  /// The outage begins before the process has read anything.
  @Test func processThatHasOnlySetReadsOn() throws {
    try TestClient(server).set("other", "7")
    let cache = DiskCache.named(DiskCache.Name(UUID().uuidString))
    let client = TestClient(server, cache: cache) {
      // The first read may wait this long for a server that has just been there.
      $0.requestTimeout = .seconds(2)
      $0.connectTimeout = .seconds(2)
    }
    client.setEventually("a", "1")
    waitUntil("no copy was written") { client.copy?.changes?.entries.count == 2 }
    server.kill()
    #expect(try client.all() == ["a": "1", "other": "7"])
    expectFailure(.unreachable) { try client.set("a", "2") }
    #expect(try client.get("a") == "1")
  }

  /// What was removed is on the disk no longer, although this process cannot know all other values.
  @Test(arguments: ["subscription", "replica"])
  func removedValuesLeaveTheCopy(_ missing: String) throws {
    try server.command("ACL", "SETUSER", "shop", "on", ">tuna", "~*", "&*", "+@all")
    let cache = DiskCache.named(DiskCache.Name(UUID().uuidString))
    try TestClient(server).set("a", "1")
    let client = TestClient(
      server, confirm: missing == "replica" ? .replicas(1, timeout: .milliseconds(1)) : .primary,
      cache: cache
    ) { $0.logIn(as: "shop", "tuna") }
    #expect(try client.get("a") == "1")
    waitUntil("no copy was written") { client.copy?.changes?.entries.count == 1 }
    if missing == "replica" {
      expectFailure(.outcomeUnknown) { try client.table.removeAll() }
    } else {
      try server.command("ACL", "SETUSER", "shop", "-subscribe")
      try server.command("CLIENT", "KILL", "TYPE", "pubsub")
      client.expectReport(.accessDenied)
      try client.table.removeAll()
    }
    #expect(client.copy?.changes?.entries.isEmpty != false)
  }

  /// The values in memory were current when it began, however old the copy is.
  @Test func laterOutageIsReportedWithoutTheTimeOfTheCopy() throws {
    let client = server.stranger()
    try client.set("a", "1")
    #expect(try client.get("a") == "1")
    waitUntil("no copy was written") { client.copy != nil }
    server.kill()
    client.expectReport(.unreachable)
    #expect(client.reports.all.first?.reason?.contains("stored") == false)
  }

  @Test func damagedCopyIsReported() throws {
    let cache = DiskCache.named(DiskCache.Name(UUID().uuidString))
    let client = TestClient(server, cache: cache)
    try cache.set(Data("no copy".utf8), forKey: client.copyKey)
    #expect(try client.get("a") == nil)
    client.expectReport(.damaged)
    #expect(client.faults.map(\.code) == [.damaged])
  }

  /// Redis replies to commands while it reads its data, but with an error.
  @Test func processThatStartsFirstConnectsLater() throws {
    server.kill()
    let client = TestClient(server)
    for _ in 0..<3 {
      expectFailure(.unreachable) { _ = try client.get("a") }
      expectFailure(.unreachable) { try client.set("a", "1") }
    }
    try server.start()
    client.setEventually("a", "1")
    client.expectEventually("a", "1")
  }
}
