import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Two machines whose caches share a tier.
@Suite(.ownThread) struct TieredCacheTests {
  private let server = FakeTierServer()
  private let here: TierMachine
  private let there: TierMachine
  private let cache: DiskCache.Store
  private let other: DiskCache.Store

  init() throws {
    here = try TierMachine(server)
    there = try TierMachine(server)
    cache = here.cache()
    other = there.cache()
  }

  private func hasFailures() -> Bool { !here.failures.all.isEmpty || !there.failures.all.isEmpty }

  // MARK: Versions

  @Test func chunksAreCountedByTier() throws {
    try cache.set(Data([1, 2]), forKey: "k")
    func bytes(_ key: String) throws -> [UInt8]? {
      guard let source = try other.tiers?.openChunks(key) else { return nil }
      switch source.contents {
      case .file(let file): return try file.read(from: 0, count: source.size)
      case .data(let data): return Array(data)
      }
    }
    #expect(try bytes("k") == [1, 2] && bytes("k") == [1, 2] && bytes("l") == nil)
    var counts = other.statistics
    #expect(counts.hits == 2 && counts.sharedHits == 1)
    #expect(counts.misses == 1 && counts.sharedMisses == 1)
    there.tier.goAway()
    #expect(try bytes("k") == [1, 2] && bytes("l") == nil)
    counts = other.statistics
    #expect(counts.hits == 3 && counts.sharedHits == 1)
    #expect(counts.misses == 2 && counts.sharedMisses == 1)
  }

  @Test func refusedMessagesAreReportedOnce() async throws {
    _ = try other.get("k")
    let refusal = StorageError(.accessDenied, operation: "connect", remedy: "Allow the channels.")
    other.tiers?.tierIsLost(refusal)
    try await eventually("it is reported") { there.failures.all.map(\.code) == [.accessDenied] }
    other.tiers?.tierIsLost(refusal)
    // Each read asks the server.
    for value in 1...3 {
      try cache.set(value, forKey: "k")
      #expect(try other.model("k") == value)
    }
    #expect(there.failures.all.count == 1)
  }

  /// A stale entry of this machine was compared with the server's.
  @Test func staleEntryIsAMissOfTheServer() throws {
    let start = WallClock.now
    try cache.set("a", forKey: "k", expiry: .hours(1), keptFor: .hours(5), tags: [:])
    server.advance(by: 7_200)
    func get() throws -> Data? {
      try WallClock.$fixed.withValue(start + 7_200 * WallClock.second) { try cache.get("k") }
    }
    #expect(try get() == nil)
    #expect(cache.statistics.misses == 1 && cache.statistics.sharedMisses == 1)
    here.tier.goAway()
    #expect(try get() == nil)
    #expect(cache.statistics.misses == 2 && cache.statistics.sharedMisses == 1)
  }

