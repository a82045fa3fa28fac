import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

@Suite(.ownThread) final class PendingInvalidationsTests: Sendable {
  private let server = FakeTierServer()
  private let order = Locked(KeyOrder())

  private func note(_ body: (inout KeyOrder) -> Bool) { order.withLock { _ = body(&$0) } }

  @Test func changeDuringARemovalStaysPending() throws {
    let (pending, tier) = (PendingInvalidations(), FakeTier(server))
    pending.add("k")
    pending.add("l")
    tier.beforeReply(to: "remove") { pending.add("k") }
    try pending.send(to: tier, about: "k", note)
    #expect(tier.takeCalls() == ["remove"])
    try pending.send(to: tier, about: "k", note)
    #expect(tier.takeCalls() == ["remove"] && !pending.isEmpty)
    tier.beforeReply(to: "remove") { pending.addAll() }
    try pending.sendAll(to: tier, note)
    #expect(tier.takeCalls() == ["remove", "removeAll"] && pending.isEmpty)
    tier.beforeReply(to: "removeAll") { pending.addAll() }
    pending.addAll()
    try pending.send(to: tier, about: "m", note)
    #expect(!pending.isEmpty)
    try pending.send(to: tier, about: "m", note)
    #expect(tier.takeCalls() == ["removeAll", "removeAll"] && pending.isEmpty)
  }

  @Test func concurrentChangesStayPending() throws {
    let (pending, tier) = (PendingInvalidations(), FakeTier(server))
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
      for number in 0..<500 {
        pending.add("\(thread) \(number)")
        if thread == 0 { _ = try? pending.removeAll(on: tier, note) }
        if thread == 1 { pending.remove("1 \(number)") }
      }
    }
    pending.add("last")
    #expect(!pending.isEmpty)
    try pending.sendAll(to: tier, note)
    #expect(pending.isEmpty && tier.takeCalls().contains("remove"))
  }

  /// The reply is on its way when another key is changed.
  @Test func changeDuringARemovalOfAllStaysPending() throws {
    let (pending, tier) = (PendingInvalidations(), FakeTier(server))
    pending.add("k")
    tier.beforeReply(to: "removeAll") { pending.add("l") }
    _ = try pending.removeAll(on: tier, note)
    #expect(!pending.isEmpty)
    try pending.sendAll(to: tier, note)
    #expect(tier.takeCalls() == ["removeAll", "remove"] && pending.isEmpty)
    pending.addAll()
    tier.beforeReply(to: "removeAll") { pending.add("k") }
    try pending.sendAll(to: tier, note)
    #expect(tier.takeCalls() == ["removeAll", "removeAll"] && pending.isEmpty)
  }

  @Test func tooManyKeysEmptyTheCache() throws {
    let (pending, tier) = (PendingInvalidations(), FakeTier(server))
    let long = String(repeating: "x", count: 60_000)
    for number in 0..<300 { pending.add("\(number) \(long)") }
    try pending.sendAll(to: tier, note)
    #expect(tier.takeCalls() == ["removeAll"] && pending.isEmpty)
  }

  @Test func sentChangeIsNotUnsent() throws {
    let (pending, tier) = (PendingInvalidations(), FakeTier(server))
    for key in ["k", "l", "m"] {
      order.withLock { order in
        order.noteUnsent(.entry(EntryVersion(number: 0, name: 1)), order.begin(key))
        pending.add(key)
      }
    }
    tier.beforeReply(to: "remove") { [self] in
      _ = order.withLock { $0.noteUnsent(.nothing, $0.begin("l")) }
      pending.add("l")
    }
    try pending.send(to: tier, about: "k", note)
    #expect(
      order.withLock { [$0.isUnsent("k"), $0.isUnsent("l"), $0.isUnsent("m")] }
        == [false, true, true])
    tier.beforeReply(to: "remove") { [self] in
      _ = order.withLock { $0.noteUnsent(.nothing, $0.begin("l")) }
      pending.add("l")
    }
    tier.beforeRequest(to: "removeAll") { Issue.record("keys were not removed one by one") }
    try pending.sendAll(to: tier, note)
    #expect(order.withLock { !$0.isUnsent("l") && !$0.isUnsent("m") })
    #expect(tier.takeCalls() == ["remove", "remove", "remove"])
    tier.forgetActions()
  }

  @Test func sentRemovalOfAllEndsEarlierUnsentChanges() throws {
    let (pending, tier) = (PendingInvalidations(), FakeTier(server))
    let version = EntryVersion(number: 0, name: 1)
    pending.addAll()
    _ = order.withLock { $0.noteUnsent(.entry(version), $0.begin("k")) }
    pending.add("k")
    tier.beforeReply(to: "removeAll") { [self] in
      _ = order.withLock { $0.noteUnsent(.entry(version), $0.begin("l")) }
      pending.add("l")
    }
    try pending.send(to: tier, about: "other", note)
    #expect(order.withLock { !$0.mayUse("k", version) && $0.mayUse("l", version) })
    #expect(order.withLock { $0.wasSent("k", version) && !$0.wasSent("l", version) })
    #expect(!pending.isEmpty)
    try pending.sendAll(to: tier, note)
    #expect(order.withLock { !$0.mayUse("l", version) } && pending.isEmpty)
  }
}
