import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Fetches of several machines on one server.
@Suite(.server, .threadPerTest) struct SharedProducerTests {
  private struct Failure: Error {}

  private let server: TestServer
  private let gate = Gate()

  init() throws { server = try TestServer() }

  private func stores() throws -> [DiskCache.Store] {
    try [CacheMachine(server).cache(), CacheMachine(server).cache()]
  }

  private func hasLease() throws -> Bool {
    try server.command("EXISTS", "keepsake:{app:cache:pages}:p:k") == .integer(1)
  }

  /// Blocks no thread of Swift's pool: the tasks that wait are many more than its threads.
  @Test func manyTasksOfTwoMachinesProduceOnce() async throws {
    let stores = try stores()
    let tasks = (0..<40).map { number in
      Task {
        try await stores[number % 2].fetch("k", expiry: .hours(1)) {
          await gate.pass()
          return number
        }
      }
    }
    try await gate.waitForProducers(1)
    try await eventually("no fetch waits") { stores.contains { $0.tiers?.waits.count == 1 } }
    let others = (0..<100).map { number in
      Task { try await stores[number % 2].fetch("k", expiry: .hours(1)) { -number } }
    }
    // Runs although all of them wait.
    await Task {}.value
    await gate.open()
    let value = try await tasks[0].value
    for task in tasks + others { #expect(try await task.value == value) }
    #expect(await gate.entered == 1)
    for store in stores { #expect(try store.model("k") == value) }
    #expect(try !hasLease())
  }

  @Test func manyKeysAreProducedOnceEach() async throws {
    let stores = try (0..<3).map { _ in try CacheMachine(server).cache() }
    let counts = Recorder<Int>()
    let tasks = (0..<300).map { number in
      Task {
        try await stores[number % 3].fetch("\(number / 3)", expiry: .hours(1)) {
          counts.append(number / 3)
          await gate.pass()
          return number / 3
        }
      }
    }
    try await gate.waitForProducers(100)
    await gate.open()
    for (number, task) in tasks.enumerated() { #expect(try await task.value == number / 3) }
    #expect(counts.all.sorted() == Array(0..<100))
  }

  @Test func anotherMachineProducesAfterAFailure() async throws {
    let stores = try stores()
    let failing = Task {
      try await stores[0].fetch("k") { () async throws -> Int in
        await gate.pass()
        throw Failure()
      }
    }
    try await gate.waitForProducers(1)
    let waiting = Task { try await stores[1].fetch("k") { 2 } }
    try await stores[1].waitForWaiter()
    await gate.open()
    await #expect(throws: Failure.self) { try await failing.value }
    #expect(try await waiting.value == 2)
    #expect(try stores[0].model("k") == 2)
  }

  /// As if the machine were gone: its lease is not renewed, and not released.
  @Test func anotherMachineProducesAfterALoss() async throws {
    let lost = try CacheMachine(server, leaseTime: .milliseconds(300))
    let stores = try [lost.cache(), CacheMachine(server).cache()]
    let producer = try await stores[0].startFetch(of: 1, at: gate)
    lost.server.link.close()
    #expect(try await stores[1].fetch("k") { 2 } == 2)
    await gate.open()
    #expect(try await producer.value == 1)
    #expect(try stores[1].model("k") == 2)
  }

  /// It takes longer than its lease is valid, and is done before the machine that took over.
  @Test func slowProducerStoresItsValue() async throws {
    let stores = try [
      CacheMachine(server, leaseTime: .milliseconds(20)).cache(), CacheMachine(server).cache(),
    ]
    let slow = try await stores[0].startFetch(of: 1, at: gate)
    let slower = Gate()
    let second = try await stores[1].startFetch(of: 2, at: slower)
    await gate.open()
    #expect(try await slow.value == 1)
    #expect(try stores[1].model("k") == 1)
    await slower.open()
    #expect(try await second.value == 2)
    for store in stores { #expect(try store.model("k") == 1) }
    #expect(try !hasLease())
  }

  @Test(arguments: ["set", "remove", "removeAll"])
  func changeElsewhereWins(_ change: String) async throws {
    let stores = try stores()
    try stores[1].set("x", forKey: "unrelated")
    let producer = try await stores[0].startFetch(of: "produced", at: gate)
    switch change {
    case "set": try stores[1].set("set", forKey: "k")
    case "remove": try stores[1].remove("k")
    default: try stores[1].removeAll()
    }
    // A call that has read what was set must not get what is older.
    stores[0].expectEventually("k", change == "set" ? "set" : nil)
    let later = Task { try await stores[0].fetch("k") { "later" } }
    try await eventually("the fetch was not joined") {
      InFlightFetches.shared.waiterCount(of: stores[0]) == 1
    }
    await gate.open()
    #expect(try await producer.value == "produced")
    #expect(try await later.value == (change == "set" ? "set" : "later"))
    for store in stores {
      #expect(try store.model("k", type: String.self) == (change == "set" ? "set" : "later"))
    }
  }

  /// The entry is stale on both machines, and found unchanged on one.
  @Test func unchangedValueIsFreshElsewhere() async throws {
    let stores = try stores()
    try stores[0].set(
      "a", forKey: "k", expiry: .date(Date(timeIntervalSinceNow: -1)), keptFor: .hours(9),
      tags: ["etag": "x"])
    #expect(try stores[0].get("k") == nil && stores[1].get("k") == nil)
    let value = try await stores[1].fetch("k", expiry: .hours(1)) {
      (old: DiskCache.CachedValue<String>?) in
      #expect(old?.value == "a" && old?.tags == ["etag": "x"])
      return DiskCache.FetchResult<String>.unchanged
    }
    #expect(value?.value == "a")
    #expect(try stores[0].model("k") == "a" && stores[1].model("k") == "a")
    #expect(try stores[0].entry("k")?.tags == ["etag": "x"])
  }

  @Test func waitEndsWhenTheServerEnds() async throws {
    let stores = try stores()
    let producer = try await stores[0].startFetch(of: 1, at: gate)
    let waiting = Task { try await stores[1].fetch("k") { 2 } }
    try await stores[1].waitForWaiter()
    server.kill()
    #expect(try await waiting.value == 2)
    await gate.open()
    #expect(try await producer.value == 1)
  }
}
