import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Settings on a real server.
@Suite(.server, .threadPerTest) struct SettingsTableTests {
  /// As a server is set up that keeps settings.
  private static let durable = ["--appendonly", "yes"]
  private let server: TestServer

  init() throws { server = try TestServer() }

  @Test func conformsWithTwoOpeners() async throws {
    let server = try TestServer(Self.durable)
    let (one, two) = (TestClient(server), TestClient(server))
    try await StorageEngineConformance.check(timeLimit: .seconds(600), seenWithin: .seconds(60)) {
      one.table
    } reopening: {
      two.table
    }
    #expect(one.faults.isEmpty && two.faults.isEmpty)
  }

  @Test func everyChangeIsSeenByTheOtherProcess() throws {
    let (one, two) = (TestClient(server), TestClient(server))
    #expect(try one.all() == [:] && two.all() == [:])
    try one.set("a", "1")
    two.expectEventually("a", "1")
    #expect(try two.table.replace(Data("1".utf8), with: Data("2".utf8), forKey: "a"))
    #expect(try two.get("a") == "2")
    one.expectEventually("a", "2")
    let entries = (0..<500).map { StorageEngines.Entry(key: "k\($0)", data: Data("\($0)".utf8)) }
    #expect(try one.table.apply(entries, ifCurrent: []))
    two.expectEventually("k499", "499")
    // All of one change at once.
    #expect(try two.all().count == 501)
    try two.set("k0", nil)
    one.expectEventually("k0", nil)
    try one.table.removeAll()
    #expect(try one.all() == [:])
    two.expectEventually("a", nil)
    #expect(try two.all() == [:])
  }

  /// Such a change is not published, so the other process reads the table again.
  @Test func largeChangeIsSeen() throws {
    let (one, two) = (TestClient(server), TestClient(server))
    #expect(try two.all() == [:])
    try one.set("before", "1")
    for size in [TableMessage.maximumSize - 100, TableMessage.maximumSize + 1, 1_000_000] {
      let text = "\"" + String(repeating: "x", count: size) + "\""
      try one.set("large", text)
      #expect(try one.get("large") == text)
      two.expectEventually("large", text)
      try one.set("after", "\(size)")
      two.expectEventually("after", "\(size)")
    }
    #expect(try two.get("before") == "1")
  }

  @Test func unusualNamesAreKept() throws {
    for suite in [
      "a:b}", "{", "%", "\u{0}", "größe", "gro\u{308}ße", String(repeating: "k", count: 900),
    ] {
      let (one, two) = (TestClient(server, suite: suite), TestClient(server, suite: suite))
      #expect(try one.all() == [:])
      for key in TableNameTests.names { try one.set(key, "\"\(suite.count)\"") }
      for key in TableNameTests.names { two.expectEventually(key, "\"\(suite.count)\"") }
      #expect(try two.mirror.keys().count == TableNameTests.names.count)
    }
  }

