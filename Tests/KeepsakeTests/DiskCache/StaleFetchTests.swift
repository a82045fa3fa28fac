import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

private struct Offline: Error {}

/// Fetches of entries that have expired and are kept.
@Suite(.ownThread, .temporaryStorage, .timeLimit(.minutes(20))) struct StaleFetchTests {
  private let start = WallClock.now
  private let failures = Failures()
  /// In a directory of its own.
  private let store: DiskCache.Store

  init() throws { store = try TemporaryDirectory().cache(failures: failures) }

  /// Stores an entry that has expired after five minutes, and is kept for hours.
  private func setOld() throws {
    try store.set("old", forKey: "k", expiry: .minutes(5), keptFor: .hours(10), tags: [:])
  }

  /// Runs `body` while the clock stands still, this many minutes after the beginning of the test.
  private func after(
    _ minutes: Int64, isolation: isolated (any Actor)? = #isolation,
    _ body: () async throws -> Void
  ) async throws {
    try await WallClock.$fixed.withValue(
      start + minutes * 60 * WallClock.second, operation: body, isolation: isolation)
  }

  private func wait(
    until condition: () async throws -> Bool, isolation: isolated (any Actor)? = #isolation
  ) async throws {
    try await eventually("the fetch did not end", condition)
  }

  private func fetch(
    _ value: String, _ cache: DiskCache.Name = .standard
  ) async throws -> String {
    try await DiskCache.fetch(
      "k", expiry: .minutes(5), staleFor: .hours(1), staleIfFailing: .hours(2), cache: cache
    ) {
      value
    }
  }

  @Test(arguments: [DiskCache.Name.standard, .memory])
  func aStaleEntryIsReturnedAtOnceAndProducedAnewInTheBackground(
    cache: DiskCache.Name
  ) async throws {
    let store = DiskCache.named(cache)
    #expect(try await fetch("first", cache) == "first")
    #expect(try await fetch("unused", cache) == "first")
    try await after(6) { () async throws in
      // Hidden from all other calls, but kept.
      #expect(try store.get("k") == nil && !store.contains("k") && store.entry("k") == nil)
      #expect(try store.keys() == [] && store.fileURL("k") == nil)
      #expect(try store.removeExpired() == 0 && store.keys() == [])
      #expect(try await fetch("second", cache) == "first")
      try await wait { try store.model("k") == "second" }
      // Until then, a fetch that finds no value waits for this one.
      try await wait { InFlightFetches.shared.isEmpty(for: store) }
      #expect(try await fetch("unused", cache) == "second")
    }
    // Past both ends, the caller waits for the new value.
    try await after(6 + 6 + 180) { () async throws in
      #expect(try store.removeExpired() == 1)
      #expect(try await fetch("third", cache) == "third")
    }
    try await wait { InFlightFetches.shared.isEmpty(for: store) }
  }

  @Test(arguments: [DiskCache.Name.standard, .memory])
  func aFetchIsCountedOnce(cache: DiskCache.Name) async throws {
    let store = DiskCache.named(cache)
    func expect(hits: Int, misses: Int, sourceLocation: SourceLocation = #_sourceLocation) {
      #expect(
        store.statistics == DiskCache.Statistics(hits: hits, misses: misses),
        sourceLocation: sourceLocation)
    }
    _ = try await fetch("first", cache)
    expect(hits: 0, misses: 1)
    _ = try await fetch("unused", cache)
    expect(hits: 1, misses: 1)
    try await after(6) {
      // The producer in the background is no fetch of its own.
      _ = try await fetch("second", cache)
      try await wait { InFlightFetches.shared.isEmpty(for: store) }
      expect(hits: 1, misses: 2)
    }
    try await after(6 + 6 + 90) {
      let old = try await DiskCache.fetch(
        "k", expiry: .minutes(5), staleFor: .hours(1), staleIfFailing: .hours(2), cache: cache
      ) { () async throws -> String in throw Offline() }
      #expect(old == "second")
      expect(hits: 1, misses: 3)
      // Until the next attempt, the old value is returned at once.
      #expect(try await fetch("unused", cache) == "second")
      expect(hits: 1, misses: 4)
    }
  }

  @Test func aSweepRemovesAStaleEntryAtItsLastEnd() async throws {
    let directory = try TemporaryDirectory()
    let store = directory.cache()
    try store.set("v", forKey: "k", expiry: .minutes(5), keptFor: .hours(1), tags: [:])
    let entry = try #require(try store.entry("k"))
    #expect(entry.keptUntil == entry.expires?.addingTimeInterval(3_600) && entry.tags == [:])
    let size = try store.totalSize
    for (minutes, isKept) in [(4, true), (6, true), (64, true), (66, false)] {
      try WallClock.$fixed.withValue(start + Int64(minutes) * 60 * WallClock.second) {
        let count = try directory.cache().removeExpired()
        #expect(count == (isKept ? 0 : 1))
        #expect(try directory.cache().keys() == (minutes < 5 ? ["k"] : []))
        #expect(try store.totalSize == (isKept ? size : 0))
      }
    }
  }

  @Test func aThousandCallsOnAStaleKeyRunOneProducerAndNoneWaits() async throws {
    let calls = 1_000
    #expect(try await fetch("old") == "old")
    try await after(6) { () async throws in
      let gate = Gate()
      @Sendable func fetch() async throws -> String {
        try await DiskCache.fetch("k", expiry: .minutes(5), staleFor: .hours(1)) {
          await gate.pass()
          return "new"
        }
      }
      let values = try await withThrowingTaskGroup(of: String.self) { group in
        for _ in 0..<calls { group.addTask { try await fetch() } }
        // The producer does not end before all callers have their value.
        return try await group.reduce(into: []) { $0.append($1) }
      }
      #expect(values == Array(repeating: "old", count: calls))
      try await wait { await gate.entered == 1 }
      await gate.open()
      try await wait { DiskCache.model("k") == "new" }
      #expect(await gate.entered == 1)
      print("proof: stale fetches: \(calls) calls, one producer, none waited")
    }
    try await wait { InFlightFetches.shared.isEmpty(for: DiskCache.shared) }
  }

  @Test func aProducerThatFailsAHundredTimesGivesAHundredStaleAnswers() async throws {
    try setOld()
    let gate = Gate()
    @Sendable func fetch() async throws -> String {
      try await store.fetch("k", expiry: .minutes(5), staleFor: .hours(10)) {
        await gate.enter()
        throw Offline()
      }
    }
    try await ReportLimiter.$period.withValue(.seconds(3_600)) {
      for round in 0..<100 {
        // More than the longest delay between two attempts.
        try await after(6 + 2 * Int64(round)) { () async throws in
          #expect(try await fetch() == "old")
          try await wait { await gate.entered == round + 1 && store.backoff.isWaiting("k") }
          // Until the delay has passed, there is no further attempt.
          #expect(try await fetch() == "old")
          try await wait { InFlightFetches.shared.isEmpty(for: store) }
          #expect(await gate.entered == round + 1)
        }
      }
    }
    let reports = failures.all
    #expect(reports.map(\.code) == [.fetchFailed] && reports.first?.key == "k")
    #expect(reports.first?.underlyingError is Offline)
    print("proof: failing producer: 100 failures, \(reports.count) report, 200 stale answers")
  }

  @Test func theDelayDoublesUpToAMinuteAndEndsWithASuccess() throws {
    let backoff = FetchBackoff()
    func isWaiting(_ key: String, after delay: Int64 = 0) -> Bool {
      WallClock.$fixed.withValue(start + delay) { backoff.isWaiting(key) }
    }
    func noteFailure(_ key: String) {
      WallClock.$fixed.withValue(start) { backoff.noteFailure(key) }
    }
    for delay in [1, 2, 4, 8, 16, 32, 60, 60] {
      noteFailure("k")
      let end = Int64(delay) * WallClock.second
      #expect(isWaiting("k", after: end - WallClock.second / 2))
      #expect(!isWaiting("k", after: end + 1_000_000))
      #expect(!isWaiting("l"))
    }
    backoff.noteSuccess("k")
    #expect(!isWaiting("k"))
    noteFailure("k")
    #expect(isWaiting("k") && !isWaiting("k", after: WallClock.second + 1_000_000))
    for number in 0..<3_000 { noteFailure("k\(number)") }
    #expect(isWaiting("k2999"))
  }

  @Test func anOldValueIsReturnedOnlyWhileTheProducerFails() async throws {
    let gate = Gate()
    @Sendable func fetch(_ value: String?) async throws -> String {
      try await store.fetch("k", expiry: .minutes(5), staleIfFailing: .hours(2)) {
        await gate.enter()
        guard let value else { throw Offline() }
        return value
      }
    }
    await #expect(throws: Offline.self) { try await fetch(nil) }
    #expect(try await fetch("old") == "old" && failures.all.isEmpty)
    try await after(6) { () async throws in
      #expect(try await fetch(nil) == "old")
      #expect(failures.all.map(\.code) == [.fetchFailed])
      let before = await gate.entered
      #expect(try await fetch("unused") == "old")
      #expect(await gate.entered == before, "the delay has not passed")
      // A fetch that does not accept an expired value produces one.
      await #expect(throws: Offline.self) {
        try await store.fetch("k") { () async throws -> String in throw Offline() }
      }
    }
    try await after(8) { () async throws in #expect(try await fetch("new") == "new") }
    try await after(8 + 6 + 120) { () async throws in
      await #expect(throws: Offline.self, "too old") { try await fetch(nil) }
    }
  }

  @Test func waitersThatAcceptAnOldValueGetItWhenTheProducerFails() async throws {
    try setOld()
    try await after(6) { () async throws in
      let gate = Gate()
      @Sendable func fetch() async throws -> String {
        try await store.fetch("k", expiry: .minutes(5), staleIfFailing: .hours(1)) {
          await gate.pass()
          throw Offline()
        }
      }
      let tasks = (0..<50).map { _ in Task { try await fetch() } }
      try await wait { InFlightFetches.shared.waiterCount(of: store) == 49 }
      let strict = Task { try await store.fetch("k") { "strict" } }
      try await wait { InFlightFetches.shared.waiterCount(of: store) == 50 }
      await gate.open()
      for task in tasks { #expect(try await task.value == "old") }
      await #expect(throws: Offline.self) { try await strict.value }
    }
  }

  @Test func typedKeysHaveTheSameForms() async throws {
    let key = DiskCache.Key<String>("k", expiry: .minutes(5), staleIfFailing: .hours(2))
    #expect(key.staleIfFailing == .hours(2))
    DiskCache[key] = "old"
    let entry = try #require(try DiskCache.shared.entry(key))
    #expect(entry.keptUntil == entry.expires?.addingTimeInterval(7_200))
    try await after(6) { () async throws in
      let gate = Gate()
      // The call that produces waits; one that accepts the old value does not.
      let producer = Task {
        try await DiskCache.fetch(key) {
          await gate.pass()
          return "new"
        }
      }
      try await wait { InFlightFetches.shared.isFetching(.init(DiskCache.shared, "k")) }
      #expect(try await DiskCache.fetch(key, staleFor: .hours(1)) { "unused" } == "old")
      await gate.open()
      #expect(try await producer.value == "new")
    }
    try await after(12) { () async throws in
      #expect(try await DiskCache.fetch(key, staleFor: .hours(1)) { "newer" } == "new")
      try await wait { DiskCache[key] == "newer" }
      try await wait { InFlightFetches.shared.isEmpty(for: DiskCache.shared) }
    }
    try await after(18) { () async throws in
      let hit = try await DiskCache.fetch(key) { old in
        #expect(old?.value == "newer" && old?.isStale == true && old?.age == .minutes(6))
        return .unchanged(tags: ["t": "1"])
      }
      #expect(hit?.value == "newer" && hit?.isStale == false && hit?.tags == ["t": "1"])
    }
    let plain = DiskCache.Key<String>("plain", expiry: .minutes(5))
    DiskCache[plain] = "v"
    #expect(try DiskCache.shared.entry(plain)?.keptUntil == nil)
  }

  /// A hit has what was stored with the value, whether it was just verified or is known.
  @Test(arguments: [DiskCache.Name.standard, .memory])
  func aValueHasItsAgeAndTags(cache: DiskCache.Name) async throws {
    let store = DiskCache.named(cache)
    func fetch(_ value: String) async throws -> DiskCache.CachedValue<String>? {
      try await DiskCache.fetch(
        "k", expiry: .minutes(5), staleFor: .hours(1), cache: cache
      ) { (_: DiskCache.CachedValue<String>?) in .value(value, tags: ["v": value]) }
    }
    try await after(0) { () async throws in
      let new = try await fetch("a")
      #expect(new?.value == "a" && new?.tags == ["v": "a"] && new?.age == .zero)
      #expect(new?.isStale == false)
    }
    try await after(2) { () async throws in
      for _ in 0..<2 {
        let hit = try await fetch("unused")
        #expect(hit?.value == "a" && hit?.tags == ["v": "a"] && hit?.age == .minutes(2))
        #expect(hit?.isStale == false)
      }
    }
    try await after(6) { () async throws in
      let old = try await fetch("b")
      #expect(old?.value == "a" && old?.tags == ["v": "a"] && old?.age == .minutes(6))
      #expect(old?.isStale == true)
      try await wait { InFlightFetches.shared.isEmpty(for: store) }
      let new = try await fetch("unused")
      #expect(new?.value == "b" && new?.isStale == false)
    }
  }

  /// A call that accepts no old value does not get one from a call that does.
  @Test func aStrictCallWaitsForTheNewValue() async throws {
    try setOld()
    try await after(6) { () async throws in
      let gate = Gate()
      @Sendable func produce() async throws -> String {
        await gate.pass()
        return "new"
      }
      let old = try await store.fetch("k", expiry: .minutes(5), staleFor: .hours(1), produce)
      #expect(old == "old")
      let strict = Task { try await store.fetch("k", expiry: .minutes(5), produce) }
      try await wait { InFlightFetches.shared.waiterCount(of: store) == 1 }
      await gate.open()
      #expect(try await strict.value == "new")
      #expect(await gate.entered == 1)
    }
  }

  /// What is set between the look-up and the producer is newer than what the producer makes.
  @Test func aSetDuringTheLookUpWins() async throws {
    try setOld()
    try await after(6) { () async throws in
      let isFirst = Locked(true)
      let plan = FaultPlan { event in
        // The look-up has begun.
        let begins = isFirst.withLock { isFirst in
          defer { if event.call == .read { isFirst = false } }
          return isFirst && event.call == .read
        }
        if begins {
          FaultPlan.$current.withValue(nil) {
            #expect(throws: Never.self) { try store.set("set", forKey: "k") }
          }
        }
        return .proceed
      }
      _ = try await FaultPlan.$current.withValue(plan) {
        try await store.fetch("k", expiry: .minutes(5), staleFor: .hours(1)) { "produced" }
      }
      #expect(!isFirst.withLock { $0 })
      try await wait { InFlightFetches.shared.isEmpty(for: store) }
      #expect(try store.model("k") == "set")
    }
  }

  /// Nobody waits for it, so only the report tells.
  @Test func aProducerInTheBackgroundThatTakesTooLongHasFailed() async throws {
    try setOld()
    let gate = Gate()
    try await after(6) { () async throws in
      for _ in 0..<2 {
        let old = try await store.fetch(
          "k", expiry: .minutes(5), staleFor: .hours(1), timeout: .milliseconds(20)
        ) { () async throws -> String in
          await gate.enter()
          // On a busy machine it is cancelled before it begins.
          try await waitForCancellation()
          throw CancellationError()
        }
        #expect(old == "old")
        try await wait { InFlightFetches.shared.isEmpty(for: store) }
      }
      #expect(await gate.entered <= 1, "the second attempt is delayed")
      #expect(failures.all.map(\.code) == [.fetchFailed])
      #expect(failures.all.first?.description.contains("longer than its timeout of 0.02 s") == true)
    }
  }

  @Test @MainActor func aBackgroundFetchEncodesInTheCallersIsolation() async throws {
    try store.set(["old"], forKey: "k", expiry: .minutes(5), keptFor: .hours(1), tags: [:])
    try await after(6) { () async throws in
      let value = try await store.fetch("k", expiry: .minutes(5), staleFor: .hours(1)) { ["new"] }
      #expect(value == ["old"])
      try await wait { try store.model("k") == ["new"] }
    }
  }

  @Test func aFetchThatFindsAnotherTypeProducesInTheForeground() async throws {
    try setOld()
    try await after(6) { () async throws in
      let value = try await store.fetch("k", expiry: .minutes(5), staleFor: .hours(1)) { [1] }
      #expect(value == [1] && failures.all.map(\.code).contains(.wrongType))
    }
  }
}
