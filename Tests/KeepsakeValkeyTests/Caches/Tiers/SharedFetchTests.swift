import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Fetches of two machines: one of them produces a value.
@Suite(.ownThread, .timeLimit(.minutes(20))) struct SharedFetchTests {
  private let server = FakeTierServer()
  private let here: TierMachine
  private let there: TierMachine
  private let cache: DiskCache.Store
  private let other: DiskCache.Store
  private let gate = Gate()

  init() throws {
    here = try TierMachine(server)
    there = try TierMachine(server)
    cache = here.cache()
    other = there.cache()
  }

  private func wait(until condition: () async -> Bool) async throws {
    try await eventually("the calls did not get so far", condition)
  }

  /// Starts a fetch of this machine, whose producer waits at the gate.
  private func startProducer(_ key: String = "k") async throws -> Task<Int, any Error> {
    try await cache.startFetch(key, of: 1, at: gate)
  }

  @Test func valueOfAnotherMachineIsNotProduced() async throws {
    let first = try await cache.fetch("k", expiry: .hours(1)) { 1 }
    let second = try await other.fetch("k", expiry: .hours(1)) { 2 }
    #expect(first == 1 && second == 1)
    #expect(other.statistics.hits == 1 && other.statistics.sharedHits == 1)
    #expect(try cache.model("k") == 1)
    #expect(here.tier.takeCalls() == ["read", "takeLease", "write"])
  }

  /// Between the look-up and the lease.
  @Test func valueThatWasJustProducedIsUsed() async throws {
    there.tier.beforeReply(to: "read") { [cache] in try? cache.set(1, forKey: "k") }
    #expect(try await other.fetch("k") { 2 } == 1)
    #expect(server.state.withLock { $0.leases.isEmpty })
  }

  @Test func anotherMachineProducesAfterACancellation() async throws {
    let cancelled = try await startProducer()
    let waiting = Task { try await other.fetch("k") { 2 } }
    try await other.waitForWaiter()
    cancelled.cancel()
    #expect(try await waiting.value == 2)
    await gate.open()
    _ = try? await cancelled.value
    #expect(try cache.model("k") == 2 && other.model("k") == 2)
  }

  @Test func waitEndsWithItsTask() async throws {
    let producer = try await startProducer()
    let waiting = Task { try await other.fetch("k") { 2 } }
    try await other.waitForWaiter()
    waiting.cancel()
    await #expect(throws: CancellationError.self) { try await waiting.value }
    #expect(other.tiers?.waits.count == 0)
    await gate.open()
    #expect(try await producer.value == 1)
  }

  @Test func machineProducesWithoutTheServer() async throws {
    for machine in [here, there] { machine.tier.goAway() }
    #expect(try await cache.fetch("k") { 1 } == 1)
    #expect(try await other.fetch("k") { 2 } == 2)
    #expect(try await cache.fetch("k") { 3 } == 1)
    here.tier.comeBack()
    there.tier.comeBack()
    // Both values are of this outage, and the server has neither.
    #expect(try await cache.fetch("k") { 4 } == 4)
    #expect(try await other.fetch("k") { 5 } == 4)
  }

  /// Two machines whose producers fetch what the other one produces.
  @Test func circleOfMachinesEnds() async throws {
    let (first, second) = (Gate(), Gate())
    let a = Task {
      try await cache.fetch("a") {
        await first.pass()
        return try await cache.fetch("b") { 1 } + 1
      }
    }
    let b = Task {
      try await other.fetch("b") {
        await second.pass()
        return try await other.fetch("a") { 10 } + 10
      }
    }
    try await wait { await first.entered == 1 }
    try await wait { await second.entered == 1 }
    await first.open()
    await second.open()
    try await wait {
      // As if the time of each wait were over.
      cache.tiers?.waits.wakeAll()
      other.tiers?.waits.wakeAll()
      return InFlightFetches.shared.isEmpty(for: cache)
        && InFlightFetches.shared.isEmpty(for: other)
    }
    #expect([1 + 1, 20 + 1].contains(try await a.value))
    #expect([10 + 10, 2 + 10].contains(try await b.value))
  }

  /// The producer never ends, and its lease does not either.
  @Test func waitForAStuckProducerEnds() async throws {
    let impatient = try TierMachine(server, leaseTime: .milliseconds(1)).cache()
    let producer = try await startProducer()
    #expect(try await impatient.fetch("k") { 2 } == 2)
    await gate.open()
    #expect(try await producer.value == 1)
    #expect(try cache.model("k") == 1 && impatient.model("k") == 1)
  }

  @Test func waitForAStuckProducerIsLimited() async throws {
    let tiers = try #require(other.tiers)
    _ = cache.tiers?.takeLease("k", knowing: nil)
    #expect(tiers.longestWait == .seconds(3_600))
    let start = ContinuousClock.now
    let early = ProducerTurn(tiers, "k", since: start - .seconds(1_800))
    #expect(try await !early.begin(knowing: nil, waits: false))
    #expect(early.isElsewhere && early.production?.lease == nil)
    let late = ProducerTurn(tiers, "k", since: start - .seconds(3_600))
    #expect(try await late.begin(knowing: nil, waits: false))
    #expect(late.production?.lease == nil)
  }

  /// As at a normal exit.
  @Test func leasesOfAProcessThatEndsAreReleased() async throws {
    let tasks = [try await startProducer("k"), try await startProducer("l")]
    let waiting = Task { try await other.fetch("k") { 2 } }
    try await other.waitForWaiter()
    cache.tiers?.releaseAll()
    #expect(try await waiting.value == 2)
    #expect(server.state.withLock { $0.leases.isEmpty })
    await gate.open()
    for task in tasks { _ = try await task.value }
    #expect(try cache.model("k") == 2 && other.model("l") == 1)
  }

  /// The lease has ended, so that two machines produce a value.
  @Test(arguments: [true, false]) func firstProducerThatEndsCounts(_ isFirst: Bool) async throws {
    let second = Gate()
    let producer = try await startProducer()
    server.endLeases()
    let later = try await other.startFetch(of: 2, at: second)
    let expected = isFirst ? 1 : 2
    await (isFirst ? gate : second).open()
    #expect(try await (isFirst ? producer : later).value == expected)
    await (isFirst ? second : gate).open()
    #expect(try await (isFirst ? later : producer).value == 3 - expected)
    #expect(try cache.model("k") == expected && other.model("k") == expected)
    #expect(server.state.withLock { $0.leases.isEmpty && $0.productions.isEmpty })
  }

  /// However often a fetch looks while it waits.
  @Test func waitingFetchIsCountedOnce() async throws {
    let producer = try await startProducer()
    let waiting = Task { try await other.fetch("k") { 2 } }
    for _ in 1...3 {
      try await other.waitForWaiter()
      _ = there.tier.takeCalls()
      other.tiers?.waits.wakeAll()
      try await wait { there.tier.takeCalls().contains("takeLease") }
    }
    await gate.open()
    #expect(try await producer.value == 1)
    #expect(try await waiting.value == 1)
    let counts = other.statistics
    #expect(counts.hits == 0 && counts.misses == 1)
    #expect(counts.sharedHits == 0 && counts.sharedMisses == 1)
  }

  @Test func fetchOfAStaleEntryIsCountedOnce() async throws {
    let start = WallClock.now
    func fetch(_ store: DiskCache.Store, _ value: Int) async throws -> Int {
      try await store.fetch("k", expiry: .hours(1), staleFor: .hours(5)) { value }
    }
    #expect(try await fetch(cache, 1) == 1)
    #expect(cache.statistics == DiskCache.Statistics(misses: 1, sharedMisses: 1))
    server.advance(by: 7_200)
    #expect(
      try await WallClock.$fixed.withValue(start + 7_200 * WallClock.second) {
        try await fetch(other, 2)
      } == 1)
    try await wait { InFlightFetches.shared.isEmpty(for: other) }
    #expect(other.statistics == DiskCache.Statistics(misses: 1, sharedMisses: 1))
  }

  // MARK: Entries after their expiry

  @Test func staleEntryOfAnotherMachineIsUsed() async throws {
    let start = WallClock.now
    try await cache.fetch("k", expiry: .hours(1), staleFor: .hours(5)) { 1 }
    server.advance(by: 7_200)
    let stale = try await WallClock.$fixed.withValue(start + 7_200 * WallClock.second) {
      try await other.fetch("k", expiry: .hours(1), staleFor: .hours(5)) {
        await gate.pass()
        return 2
      }
    }
    #expect(stale == 1)
    try await wait { await gate.entered == 1 }
    // The other machine also has the old value, and does not wait.
    let old = try await WallClock.$fixed.withValue(start + 7_200 * WallClock.second) {
      try await cache.fetch("k", expiry: .hours(1), staleFor: .hours(5)) { 3 }
    }
    #expect(old == 1)
    await gate.open()
    try await wait { (try? other.model("k", type: Int.self)) == 2 }
    let new = try await WallClock.$fixed.withValue(start + 7_200 * WallClock.second) {
      try await cache.fetch("k", expiry: .hours(1), staleFor: .hours(5)) { 4 }
    }
    #expect(new == 2)
  }

  @Test func oldEntryOfAnotherMachineIsRevalidated() async throws {
    let start = WallClock.now
    let tags = ["etag": "x"]
    _ = try await cache.fetch("k", expiry: .hours(1)) { (_: DiskCache.CachedValue<Int>?) in
      .value(1, tags: tags)
    }
    server.advance(by: 7_200)
    try await WallClock.$fixed.withValue(start + 7_200 * WallClock.second) {
      let value = try await other.fetch("k", expiry: .hours(1)) {
        (old: DiskCache.CachedValue<Int>?) in
        #expect(old?.value == 1 && old?.tags == tags)
        return DiskCache.FetchResult<Int>.unchanged
      }
      #expect(value?.value == 1)
      // It is fresh on both machines now.
      for store in [cache, other] {
        let fresh = try await store.fetch("k", expiry: .hours(1)) {
          (_: DiskCache.CachedValue<Int>?) in .value(2)
        }
        #expect(fresh?.value == 1 && fresh?.tags == tags)
        #expect(try store.entry("k")?.tags == tags)
      }
    }
  }

  @Test func missingValueIsKnownElsewhere() async throws {
    for store in [cache, other, cache, other] {
      let value = try await store.fetch("k", expiry: .hours(1), nilExpiry: .hours(1)) {
        (_: DiskCache.CachedValue<Int>?) in
        await gate.open()
        await gate.pass()
        return .gone
      }
      #expect(value == nil)
    }
    #expect(await gate.entered == 1)
    #expect(try !cache.contains("k") && other.get("k") == nil)
    // Both machines know without the server that there is none.
    for machine in [here, there] {
      _ = machine.tier.takeCalls()
      for isAway in [false, true] {
        if isAway { machine.tier.goAway() }
        let value = try await machine.cache().fetch("k", expiry: .hours(1), nilExpiry: .hours(1)) {
          (_: DiskCache.CachedValue<Int>?) in .value(2)
        }
        #expect(value == nil && (isAway || machine.tier.takeCalls() == []))
      }
      machine.tier.comeBack()
    }
    try cache.set(1, forKey: "k")
    let value = try await other.fetch("k", expiry: .hours(1), nilExpiry: .hours(1)) {
      (_: DiskCache.CachedValue<Int>?) in .value(2)
    }
    #expect(value?.value == 1)
  }

  @Test func goneValueIsRemovedElsewhere() async throws {
    let start = WallClock.now
    try cache.set(1, forKey: "k", expiry: .hours(1), keptFor: .hours(5), tags: [:])
    server.advance(by: 7_200)
    try await WallClock.$fixed.withValue(start + 7_200 * WallClock.second) {
      let value = try await other.fetch("k", expiry: .hours(1)) {
        (old: DiskCache.CachedValue<Int>?) in
        #expect(old?.value == 1)
        return DiskCache.FetchResult<Int>.gone
      }
      #expect(value == nil)
      let old = try await cache.fetch("k", expiry: .hours(1)) {
        (old: DiskCache.CachedValue<Int>?) in
        #expect(old == nil)
        return DiskCache.FetchResult<Int>.value(3)
      }
      #expect(old?.value == 3)
    }
  }
}
