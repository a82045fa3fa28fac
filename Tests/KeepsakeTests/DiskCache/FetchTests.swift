import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

private struct Failure: Error {}

@Suite(.ownThread, .temporaryStorage, .timeLimit(.minutes(20))) struct FetchTests {
  private func wait(until condition: () async -> Bool) async throws {
    try await eventually("the calls did not get so far", condition)
  }

  private func waiterCount(_ store: DiskCache.Store) -> Int {
    InFlightFetches.shared.waiterCount(of: store)
  }

  @Test func producesOnceAndThenReads() async throws {
    var count = 0
    for _ in 0..<3 {
      let value: [Int] = try await DiskCache.fetch("k", expiry: .hours(5)) {
        count += 1
        return [1, 2, 3]
      }
      #expect(value == [1, 2, 3])
    }
    #expect(count == 1)
    #expect(try DiskCache.shared.entry("k")?.expires != nil)
    let statistics = DiskCache.shared.statistics
    #expect(statistics.hits == 2 && statistics.misses == 1)
    let data = try await DiskCache.fetch("data") { Data([1, 2]) }
    #expect(data == Data([1, 2]) && DiskCache.get("data") == data)
    let text: String = try await DiskCache.fetch("text", cache: .memory) { "t" }
    #expect(text == "t" && DiskCache.model("text", cache: .memory) == "t")
  }

  @Test func aThousandCallsRunOneProducer() async throws {
    let store = DiskCache.shared
    let gate = Gate()
    let values = try await withThrowingTaskGroup(of: Data.self) { group in
      for _ in 0..<1_000 {
        group.addTask {
          try await DiskCache.fetch("k") {
            await gate.pass()
            return Data([7])
          }
        }
      }
      try await wait { waiterCount(store) == 999 }
      await gate.open()
      return try await group.reduce(into: []) { $0.append($1) }
    }
    #expect(values == Array(repeating: Data([7]), count: 1_000))
    #expect(store.statistics == DiskCache.Statistics(misses: 1, coalesced: 999))
    #expect(await gate.entered == 1)
    #expect(InFlightFetches.shared.isEmpty(for: store))
  }

  @Test(arguments: [true, false])
  func anotherCallProducesAfterTheProducerIsCancelled(producerThrows: Bool) async throws {
    let store = DiskCache.shared
    let (gate, held) = (Gate(), Gate())
    let fetch = { @Sendable in
      try await DiskCache.fetch("k") {
        await gate.enter()
        guard await gate.entered == 1 else { return "second" }
        if producerThrows { try await waitForCancellation() } else { await held.pass() }
        return "first"
      }
    }
    let producer = Task { try await fetch() }
    try await wait { await gate.entered == 1 }
    let others = (0..<999).map { _ in Task { try await fetch() } }
    try await wait { waiterCount(store) == 999 }
    for task in others[..<99] { task.cancel() }
    try await wait { waiterCount(store) == 900 }
    producer.cancel()
    for task in others[99...] { #expect(try await task.value == "second") }
    for task in others[..<99] {
      await #expect(throws: CancellationError.self) { try await task.value }
    }
    #expect(await gate.entered == 2)
    await held.open()
    if producerThrows {
      await #expect(throws: CancellationError.self) { try await producer.value }
    } else {
      // It gets its own value, but the cache keeps the value of the second producer.
      #expect(try await producer.value == "first")
    }
    #expect(DiskCache.model("k") == "second")
    #expect(InFlightFetches.shared.isEmpty(for: store))
  }

  @Test func theProducersCancellationIsNotSharedBeforeItsHandlerHasRun() async throws {
    let store = DiskCache.shared
    let fetches = InFlightFetches.shared
    // With many fetches, counting waiters holds the lock, so that the cancellation handler has to
    // wait for it as long as the producer does.
    let others = (0..<200).map {
      fetches.makeCall(to: .init(store, "other\($0)"), timeout: .minutes(5)).call
    }
    defer {
      for other in others {
        fetches.finish(other, with: .cancelled)
        fetches.leave(other)
      }
    }
    for _ in 0..<30 {
      let gate = Gate()
      let producer = Task {
        try await DiskCache.fetch("k") { () async throws -> Int in
          await gate.enter()
          // Polling shows the cancellation a moment before the handlers run.
          var count = 0
          while !Task.isCancelled {
            count += 1
            if count.isMultiple(of: 10_000) { await Task.yield() }
          }
          throw CancellationError()
        }
      }
      try await wait { await gate.entered == 1 }
      let waiter = Task { try await DiskCache.fetch("k") { 2 } }
      try await wait { waiterCount(store) == 1 }
      let isOver = Locked(false)
      let isCounting = ThreadGate()
      Thread.detachNewThread {
        while !isOver.withLock({ $0 }) {
          _ = fetches.waiterCount(of: store)
          isCounting.open()
        }
      }
      isCounting.wait()
      producer.cancel()
      isOver.withLock { $0 = true }
      #expect(try await waiter.value == 2)
      await #expect(throws: CancellationError.self) { try await producer.value }
      DiskCache.remove("k")
    }
  }

  // MARK: Producers that take too long

  /// Runs `body`, and again with a longer timeout if that was too short for a call to have to wait.
  private func retrying(_ body: (_ timeout: Duration) async throws -> Bool) async throws {
    var timeout = Duration.milliseconds(50)
    while timeout < .seconds(60) {
      if try await body(timeout) {
        #expect(InFlightFetches.shared.isEmpty(for: DiskCache.shared))
        return
      }
      try DiskCache.shared.remove("k")
      timeout = timeout * 2
    }
    Issue.record("no call waited")
  }

  @Test(arguments: [true, false])
  func noCallWaitsForAProducerThatTakesTooLong(isReplaced: Bool) async throws {
    let store = DiskCache.shared
    try await retrying { timeout in
      let gate = Gate()
      let producer = Task {
        try await store.fetch("k", timeout: timeout) { () async throws -> String in
          await gate.pass()
          return "late"
        }
      }
      try await wait { await gate.entered == 1 }
      let other = await Task { try await store.fetch("k") { "second" } }.result
      if case .failure(let error) = other {
        let error = try #require(error as? StorageError)
        #expect(error.code == .timedOut && error.key == "k" && error.operation == "fetch")
        if isReplaced { #expect(try await store.fetch("k") { "next" } == "next") }
      }
      await gate.open()
      #expect(try await producer.value == "late")
      guard case .failure = other else { return false }
      // It is stored unless a later producer was faster.
      #expect(try store.model("k") == (isReplaced ? "next" : "late"))
      return true
    }
  }

  /// Code in which the library no longer knows that it runs for the producer.
  enum Detour: CaseIterable {
    case detachedTask, queue

    func run(_ body: @escaping @Sendable () async throws -> String) async throws -> String {
      switch self {
      case .detachedTask: return try await Task.detached { try await body() }.value
      case .queue:
        return try await withCheckedThrowingContinuation { continuation in
          DispatchQueue.global().async {
            Task { continuation.resume(with: await Task { try await body() }.result) }
          }
        }
      }
    }
  }

  @Test(arguments: Detour.allCases)
  func aProducerThatWaitsForItselfGetsAnError(_ detour: Detour) async throws {
    let store = DiskCache.shared
    try await retrying { timeout in
      let result = await Task {
        try await store.fetch("k", timeout: timeout) {
          try await detour.run { try await store.fetch("k") { "own" } }
        }
      }.result
      // Otherwise the inner call came so late that it did not have to wait.
      guard case .failure(let error) = result else { return false }
      #expect((error as? StorageError)?.code == .timedOut)
      return true
    }
  }

  @Test func cancellingAllCallsLeavesNothingBehind() async throws {
    let store = DiskCache.shared
    for _ in 0..<20 {
      let tasks = (0..<50).map { _ in
        Task {
          try await DiskCache.fetch("k") { () async throws -> Int in
            try await waitForCancellation()
            return 1
          }
        }
      }
      for task in tasks.shuffled() {
        task.cancel()
        await Task.yield()
      }
      for task in tasks {
        await #expect(throws: CancellationError.self) { try await task.value }
      }
      #expect(InFlightFetches.shared.isEmpty(for: store))
    }
    #expect(try await DiskCache.fetch("k") { 2 } == 2)
  }

  @Test func waitersShareAnErrorThatIsNotKept() async throws {
    let store = DiskCache.shared
    let gate = Gate()
    let tasks = (0..<100).map { _ in
      Task {
        try await DiskCache.fetch("k") { () async throws -> Int in
          await gate.pass()
          throw Failure()
        }
      }
    }
    try await wait { waiterCount(store) == 99 }
    await gate.open()
    for task in tasks { await #expect(throws: Failure.self) { try await task.value } }
    #expect(await gate.entered == 1)
    #expect(try await DiskCache.fetch("k") { 2 } == 2)
  }

  /// Fetches from a producer that runs while `change` does.
  private func fetch(
    from store: DiskCache.Store, while change: () throws -> Void
  ) async throws {
    let gate = Gate()
    let task = Task {
      try await store.fetch("k") {
        await gate.pass()
        return 1
      }
    }
    try await wait { await gate.entered == 1 }
    try change()
    await gate.open()
    #expect(try await task.value == 1)
  }

  @Test func keepsAChangeMadeWhileFetching() async throws {
    for change in [
      { DiskCache.set(2, forKey: "k") }, { DiskCache.remove("k") }, { DiskCache.removeAll() },
    ] {
      var later: Int?
      try await fetch(from: DiskCache.shared) {
        #expect(change())
        later = DiskCache.model("k")
      }
      #expect(DiskCache.model("k") == later)
      DiskCache.removeAll()
    }
  }

  /// The cache was restored without its ledger, or a program that cleans up has deleted that.
  @Test func keepsARemovalMadeWhileFetchingWithoutALedger() async throws {
    let directory = try TemporaryDirectory()
    try directory.cache().set(1, forKey: "other")
    try FileManager.default.removeItem(atPath: directory.file("caches/.standard.ledger").path)
    let store = directory.cache()
    try await fetch(from: store) { try store.remove("k") }
    #expect(try store.model("k", type: Int.self) == nil)
  }

  @Test func producersCanFetchFromEachOtherInACircle() async throws {
    // a needs b, which needs a: one of them has to produce without waiting.
    @Sendable func fetchA(_ depth: Int) async throws -> Int {
      try await DiskCache.fetch("a") { depth > 2 ? 1 : try await fetchB(depth + 1) + 1 }
    }
    @Sendable func fetchB(_ depth: Int) async throws -> Int {
      try await DiskCache.fetch("b") { depth > 2 ? 1 : try await fetchA(depth + 1) + 1 }
    }
    async let a = fetchA(0)
    async let b = fetchB(0)
    let both = try await (a, b)
    #expect(both.0 > 0 && both.1 > 0)
    let nested = try await DiskCache.fetch("n") { try await DiskCache.fetch("n") { 3 } + 1 }
    #expect(nested == 4 && DiskCache.model("n") == 4)
    #expect(InFlightFetches.shared.isEmpty(for: DiskCache.shared))
  }

  /// It waits on behalf of a producer that has ended.
  @Test func aFetchThatOutlivesItsProducerLeavesNothingBehind() async throws {
    let store = DiskCache.shared
    let (gate, mayJoin) = (Gate(), Gate())
    let other = Task {
      try await store.fetch("other") {
        await gate.pass()
        return 1
      }
    }
    try await wait { await gate.entered == 1 }
    let left = Locked<Task<Int, any Error>?>(nil)
    let value = try await store.fetch("k") {
      let task = Task {
        await mayJoin.pass()
        return try await store.fetch("other") { 2 }
      }
      left.withLock { $0 = task }
      return 3
    }
    await mayJoin.open()
    try await wait { waiterCount(store) == 1 }
    await gate.open()
    #expect(try await left.withLock { $0 }?.value == 1)
    #expect(try await other.value == 1 && value == 3)
    #expect(InFlightFetches.shared.isEmpty(for: store))
  }

  /// An app's handler of failures, or a server, may take long.
  @Test func whatATimeoutRunsDelaysNoOtherCall() async throws {
    let (fetches, store) = (InFlightFetches(), DiskCache.shared)
    let makeCall = { @Sendable (key: String) in
      fetches.makeCall(to: .init(store, key), timeout: .seconds(1)).call
    }
    var calls: [InFlightFetches.Call] = []
    repeat {
      for call in calls { fetches.finish(call, with: .cancelled) }
      calls = ["a", "b"].map(makeCall)
    } while fetches.state.withLock { Set($0.fetches.values.map(\.deadline)).count } > 1
    let ended = Locked(0)
    let join = { @Sendable (key: String) async in
      _ = await fetches.join(makeCall(key))
      _ = ended.increment()
    }
    let waiting = ["a", "b"].map { key in Task { await join(key) } }
    try await wait { ended.withLock { $0 } > 0 || fetches.waiterCount(of: store) == 2 }
    for call in calls {
      fetches.onTimeout(of: call) {
        waitUntil("both calls have ended") { ended.withLock { $0 } == 2 }
      }
    }
    for task in waiting { await task.value }
  }

  @Test @MainActor func producesInTheCallersIsolation() async throws {
    // Changing a class that is not Sendable compiles only if the closure has the caller's
    // isolation.
    final class Counter { var count = 0 }
    let counter = Counter()
    _ = try await DiskCache.fetch("k") {
      MainActor.assertIsolated()
      counter.count += 1
      return counter.count
    }
    #expect(counter.count == 1)
  }

  @Test func nilIsNotStored() async throws {
    let none: Int? = try await DiskCache.fetch("k") { nil }
    #expect(none == nil && !DiskCache.contains("k"))
    let some: Int? = try await DiskCache.fetch("k") { 5 }
    #expect(some == 5 && DiskCache.model("k") == 5)
  }

  @Test func producesAgainAndReportsIfAnotherTypeIsStored() async throws {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    DiskCache.set("text", forKey: "k")
    #expect(try await DiskCache.fetch("k") { 5 } == 5)
    #expect(DiskCache.model("k") == 5)
    #expect(failures.all.map(\.code) == [.wrongType] && failures.all[0].key == "k")
    #expect(failures.all[0].operation == "DiskCache.fetch")
  }

  @Test func returnsAndReportsAValueThatCannotBeStored() async throws {
    struct Unencodable: Codable, Sendable {
      func encode(to encoder: any Encoder) throws { throw Failure() }
    }
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    _ = try await DiskCache.fetch("k") { Unencodable() }
    DiskCache.sizeLimit = 10
    let value = try await DiskCache.fetch("l") { String(repeating: "x", count: 20) }
    #expect(value.count == 20)
    #expect(failures.all.map(\.code) == [.encodingFailed, .misuse])
    #expect(failures.all.allSatisfy { $0.operation == "DiskCache.fetch" })
  }
}
