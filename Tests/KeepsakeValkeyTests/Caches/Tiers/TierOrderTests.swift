import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What a cache with two tiers returns after calls overlapped: never an older value than before.
@Suite(.ownThread, .timeLimit(.minutes(20))) struct TierOrderTests {
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

  /// Three reads overlap. The one that ends last has the oldest value.
  @Test func lastAnswerNeedNotBeTheLatest() throws {
    try other.set("a", forKey: "k")
    _ = try cache.get("l")
    here.tier.hold()
    here.tier.beforeReply(to: "read") { [cache, other, tier = here.tier] in
      tier.beforeRequest(to: "read") {
        #expect((try? cache.model("k", type: String.self)) == "a")
        try? other.set("b", forKey: "k")
      }
      #expect((try? cache.model("k", type: String.self)) == "b")
    }
    #expect(try cache.model("k") == "a")
    here.tier.goAway()
    let value = try cache.model("k", type: String.self)
    #expect(value == nil || value == "b")
  }

  /// A key that is changed all the time is not asked for again and again.
  @Test func readBesideManyOwnSetsAsksOnce() throws {
    try other.set("a", forKey: "k")
    _ = try cache.get("l")
    let count = Locked(0)
    for call in ["read", "readHead"] {
      here.tier.beforeReply(to: call) { [cache] in
        let number = count.increment()
        try? cache.set(number, forKey: "k")
      }
    }
    _ = here.tier.takeCalls()
    #expect(try cache.model("k") == "a")
    #expect(here.tier.takeCalls() == ["read", "write"])
    #expect(try cache.model("k") == count.withLock { $0 })
  }

  // MARK: Two processes of one machine

  /// They store their values in another order than the server.
  @Test func valueOfAnotherProcessIsNotTakenForALaterOne() throws {
    let process = try here.restarted(server)
    let second = process.cache()
    _ = try (cache.get("l"), second.get("l"))
    here.tier.hold()
    process.tier.hold()
    here.tier.beforeReply(to: "write") { try? second.set("b", forKey: "k") }
    try cache.set("a", forKey: "k")
    process.tier.goAway()
    let value = try second.model("k", type: String.self)
    #expect(value == nil || value == "b")
    process.tier.comeBack()
    #expect(try second.model("k") == "b")
  }

  /// The other process has stored it, and the message about it has not arrived here.
  @Test func laterValueOfAnotherProcessIsUsed() throws {
    try cache.set("a", forKey: "k")
    let process = try here.restarted(server)
    here.tier.hold()
    try process.cache().set("b", forKey: "k")
    here.tier.goAway()
    #expect(try cache.model("k") == "b")
  }

  /// What a process does after it has read the value that follows the one that another process of
  /// the machine is about to store.
  enum Removal: CaseIterable {
    /// Another machine removes the value.
    case elsewhere
    case here
    /// It has no entry, because the machine has no files yet.
    case withoutFiles
  }

  /// Reads "b", and forgets everything about it.
  private func readAndForget(_ removal: Removal) throws {
    try other.set("b", forKey: "k")
    if removal == .withoutFiles {
      #expect(try cache.contains("k"))
    } else {
      #expect(try cache.model("k") == "b")
    }
    if removal == .elsewhere { try other.remove("k") } else { try cache.remove("k") }
    cache.tiers?.removeOutdated()
  }

  @Test(arguments: Removal.allCases)
  func oldAnswerThatAnotherProcessStoresIsNotUsed(_ removal: Removal) throws {
    try other.set("a", forKey: "k")
    let process = try here.restarted(server)
    let second = process.cache()
    _ = try (cache.get("l"), second.get("l"))
    process.tier.hold()
    process.tier.beforeReply(to: "read") {
      #expect(throws: Never.self) { try readAndForget(removal) }
    }
    #expect(try second.model("k") == "a")
    here.tier.goAway()
    #expect(try cache.get("k") == nil)
  }

  /// As before, but it has set the value.
  @Test(arguments: Removal.allCases)
  func oldValueThatAnotherProcessStoresIsNotUsed(_ removal: Removal) throws {
    let process = try here.restarted(server)
    let second = process.cache()
    _ = try (cache.get("l"), second.get("l"))
    process.tier.hold()
    process.tier.beforeReply(to: "write") {
      #expect(throws: Never.self) {
        if removal != .withoutFiles { #expect(try cache.model("k") == "a") }
        try readAndForget(removal)
      }
    }
    try second.set("a", forKey: "k")
    here.tier.goAway()
    #expect(try cache.get("k") == nil)
  }

  /// The message about a later value comes before the answer that this process returns.
  @Test func oldAnswerIsNotUsedAfterOneThatWasOvertaken() throws {
    try other.set("a", forKey: "k")
    let process = try here.restarted(server)
    let second = process.cache()
    _ = try (cache.get("l"), second.get("l"))
    process.tier.hold()
    process.tier.beforeReply(to: "read") { [cache, other, tier = here.tier] in
      try? other.set("b", forKey: "k")
      tier.beforeReply(to: "read") { try? other.set("c", forKey: "k") }
      #expect((try? cache.model("k", type: String.self)) == "b")
      cache.tiers?.removeOutdated()
    }
    #expect(try second.model("k") == "a")
    here.tier.goAway()
    #expect(try cache.get("k") == nil)
  }

  @Test(arguments: ["large", "refused"])
  func valueThatIsNowhereElseIsStored(_ kind: String) throws {
    _ = try cache.get("l")
    let value = Data(count: kind == "large" ? SharedEntry.largestPayload + 1 : 1)
    if kind == "refused" {
      // The process learns from a message that the change was made, and not that it was refused.
      here.tier.fail(with: .diskFull)
      here.tier.loseReply(to: "write")
    }
    try cache.set(value, forKey: "k")
    here.tier.goAway()
    #expect(try cache.get("k") == value)
    here.tier.comeBack()
    #expect(try cache.get("k") == (kind == "refused" ? nil : value))
  }

  /// This process uses an entry of the other one while the server is away, and then gets an older
  /// answer.
  @Test func entryThatWasUsedWithoutTheServerCounts() throws {
    try other.set("a", forKey: "k")
    let process = try here.restarted(server)
    let second = process.cache()
    _ = try (cache.get("l"), second.get("l"))
    process.tier.beforeReply(to: "read") { [cache, tier = process.tier] in
      tier.goAway()
      try? cache.set("b", forKey: "k")
      #expect((try? second.model("k", type: String.self)) == "b")
      try? cache.remove("k")
    }
    #expect(try second.model("k") == "a")
    #expect(try second.get("k") == nil)
  }

  /// Another process removes the entry after it was found to be current, and before it is opened.
  @Test(arguments: ["chunks", "fileURL", "entry"])
  func entryThatIsReplacedIsLookedUpAgain(_ call: String) async throws {
    try cache.set("a", forKey: "k", tags: ["tag": "a"])
    let process = try here.restarted(server)
    let second = process.cache()
    process.tier.beforeReply(to: "readHead") { [cache, other] in
      try? other.set("b", forKey: "k", tags: ["tag": "b"])
      try? waitUntil("the entry was not removed") {
        try cache.tiers?.files.presentEntry("k") == nil
      }
    }
    switch call {
    case "chunks":
      let chunks = try #require(try second.chunks("k"))
      #expect(try await chunks.reduce(Data()) { $0 + $1 } == other.get("k"))
      #expect(second.statistics.hits == 1 && second.statistics.misses == 0)
    case "fileURL":
      let url = try #require(try second.fileURL("k"))
      #expect(try Data(contentsOf: url) == other.get("k"))
    default: #expect(try second.entry("k")?.tags == ["tag": "b"])
    }
  }

  // MARK: Changes that the server was not told of

  /// Neither by this machine, which has set a later one, nor by another one.
  @Test(arguments: ["set", "remove"])
  func oldValueIsNotReadAfterAChangeThatTheServerWasNotToldOf(_ change: String) throws {
    try other.set("old", forKey: "k")
    #expect(try cache.model("k") == "old")
    here.tier.fail(call: change == "set" ? "write" : "remove")
    if change == "set" {
      try cache.set("unsent", forKey: "k")
    } else {
      #expect(throws: StorageError.self) { try cache.remove("k") }
    }
    _ = here.tier.takeCalls()
    #expect(try cache.get("k") == nil)
    #expect(here.tier.takeCalls().first == "remove")
    #expect(try server.entries["k"] == nil && other.get("k") == nil)
    try other.set("new", forKey: "k")
    #expect(try cache.model("k") == "new")
  }

  @Test func oldValuesAreNotReadAfterARemovalOfAllThatTheServerWasNotToldOf() throws {
    try other.set("old", forKey: "k")
    here.tier.goAway()
    #expect(throws: StorageError.self) { try cache.removeAll() }
    try cache.set("unsent", forKey: "l")
    here.tier.comeBack()
    #expect(try cache.get("k") == nil && cache.get("l") == nil)
    #expect(server.entries.isEmpty)
    try other.set("b", forKey: "k")
    #expect(try cache.model("k") == "b" && other.model("k") == "b")
  }

  /// Another process of the machine stores an old value in the meantime.
  @Test func oldValuesAreNotReadWhileTheServerRefusesTheirRemoval() throws {
    try other.set("old", forKey: "k")
    here.tier.fail(call: "removeAll")
    #expect(throws: StorageError.self) { try cache.removeAll() }
    #expect(try here.restarted(server).cache().model("k") == "old")
    here.tier.fail(call: "removeAll")
    #expect(try cache.get("k") == nil)
    here.tier.fail(call: "removeAll")
    #expect(try !cache.contains("k"))
    #expect(try cache.get("k") == nil && server.entries.isEmpty)
  }

  // MARK: Lost replies

  /// The message about the change has come.
  @Test func ownSetWhoseReplyIsLostCounts() throws {
    try cache.set("old", forKey: "k")
    here.tier.loseReply(to: "write")
    try cache.set("new", forKey: "k")
    _ = here.tier.takeCalls()
    #expect(try cache.model("k") == "new" && other.model("k") == "new")
    #expect(here.tier.takeCalls() == [])
    here.tier.goAway()
    #expect(try cache.model("k") == "new")
  }

  /// Another machine sets the key before the reply is missed. Which change was later is not known.
  @Test func ownSetWhoseReplyIsLostLeavesNoOlderValue() throws {
    try cache.set("old", forKey: "k")
    here.tier.loseReply(to: "write")
    here.tier.beforeReply(to: "write") { [other] in try? other.set("next", forKey: "k") }
    try cache.set("new", forKey: "k")
    #expect(try cache.get("k") == nil && other.get("k") == nil)
  }

  /// Another machine may have set its value before.
  @Test func ownSetWhoseReplyIsLostIsNotDropped() throws {
    try cache.set("old", forKey: "k")
    here.tier.beforeRequest(to: "write") { [other] in try? other.set("b", forKey: "k") }
    here.tier.fail(call: "write")
    try cache.set("new", forKey: "k")
    here.tier.goAway()
    #expect(try cache.model("k") == "new")
  }

  // MARK: Values that are produced for this machine alone

  @Test(arguments: ["set", "remove", "removeAll"])
  func producedValueDoesNotReplaceALaterChange(_ change: String) async throws {
    try other.set("old", forKey: "k", expiry: .seconds(-1))
    let gate = Gate()
    here.tier.goAway()
    let task = try await cache.startFetch(of: "product", at: gate)
    here.tier.comeBack()
    switch change {
    case "set": try other.set("b", forKey: "k")
    case "remove": try other.remove("k")
    default: try other.removeAll()
    }
    #expect(try cache.model("k") == (change == "set" ? "b" : nil as String?))
    here.tier.goAway()
    await gate.open()
    #expect(try await task.value == "product")
    #expect(try cache.model("k") == (change == "set" ? "b" : nil as String?))
  }

  /// The server goes away while the value is produced, so that it cannot be stored there.
  @Test func productOfAnOutageIsUsedDuringIt() async throws {
    let gate = Gate()
    let task = try await cache.startFetch(of: "product", at: gate)
    here.tier.goAway()
    await gate.open()
    #expect(try await task.value == "product")
    #expect(try cache.model("k") == "product" && server.entries["k"] == nil)
  }

  /// Another machine has stored a value, which has expired, just before the producer begins. Only
  /// the second look-up finds it, because no message comes.
  @Test func productOfAnOutageIsUsedAfterNews() async throws {
    here.tier.beforeRequest(to: "takeLease") { [other, tier = here.tier] in
      tier.hold()
      try? other.set("old", forKey: "k", expiry: .seconds(-1), keptFor: .hours(1), tags: [:])
    }
    let value = try await cache.fetch("k") { [tier = here.tier] in
      tier.goAway()
      return "product"
    }
    #expect(try value == "product" && cache.model("k") == "product")
    #expect(here.tier.takeCalls().filter { $0 == "takeLease" }.count == 1)
  }

  // MARK: What is known to be outdated

  @Test func manyChangesElsewhereLeaveOtherEntries() throws {
    try other.set("kept", forKey: "kept")
    #expect(try cache.model("kept") == "kept")
    for number in 0..<11_000 { _ = try there.tier.remove("\(number)", production: nil) }
    cache.tiers?.removeOutdated()
    here.tier.goAway()
    #expect(try cache.model("kept") == "kept")
  }

  /// The server was not told of the value, and was asked for it after it was removed there.
  @Test func unsentEntryThatCannotBeRemovedIsNotUsed() throws {
    here.tier.goAway()
    try cache.set("unsent", forKey: "k")
    here.tier.comeBack()
    let found = try FaultPlan.$current.withValue(.unchangeable) { try cache.get("k") }
    #expect(found == nil)
    here.tier.goAway()
    #expect(try cache.get("k") == nil)
  }

  /// The first value was stored, and the second one could not be.
  @Test func unsentEntryIsNotUsedInPlaceOfALaterOne() throws {
    here.tier.goAway()
    try cache.set("first", forKey: "k")
    let plan = FaultPlan(decide: { event in event.call == .write ? .fail(EIO) : .proceed })
    FaultPlan.$current.withValue(plan) {
      #expect(throws: StorageError.self) { try cache.set("second", forKey: "k") }
    }
    #expect(try cache.get("k") == nil)
  }

  @Test func lateMessageOfAnOwnRemovalOfAllLeavesALaterSet() throws {
    try cache.set("old", forKey: "k")
    here.tier.hold()
    try cache.removeAll()
    try cache.set("new", forKey: "k")
    here.tier.deliver()
    here.tier.goAway()
    #expect(try cache.model("k") == "new")
  }

  /// The clock of this machine is behind.
  @Test func removalOfAllDoesNotDependOnClocks() throws {
    try anHourLater { try cache.set("old", forKey: "k") }
    try other.removeAll()
    here.tier.goAway()
    #expect(try cache.get("k") == nil)
  }

  // MARK: A server that goes back

  /// A replica that lags has become the primary.
  @Test func lostChangeIsNotKept() throws {
    try other.set("a", forKey: "k")
    let before = server.state.withLock { ($0.lastNumber, $0.entries) }
    #expect(try cache.model("k") == "a")
    try other.set("lost", forKey: "k")
    #expect(try cache.model("k") == "lost")
    here.tier.goAway()
    server.state.withLock { ($0.lastNumber, $0.entries) = before }
    here.tier.comeBack()
    #expect(try cache.model("k") == "a" && cache.model("k") == "a")
    // It has the number of the lost one.
    try other.set("b", forKey: "k")
    #expect(try cache.model("k") == "b")
    here.tier.goAway()
    #expect(try cache.model("k") == "b")
  }

  /// The replica takes over without a cut.
  @Test(arguments: ["set", "removeAll"]) func lostChangeIsNotKeptWithoutACut(
    _ change: String
  ) throws {
    try other.set("a", forKey: "l")
    #expect(try cache.model("l") == "a")
    let before = server.state.withLock { ($0.lastNumber, $0.entries) }
    if change == "removeAll" { try other.removeAll() }
    try other.set("lost", forKey: "k")
    #expect(try cache.model("k") == "lost" && cache.model("k") == "lost")
    server.state.withLock { ($0.lastNumber, $0.entries) = before }
    // It has the number of the lost one.
    if change == "removeAll" { try other.removeAll() } else { try other.set("b", forKey: "k") }
    #expect(try cache.model("k") == (change == "set" ? "b" : nil as String?))
  }

  /// Its number is larger than that of the answer.
  @Test func lostEntryIsRemoved() throws {
    try other.set("lost", forKey: "k")
    #expect(try cache.model("k") == "lost")
    here.tier.goAway()
    server.state.withLock { ($0.lastNumber, $0.entries) = (0, [:]) }
    here.tier.comeBack()
    #expect(try cache.get("k") == nil)
    here.tier.goAway()
    #expect(try cache.get("k") == nil)
  }

  /// Scripts of this library begin with a larger one.
  @Test func numberZeroOfTheServerIsNoTrap() throws {
    try cache.set("a", forKey: "k")
    let process = try here.restarted(server)
    process.tier.beforeReply(to: "readHead") { [cache] in try? cache.set("b", forKey: "k") }
    server.state.withLock { $0.entries["k"]?.number = 0 }
    #expect(try process.cache().model("k") == "a")
    #expect(try process.cache().model("k") == "b")
  }

  /// A server that begins again with smaller numbers, while messages go on.
  @Test func smallerNumbersAreComparedAfterALossOfAllData() throws {
    for number in 0..<20 { try other.set(number, forKey: "k") }
    #expect(try cache.model("k") == 19)
    server.state.withLock { ($0.lastNumber, $0.entries) = (0, [:]) }
    try other.set(100, forKey: "k")
    #expect(try cache.model("k") == 100)
    try other.remove("k")
    #expect(try cache.model("k", type: Int.self) == nil)
    try other.set(101, forKey: "k")
    #expect(try cache.model("k") == 101)
    try other.removeAll()
    #expect(try cache.model("k", type: Int.self) == nil)
  }
}
