import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// Tags of entries, and fetches that revalidate values or keep that there is none.
@Suite(.ownThread, .temporaryStorage, .timeLimit(.minutes(20))) struct RevalidationTests {
  private let start = WallClock.now

  /// Runs `body` while the clock stands still, this many minutes after the beginning of the test.
  private func after(_ minutes: Int64, _ body: () async throws -> Void) async throws {
    try await WallClock.$fixed.withValue(start + minutes * 60 * WallClock.second, operation: body)
  }

  @Test(arguments: [DiskCache.Name.standard, .memory])
  func tagsAreStoredWithTheValue(cache: DiskCache.Name) throws {
    let store = DiskCache.named(cache)
    let tags = ["etag": "\"33a64df5\"", "type": "image/png", "": "", "n\u{E9}": "\u{1F44D}"]
    try store.set(Data([1]), forKey: "k", tags: tags)
    #expect(try store.get("k") == Data([1]))
    #expect(try store.entry("k")?.tags == tags && store.entry("k")?.keptUntil == nil)
    #expect(try store.get("k") == Data([1]), "read again")
    #expect(try store.entry("k")?.tags == tags)
    try store.set("second", forKey: "k", tags: ["a": "b"])
    #expect(try store.model("k") == "second" && store.entry("k")?.tags == ["a": "b"])
    try store.set("plain", forKey: "k")
    #expect(try store.model("k") == "plain" && store.entry("k")?.tags == [:])
    try store.set("third", forKey: "k", tags: tags)
    try store.set(nil as String?, forKey: "k", tags: tags)
    #expect(try !store.contains("k") && store.totalSize == 0)
    #expect(store.statistics.damaged == 0)
  }

  @Test func tagsThatAreTooLongAreRefused() throws {
    let store = DiskCache.shared
    try store.set("old", forKey: "k")
    let limit = EntryDetails.largestTags
    try store.set("v", forKey: "l", tags: ["k": String(repeating: "Q", count: limit - 5)])
    #expect(try store.entry("l")?.tags["k"]?.count == limit - 5)
    let error = expectFailure(.misuse) {
      try store.set("new", forKey: "k", tags: ["k": String(repeating: "Q", count: limit - 4)])
    }
    #expect(error?.description.contains("QQQ") == false)
    #expect(try store.model("k") == "old")
  }

  /// With a long key, the sidecar is too long to be overwritten at once.
  @Test(arguments: [3, 1_000, 3_900, 60_000])
  func entriesOfAllKindsReplaceEachOther(keyLength: Int) throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.cache()
    let key = String(repeating: "k", count: keyLength)
    var generator = SplitMix64(seed: UInt64(keyLength))
    for round in 0..<40 {
      let value = Data(repeating: UInt8(round), count: round * 37)
      switch Int.random(in: 0..<4, using: &generator) {
      case 0: try store.set(value, forKey: key, expiry: round.isMultiple(of: 2) ? .never : .days(1))
      case 1:
        let tag = String(repeating: "x", count: .random(in: 0..<900, using: &generator))
        try store.set(value, forKey: key, expiry: .days(1), tags: ["t": tag])
        #expect(try directory.cache().entry(key)?.tags == ["t": tag])
      case 2: try store.set(value, forKey: key, expiry: .days(1), keptFor: .days(1), tags: [:])
      default:
        let options = WriteOptions(expiry: .after(86_400 * WallClock.second), isDurable: false)
        try store.engine.writeNoValue(forKey: key, options, hook: commitDirectly)
        for reader in [store, directory.cache()] {
          #expect(try reader.get(key) == nil && !reader.contains(key) && reader.keys() == [])
          guard case .noValue = try reader.engine.find(key, noValue: true, tags: false).found else {
            Issue.record("round \(round): no record")
            continue
          }
          #expect(try reader.removeExpired() == 0)
        }
        continue
      }
      for reader in [store, directory.cache()] {
        #expect(try reader.get(key) == value, "round \(round)")
        #expect(try reader.keys() == [key])
      }
    }
    try store.remove(key)
    #expect(try store.totalSize == 0)
    #expect(try store.removeExpired() == 0 && store.totalSize == 0)
    #expect(store.statistics.damaged == 0)
  }

  // MARK: Revalidating

  @Test(arguments: [DiskCache.Name.standard, .memory])
  func anUnchangedEntryLivesOnAndOnlyItsSidecarIsWritten(cache: DiskCache.Name) async throws {
    let store = DiskCache.named(cache)
    let body = Data(repeating: 7, count: 100_000)
    func fetch(_ result: DiskCache.FetchResult<Data>) async throws -> (Data?, [String: String]?) {
      var seen: [String: String]?
      let value = try await DiskCache.fetch("k", expiry: .minutes(5), cache: cache) {
        (old: DiskCache.CachedValue<Data>?) in
        seen = old?.tags ?? ["none": ""]
        if let old { #expect(old.value == body && old.age >= .seconds(300)) }
        return result
      }
      return (value?.value, seen)
    }
    #expect(try await fetch(.value(body, tags: ["etag": "1"])) == (body, ["none": ""]))
    #expect(try await fetch(.gone) == (body, nil), "fresh")
    try await after(6) { () async throws in
      let written = Locked(0)
      let plan = FaultPlan(decide: { event in
        if event.call == .write { written.withLock { $0 += event.bytes.count } }
        return .proceed
      })
      let again = try await FaultPlan.$current.withValue(plan) { try await fetch(.unchanged) }
      #expect(again == (body, ["etag": "1"]))
      #expect(written.withLock { $0 } < 1_000, "only the sidecar")
      #expect(try store.get("k") == body && store.entry("k")?.tags == ["etag": "1"])
      #expect(try store.keys() == ["k"])
      #expect(try await fetch(.gone) == (body, nil), "fresh again")
    }
    try await after(12) { () async throws in
      let new = DiskCache.FetchResult<Data>.unchanged(tags: ["etag": "2"], expiry: .never)
      #expect(try await fetch(new) == (body, ["etag": "1"]))
      #expect(try store.entry("k")?.tags == ["etag": "2"] && store.entry("k")?.expires == nil)
    }
    #expect(store.statistics.damaged == 0)
  }

  @Test func whatHappensToTheEntryMeanwhileWins() async throws {
    let store = DiskCache.shared
    for (change, isKept) in [("set", true), ("remove", false), ("evict", true)] {
      try store.set("old", forKey: "k", expiry: .minutes(5), keptFor: .hours(1), tags: [:])
      try await after(6) { () async throws in
        let value = try await store.fetch("k", expiry: .minutes(5)) {
          (old: DiskCache.CachedValue<String>?) in
          #expect(old?.value == "old")
          switch change {
          case "set": try store.set("newer", forKey: "k")
          case "remove": try store.remove("k")
          // As by another process.
          default: try store.engine.remove("k", by: nil, hook: commitDirectly)
          }
          return .unchanged
        }
        #expect(value?.value == "old")
        #expect(try store.model("k") == (isKept ? (change == "set" ? "newer" : "old") : nil))
      }
      try store.remove("k")
    }
  }

  @Test func aResponseThatIsStaleAtOnceIsKeptForRevalidation() async throws {
    let store = DiskCache.shared
    var validators: [String?] = []
    for round in 0..<3 {
      let value = try await store.fetch("k", expiry: .minutes(5)) {
        (old: DiskCache.CachedValue<String>?) in
        validators.append(old?.tags["etag"])
        // What "Cache-Control: no-cache" asks for.
        if round > 0 { return .unchanged(expiry: .seconds(0)) }
        return .value("v", tags: ["etag": "1"], expiry: .seconds(0))
      }
      #expect(value?.value == "v" && value?.isStale == false)
      #expect(try store.get("k") == nil && store.keys() == [])
    }
    #expect(validators == [nil, "1", "1"])
  }

  @Test func unchangedWithoutAnOldEntryIsAnError() async throws {
    let error = await #expect(throws: StorageError.self) {
      try await DiskCache.fetch("k", expiry: .never) {
        (_: DiskCache.CachedValue<Int>?) in .unchanged
      }
    }
    #expect(error?.code == .misuse)
  }

  // MARK: Missing values

  @Test(arguments: [DiskCache.Name.standard, .memory])
  func thatThereIsNoValueIsKeptForAnExpiryOfItsOwn(cache: DiskCache.Name) async throws {
    let store = DiskCache.named(cache)
    var count = 0
    func fetch(_ value: String?) async throws -> String? {
      try await DiskCache.fetch("k", expiry: .hours(1), nilExpiry: .minutes(1), cache: cache) {
        (_: DiskCache.CachedValue<String>?) in
        count += 1
        return .value(value)
      }?.value
    }
    try await after(0) { () async throws in
      for _ in 0..<3 { #expect(try await fetch(nil) == nil) }
    }
    #expect(count == 1)
    #expect(try !store.contains("k") && store.keys() == [] && store.entry("k") == nil)
    try await after(2) { () async throws in
      #expect(try await fetch("found") == "found" && count == 2)
      #expect(try await fetch(nil) == "found" && count == 2)
    }
    try await after(70) { () async throws in #expect(try await fetch(nil) == nil && count == 3) }
    try await after(72) { () async throws in
      #expect(try store.removeExpired() <= 1 && store.totalSize == 0)
    }
    // A set replaces the record.
    #expect(try await fetch(nil) == nil)
    try store.set("set", forKey: "k")
    #expect(try await fetch(nil) == "set")
    try store.remove("k")
    #expect(try await fetch("new") == "new")
    #expect(store.statistics.damaged == 0)
  }

  @Test func recordsOfMissingValuesCountAndAreEvicted() async throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.cache()
    let options = WriteOptions(expiry: .after(86_400 * WallClock.second), isDurable: false)
    for number in 0..<40 {
      try store.engine.writeNoValue(forKey: "k\(number)", options, hook: commitDirectly)
    }
    #expect(try store.totalSize == 40 * 4_096)
    store.sizeLimit = 10 * 4_096
    try store.set("v", forKey: "v")
    try await eventually("evicted") { try store.totalSize <= 10 * 4_096 }
    #expect(try store.model("v") == "v")
  }

  // MARK: Joining a look-up

  /// A fetch that joins another one while that looks for the entry.
  private func joinLookUp<T: Sendable>(
    _ first: @escaping @Sendable () async throws -> Void,
    _ second: @escaping @Sendable () async throws -> T
  ) async throws -> T {
    let gate = ThreadGate()
    let plan = FaultPlan(decide: { event in
      if event.call == .stat { gate.wait() }
      return .proceed
    })
    let leader = FaultPlan.$current.withValue(plan) { Task { try await first() } }
    let store = DiskCache.shared
    try await eventually("one fetch leads") { InFlightFetches.shared.isFetching(.init(store, "k")) }
    let other = Task { try await second() }
    try await eventually("the other one waits") {
      InFlightFetches.shared.waiterCount(of: store) == 1
    }
    gate.open()
    try await leader.value
    return try await other.value
  }

  @Test func aFetchThatJoinsAPlainOneGetsTheTags() async throws {
    try DiskCache.shared.set("v", forKey: "k", tags: ["etag": "1"])
    let tags = try await joinLookUp {
      _ = try await DiskCache.fetch("k") { "unused" }
    } _: {
      try await DiskCache.fetch("k", expiry: .never) { (_: DiskCache.CachedValue<String>?) in
        .value("unused")
      }?.tags
    }
    #expect(tags == ["etag": "1"])
  }

  @Test func aPlainFetchThatJoinsAnswerOfNoValueProducesOne() async throws {
    let absent = { @Sendable () async throws in
      let value = try await DiskCache.fetch("k", expiry: .never, nilExpiry: .days(1)) {
        (_: DiskCache.CachedValue<String>?) in .value(nil)
      }
      #expect(value == nil)
    }
    try await absent()
    #expect(try await joinLookUp(absent) { try await DiskCache.fetch("k") { "new" } } == "new")
    #expect(DiskCache.model("k") == "new")
  }

  // MARK: Jitter

  @Test func jitterSpreadsExpiries() throws {
    let store = DiskCache.named(.memory)
    var ends: Set<Date> = []
    let now = WallClock.now
    let start = Date(timeIntervalSince1970: Double(now) / 1e9)
    try WallClock.$fixed.withValue(now) {
      for number in 0..<200 {
        try store.set(number, forKey: "\(number)", expiry: .minutes(5).jitter(0.1))
        let end = try #require(try store.entry("\(number)")?.expires)
        #expect((269.9...300.1).contains(end.timeIntervalSince(start)))
        ends.insert(end)
      }
    }
    let sorted = ends.sorted()
    #expect(ends.count > 190 && sorted[sorted.count - 1].timeIntervalSince(sorted[0]) > 15)
    #expect(DiskCache.Expiry.minutes(5).jitter(0) == .minutes(5))
    #expect(DiskCache.Expiry.seconds(10).jitter(.nan) == .seconds(10))
    #expect(DiskCache.Expiry.hours(1.5).jitter(7) == .hours(1.5).jitter(1))
    #expect("\(DiskCache.Expiry.days(1).jitter(0.5))" == ".seconds(86400.0).jitter(0.5)")
    #expect(StoredExpiry(.idle(.hours(1)).jitter(0.5), now: 0) == .idle(3_600 * WallClock.second))
    for _ in 0..<100 {
      for jitter in [0.0, 0.5, 1] {
        let stored = StoredExpiry(.seconds(1e-9).jitter(jitter), now: 0)
        #expect(stored == .after(1))
        _ = StoredExpiry(.days(Double.greatestFiniteMagnitude).jitter(jitter), now: 0)
        _ = StoredExpiry(.seconds(9e9).jitter(jitter), now: 0)
      }
    }
  }
}
