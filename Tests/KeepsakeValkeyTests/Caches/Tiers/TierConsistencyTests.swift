import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What the two tiers agree on when messages are late, calls overlap, or the server fails.
@Suite(.ownThread, .timeLimit(.minutes(20))) struct TierConsistencyTests {
  private let server = FakeTierServer()
  private let here: TierMachine
  private let there: TierMachine
  private let cache: DiskCache.Store
  private let other: DiskCache.Store
  /// Is on the machine that stores it, and not on the server.
  private static let large = Data(count: SharedEntry.largestPayload + 1)
  /// Is on the server, but not on a machine with a small size limit.
  private static let medium = Data(count: 50_000)

  init() throws {
    here = try TierMachine(server)
    there = try TierMachine(server)
    cache = here.cache()
    other = there.cache()
  }

  /// Sets the key `k`, and runs `action` once after that was made on the server, and before it is
  /// made here.
  private func set(_ value: String, _ action: @escaping @Sendable () -> Void) throws {
    let count = Locked(0)
    let plan = FaultPlan(decide: { event in
      if event.call == .write, count.increment() == 1 { action() }
      return .proceed
    })
    try FaultPlan.$current.withValue(plan) { try cache.set(value, forKey: "k") }
    #expect(count.withLock { $0 } > 0)
  }

  // MARK: A server that refuses values

  @Test func refusedValueStaysHere() throws {
    try cache.set("old", forKey: "k")
    #expect(try other.model("k") == "old")
    here.tier.fail(with: .diskFull)
    try cache.set("new", forKey: "k")
    #expect(try cache.model("k") == "new")
    #expect(try cache.contains("k") && cache.entry("k")?.size == 3)
    #expect(server.entries["k"] == nil)
    #expect(try other.get("k") == nil)
    try other.set("newest", forKey: "k")
    #expect(try cache.model("k") == "newest")
  }

  @Test func refusedValueIsProducedOnce() async throws {
    here.tier.fail(with: .diskFull)
    for number in 1...3 { #expect(try await cache.fetch("k") { number } == 1) }
    #expect(here.failures.all.map(\.code) == [.diskFull])
    #expect(server.state.withLock { $0.leases.isEmpty })
  }

  // MARK: Overlapping calls

  @Test(arguments: [false, true]) func ownSetDuringAReadCounts(_ isLarge: Bool) throws {
    let new = isLarge ? Self.large : Data([1])
    try other.set("a", forKey: "k")
    here.tier.hold()
    here.tier.beforeReply(to: "read") { [cache] in try? cache.set(new, forKey: "k") }
    _ = try cache.get("k")
    #expect(try cache.get("k") == new)
    here.tier.deliver()
    #expect(try cache.get("k") == new)
  }

  @Test(arguments: [false, true]) func ownRemovalDuringAReadCounts(_ isOfAll: Bool) throws {
    try other.set("a", forKey: "k")
    here.tier.hold()
    here.tier.beforeReply(to: "read") { [cache] in
      guard isOfAll else {
        try? cache.remove("k")
        return
      }
      try? cache.removeAll()
    }
    _ = try cache.get("k")
    here.tier.goAway()
    #expect(try cache.get("k") == nil)
  }

  @Test(arguments: [false, true]) func laterOfTwoOwnSetsCounts(_ isLarge: Bool) throws {
    let new = isLarge ? Self.large : Data([1])
    _ = try cache.get("k")
    here.tier.hold()
    here.tier.beforeReply(to: "write") { [cache] in try? cache.set(new, forKey: "k") }
    try cache.set("a", forKey: "k")
    #expect(try cache.get("k") == new)
    here.tier.deliver()
    #expect(try cache.get("k") == new)
  }

  /// The replies to two changes are noted in another order than that in which they were made.
  @Test(arguments: [false, true])
  func serverDecidesTheOrderOfConcurrentSets(_ isAway: Bool) throws {
    _ = try cache.get("k")
    here.tier.hold()
    let (isMade, goesOn, isDone) = (ThreadGate(), ThreadGate(), ThreadGate())
    here.tier.beforeReply(to: "write") { [cache, tier = here.tier] in
      tier.beforeReply(to: "write") {
        isMade.open()
        goesOn.wait()
      }
      Thread.detachNewThread {
        try? cache.set("b", forKey: "k")
        isDone.open()
      }
      isMade.wait()
    }
    try cache.set("a", forKey: "k")
    goesOn.open()
    isDone.wait()
    if isAway {
      here.tier.goAway()
      #expect(try cache.model("k") == "b")
      here.tier.comeBack()
    }
    #expect(try cache.model("k") == "b")
    here.tier.deliver()
    #expect(try cache.model("k") == "b")
  }

  /// The messages about the own change and a later one arrive before the reply.
  @Test func ownSetThatIsReplacedAtOnceLeavesNoOlderValue() throws {
    try cache.set("old", forKey: "k")
    here.tier.beforeReply(to: "write") { [other] in try? other.set("b", forKey: "k") }
    try cache.set("a", forKey: "k")
    here.tier.goAway()
    #expect(try cache.get("k") == nil)
  }

  /// An entry is removed in the background, as a message told, while its new value is read.
  @Test func removalOfAnOutdatedEntryDoesNotLoseItsNewValue() throws {
    try cache.set("old", forKey: "k")
    #expect(try other.model("k") == "old")
    try cache.set("new", forKey: "k")
    there.tier.beforeReply(to: "readHead") { [other] in other.tiers?.removeOutdated() }
    #expect(try other.model("k") == "new")
    there.tier.goAway()
    #expect(try other.model("k") == "new")
  }

  /// The message about an earlier change arrives after the own one was acknowledged.
  @Test(arguments: [false, true]) func lateMessageDoesNotUndoAnOwnSet(_ isLarge: Bool) throws {
    let new = isLarge ? Self.large : Data([1])
    _ = try cache.get("k")
    here.tier.hold()
    try other.set("a", forKey: "k")
    try cache.set(new, forKey: "k")
    here.tier.deliver()
    _ = here.tier.takeCalls()
    #expect(try cache.get("k") == new)
    // The server could have lost the own change.
    #expect(here.tier.takeCalls() == ["readHead"])
    try other.set("b", forKey: "k")
    #expect(try cache.model("k") == "b")
  }

  /// Another process of the machine stores a value that is nowhere else, after this one has looked
  /// for an entry and before it removes what it has found.
  @Test func onlyWhatWasComparedIsRemoved() throws {
    try cache.set("a", forKey: "k")
    let process = try here.restarted(server)
    try other.remove("k")
    let second = try here.restarted(server)
    second.tier.hold()
    second.tier.beforeReply(to: "readHead") { try? process.cache().set(Self.large, forKey: "k") }
    second.tier.beforeReply(to: "read") { try? process.cache().set(Self.large, forKey: "k") }
    _ = try second.cache().get("k")
    #expect(try process.cache().get("k") == Self.large)
  }

  /// A message about an earlier value is late, in another process of the machine.
  @Test(arguments: [false, true])
  func largeValueIsNotRemovedForItsPredecessor(_ isAway: Bool) throws {
    let process = try here.restarted(server)
    let second = process.cache()
    _ = try second.get("k")
    process.tier.hold()
    try other.set("a", forKey: "k")
    try cache.set(Self.large, forKey: "k")
    process.tier.deliverOne()
    if isAway { process.tier.goAway() }
    second.tiers?.removeOutdated()
    #expect(try cache.get("k") == Self.large)
    if isAway { process.tier.comeBack() }
    process.tier.deliver()
    second.tiers?.removeOutdated()
    #expect(try cache.get("k") == Self.large && second.get("k") == Self.large)
    try other.set("b", forKey: "k")
    second.tiers?.removeOutdated()
    #expect(try second.model("k") == "b" && cache.model("k") == "b")
  }

  /// The message about the earlier change arrives alone.
  @Test func largeValueOfTheLaterOfTwoSetsIsNotRemoved() throws {
    _ = try cache.get("k")
    here.tier.hold()
    here.tier.beforeReply(to: "write") { [cache] in try? cache.set(Self.large, forKey: "k") }
    try cache.set("a", forKey: "k")
    here.tier.deliverOne()
    cache.tiers?.removeOutdated()
    #expect(try cache.get("k") == Self.large)
  }

  /// Two reads overlap, and the one with the older value ends later. The newer value exceeds the
  /// size limit of the machine.
  @Test func readsDoNotGoBackwards() throws {
    try other.set("a", forKey: "k")
    _ = try cache.get("l")
    cache.sizeLimit = 10_000
    here.tier.hold()
    here.tier.beforeReply(to: "read") { [cache, other] in
      try? other.set(Self.medium, forKey: "k")
      #expect((try? cache.get("k")) == Self.medium)
    }
    #expect(try cache.model("k") == "a")
    #expect(try cache.get("k") == Self.medium)
    here.tier.goAway()
    #expect(try cache.get("k") == nil)
  }

  /// Two reads overlap, and the one with the older value stores it first.
  @Test func readsDoNotGoBackwardsDuringAnOutage() throws {
    try other.set("a", forKey: "k")
    _ = try cache.get("l")
    here.tier.hold()
    here.tier.beforeRequest(to: "read") { [cache, other] in
      #expect((try? cache.model("k", type: String.self)) == "a")
      try? other.set("b", forKey: "k")
    }
    #expect(try cache.model("k") == "b")
    here.tier.goAway()
    let value = try cache.model("k", type: String.self)
    #expect(value == nil || value == "b")
  }

  /// A read finds the value of one thread on the server before that of the other one is there.
  @Test func readBetweenTwoOwnSetsIsNotCurrent() throws {
    _ = try cache.get("l")
    here.tier.hold()
    let (isSent, goesOn) = (ThreadGate(), ThreadGate())
    here.tier.beforeRequest(to: "write") {
      isSent.open()
      goesOn.wait()
    }
    let isDone = startThread { [cache] in try? cache.set("b", forKey: "k") }
    isSent.wait()
    try cache.set("a", forKey: "k")
    #expect(try cache.model("k") == "a")
    goesOn.open()
    isDone.wait()
    #expect(try cache.model("k") == "b")
  }

  /// An outage begins after a set was made on the server, and before it is made here.
  @Test func oldValueIsNotUsedUntilASetIsMadeHere() throws {
    try cache.set("old", forKey: "k")
    here.tier.hold()
    try set("new") { [cache, tier = here.tier] in
      tier.goAway()
      #expect((try? cache.get("k")) == .some(nil))
    }
    #expect(try cache.model("k") == "new")
  }

  /// The key is set here, and then elsewhere, while the server is asked for it.
  @Test func readBesideAnOwnSetDoesNotReturnALaterValueAlone() throws {
    _ = try cache.get("l")
    here.tier.hold()
    here.tier.beforeRequest(to: "read") { [cache, other] in
      try? cache.set("a", forKey: "k")
      try? other.set("b", forKey: "k")
    }
    let first = try cache.model("k", type: String.self)
    here.tier.goAway()
    #expect(try cache.model("k") == first)
  }

  /// A read returns a later value while the reply to a set is on its way.
  @Test func setDoesNotReplaceALaterValueThatWasRead() throws {
    _ = try cache.get("k")
    here.tier.hold()
    here.tier.beforeReply(to: "write") { [cache, other] in
      try? other.set("b", forKey: "k")
      #expect((try? cache.model("k", type: String.self)) == "b")
    }
    try cache.set("a", forKey: "k")
    here.tier.goAway()
    #expect(try cache.model("k") == "b")
    here.tier.comeBack()
    #expect(try cache.model("k") == "b")
  }

  // MARK: Outages

  /// The removal of the old value is on its way when the key is changed again.
  @Test(arguments: ["set", "remove", "removeAll"])
  func removalAfterAnOutageDoesNotRemoveALaterValue(_ change: String) throws {
    for number in 0..<20 {
      here.tier.goAway()
      try cache.set("unknown to the server", forKey: "k")
      here.tier.comeBack()
      let isOver = ThreadGate()
      here.tier.beforeRequest(to: "remove") { [cache, other] in
        Thread.detachNewThread {
          switch change {
          case "set": try? cache.set(number, forKey: "k")
          case "remove": try? cache.remove("k")
          default: try? cache.removeAll()
          }
          if change != "set" { try? other.set(number, forKey: "k") }
          isOver.open()
        }
        for _ in 0..<1_000 { sched_yield() }
      }
      _ = try cache.get("k")
      isOver.wait()
      #expect(try cache.model("k") == number && other.model("k") == number)
    }
  }

  /// The removal fails after the set was made on the server, and before it is made here.
  @Test func removalThatFailsBesideASetDoesNotKeepTheOldValue() throws {
    try cache.set("old", forKey: "k")
    let (isSent, fails) = (ThreadGate(), ThreadGate())
    here.tier.beforeRequest(to: "remove") {
      isSent.open()
      fails.wait()
    }
    let isOver = startThread { [cache] in try? cache.remove("k") }
    isSent.wait()
    try set("new") { [tier = here.tier] in
      tier.goAway()
      fails.open()
      isOver.wait()
    }
    here.tier.comeBack()
    #expect(try cache.get("k") == nil && other.get("k") == nil)
  }

  /// Another thread looks at the entry, of which the server was not told, while the key is set.
  @Test(arguments: ["get", "contains"], [false, true])
  func readOfAnUnsentEntryDoesNotRemoveALaterValue(_ read: String, _ isEarly: Bool) throws {
    here.tier.goAway()
    try cache.set("unknown to the server", forKey: "k")
    let process = try here.restarted(server)
    let second = process.cache()
    let readNow: @Sendable () -> Void = {
      if read == "get" { _ = try? second.get("k") } else { _ = try? second.contains("k") }
    }
    if isEarly {
      process.tier.beforeRequest(to: "write", readNow)
    } else {
      process.tier.beforeReply(to: "write", readNow)
    }
    try second.set("a", forKey: "k")
    #expect(try second.model("k") == "a" && other.model("k") == "a")
  }

  /// The machine compares the entry, and finds another value that it cannot keep.
  @Test func valueAboveTheSizeLimitReplacesTheOldOne() throws {
    try cache.set("old", forKey: "k")
    #expect(try other.model("k") == "old")
    there.tier.goAway()
    try cache.set(Self.medium, forKey: "k")
    there.tier.comeBack()
    other.sizeLimit = 10_000
    #expect(try other.get("k") == Self.medium)
    there.tier.goAway()
    #expect(try other.get("k") == nil)
  }

  /// The machine compares the entry without reading its value.
  @Test(arguments: [false, true], [false, true])
  func entryThatWasFoundOutdatedIsNotUsed(_ isRemoved: Bool, _ readsEntry: Bool) throws {
    try cache.set("old", forKey: "k")
    #expect(try other.model("k") == "old")
    there.tier.goAway()
    if isRemoved { try cache.remove("k") } else { try cache.set("newer", forKey: "k") }
    there.tier.comeBack()
    if readsEntry {
      #expect(try other.entry("k")?.size == (isRemoved ? nil : 5))
    } else {
      #expect(try other.contains("k") != isRemoved)
    }
    there.tier.goAway()
    #expect(try other.get("k") == nil)
  }

  /// The entry was read, and is then removed as outdated, before the question to the server fails.
  @Test(arguments: [false, true])
  func entryThatIsRemovedAsOutdatedMeanwhileIsNotUsed(_ isLookedAt: Bool) throws {
    try cache.set("a", forKey: "k")
    #expect(try other.model("k") == "a")
    let process = try there.restarted(server)
    let store = process.cache()
    _ = try store.get("l")
    process.tier.hold()
    try cache.remove("k")
    process.tier.beforeRequest(to: "readHead") { [tier = process.tier] in
      tier.deliver()
      store.tiers?.removeOutdated()
      tier.goAway()
    }
    if isLookedAt {
      #expect(try !store.contains("k"))
    } else {
      #expect(try store.get("k") == nil)
    }
  }

  @Test func outdatedEntryThatCannotBeRemovedIsNotUsed() throws {
    try cache.set("a", forKey: "k")
    #expect(try other.model("k") == "a")
    try FaultPlan.$current.withValue(.unchangeable) {
      _ = try cache.tiers?.tier.remove("k", production: nil)
      other.tiers?.removeOutdated()
    }
    there.tier.goAway()
    #expect(try other.get("k") == nil)
  }

  /// The change is made on the server, but not on this machine.
  @Test(arguments: ["set", "remove", "removeAll"])
  func changeThatFailsOnThisMachineCountsDuringAnOutage(_ change: String) throws {
    try cache.set("old", forKey: "k")
    FaultPlan.$current.withValue(.unchangeable) {
      switch change {
      case "set": #expect(throws: Never.self) { try cache.set("new", forKey: "k") }
      // Without the plan, the removal of outdated entries in the background may have been faster:
      // then these do not fail.
      case "remove": try? cache.remove("k")
      default: try? cache.removeAll()
      }
    }
    here.tier.goAway()
    #expect(try cache.get("k") == nil)
  }

  @Test func changeThatWasToldCountsDuringAnOutage() throws {
    for key in ["removed", "set", "same"] {
      try cache.set("a", forKey: key)
      #expect(try other.model(key) == "a")
    }
    try cache.remove("removed")
    try cache.set("b", forKey: "set")
    there.tier.goAway()
    #expect(try other.get("removed") == nil && other.get("set") == nil)
    #expect(try !other.contains("removed") && other.entry("set") == nil)
    #expect(try other.model("same") == "a")
  }

  @Test func removalOfAllThatWasToldCountsDuringAnOutage() async throws {
    try cache.set("a", forKey: "k")
    #expect(try other.model("k") == "a")
    try cache.removeAll()
    try other.set("b", forKey: "l")
    there.tier.goAway()
    #expect(try other.get("k") == nil && !other.contains("k"))
    #expect(try other.model("l") == "b")
  }

  /// The entry was never compared by this process.
  @Test func toldRemovalOfAnUnusedEntryCounts() throws {
    try other.set("a", forKey: "k")
    let process = try there.restarted(server)
    _ = try process.cache().get("l")
    try cache.remove("k")
    process.tier.goAway()
    #expect(try process.cache().get("k") == nil)
  }

  @Test func recordOfNoValueThatIsOutdatedIsNotUsed() async throws {
    func fetch(_ value: Int?) async throws -> Int? {
      try await other.fetch("k", expiry: .hours(1), nilExpiry: .hours(1)) {
        (_: DiskCache.CachedValue<Int>?) in .value(value)
      }?.value
    }
    #expect(try await fetch(nil) == nil)
    try cache.set(1, forKey: "k")
    there.tier.goAway()
    #expect(try await fetch(2) == 2)
  }

  @Test(arguments: [false, true])
  func setDuringAnOutageIsNotUndoneInANewProcess(_ isLookedAt: Bool) throws {
    try cache.set("old", forKey: "k")
    #expect(try other.model("k") == "old")
    here.tier.goAway()
    try cache.set("new", forKey: "k")
    let process = try here.restarted(server)
    if isLookedAt {
      #expect(try !process.cache().contains("k"))
    } else {
      #expect(try process.cache().get("k") == nil)
    }
    #expect(try other.get("k") == nil && server.entries["k"] == nil)
  }

  /// The entry itself, which would tell that the server does not have it, is gone.
  @Test func setDuringAnOutageIsNotUndoneWhenItExpires() throws {
    try cache.set("old", forKey: "k")
    here.tier.goAway()
    let start = WallClock.now
    try cache.set("new", forKey: "k", expiry: .seconds(5))
    here.tier.comeBack()
    let value = try WallClock.$fixed.withValue(start + 10 * WallClock.second) {
      try cache.model("k", type: String.self)
    }
    #expect(value == nil && server.entries["k"] == nil)
  }

  /// Another process of the machine, which is not cut off, is told of an earlier change.
  @Test func setDuringAnOutageIsNotRemovedAsOutdated() throws {
    try cache.set("old", forKey: "k")
    let process = try here.restarted(server)
    #expect(try process.cache().model("k") == "old")
    here.tier.goAway()
    process.tier.hold()
    try other.set("b", forKey: "k")
    try cache.set("new", forKey: "k")
    process.tier.deliver()
    process.cache().tiers?.removeOutdated()
    #expect(try cache.model("k") == "new")
  }

  @Test func manyChangesDuringAnOutageLeaveOtherEntries() throws {
    for number in 0..<3_000 where number.isMultiple(of: 300) {
      try other.set("old", forKey: "\(number)")
    }
    try other.set("old", forKey: "unrelated")
    here.tier.goAway()
    for number in 0..<3_000 { try cache.set("new", forKey: "\(number)") }
    here.tier.comeBack()
    for number in 0..<3_000 where number.isMultiple(of: 300) {
      #expect(try cache.get("\(number)") == nil)
      #expect(server.entries["\(number)"] == nil)
    }
    #expect(try cache.model("unrelated") == "old" && other.model("unrelated") == "old")
  }

  // MARK: Produced values

  @Test func producedValueReplacesAnEvictedOne() async throws {
    try cache.set("a", forKey: "k")
    #expect(try other.model("k") == "a")
    server.state.withLock { $0.entries = [:] }
    #expect(try await TierMachine(server).cache().fetch("k") { "b" } == "b")
    #expect(try other.model("k") == "b")
    #expect(try cache.model("k") == "b")
  }

  @Test func producedValueReplacesOneOfAnotherType() async throws {
    try cache.set("a", forKey: "k")
    let third = try TierMachine(server).cache()
    #expect(try third.model("k") == "a")
    #expect(try await other.fetch("k") { 1 } == 1)
    #expect(there.failures.all.first?.code == .wrongType)
    #expect(try cache.model("k") == 1 && third.model("k") == 1)
  }

  @Test func producedValueReplacesARecordOfNone() async throws {
    let none = try await cache.fetch("k", expiry: .hours(1), nilExpiry: .hours(1)) {
      (_: DiskCache.CachedValue<Int>?) in .gone
    }
    #expect(none == nil)
    #expect(try await other.fetch("k") { 1 } == 1)
    #expect(try cache.model("k") == 1)
  }

  // MARK: Times

  @Test func useProlongsOnlyTheValueThatWasUsed() throws {
    let start = WallClock.now
    try cache.set("a", forKey: "k", expiry: .idle(.minutes(40)))
    #expect(try other.model("k") == "a")
    there.tier.hold()
    try cache.set("b", forKey: "k", expiry: .seconds(5))
    let used = try WallClock.$fixed.withValue(start + 20 * 60 * WallClock.second) {
      try other.model("k", type: String.self)
    }
    #expect(used == "a")
    #expect(there.tier.takeCalls().contains("touch"))
    let entry = try #require(server.entries["k"])
    #expect(entry.expires <= 5 * WallClock.second)
    // Its use was refused, because it is not there any more.
    #expect(try other.model("k") == "b")
  }

  /// The clock of a machine was set back, so that its entry seems to be fresh.
  @Test func expiryOfTheServerCountsForAnEntryOfThisMachine() throws {
    for key in ["k", "l"] {
      try cache.set("a", forKey: key, expiry: .hours(1), keptFor: .hours(5), tags: [:])
      #expect(try other.model(key) == "a")
    }
    server.advance(by: 7_200)
    let process = try there.restarted(server).cache()
    #expect(try process.get("k") == nil)
    #expect(try !process.contains("l") && process.entry("l") == nil)
  }

  @Test func entryIsFreshAlthoughItIsKeptForEver() throws {
    try cache.set("a", forKey: "k", expiry: .hours(1), keptFor: .days(36_500), tags: [:])
    #expect(try other.model("k") == "a")
    server.advance(by: 3_601)
    let process = try TierMachine(server).cache()
    #expect(try process.get("k") == nil)
    #expect(server.entries["k"] != nil)
  }

  // MARK: Failures of this machine

  @Test func longKeyIsRefusedBeforeTheServerIsTold() throws {
    let key = String(repeating: "x", count: EntryName.longestKey + 1)
    expectFailure(.misuse) { try cache.set("a", forKey: key) }
    expectFailure(.misuse) { try cache.remove(key) }
    #expect(server.entries.isEmpty)
    #expect(here.tier.takeCalls().allSatisfy { $0 != "write" && $0 != "remove" })
  }

  /// All machines have the value, so it is stored.
  @Test func failureOfThisMachineIsReported() throws {
    let path = try #require(try cache.folderURL).path
    try FileManager.default.createDirectory(
      atPath: (path as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
    try Data().write(to: URL(filePath: path))
    try cache.set("a", forKey: "k")
    #expect(!here.failures.all.isEmpty)
    #expect(try other.model("k") == "a")
  }
}
