import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Caches of two machines on one server.
@Suite(.server, .threadPerTest) struct SharedCacheTests {
  private let server: TestServer
  private let here: CacheMachine
  private let there: CacheMachine
  private let cache: DiskCache.Store
  private let other: DiskCache.Store

  init() throws {
    server = try TestServer()
    here = try CacheMachine(server)
    there = try CacheMachine(server)
    cache = here.cache()
    other = there.cache()
  }

  private func expectNoFaults() { #expect(here.faults.isEmpty && there.faults.isEmpty) }

  /// The time that an entry has on the server, in milliseconds.
  private func time(of key: String) throws -> Int64 {
    let reply = try server.command("PTTL", "keepsake:{app:cache:pages}:e:\(key)")
    if case .integer(let time) = reply { return time }
    return -3
  }

  // MARK: Reading and writing

  @Test func valueIsReadThere() throws {
    let bytes = Data(randomBytes(100_000))
    try cache.set(bytes, forKey: "k", expiry: .hours(1))
    try cache.set([1.5: "a"], forKey: "model")
    try cache.set(Data(), forKey: "empty", tags: ["etag": "\"x\"", "": "n\u{E9}"])
    #expect(try other.get("k") == bytes && other.model("model") == [1.5: "a"])
    #expect(try other.get("empty") == Data())
    #expect(try other.entry("empty")?.tags == ["etag": "\"x\"", "": "n\u{E9}"])
    #expect(try other.entry("k")?.size == 100_000 && other.entry("k")?.expires != nil)
    #expect(try other.get("missing") == nil && !other.contains("missing"))
    #expect(other.statistics.sharedHits > 0 && other.statistics.sharedMisses > 0)
    expectNoFaults()
  }

  @Test func keysAreAnyText() throws {
    // By their bytes: two of them differ only in Unicode normalization.
    let names = TableNameTests.names + ["", "a\u{0}b", "e\u{301}", "\u{E9}", "}{:*?"]
    let keys = Set(names.map { Array($0.utf8) }).map { String(decoding: $0, as: UTF8.self) }
    for (number, key) in keys.enumerated() { try cache.set(number, forKey: key) }
    for (number, key) in keys.enumerated() {
      #expect(try other.model(key) == number, "\(key.debugDescription)")
    }
    for key in keys { try other.remove(key) }
    for key in keys {
      waitUntil("the removal did not arrive") { (try? cache.contains(key)) == false }
    }
    expectNoFaults()
  }

  @Test func changesArrive() throws {
    for number in 1...20 {
      let (writer, reader) = number.isMultiple(of: 2) ? (cache, other) : (other, cache)
      try writer.set("\(number)", forKey: "k")
      #expect(try writer.model("k") == "\(number)")
      reader.expectEventually("k", "\(number)")
    }
    try cache.remove("k")
    #expect(try cache.get("k") == nil)
    other.expectEventually("k", nil)
    for key in ["a", "b"] {
      try other.set(key, forKey: key)
      #expect(try cache.model(key) == key)
    }
    try other.removeAll()
    #expect(try other.get("a") == nil)
    cache.expectEventually("a", nil)
    cache.expectEventually("b", nil)
    try cache.set("c", forKey: "a")
    #expect(try cache.model("a") == "c" && other.model("a") == "c")
    #expect(try other.get("b") == nil)
    expectNoFaults()
  }

  /// Each thread reads its own changes at once, and all machines agree in the end.
  @Test func changesOfManyThreads() throws {
    let failures = Recorder<String>()
    let stores = [cache, other]
    onThreads(6) { thread in
      let store = stores[thread % 2]
      do {
        for number in 0..<100 {
          try store.set("\(number)", forKey: "own \(thread)")
          if try store.model("own \(thread)") != "\(number)" { failures.append("\(number)") }
          try store.set("\(thread) \(number)", forKey: "shared")
          _ = try store.get("shared")
        }
      } catch {
        failures.append("\(error)")
      }
    }
    #expect(failures.all == [])
    for thread in 0..<6 { for store in stores { store.expectEventually("own \(thread)", "99") } }
    waitUntil("the machines do not agree") {
      let texts = stores.map { try? $0.model("shared", type: String.self) }
      return texts[0] != nil && texts[0] == texts[1]
    }
    let last = try #require(try CacheMachine(server).newCache().model("shared", type: String.self))
    for store in stores { store.expectEventually("shared", last) }
    expectNoFaults()
  }

  @Test func largeValueStaysOnItsMachine() throws {
    let largest = Data(randomBytes(8 << 20))
    try cache.set(largest, forKey: "k")
    #expect(try other.get("k") == largest)
    let tooLarge = largest + [1]
    try cache.set(tooLarge, forKey: "k")
    #expect(try cache.get("k") == tooLarge)
    waitUntil("the change did not arrive") { (try? other.contains("k")) == false }
    try other.remove("k")
    waitUntil("the removal did not arrive") { (try? cache.contains("k")) == false }
    expectNoFaults()
  }

  // MARK: Times

  @Test func everyEntryHasATime() throws {
    let day: Int64 = 86_400_000
    try cache.set("a", forKey: "never")
    try cache.set("a", forKey: "hour", expiry: .hours(1))
    try cache.set("a", forKey: "idle", expiry: .idle(.days(2)))
    try cache.set("a", forKey: "kept", expiry: .hours(1), keptFor: .days(1), tags: [:])
    try cache.set("a", forKey: "date", expiry: .date(Date(timeIntervalSinceNow: 86_400)))
    let times: [(String, Int64)] = [
      ("never", 30 * day), ("hour", day / 24), ("idle", 2 * day), ("kept", day / 24 * 25),
      ("date", day),
    ]
    for (key, expected) in times {
      let time = try time(of: key)
      #expect(time <= expected && time > expected - day / 48, "\(key)")
    }
    #expect(try server.command("TTL", "keepsake:{app:cache:pages}:g") == .integer(-1))
  }

  /// The time is that of the server, whatever the clocks of the machines are.
  @Test func timeOfTheServerCounts() throws {
    try cache.set("a", forKey: "k", expiry: .hours(10))
    try server.command("PEXPIRE", "keepsake:{app:cache:pages}:e:k", "3600000")
    let entry = try #require(try other.entry("k"))
    let length = try #require(entry.expires).timeIntervalSince(entry.created)
    #expect(length <= 3_600 && length > 1_800)
    try server.command("PEXPIRE", "keepsake:{app:cache:pages}:e:k", "1")
    let third = try CacheMachine(server).newCache()
    waitUntil("the entry did not expire") { (try? third.contains("k")) == false }
  }

  @Test func usesKeepAnIdleEntry() throws {
    let (key, hour) = ("keepsake:{app:cache:pages}:e:k", Int64(3_600_000))
    try cache.set("a", forKey: "k", expiry: .idle(.hours(10)))
    try server.command("PEXPIRE", key, "\(hour)")
    #expect(try other.model("k") == "a")
    waitUntil("the use was not told") { (try? time(of: "k")) ?? 0 > 5 * hour }
    // Not each use is told.
    try server.command("PEXPIRE", key, "\(hour)")
    for _ in 0..<10 { #expect(try cache.model("k") == "a" && other.model("k") == "a") }
    for machine in [here, there] { _ = try machine.server.link.perform(Command("PING")) }
    #expect(try time(of: "k") <= hour)
    let process = try CacheMachine(server, in: there.directory).cache()
    #expect(try process.contains("k"))
    #expect(try time(of: "k") <= hour)
    #expect(try process.model("k") == "a")
    waitUntil("the use was not told") { (try? time(of: "k")) ?? 0 > 5 * hour }
  }

  /// The message about the new value has not arrived.
  @Test func useKeepsOnlyTheValueThatWasUsed() throws {
    try cache.set("a", forKey: "k", expiry: .idle(.hours(10)))
    let tier = try #require(cache.tiers?.tier)
    guard case .bytes(let bytes) = try tier.read("k", count: 100) else {
      Issue.record("the entry is missing")
      return
    }
    let version = try #require(try? SharedEntry(bytes)).version.name
    let missing = Recorder<UInt64>()
    for wrong in [version ^ 1, version &+ 1 << 56] {
      tier.touch("k", name: wrong, lifetime: .max) { missing.append(wrong) }
      waitUntil("the use was not refused") { missing.all.last == wrong }
    }
    #expect(try time(of: "k") <= 36_000_000)
    tier.touch("k", name: version, lifetime: 72_000 * WallClock.second) { missing.append(0) }
    waitUntil("the use was not told") { (try? time(of: "k")) ?? 0 > 36_000_000 }
    try other.removeAll()
    tier.touch("k", name: version, lifetime: .max) { missing.append(version) }
    waitUntil("the use was not refused") { missing.all.last == version }
    #expect(missing.all.count == 3)
  }

  // MARK: Separate caches

  @Test func cachesHaveNothingInCommon() throws {
    let stores = [
      cache, here.cache("images"), here.cache(.standard),
      try CacheMachine(server, app: "other").cache(),
      try CacheMachine(server) { $0.database = 1 }.cache(),
      try CacheMachine(server, localCaches: ["pages"]).newCache(),
    ]
    #expect(stores[5].tiers == nil && here.newCache("keepsake-valkey").tiers == nil)
    #expect(here.newCache(.memory).tiers == nil)
    let own = DiskCache.Name("own", in: URL(filePath: here.directory.path))
    #expect(here.newCache(own).tiers == nil)
    for (number, store) in stores.enumerated() { try store.set("\(number)", forKey: "k") }
    for (number, store) in stores.enumerated() { #expect(try store.model("k") == "\(number)") }
    for (number, store) in stores.enumerated().dropFirst() {
      try store.removeAll()
      #expect(try store.get("k") == nil)
      #expect(try cache.model("k") == "0")
      for (later, rest) in stores.enumerated().dropFirst(number + 1) {
        #expect(try rest.model("k") == "\(later)")
      }
    }
    #expect(try other.model("k") == "0")
  }

  @Test func settingsAndCachesOfOneNameAreApart() throws {
    let settings = TestClient(server, suite: "pages")
    try settings.set("k", "1")
    try cache.set("a", forKey: "k")
    try cache.removeAll()
    #expect(try settings.get("k") == "1")
    let backing = ValkeyBacking(settings.server)
    #expect(try backing.suites(app: "app") == ["pages"])
  }

  // MARK: Other programs

  @Test func foreignBytesAreAMissAndReported() throws {
    let key = "keepsake:{app:cache:pages}:e:k"
    try cache.set("a", forKey: "x")
    try server.command("SET", key, "hello")
    #expect(try other.get("k") == nil)
    let generation = try #require(
      try here.server.link.perform(
        Command(reading: "GET", "keepsake:{app:cache:pages}:g")
      ).bytes)
    for rest in [[], Array("hello".utf8), randomBytes(60), randomBytes(10_000)] {
      var command = Command("SET", key)
      command.append(generation + rest)
      _ = try here.server.link.perform(command)
      #expect(try other.get("k") == nil && cache.get("k") == nil)
    }
    #expect(there.reports.all.contains { $0.code == .damaged && $0.key == "k" })
    try cache.set("b", forKey: "k")
    other.expectEventually("k", "b")
  }

  @Test func keyOfAnotherTypeIsAMissAndReported() throws {
    try cache.set("a", forKey: "x")
    try server.command("HSET", "keepsake:{app:cache:pages}:e:k", "a", "b")
    #expect(try other.get("k") == nil)
    #expect(there.reports.all.contains { $0.code == .engineFailed })
    try cache.set("b", forKey: "k")
    other.expectEventually("k", "b")
    // Another program has taken the place of the generation.
    try server.command("SET", "keepsake:{app:cache:pages}:g", "short")
    let third = try CacheMachine(server)
    #expect(try third.newCache().get("k") == nil)
    try third.newCache().set("c", forKey: "k")
    other.expectEventually("k", "c")
  }

  /// A fetch repairs the key, and no lease is left.
  @Test func keyOfAnotherTypeIsReplacedByAFetch() async throws {
    try server.command("HSET", "keepsake:{app:cache:pages}:e:k", "a", "b")
    for store in [cache, other] { #expect(try await store.fetch("k") { "c" } == "c") }
    #expect(try CacheMachine(server).newCache().model("k") == "c")
    let keys = ["p", "w"].map { "keepsake:{app:cache:pages}:\($0):k" }
    let leases = try server.command(["EXISTS"] + keys)
    #expect(leases == .integer(0))
  }

  @Test func userWhoMayNotPublishChangesNothing() throws {
    try cache.set("old", forKey: "k")
    try server.command("ACL", "SETUSER", "ann", "on", ">pw", "~*", "resetchannels", "+@all")
    let machine = try CacheMachine(server) { $0.logIn(as: "ann", "pw") }
    let restricted = machine.newCache()
    #expect(try restricted.model("k") == "old")
    try restricted.set("new", forKey: "k")
    #expect(machine.reports.all.contains { $0.code == .accessDenied })
    expectFailure(.accessDenied) { try restricted.remove("k") }
    expectFailure(.accessDenied) { try restricted.removeAll() }
    #expect(try other.model("k") == "old")
  }

  /// Reads ask the server, and fetches that wait ask it again and again.
  @Test func userWhoMayNotSubscribeSeesChanges() async throws {
    try server.command(
      "ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", "-subscribe")
    let machine = try CacheMachine(server) { $0.logIn(as: "bob", "pw") }
    let restricted = machine.newCache()
    for text in ["a", "b"] {
      try cache.set(text, forKey: "k")
      #expect(try restricted.model("k") == text)
      try restricted.set(text + text, forKey: "l")
      #expect(try restricted.model("l") == text + text)
    }
    waitUntil("the refusal was not reported") {
      machine.reports.all.contains { $0.code == .accessDenied }
    }
    let gate = Gate()
    let producer = try await cache.startFetch("m", of: 1, at: gate)
    let waiting = Task { try await restricted.fetch("m") { 2 } }
    try await restricted.waitForWaiter()
    await gate.open()
    #expect(try await producer.value == 1)
    #expect(try await waiting.value == 1)
    #expect(machine.reports.all.count { $0.code == .accessDenied } == 1)
  }
}

extension Reply {
  fileprivate var bytes: [UInt8]? {
    if case .bytes(let bytes) = self { return bytes }
    return nil
  }
}