  /// Messages are small compared to what the server may keep for a process that is not reading.
  @Test func changesOfManyThreadsAreInOneOrder() throws {
    let clients = (0..<3).map { _ in TestClient(server) }
    for client in clients { #expect(try client.all() == [:]) }
    let failures = Recorder<String>()
    onThreads(6) { thread in
      do {
        let client = clients[thread % 3]
        for number in 0..<200 {
          try client.set("own \(thread)", "\(number)")
          // Read-your-writes, whatever the other threads set meanwhile.
          if try client.get("own \(thread)") != "\(number)" { failures.append("\(number)") }
          try client.set("shared", "\(thread * 1_000 + number)")
        }
      } catch {
        failures.append("\(error)")
      }
    }
    #expect(failures.all == [])
    let version = try server.version()
    #expect(version == "2400")
    try clients[0].set("last", "1")
    for client in clients {
      client.expectEventually("last", "1")
      #expect(try client.all() == clients[0].all())
    }
  }

  // MARK: Suites

  private struct Model: Codable, Equatable, Sendable {
    var name = "Ann"
    var scores = [1.5, 2]
  }

  private static let model = Defaults.Key<Model>("model", default: Model(), suite: "one")

  @Test func suitesWorkAsOnOneMachine() async throws {
    let server = try TestServer(Self.durable)
    let (a, b) = (TestClient(server), TestClient(server))
    try await StorageSystem.withTemporary(engines: ["one": a.table, "two": b.table]) {
      let (one, two) = (Defaults.suite("one"), Defaults.suite("two"))
      try one.set(16, forKey: "size")
      #expect(try one.update("size", default: 0) { $0 += 1 } == 17)
      waitUntil("the update did not arrive") { (try? two.get("size")) == 17 }
      try one.import(Data(#"{"b": [1, 2], "c": "dark"}"#.utf8))
      #expect(try one.get("c") == "dark")
      waitUntil("the import did not arrive") { (try? two.get("b")) == [1, 2] }
      #expect(Defaults[Self.model] == Model())
      Defaults[Self.model] = Model(name: "Bea", scores: [])
      #expect(Defaults[Self.model].name == "Bea")
      waitUntil("the model did not arrive") {
        (try? two.model("model", type: Model.self)?.name) == "Bea"
      }
      @Default("volume", suite: "one") var volume = 5
      Defaults.set(7, forKey: "volume", suite: "two")
      waitUntil("the change did not arrive") { volume == 7 }
      volume = 8
      waitUntil("the change did not arrive") { (try? two.get("volume")) == 8 }
      let keys = try one.keys().sorted()
      #expect(keys == ["b", "c", "model", "size", "volume"])
      try two.synchronize()
    }
  }

  @Test func changesOfOthersAreAnnounced() async throws {
    let (a, b) = (TestClient(server), TestClient(server))
    try await StorageSystem.withTemporary(engines: ["one": a.table, "two": b.table]) {
      var numbers: [Int] = []
      let changes = Defaults.changes("n", default: 0, suite: "one")
      Defaults.set(1, forKey: "n", suite: "two")
      for await number in changes {
        numbers.append(number)
        if numbers.last == 3 { break }
        Defaults.set((numbers.last ?? 0) + 1, forKey: "n", suite: "two")
      }
      #expect(numbers == [1, 2, 3])
    }
  }

  // MARK: What the server refuses

  @Test func fullServerKeepsTheOldValue() throws {
    let (one, two) = (TestClient(server), TestClient(server))
    try one.set("a", "1")
    #expect(try one.get("a") == "1" && two.get("a") == "1")
    try server.command("CONFIG", "SET", "maxmemory", "1")
    expectFailure(.diskFull) { try one.set("a", "2") }
    expectFailure(.diskFull) { try one.set("new", "2") }
    expectFailure(.diskFull) {
      _ = try one.table.apply(
        [
          StorageEngines.Entry(key: "a", data: nil),
          StorageEngines.Entry(key: "b", data: Data("2".utf8)),
        ],
        ifCurrent: [])
    }
    #expect(try one.all() == ["a": "1"] && two.all() == ["a": "1"])
    #expect(try one.table.data(forKey: "a") == Data("1".utf8))
    // What makes room is not refused.
    try two.set("a", nil)
    one.expectEventually("a", nil)
    try one.table.removeAll()
    try server.command("CONFIG", "SET", "maxmemory", "0")
    try one.set("a", "3")
    two.expectEventually("a", "3")
  }

  @Test func serverThatDeletesSettingsIsRefused() throws {
    let server = try TestServer(["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"])
    let client = TestClient(server)
    expectFailure(.misuse, reason: "allkeys-lru") { _ = try client.get("a") }
    expectFailure(.misuse, reason: "allkeys-lru") { try client.set("a", "1") }
    #expect(try server.command("EXISTS", "keepsake:{app:suite}:s") == .integer(0))
    try server.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    try client.set("a", "1")
    #expect(try client.get("a") == "1")
    // Without a limit, nothing is deleted.
    try server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    try server.command("CONFIG", "SET", "maxmemory", "0")
    let other = TestClient(server)
    #expect(try other.get("a") == "1")
  }

  @Test func serverThatRefusesInformationIsUsed() throws {
    try server.command("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all", "-info")
    let client = TestClient(server) { $0.logIn(as: "ann", "pw") }
    try client.set("a", "1")
    #expect(try client.get("a") == "1")
  }

  /// The change is not made, because other processes would not hear of it.
  @Test func userWhoMayNotPublishChangesNothing() throws {
    let writer = TestClient(server)
    for isNew in [true, false] {
      try server.command("ACL", "SETUSER", "ann", "reset", "on", ">pw", "~*", "+@all")
      let client = TestClient(server) { $0.logIn(as: "ann", "pw") }
      expectFailure(.accessDenied) { try client.set("a", "2") }
      expectFailure(.accessDenied) { _ = try client.get("a") }
      if isNew {
        #expect(try server.command("KEYS", "*") == .array([]))
        try writer.set("a", "1")
      } else {
        #expect(try writer.table.data(forKey: "a") == Data("1".utf8))
        #expect(try server.version() == "1")
      }
    }
  }

  /// Every right that a change needs is checked before anything is changed.
  @Test(arguments: ["hset", "hdel", "hincrby", "publish", "hkeys", "hget"])
  func userWithoutARightChangesNothing(_ right: String) throws {
    let owner = TestClient(server)
    try owner.set("a", "1")
    #expect(try owner.all() == ["a": "1"])
    try server.command("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all", "-\(right)")
    let client = TestClient(server) { $0.logIn(as: "ann", "pw") }
    let calls: [(String, () throws -> Void)] = [
      ("set", { try client.set("a", "2") }), ("remove", { try client.set("a", nil) }),
      ("removeAll", { try client.table.removeAll() }),
    ]
    for (_, call) in calls {
      do {
        try call()
        try owner.set("a", "1")
      } catch {
        #expect((error as? StorageError)?.code == .accessDenied, "\(error)")
        #expect(try owner.table.data(forKey: "a") == Data("1".utf8))
      }
    }
    // The versions have no gap, so that no mirror reads the table again.
    let before = try server.version().flatMap { Int($0) } ?? 0
    try owner.set("a", "3")
    #expect(try server.version() == "\(before + 1)")
    #expect(try owner.all() == ["a": "3"])
  }

  /// The channels of a server belong to all of its databases.
  @Test func databasesHaveNothingInCommon() throws {
    let (zero, one) = (TestClient(server), TestClient(server) { $0.database = 1 })
    #expect(try zero.all() == [:] && one.all() == [:])
    try one.set("a", "1")
    let other = TestClient(server) { $0.database = 1 }
    #expect(try other.all() == ["a": "1"])
    try zero.set("b", "2")
    #expect(try zero.all() == ["b": "2"])
    one.setEventually("c", "3")
    other.expectEventually("c", "3")
    #expect(try zero.all() == ["b": "2"] && other.all() == ["a": "1", "c": "3"])
    #expect(zero.faults.isEmpty && one.faults.isEmpty)
  }

  @Test func tooManyValuesAreRefused() throws {
    let client = TestClient(server, maximumByteCount: 80_000)
    #expect(try client.all() == [:])
    let text = "\"" + String(repeating: "x", count: 10_000) + "\""
    for number in 1...7 { try client.set("\(number)", text) }
    expectFailure(.misuse, reason: "more than 80000 bytes") { try client.set("8", text) }
    try client.set("7", "\"smaller\"")
    try client.set("8", text)
    try client.set("1", nil)
    #expect(try client.mirror.keys().count == 7)
  }

  /// Numbers that only a faulty or hostile server has.
  @Test(arguments: ["9223372036854775807", "9007199254740994", "-1", "1e300", "x"])
  func impossibleVersionIsRefused(_ version: String) throws {
    let old = TestClient(server)
    let new = server.stranger()
    try old.set("a", "1")
    #expect(try old.get("a") == "1")
    try server.command("HSET", "keepsake:{app:suite}:s", "n", version)
    expectFailure(.engineFailed) { _ = try new.get("a") }
    do {
      try old.set("a", "2")
    } catch {
      #expect((error as? StorageError)?.code == .engineFailed)
    }
    #expect(try old.get("a") != nil)
  }

  @Test func newerFormatIsRefused() throws {
    let old = TestClient(server)
    let new = server.stranger()
    try old.set("a", "1")
    #expect(try old.get("a") == "1")
    try server.command("HSET", "keepsake:{app:suite}:s", "format", "2")
    for client in [old, new] {
      expectFailure(.unsupportedVersion) { try client.set("a", "2") }
      expectFailure(.unsupportedVersion) { try client.table.removeAll() }
    }
    expectFailure(.unsupportedVersion) { _ = try new.get("a") }
    #expect(try old.get("a") == "1")
    #expect(try server.command("HGET", "keepsake:{app:suite}:v", "a").text == "1")
  }

  @Test func keyOfAnotherProgramIsRefused() throws {
    try server.command("SET", "keepsake:{app:suite}:v", "secret")
    let client = TestClient(server)
    expectFailure(.engineFailed, reason: "WRONGTYPE") { try client.set("a", "1") }
    expectFailure(.engineFailed, reason: "WRONGTYPE") { _ = try client.get("a") }
    #expect(try server.command("EXISTS", "keepsake:{app:suite}:s") == .integer(0))
    #expect(try server.command("GET", "keepsake:{app:suite}:v").text == "secret")
  }

  @Test func synchronizesIfTheServerKeepsItsData() throws {
    let durable = TestClient(try TestServer(Self.durable))
    try durable.set("a", "1")
    try durable.table.synchronize()

    let volatile = TestClient(try TestServer(["--appendonly", "no"]))
    try volatile.set("a", "1")
    expectFailure(.misuse) { try volatile.table.synchronize() }
  }
}
