import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What caches do while the server is away, and afterwards.
@Suite(.server, .threadPerTest) struct CacheOutageTests {
  private let server: TestServer

  init() throws { server = try TestServer() }

  private func waitUntilLost(_ cache: DiskCache.Store) {
    waitUntil("the loss was not noticed") { !cache.isFollowed }
  }

  private func waitUntilFollowed(_ cache: DiskCache.Store) {
    waitUntil("the cache is not followed again") {
      // A request makes the link hurry.
      _ = try? cache.get("probe")
      return cache.isFollowed
    }
  }

  /// Waits until all messages about earlier changes have arrived, not only values.
  private func waitForMessages(to cache: DiskCache.Store, from other: DiskCache.Store) async throws
  {
    let waits = try #require(cache.tiers).waits
    let ticket = waits.makeTicket("last")
    defer { waits.drop(ticket) }
    try other.set("", forKey: "last")
    await waits.wait(for: ticket, atMost: .seconds(600))
  }

  @Test func cacheGoesOnWithoutTheServer() async throws {
    let machine = try CacheMachine(server)
    let cache = machine.cache()
    try cache.set("a", forKey: "k", expiry: .hours(1))
    server.kill()
    waitUntilLost(cache)
    #expect(try cache.model("k") == "a")
    try cache.set("b", forKey: "l")
    #expect(try cache.model("l") == "b" && cache.get("missing") == nil)
    #expect(try await cache.fetch("m") { "c" } == "c")
    #expect(try await cache.fetch("m") { "d" } == "c")
    expectFailure(.unreachable) { try cache.remove("l") }
    #expect(try cache.get("l") == nil)
    expectFailure(.unreachable) { try cache.removeAll() }
    #expect(try cache.keys().isEmpty)
    #expect(machine.reports.all.contains { $0.code == .unreachable })
    #expect(machine.faults.isEmpty)
    try server.start()
    waitUntilFollowed(cache)
    try cache.set("e", forKey: "k")
    #expect(try CacheMachine(server).newCache().model("k") == "e")
  }