  @Test func currentEntryIsReadWithoutTheServer() throws {
    try cache.set("a", forKey: "k")
    _ = here.tier.takeCalls()
    for _ in 0..<3 { #expect(try cache.model("k") == "a") }
    #expect(here.tier.takeCalls().isEmpty)
    #expect(try other.model("k") == "a")
    #expect(there.tier.takeCalls() == ["read"])
    for _ in 0..<3 { #expect(try other.model("k") == "a") }
    #expect(try other.contains("k") && other.entry("k")?.size == 1)
    #expect(there.tier.takeCalls().isEmpty)
    #expect(other.statistics.hits == 4 && other.statistics.sharedHits == 1)
    #expect(try other.get("missing") == nil)
    #expect(other.statistics.misses == 1 && other.statistics.sharedMisses == 1)
  }

  @Test func changeThereIsSeen() throws {
    try cache.set("a", forKey: "k")
    #expect(try other.model("k") == "a")
    try other.set("b", forKey: "k")
    #expect(try cache.model("k") == "b" && other.model("k") == "b")
    try cache.remove("k")
    #expect(try !other.contains("k") && other.entry("k") == nil && other.fileURL("k") == nil)
    #expect(try other.model("k", type: String.self) == nil)
    try other.set("c", forKey: "k")
    try other.set("d", forKey: "l")
    #expect(try cache.model("k") == "c" && cache.model("l") == "d")
    try other.removeAll()
    #expect(try cache.get("k") == nil && cache.get("l") == nil && other.get("k") == nil)
    #expect(server.entries.isEmpty && !hasFailures())
  }

  /// The answer of the server is older than the message.
  @Test(arguments: ["read", "readHead"])
  func messageDuringACheckIsNotLost(_ call: String) throws {
    try cache.set("a", forKey: "k")
    var reader = other
    var machine = there
    if call == "readHead" {
      #expect(try other.model("k") == "a")
      machine = try there.restarted(server)
      reader = machine.cache()
    }
    machine.tier.beforeReply(to: call) { [cache] in try? cache.set("b", forKey: "k") }
    #expect(try reader.model("k") == "a")
    #expect(try reader.model("k") == "b")
  }

  /// The message about another version arrives before the own value is stored on this machine.
  @Test func changeAfterTheOwnOneCounts() throws {
    here.tier.beforeReply(to: "write") { [other] in try? other.set("b", forKey: "k") }
    try cache.set("a", forKey: "k")
    #expect(try cache.model("k") == "b" && other.model("k") == "b")
  }

  @Test func entryIsComparedInANewProcess() throws {
    try cache.set("a", forKey: "same")
    try cache.set("a", forKey: "changed")
    try cache.set("a", forKey: "removed")
    let process = try here.restarted(server)
    here.tier.goAway()
    try other.set("b", forKey: "changed")
    try other.remove("removed")
    let restarted = process.cache()
    #expect(try restarted.model("same") == "a" && restarted.model("changed") == "b")
    #expect(try restarted.get("removed") == nil)
    // A small entry needs no second question.
    #expect(process.tier.takeCalls() == ["readHead", "readHead", "readHead"])
    #expect(try restarted.model("same") == "a" && restarted.model("changed") == "b")
    #expect(process.tier.takeCalls().isEmpty)
    #expect(try restarted.keys().sorted() == ["changed", "same"])
  }

  /// One of them stores what it has read from the server after the other one has set a new value.
  @Test func processesOfOneMachineSeeEachOthersChanges() throws {
    let second = try here.restarted(server)
    let process = second.cache()
    try other.set("a", forKey: "k")
    second.tier.hold()
    second.tier.beforeReply(to: "read") { [cache] in try? cache.set("b", forKey: "k") }
    #expect(try process.model("k") == "a")
    #expect(try cache.model("k") == "b")
    second.tier.deliver()
    #expect(try process.model("k") == "b")
    try process.set("c", forKey: "k")
    #expect(try cache.model("k") == "c")
  }

  // MARK: Times

  @Test func usesKeepAnIdleEntry() throws {
    let start = WallClock.now
    func text(afterMinutes minutes: Int64) throws -> String? {
      try WallClock.$fixed.withValue(start + minutes * 60 * WallClock.second) {
        try cache.model("k")
      }
    }
    try WallClock.$fixed.withValue(start) {
      try cache.set("a", forKey: "k", expiry: .idle(.minutes(40)))
    }
    _ = here.tier.takeCalls()
    for minute in Int64(1)...9 { #expect(try text(afterMinutes: minute) == "a") }
    #expect(here.tier.takeCalls().isEmpty)
    #expect(try text(afterMinutes: 10) == "a")
    #expect(here.tier.takeCalls() == ["touch"])
    for minute in Int64(11)...19 { #expect(try text(afterMinutes: minute) == "a") }
    #expect(here.tier.takeCalls().isEmpty)
    // It is gone on the server, which the next use that is told finds out.
    server.state.withLock { $0.entries = [:] }
    #expect(try text(afterMinutes: 20) == "a")
    #expect(try text(afterMinutes: 21) == nil)
  }

  @Test func onlyUsesKeepAnEntry() throws {
    try cache.set("a", forKey: "idle", expiry: .idle(.minutes(40)))
    try cache.set("a", forKey: "never")
    try cache.set("a", forKey: "after", expiry: .minutes(40))
    server.advance(by: 20 * 60)
    for key in ["idle", "never", "after"] { #expect(try other.model(key) == "a") }
    // A read that copies the value is a use. Days are left of one without an expiry.
    #expect(there.tier.takeCalls() == ["read", "touch", "read", "read"])
    server.advance(by: 10 * 86_400)
    #expect(try other.model("never") == "a" && other.contains("never"))
    let third = try TierMachine(server)
    #expect(try third.cache().contains("never") && third.cache().entry("never") != nil)
    #expect(there.tier.takeCalls() == [])
    #expect(third.tier.takeCalls() == ["readHead", "readHead"])
  }

  @Test func readingAfterTheExpiryKeepsNothing() throws {
    try cache.set("a", forKey: "k", expiry: .idle(.minutes(40)), keptFor: .hours(5), tags: [:])
    server.advance(by: 7_200)
    for _ in 0..<2 { #expect(try other.get("k") == nil) }
    #expect(!there.tier.takeCalls().contains("touch"))
    let stale = try #require(try there.cache().tiers?.find("k", noValue: false, tags: false).found)
    guard case .stale = stale else { return #expect(Bool(false), "\(stale)") }
  }

  @Test func useElsewhereKeepsAnIdleEntry() throws {
    let start = WallClock.now
    try cache.set("a", forKey: "k", expiry: .idle(.minutes(40)))
    #expect(try other.model("k") == "a")
    let value = try WallClock.$fixed.withValue(start + 41 * 60 * WallClock.second) {
      try other.model("k", type: String.self)
    }
    #expect(value == "a")
  }

  // MARK: Details

  @Test func tagsComeWithTheValue() throws {
    let tags = ["etag": "\"x\"", "": ""]
    try cache.set("a", forKey: "k", tags: tags)
    #expect(try cache.entry("k")?.tags == tags && other.entry("k")?.tags == tags)
    let most = ["k": String(repeating: "x", count: EntryDetails.largestTags - 5)]
    try cache.set("b", forKey: "k", tags: most)
    #expect(try cache.entry("k")?.tags == most && other.entry("k")?.tags == most)
    try cache.set("c", forKey: "k")
    #expect(try cache.entry("k")?.tags == [:] && other.entry("k")?.tags == [:])
  }

  @Test func largeValueStaysButItsRemovalIsSeen() throws {
    let large = Data(count: SharedEntry.largestPayload + 1)
    try cache.set(large, forKey: "k")
    #expect(server.entries["k"]?.bytes.count ?? 0 < 200)
    #expect(try cache.get("k") == large && other.get("k") == nil)
    let process = try here.restarted(server)
    #expect(try process.cache().get("k")?.count == large.count)
    try other.remove("k")
    #expect(try cache.get("k") == nil && process.cache().get("k") == nil)
    try cache.set(large, forKey: "k")
    try other.set("small", forKey: "k")
    #expect(try cache.model("k") == "small")
    #expect(!hasFailures())
  }

  @Test func piecesAreShared() async throws {
    let pieces = AsyncStream<[UInt8]> { stream in
      for number in 0..<100 { stream.yield([UInt8](repeating: UInt8(number), count: 100)) }
      stream.finish()
    }
    try await cache.set(chunks: pieces, forKey: "k", expiry: .hours(1))
    #expect(try cache.get("k")?.count == 10_000)
    #expect(try other.get("k") == cache.get("k"))
    try other.set(contentsOf: try #require(try cache.fileURL("k")), forKey: "copy")
    var bytes = Data()
    for try await piece in try #require(try cache.chunks("copy")) { bytes += piece }
    #expect(try bytes == other.get("copy") && bytes.count == 10_000)
    #expect(try cache.chunks("missing") == nil)
  }

  @Test func limitOfOneMachineIsItsOwn() throws {
    other.sizeLimit = 10_000
    try cache.set(Data(count: 100_000), forKey: "k")
    #expect(try other.get("k")?.count == 100_000)
    #expect(try other.contains("k") && other.entry("k")?.size == 100_000)
    #expect(try other.tiers?.openChunks("k")?.size == 100_000)
    #expect(try other.keys().isEmpty && !hasFailures())
    expectFailure(.misuse) { try other.set(Data(count: 100_000), forKey: "l") }
    #expect(server.entries["l"] == nil)
  }

  // MARK: Outages

  @Test func outageIsReportedOnce() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let failures = Failures()
    let tier = FakeTier(server)
    let engine = TieredCache(try directory.cache().files, tier, onFailure: failures.append)
    let options = WriteOptions(expiry: .never, isDurable: false)
    for round in 1...3 {
      tier.goAway()
      for _ in 0..<3 {
        try engine.write(
          Payload(bytes: Data([1]), kind: .data), forKey: "k", options, hook: commitDirectly)
      }
      // Background work may find out first that the server is away.
      waitUntil("the outage was not reported") { failures.all.count >= round }
      #expect(failures.all.count == round && failures.all.last?.code == .unreachable)
      tier.comeBack()
      #expect(try engine.read("k") == nil)
    }
  }

  // MARK: Damage

  @Test func changedBytesAreAMiss() throws {
    try cache.set(Data(count: 9_000), forKey: "k", expiry: .hours(1))
    var bytes = try #require(server.entries["k"]).bytes
    bytes[8_000] ^= 1
    server.put(bytes, forKey: "k")
    #expect(try other.get("k") == nil)
    #expect(there.failures.all.map(\.code) == [.damaged])
    // This machine has the value, of the right version.
    let process = try here.restarted(server)
    #expect(try process.cache().get("k") == Data(count: 9_000))
  }
}
