import Foundation
import Testing

@testable import Keepsake

@Suite(.ownThread) struct PendingInvalidationsTests {
  private let server = FakeTierServer()

  @Test func changeDuringARemovalStaysPending() throws {
    let (pending, tier) = (PendingInvalidations(), FakeTier(server))
    pending.add("k")
    pending.add("l")
    tier.beforeReply(to: "remove") { pending.add("k") }
    try pending.send(to: tier, about: "k")
    #expect(tier.takeCalls() == ["remove"])
    try pending.send(to: tier, about: "k")
    #expect(tier.takeCalls() == ["remove"] && !pending.isEmpty)
    tier.beforeReply(to: "remove") { pending.addAll() }
    try pending.sendAll(to: tier)
    #expect(tier.takeCalls() == ["remove", "removeAll"] && pending.isEmpty)
    tier.beforeReply(to: "removeAll") { pending.addAll() }
    pending.addAll()
    try pending.send(to: tier, about: "m")
    #expect(!pending.isEmpty)
    try pending.send(to: tier, about: "m")
    #expect(tier.takeCalls() == ["removeAll", "removeAll"] && pending.isEmpty)
  }

  @Test func concurrentChangesStayPending() throws {
    let (pending, tier) = (PendingInvalidations(), FakeTier(server))
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
      for number in 0..<500 {
        pending.add("\(thread) \(number)")
        if thread == 0 { _ = try? pending.removeAll(on: tier) }
        if thread == 1 { pending.remove("1 \(number)") }
      }
    }
    pending.add("last")
    #expect(!pending.isEmpty)
    try pending.sendAll(to: tier)
    #expect(pending.isEmpty && tier.takeCalls().contains("remove"))
  }

  /// The reply is on its way when another key is changed.
  @Test func changeDuringARemovalOfAllStaysPending() throws {
    let (pending, tier) = (PendingInvalidations(), FakeTier(server))
    pending.add("k")
    tier.beforeReply(to: "removeAll") { pending.add("l") }
    _ = try pending.removeAll(on: tier)
    #expect(!pending.isEmpty)
    try pending.sendAll(to: tier)
    #expect(tier.takeCalls() == ["removeAll", "remove"] && pending.isEmpty)
    pending.addAll()
    tier.beforeReply(to: "removeAll") { pending.add("k") }
    try pending.sendAll(to: tier)
    #expect(tier.takeCalls() == ["removeAll", "removeAll"] && pending.isEmpty)
  }

  @Test func tooManyKeysEmptyTheCache() throws {
    let (pending, tier) = (PendingInvalidations(), FakeTier(server))
    let long = String(repeating: "x", count: 60_000)
    for number in 0..<300 { pending.add("\(number) \(long)") }
    try pending.sendAll(to: tier)
    #expect(tier.takeCalls() == ["removeAll"] && pending.isEmpty)
  }
}