  /// The connection is cut, and the server goes on with other machines.
  @Test func nothingOldIsServedAfterACut() async throws {
    let forwarder = try Forwarder(to: server.socketPath)
    defer { forwarder.end() }
    let machine = try CacheMachine(server) { $0.endpoint = forwarder.address.endpoint }
    let (cache, other) = (machine.cache(), try CacheMachine(server).cache())
    for round in 1...5 {
      let keys = ["changed", "removed", "set", "same"]
      for key in keys {
        try other.set("old \(round)", forKey: key)
        cache.expectEventually(key, "old \(round)")
      }
      try await waitForMessages(to: cache, from: other)
      // The values that were read before may not have been stored here.
      for key in keys { #expect(try cache.model(key) == "old \(round)", "\(key)") }
      forwarder.forward(to: nil)
      forwarder.cut()
      waitUntilLost(cache)
      try other.set("new \(round)", forKey: "changed")
      try other.remove("removed")
      for key in keys { #expect(try cache.model(key) == "old \(round)", "\(key)") }
      try cache.set("mine", forKey: "set")
      #expect(try cache.model("set") == "mine")
      forwarder.forward(to: server.socketPath)
      waitUntilFollowed(cache)
      #expect(try cache.model("changed") == "new \(round)" && cache.get("removed") == nil)
      #expect(try cache.model("same") == "old \(round)")
      #expect(try cache.get("set") == nil)
      waitUntil("the other machine was not told") { (try? other.contains("set")) == false }
    }
    #expect(machine.faults.isEmpty)
  }

  /// Messages are missed although requests go on.
  @Test func lostMessagesAreNoticed() throws {
    let (cache, other) = (try CacheMachine(server).cache(), try CacheMachine(server).cache())
    for round in 1...10 {
      try server.command("CLIENT", "KILL", "TYPE", "pubsub")
      try other.set("\(round)", forKey: "k")
      #expect(try other.model("k") == "\(round)")
      cache.expectEventually("k", "\(round)")
      waitUntil("the cache is not followed") { cache.isFollowed }
    }
  }

  @Test func restartedProcessComparesItsEntries() throws {
    let (machine, other) = (try CacheMachine(server), try CacheMachine(server).cache())
    for key in ["changed", "removed", "same"] { try machine.cache().set("old", forKey: key) }
    machine.server.link.close()
    try other.set("new", forKey: "changed")
    try other.remove("removed")
    let cache = try CacheMachine(server, in: machine.directory).newCache()
    #expect(try cache.model("changed") == "new" && cache.get("removed") == nil)
    #expect(try cache.model("same") == "old")
    #expect(cache.statistics.sharedHits == 1)
  }

  /// A server without persistence has forgotten everything.
  @Test func emptiedServerEmptiesTheCaches() throws {
    let machine = try CacheMachine(server)
    let cache = machine.cache()
    try cache.set("a", forKey: "k")
    server.kill()
    waitUntilLost(cache)
    try server.start()
    waitUntilFollowed(cache)
    #expect(try cache.get("k") == nil && !cache.contains("k"))
    try cache.set("b", forKey: "k")
    #expect(try CacheMachine(server).newCache().model("k") == "b")
  }

  /// If one call of each round waited, they would take longer than the limit.
  @Test(.timeLimit(.minutes(20))) func frozenServerDelaysOneCall() throws {
    let machine = try CacheMachine(server) {
      $0.requestTimeout = .milliseconds(1_500)
      $0.connectTimeout = .milliseconds(1_500)
    }
    let cache = machine.newCache()
    waitUntil("the server did not answer") {
      (try? cache.set("a", forKey: "k")) != nil && cache.isFollowed
    }
    server.freeze()
    for number in 0..<1_000 {
      try cache.set("\(number)", forKey: "n")
      #expect(try cache.model("n") == "\(number)" && cache.get("missing") == nil)
    }
    server.unfreeze()
    waitUntil("the server is not used again") {
      (try? cache.set("b", forKey: "k")) != nil
        && (try? CacheMachine(server).newCache().model("k")) == "b"
    }
  }

  /// The old value must not be used any more, although the new one was refused.
  @Test func fullServerLosesTheOldValue() throws {
    let machine = try CacheMachine(server)
    let (cache, other) = (machine.cache(), try CacheMachine(server).cache())
    try cache.set("old", forKey: "k")
    #expect(try other.model("k") == "old")
    try server.command("CONFIG", "SET", "maxmemory", "1")
    try cache.set("new", forKey: "k")
    #expect(machine.reports.all.contains { $0.code == .diskFull })
    #expect(try cache.model("k") == "new")
    other.expectEventually("k", nil)
    #expect(try cache.model("k") == "new")
    try server.command("CONFIG", "SET", "maxmemory", "0")
    try cache.set("newest", forKey: "k")
    other.expectEventually("k", "newest")
  }

  @Test func fullServerIsStillRead() throws {
    try CacheMachine(server).cache().set("a", forKey: "k")
    try server.command("CONFIG", "SET", "maxmemory", "1")
    let machine = try CacheMachine(server)
    #expect(try machine.cache().model("k") == "a" && machine.faults.isEmpty)
  }

  @Test func fullServerDoesNotStopCaching() async throws {
    let machine = try CacheMachine(server)
    let cache = machine.cache()
    try cache.set("a", forKey: "unrelated")
    try server.command("CONFIG", "SET", "maxmemory", "1")
    // After a reconnect it is produced again.
    try await eventually("the value was not kept") {
      let value = UInt64.random(in: .min ... .max)
      let kept = try await cache.fetch("k") { value }
      return try await cache.fetch("k") { kept &+ 1 } == kept
    }
    #expect(machine.faults.contains { $0.code == .diskFull })
    try cache.remove("k")
    #expect(try cache.get("k") == nil)
    try cache.removeAll()
    #expect(try cache.get("unrelated") == nil)
    #expect(try CacheMachine(server).newCache().get("unrelated") == nil)
  }

  /// It has no replica. A script that it refuses must not have told the machines before.
  @Test func refusedChangesAreNotTold() throws {
    let machine = try CacheMachine(server)
    let (cache, other) = (machine.cache(), try CacheMachine(server).cache())
    try cache.set("a", forKey: "k")
    try cache.set("a", forKey: "l")
    #expect(try other.model("k") == "a" && other.model("l") == "a")
    let (messages, confirmations) = (Recorder<[UInt8]>(), Recorder<Bool>())
    let link = try CacheMachine(server).server.link
    try link.subscribe(
      to: CacheKeys(app: "app", cache: "pages").channel,
      ChannelHandler(
        onSubscribed: { confirmations.append(true) }, onMessage: { messages.append($0) },
        onLost: { _ in }))
    confirmations.waitForCount(1, "the subscription was not confirmed")
    try server.command("CONFIG", "SET", "min-replicas-to-write", "1")
    try cache.set("b", forKey: "k")
    expectFailure(.unreachable) { try cache.remove("l") }
    #expect(try cache.model("k") == "b" && cache.get("l") == nil)
    #expect(try other.model("k") == "a" && other.model("l") == "a")
    expectFailure(.unreachable) { try cache.removeAll() }
    #expect(try cache.get("k") == nil && other.model("k") == "a" && other.model("l") == "a")
    #expect(messages.all.isEmpty)
    try server.command("CONFIG", "SET", "min-replicas-to-write", "0")
    waitUntil("the removal was not sent") {
      _ = try? cache.get("m")
      return (try? other.contains("k")) == false && (try? other.contains("l")) == false
    }
    link.close()
  }

  /// The value takes longer than the timeout, with which it must not end the connection.
  @Test func largeValueOnASlowNetworkIsStored() throws {
    let forwarder = try Forwarder(to: server.socketPath)
    defer { forwarder.end() }
    let machine = try CacheMachine(server) {
      $0.endpoint = forwarder.address.endpoint
      $0.requestTimeout = .seconds(1)
    }
    let cache = machine.cache()
    // 128 pieces, so that it takes more than two seconds.
    forwarder.slowDown(by: .milliseconds(20))
    let large = Data(count: 8 << 20)
    waitUntil("the value was not stored") {
      try? cache.set(large, forKey: "k")
      return (try? CacheMachine(server).newCache().contains("k")) == true
    }
  }

  /// There is no replica that could confirm the changes.
  @Test func unconfirmedChangesAreToldOf() throws {
    let machine = try CacheMachine(server, confirm: .replicas(1, timeout: .milliseconds(1)))
    let (cache, other) = (machine.cache(), try CacheMachine(server).cache())
    try cache.set("a", forKey: "k")
    #expect(machine.faults.contains { $0.code == .outcomeUnknown })
    #expect(try cache.model("k") == "a" && other.model("k") == "a")
    expectFailure(.outcomeUnknown) { try cache.remove("k") }
    #expect(try cache.get("k") == nil)
    other.expectEventually("k", nil)
    try other.set("b", forKey: "l")
    expectFailure(.outcomeUnknown) { try cache.removeAll() }
    other.expectEventually("l", nil)
  }
}
