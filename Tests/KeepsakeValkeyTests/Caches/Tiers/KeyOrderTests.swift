import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

@Suite(.ownThread) struct KeyOrderTests {
  private var order = KeyOrder()

  init() { order.setFollowing(true) }

  private func version(_ number: UInt64) -> EntryVersion {
    EntryVersion(number: number, name: number + 1_000)
  }

  private mutating func isNoted(_ number: UInt64, _ call: KeyOrder.Call) -> Bool {
    order.note(.entry(version(number)), number, call)
  }

  private mutating func isProduced(_ held: KeyOrder.Held, _ call: KeyOrder.Call) -> Bool {
    order.noteProduced(held, call)
  }

  private mutating func isMissingNoted(_ key: String) -> Bool {
    order.noteMissing(order.begin(key))
  }

  private mutating func isCurrent(_ key: String, _ number: UInt64) -> Bool {
    let version = version(number)
    return order.state(of: key, version, nil, isUse: false) == .current(version, tell: nil)
  }

  // MARK: Memory

  @Test mutating func factsWithoutOlderEntriesAreForgottenFirst() {
    let early = order.begin("1")
    _ = order.noteMessage("outdated", .entry(version(1)), 1)
    let unsent = EntryVersion(number: 0, name: 1)
    order.noteUnsent(.entry(unsent), order.begin("unsent"))
    _ = order.state(of: "unsent", unsent, nil, isUse: true)
    for number in 1..<UInt64(KeyOrder.capacity - 1) {
      let key = "\(number)"
      _ = isNoted(number + 1, order.begin(key))
      order.noteStored(key, version(number + 1))
    }
    #expect(order.isLatest("1", version(2)))
    let running = order.begin("2")
    let late = order.begin("late")
    #expect(isNoted(200_000, late))
    // Nothing of this machine becomes unusable.
    #expect(!order.isLatest("1", version(2)) && order.mayUse("1", version(2)))
    #expect(order.isLatest("outdated", version(1)) && !order.mayUse("outdated", version(0)))
    #expect(order.isLatest("unsent", unsent))
    // An entry that was found before it was replaced.
    #expect(!order.mayUse("1", version(1), since: early))
    #expect(!isNoted(1, early) && !isNoted(3, running))
    #expect(isNoted(300_000, running) && isNoted(2, order.begin("1")))
  }

  @Test mutating func factsWithOlderEntriesOutdateEntries() {
    let early = order.begin("early")
    for number in 1...UInt64(KeyOrder.capacity) {
      _ = order.noteMessage("\(number)", .nothing, number)
    }
    #expect(order.mayUse("other", version(1)) && !order.mayUse("1", version(1)))
    _ = order.noteMessage("last", .nothing, 200_000)
    #expect(!order.mayUse("other", version(1)) && !order.mayUse("1", version(100_000)))
    #expect(!order.mayUse("other", nil) && order.mayUse("1", version(100_001)))
    #expect(!order.mayUse("last", version(100_001)))
    // They are not removed one by one.
    #expect(order.takeRemoval()?.key == "last" && order.takeRemoval() == nil)
    #expect(!isNoted(300_000, early) && isNoted(1, order.begin("early")))
    #expect(order.mayUse("early", version(1)))
  }

  @Test mutating func longKeysAreForgotten() {
    let count = 16
    let length = KeyOrder.keyCapacity / count
    let keys = (0...count).map { number in
      String(repeating: Character(UnicodeScalar(UInt8(65 + number))), count: length)
    }
    for (number, key) in keys.enumerated() {
      #expect(order.mayUse("other", version(1)))
      #expect(order.queueRemoval(of: key) == (number == 0))
      #expect(isNoted(UInt64(number + 2), order.begin(key)))
    }
    #expect(!order.mayUse("other", version(17)) && order.mayUse("other", version(18)))
    #expect(order.isLatest(keys[count], version(18)) && !order.isLatest(keys[0], version(2)))
    #expect(order.takeRemoval() == nil)
  }

  /// Those of which this machine may have an older entry outdate entries.
  @Test mutating func factsWithoutOlderEntriesOutdateNothing() {
    #expect(isNoted(5, order.begin("stored")))
    order.noteStored("stored", version(5))
    #expect(isNoted(6, order.begin("compared")))
    order.noteNoOlderEntry(order.begin("compared"), hasEntry: true)
    order.noteUnsentRemovalOfAll()
    #expect(order.mayUse("other", version(1)))
    _ = order.noteMessage("m", .entry(version(7)), 7)
    order.noteStored("m", version(6))
    order.noteUnsentRemovalOfAll()
    #expect(!order.mayUse("m", version(7)) && order.mayUse("m", version(8)))
    _ = order.noteMessage("k", .entry(version(8)), 8)
    order.noteUnsent(.nothing, order.begin("k"))
    order.noteUnsentRemovalOfAll()
    #expect(!order.mayUse("k", version(8)) && order.mayUse("k", version(9)))
  }

  // MARK: Outdated entries

  @Test mutating func keysAreRemovedOnce() {
    #expect(order.queueRemoval(of: "k") && !order.queueRemoval(of: "l"))
    #expect(order.queueRemoval(of: "k") == false)
    let keys = [order.takeRemoval()?.key, order.takeRemoval()?.key].compactMap { $0 }
    #expect(keys.sorted() == ["k", "l"] && order.takeRemoval() == nil)
    #expect(order.noteMessage("k", .nothing, 1) && !order.noteMessage("l", .nothing, 2))
    // A late message, and one of a change that is known.
    #expect(order.takeRemoval() != nil && order.takeRemoval() != nil)
    #expect(!order.noteMessage("k", .entry(version(1)), 1) && order.takeRemoval() == nil)
  }

  @Test mutating func factsOfMissingEntriesAreForgotten() {
    let early = order.begin("k")
    #expect(isNoted(5, order.begin("k")))
    let running = order.begin("k")
    order.noteNoOlderEntry(order.begin("k"), hasEntry: true)
    #expect(order.isLatest("k", version(5)) && !order.mayUse("k", version(4)))
    order.noteNoOlderEntry(order.begin("k"), hasEntry: false)
    #expect(!order.isLatest("k", version(5)))
    let before = order
    #expect(!isNoted(5, early))
    order = before
    #expect(!isNoted(4, early))
    order = before
    // The server has lost changes.
    #expect(isNoted(4, running))
  }

  @Test mutating func factsThatMatterAreNotForgotten() {
    let check = order.begin("k")
    #expect(isNoted(5, order.begin("k")))
    // What the check has seen may be older.
    order.noteNoOlderEntry(check, hasEntry: false)
    #expect(order.isLatest("k", version(5)))
    let change = order.beginChange("k")
    order.noteNoOlderEntry(order.begin("k"), hasEntry: false)
    #expect(order.isLatest("k", version(5)))
    let unsent = EntryVersion(number: 0, name: 1)
    order.noteUnsent(.entry(unsent), change)
    order.endChange(change)
    order.noteNoOlderEntry(order.begin("k"), hasEntry: false)
    #expect(order.isLatest("k", unsent))
  }

  /// Most messages are about keys that this process does not use.
  @Test mutating func missingEntryIsForgottenUnlessACallHasReturnedSomething() {
    let (first, next) = (version(1), version(9))
    let calls: [(inout KeyOrder) -> Void] = [
      { _ = $0.note(.nothing, 9, $0.begin("k")) },
      { _ = $0.note(.entry(next), 9, $0.begin("k")) },
      { _ = $0.note(.entry(first), 1, $0.begin("k")) },
      { _ = $0.noteProduced(.entry(nil), $0.begin("k")) },
      { _ = $0.use("k", next, since: $0.begin("k")) },
      { _ = $0.use("k", first, since: $0.begin("k")) },
      { _ = $0.state(of: "k", first, nil, isUse: false) },
    ]
    for (number, call) in calls.enumerated() {
      order = KeyOrder()
      order.setFollowing(true)
      _ = order.noteMessage("k", .entry(first), 1)
      #expect(isMissingNoted("k") && !order.isLatest("k", first))
      _ = order.noteMessage("k", .entry(first), 1)
      call(&order)
      #expect(!isMissingNoted("k"), "call \(number)")
      _ = order.noteMessage("k", .entry(version(10)), 10)
      #expect(!isMissingNoted("k") && order.isLatest("k", version(10)), "call \(number)")
      order.noteNoOlderEntry(order.begin("k"), hasEntry: false)
      _ = order.noteMessage("k", .nothing, 11)
      #expect(isMissingNoted("k"), "call \(number)")
    }
  }

  /// A call returns what was the latest when the server answered.
  @Test mutating func overtakenAnswerThatIsReturnedCounts() {
    var call = order.begin("k")
    _ = order.noteMessage("k", .entry(version(3)), 3)
    #expect(!isNoted(2, call) && !isMissingNoted("k"))
    // The later fact is forgotten, or that of another key.
    call = order.begin("l")
    _ = order.noteMessage("m", .entry(version(9)), 9)
    #expect(isMissingNoted("m") && !isNoted(5, call))
    #expect(!isMissingNoted("l") && !order.mayUse("l", version(4)))
    #expect(!isCurrent("l", 5) && isNoted(5, order.begin("l")))
  }

  /// A question has learned it, and is about to store its value.
  @Test mutating func factOfARunningQuestionIsNotForgotten() {
    let question = order.beginQuestion("k")
    #expect(isNoted(5, question))
    order.noteNoOlderEntry(order.begin("k"), hasEntry: false)
    #expect(order.isLatest("k", version(5)))
    order.endQuestion(question)
    order.noteNoOlderEntry(order.begin("k"), hasEntry: false)
    #expect(!order.isLatest("k", version(5)))
  }

  /// An entry that was found before it was removed, which is not remembered.
  @Test mutating func removedEntryIsNotUsed() {
    let call = order.begin("k")
    #expect(order.mayUse("k", version(1), since: call))
    _ = order.noteMessage("k", .nothing, 2)
    order.noteNoOlderEntry(order.begin("k"), hasEntry: false)
    #expect(!order.mayUse("k", version(1), since: call))
    #expect(order.mayUse("k", version(1), since: order.begin("k")))
  }

  @Test mutating func noEntryIsUsedUntilItIsKnown() {
    order.outdateAll()
    #expect(!order.mayUse("k", version(9)) && !order.mayUse("k", nil))
    #expect(isNoted(1, order.begin("k")))
    #expect(order.mayUse("k", version(1)) && !order.mayUse("l", version(1)))
  }

  // MARK: Facts

  @Test mutating func evictedValueIsMissing() {
    let calls = (0..<3).map { _ in order.begin("k") }
    _ = order.noteMessage("k", .entry(version(5)), 5)
    // The same fact, with more about it.
    #expect(isNoted(5, calls[0]))
    #expect(order.note(.nothing, 5, calls[1]) && order.mayUse("k", version(6)))
    #expect(!isNoted(5, calls[2]) && !order.mayUse("k", version(5)))
  }

  @Test mutating func laterAbsenceCounts() {
    let early = order.begin("k")
    #expect(order.note(.nothing, 5, order.begin("k")) && order.isLatest("k", version(5)) == false)
    let late = order.begin("k")
    #expect(order.note(.nothing, 9, order.begin("k")) && !order.mayUse("k", version(9)))
    #expect(!isNoted(7, early) && !isNoted(7, late) && isNoted(10, late))
  }

  @Test mutating func lateMessageOfAForgottenChange() {
    let early = order.begin("k")
    #expect(isNoted(6, order.begin("k")))
    order.noteNoOlderEntry(order.begin("k"), hasEntry: false)
    _ = order.noteMessage("k", .entry(version(4)), 4)
    #expect(!order.mayUse("k", version(4)) && !order.mayUse("k", version(6)))
    #expect(!isNoted(5, early) && order.mayUse("k", version(7)))
    order.noteNoOlderEntry(order.begin("k"), hasEntry: false)
    _ = order.noteMessage("k", .entry(version(6)), 6)
    // Another process of this machine has stored it.
    #expect(isCurrent("k", 6) && order.mayUse("k", version(6)))
  }

  /// If the server has lost changes, the late message is that of a new one.
  @Test mutating func lateMessageOfAnotherVersion() {
    #expect(isNoted(5, order.begin("k")) && isCurrent("k", 5))
    let call = order.begin("k")
    _ = order.noteMessage("k", .entry(version(5)), 5)
    #expect(isCurrent("k", 5))
    _ = order.noteMessage("k", .entry(version(3)), 3)
    #expect(!isCurrent("k", 5) && order.mayUse("k", version(5)))
    #expect(isNoted(2, call) && !isCurrent("k", 2))
    #expect(isNoted(3, order.begin("k")) && isCurrent("k", 3))
  }

  /// As before, but of a change that was forgotten.
  @Test mutating func lateMessageOfARemoval() {
    _ = order.noteMessage("k", .nothing, 2)
    let call = order.begin("k")
    _ = order.noteMessage("k", .nothing, 2)
    order.noteNoOlderEntry(order.begin("k"), hasEntry: false)
    _ = isNoted(1, call)
    #expect(!isCurrent("k", 1))
  }

  // MARK: Own changes

  @Test mutating func productDoesNotReplaceAChange() {
    var call = order.begin("k")
    #expect(isProduced(.entry(nil), call) && order.mayUse("k", nil))
    // The first of two products.
    #expect(!isProduced(.nothing, call))
    call = order.begin("k")
    _ = order.noteMessage("k", .entry(version(1)), 1)
    #expect(!isProduced(.entry(nil), call) && !order.mayUse("k", nil))
    let change = order.beginChange("k")
    let second = order.beginChange("k")
    order.endChange(change)
    #expect(!isProduced(.entry(nil), order.begin("k")))
    order.endChange(second)
    #expect(isProduced(.nothing, order.begin("k")) && !order.mayUse("k", version(1)))
    call = order.begin("l")
    order.noteUnsentRemovalOfAll()
    #expect(!isProduced(.entry(nil), call))
    // The same version again is no change.
    #expect(isNoted(3, order.begin("l")))
    call = order.begin("l")
    #expect(isNoted(3, order.begin("l")) && isProduced(.entry(nil), call))
  }

  @Test mutating func lateMessageOfARemovalOfAllDoesNotUndoASet() {
    order.noteRemovalOfAll(5, order.begin(""))
    let call = order.begin("k")
    #expect(isNoted(6, call))
    order.noteRemovalOfAll(5)
    #expect(order.isLatest("k", version(6)) && order.mayUse("k", version(6)))
    #expect(!order.mayUse("k", version(5)) && !order.mayUse("l", version(5)))
    // The reply comes after the message, and after that of a later set.
    order.noteRemovalOfAll(7)
    #expect(!order.mayUse("k", version(6)))
    #expect(isNoted(8, order.begin("k")))
    order.noteRemovalOfAll(7, call)
    #expect(order.isLatest("k", version(8)))
    #expect(!isNoted(6, call) && isNoted(9, call))
  }

  /// The entry of this machine is to be removed, and not the value that another machine sets next.
  @Test mutating func removalOfAllCountsAsToldOfUnsentSets() {
    let unsent = EntryVersion(number: 0, name: 1)
    order.noteUnsent(.entry(unsent), order.begin("k"))
    // Its message comes before the reply.
    _ = order.noteMessage("k", .entry(version(6)), 6)
    #expect(order.noteRemovalOfAll(5, order.begin("")) && order.takeRemoval()?.key == "k")
    #expect(order.wasSent("k", unsent) && !order.isUnsent("k") && !order.mayUse("k", unsent))
    _ = order.noteMessage("k", .entry(version(7)), 7)
    #expect(order.takeRemoval() != nil && order.noteRemovalOfAll(8))
    #expect(order.wasSent("k", unsent) && !order.mayUse("k", version(7)))
    order.noteNoOlderEntry(order.begin("k"), hasEntry: false)
    #expect(!order.noteRemovalOfAll(9) && !order.wasSent("k", unsent))
  }

  @Test mutating func removalOfAllUndoesOnlyEarlierUnsentSets() {
    let unsent = EntryVersion(number: 0, name: 1)
    order.noteUnsent(.entry(unsent), order.begin("k"))
    let removal = order.begin("")
    order.noteUnsent(.entry(unsent), order.begin("l"))
    order.noteRemovalOfAll(5)
    #expect(order.mayUse("k", unsent) && order.mayUse("l", unsent))
    order.noteRemovalOfAll(5, removal)
    #expect(!order.mayUse("k", unsent) && order.mayUse("l", unsent))
  }

  @Test mutating func lateMessageOfARemovalOfAllDoesNotUndoAProduct() {
    order.noteRemovalOfAll(5, order.begin(""))
    #expect(isProduced(.entry(nil), order.begin("k")) && order.mayUse("k", nil))
    order.noteRemovalOfAll(5)
    #expect(order.mayUse("k", nil))
  }

  /// The server was told of another change before, or later.
  @Test mutating func messageDoesNotReplaceAnUnsentChange() {
    let early = order.begin("k")
    let unsent = EntryVersion(number: 0, name: 1)
    order.noteUnsent(.entry(unsent), order.begin("k"))
    let removal = order.begin("")
    #expect(!order.noteMessage("k", .entry(version(9)), 9) && order.takeRemoval() == nil)
    #expect(order.isLatest("k", unsent) && !order.mayUse("k", version(9)))
    order.noteRemovalOfAll(7, removal)
    // Both are later than the removal.
    #expect(isNoted(8, early) && !isCurrent("k", 8) && isNoted(9, early))
  }

  @Test mutating func unsentRemovalEndsWhenItIsKnown() {
    order.noteUnsent(.nothing, order.begin("k"))
    #expect(order.note(.nothing, 3, order.begin("k")) && order.mayUse("k", version(4)))
    _ = order.noteMessage("k", .entry(version(4)), 4)
    #expect(order.isLatest("k", version(4)))
  }

  /// It may have been made before the other one, or not at all.
  @Test mutating func unsentChangeDoesNotReplaceALaterOne() {
    let call = order.begin("k")
    #expect(isNoted(1, order.beginChange("k")))
    order.noteUnsent(.nothing, call)
    #expect(order.isLatest("k", version(1)))
    order.noteUnsent(.nothing, order.begin("k"))
    #expect(!order.isLatest("k", version(1)) && !order.mayUse("k", version(2)))
  }

  /// A change of another machine may have been made before, although it was noted later.
  @Test mutating func unsentChangeReplacesWhatOthersHaveChanged() {
    let unsent = EntryVersion(number: 0, name: 1)
    var call = order.begin("k")
    _ = order.noteMessage("k", .entry(version(1)), 1)
    #expect(order.noteUnsent(.entry(unsent), call) && order.isLatest("k", unsent))
    call = order.begin("l")
    #expect(isNoted(2, order.begin("l")) && order.noteUnsent(.entry(unsent), call))
  }

  @Test mutating func messageTellsOfAnOwnChangeWhoseReplyIsLost() {
    let change = order.beginChange("k", storing: 1_001)
    #expect(order.number(of: change) == nil && order.number(of: order.beginChange("k")) == nil)
    _ = order.noteMessage("k", .entry(version(2)), 2)
    #expect(order.number(of: change) == nil)
    // Also if a later change was told of.
    _ = order.noteMessage("k", .entry(version(1)), 1)
    #expect(order.number(of: change) == 1)
    order.endChange(change)
    #expect(order.number(of: change) == nil)
  }

  @Test mutating func sentChangeGivesWay() {
    let unsent = EntryVersion(number: 0, name: 1)
    #expect(!order.noteSent("k", 1) && !order.wasSent("k", unsent))
    let early = order.begin("k")
    order.noteUnsent(.entry(unsent), order.begin("k"))
    #expect(!order.wasSent("k", unsent) && order.mayUse("k", unsent))
    // A change elsewhere came after the removal, and its message before the reply to that.
    _ = order.noteMessage("k", .entry(version(5)), 5)
    #expect(order.noteSent("k", 4) && order.takeRemoval()?.key == "k")
    #expect(order.wasSent("k", unsent) && !order.mayUse("k", unsent))
    #expect(!order.wasSent("k", nil) && !order.wasSent("l", unsent))
    #expect(!isNoted(3, early) && isNoted(5, early) && order.wasSent("k", unsent))
    // A message about a still later one may have come, too.
    #expect(!isCurrent("k", 5) && isNoted(5, order.begin("k")) && isCurrent("k", 5))
    _ = order.noteMessage("k", .nothing, 6)
    #expect(order.wasSent("k", unsent))
    #expect(!order.noteSent("k", 7) && order.mayUse("k", version(7)))
  }

  /// An own change does not forget that a message has contradicted a fact.
  @Test mutating func ownChangeKeepsWhatContradictsAFact() {
    #expect(isNoted(5, order.begin("k")))
    let call = order.begin("k")
    let product = order.begin("k")
    _ = order.noteMessage("k", .entry(version(3)), 3)
    #expect(isProduced(.entry(nil), product))
    #expect(order.note(.entry(version(6)), 6, call) && !isCurrent("k", 6))
  }

  // MARK: Current entries

  @Test mutating func expiredVersionIsComparedAgain() {
    #expect(isNoted(1, order.begin("k")) && isCurrent("k", 1))
    order.expire("k", version(2))
    #expect(isCurrent("k", 1))
    order.expire("k", version(1))
    #expect(!isCurrent("k", 1) && order.mayUse("k", version(1)))
    #expect(isNoted(1, order.begin("k")) && isCurrent("k", 1))
  }

  @Test mutating func nothingIsCurrentWithoutMessages() {
    let call = order.begin("k")
    order.setFollowing(false)
    #expect(isNoted(1, call) && !isCurrent("k", 1))
    #expect(isNoted(2, order.begin("k")) && !isCurrent("k", 2))
    let outage = order.begin("k")
    order.setFollowing(true)
    #expect(isNoted(3, outage) && !isCurrent("k", 3))
    #expect(isNoted(3, order.begin("k")) && isCurrent("k", 3))
    order.setFollowing(true)
    #expect(!isCurrent("k", 3))
  }

  @Test mutating func usesAreToldWhenTheyAreDue() {
    let use = EntryUse(lifetime: 7, interval: 3_600 * 1_000_000_000, lastTold: 0)
    let version = version(1)
    #expect(order.note(.entry(version), 1, order.begin("k"), use: use) && isCurrent("k", 1))
    #expect(order.state(of: "k", version, nil, isUse: true) == .current(version, tell: 7))
    #expect(order.state(of: "k", version, nil, isUse: true) == .current(version, tell: nil))
  }
}

/// All interleavings of a few calls on one key, with the changes that other machines make and their
/// messages, while the link is lost and returns.
@Suite(.ownThread) struct KeyOrderInterleavingTests {
  /// What is done one after the other in each list, while the others go on.
  struct Scenario: CustomTestStringConvertible, Sendable {
    let testDescription: String
    /// Whether the server and the machine have a value at first.
    var hasValue = false
    /// Whether the server alone has one.
    var hasOldAnswer = false
    var processCount = 1
    /// Whether replies are lost while messages arrive, as after a time-out.
    var losesReplies = false
    let lists: [[Operation]]
    /// How many interleavings are run at least. Each stands for all those that differ from it only
    /// in the order of steps which do not affect each other.
    let count: Int
  }

  /// Numbers are those of processes, all of one machine.
  enum Operation: Equatable, Sendable {
    case read(Int)
    /// A read between whose commands the server carries out others.
    case splitRead(Int)
    case set(Int)
    case remove(Int)
    case removeAll(Int)
    /// Removes an outdated entry in the background.
    case removeOutdated(Int)
    case loseLink(Int)
    case regainLink(Int)
    /// What other machines do.
    case setElsewhere
    case removeElsewhere
    case removeAllElsewhere
    case setAnotherKey
    /// The server removes the value because its memory is full.
    case evict
    /// A replica gets what the server has.
    case replicate
    /// The replica takes over.
    case failOver
  }

  static let scenarios = [
    Scenario(
      testDescription: "reads, and a set elsewhere",
      lists: [[.read(0)], [.read(0)], [.setElsewhere]], count: 3_000),
    Scenario(
      testDescription: "reads one after the other, and sets elsewhere",
      lists: [[.read(0), .read(0)], [.setElsewhere, .setElsewhere]], count: 100),
    Scenario(
      testDescription: "split read, and changes elsewhere",
      hasValue: true,
      lists: [[.splitRead(0), .read(0)], [.setElsewhere, .removeElsewhere]], count: 200),
    Scenario(
      testDescription: "split read, and a removal of all before a set elsewhere",
      hasValue: true,
      lists: [[.splitRead(0), .read(0)], [.removeAllElsewhere, .setElsewhere]], count: 250),
    Scenario(
      testDescription: "split read and own set",
      hasValue: true,
      lists: [[.splitRead(0)], [.set(0)]], count: 1_800),
    Scenario(
      testDescription: "split read and own removal",
      hasValue: true,
      lists: [[.splitRead(0)], [.remove(0)]], count: 4_000),
    Scenario(
      testDescription: "split read and own removal of all",
      hasValue: true,
      lists: [[.splitRead(0), .read(0)], [.removeAll(0)]], count: 3_500),
    Scenario(
      testDescription: "split reads while the link is lost",
      hasValue: true,
      lists: [[.splitRead(0), .splitRead(0)], [.setElsewhere, .loseLink(0), .regainLink(0)]],
      count: 7_000),
    Scenario(
      testDescription: "own set and a read",
      hasValue: true,
      lists: [[.set(0)], [.read(0)]], count: 1_000),
    Scenario(
      testDescription: "own set and one elsewhere",
      lists: [[.set(0), .read(0)], [.setElsewhere]], count: 60),
    Scenario(
      testDescription: "own set among numbers of other keys",
      lists: [[.set(0), .read(0)], [.setAnotherKey, .setElsewhere, .setAnotherKey]], count: 2_000),
    Scenario(
      testDescription: "own set and removal",
      lists: [[.set(0)], [.remove(0)]], count: 20_000),
    Scenario(
      testDescription: "own removal and a set elsewhere",
      hasValue: true,
      lists: [[.remove(0), .read(0)], [.setElsewhere]], count: 100),
    Scenario(
      testDescription: "own removal of all and a set",
      hasValue: true,
      lists: [[.removeAll(0)], [.set(0)]], count: 2_500),
    Scenario(
      testDescription: "own removal of all, a set elsewhere and a removal in the background",
      hasValue: true,
      lists: [[.removeAll(0), .read(0)], [.setElsewhere], [.removeOutdated(0)]], count: 7_500),
    Scenario(
      testDescription: "removal of all elsewhere, and reads",
      hasValue: true,
      lists: [[.read(0)], [.removeAllElsewhere], [.read(0)]], count: 3_000),
    Scenario(
      testDescription: "removal of all elsewhere before the link is lost",
      hasValue: true,
      lists: [[.removeAllElsewhere, .loseLink(0)], [.read(0)]], count: 100),
    Scenario(
      testDescription: "removal in the background, reads and a set elsewhere",
      hasValue: true,
      lists: [[.removeOutdated(0)], [.read(0), .read(0)], [.setElsewhere]], count: 1_000),
    Scenario(
      testDescription: "removal in the background, and both sets",
      hasValue: true,
      lists: [[.removeOutdated(0)], [.set(0)], [.setElsewhere]], count: 1_000),
    Scenario(
      testDescription: "removal in the background, and changes elsewhere",
      hasValue: true,
      lists: [[.removeOutdated(0)], [.setElsewhere, .removeElsewhere], [.read(0)]], count: 4_000),
    Scenario(
      testDescription: "removal in the background before the link is lost",
      hasValue: true,
      lists: [[.removeElsewhere, .removeOutdated(0), .loseLink(0)], [.read(0)]], count: 1_000),
    Scenario(
      testDescription: "eviction",
      hasValue: true,
      lists: [[.read(0), .read(0)], [.setElsewhere, .evict, .setAnotherKey]], count: 100),
    Scenario(
      testDescription: "eviction and reads",
      hasValue: true,
      lists: [[.read(0)], [.read(0)], [.evict, .setAnotherKey]], count: 6_000),
    Scenario(
      testDescription: "own set while the link is lost",
      hasValue: true,
      lists: [[.set(0), .read(0)], [.loseLink(0), .regainLink(0)]], count: 2_500),
    Scenario(
      testDescription: "own set without the server, and a read",
      hasValue: true,
      lists: [[.loseLink(0), .set(0)], [.read(0)]], count: 10_000),
    Scenario(
      testDescription: "own sets without the server",
      lists: [[.loseLink(0), .set(0)], [.set(0)]], count: 6_000),
    Scenario(
      testDescription: "own set without the server, and one elsewhere",
      lists: [[.set(0)], [.loseLink(0), .setElsewhere, .regainLink(0)]], count: 300),
    Scenario(
      testDescription: "own set without the server, which is told before one elsewhere",
      lists: [[.loseLink(0), .set(0), .regainLink(0), .read(0)], [.setElsewhere]],
      count: 1_000),
    Scenario(
      testDescription: "own removal of all and a set without the server, and one elsewhere",
      hasValue: true,
      lists: [
        [.loseLink(0), .removeAll(0), .set(0), .regainLink(0), .read(0), .read(0)], [.setElsewhere],
      ], count: 300),
    Scenario(
      testDescription: "own set whose reply is lost, and one elsewhere",
      hasValue: true, losesReplies: true,
      lists: [[.set(0), .read(0)], [.setElsewhere]], count: 100),
    Scenario(
      testDescription: "own sets whose replies are lost",
      losesReplies: true,
      lists: [[.set(0)], [.set(0)]], count: 100),
    Scenario(
      testDescription: "own removal whose reply is lost, and a set elsewhere",
      hasValue: true, losesReplies: true,
      lists: [[.remove(0), .read(0)], [.setElsewhere]], count: 100),
    Scenario(
      testDescription: "own removal while the link is lost",
      hasValue: true,
      lists: [[.remove(0), .read(0)], [.loseLink(0), .regainLink(0)]], count: 3_000),
    Scenario(
      testDescription: "own removal of all without the server",
      hasValue: true,
      lists: [[.loseLink(0), .removeAll(0)], [.read(0)]], count: 5_000),
    Scenario(
      testDescription: "own removal of all while the link is lost, and a set elsewhere",
      hasValue: true,
      lists: [[.removeAll(0), .read(0)], [.loseLink(0), .regainLink(0), .setElsewhere]],
      count: 10_000),
    Scenario(
      testDescription: "changes elsewhere while the link is lost",
      hasValue: true,
      lists: [[.read(0), .read(0)], [.loseLink(0), .regainLink(0)], [.setElsewhere]],
      count: 10_000),
    Scenario(
      testDescription: "changes elsewhere around the loss of the link",
      hasValue: true,
      lists: [[.read(0)], [.setElsewhere, .loseLink(0), .regainLink(0), .setElsewhere]],
      count: 1_500),
    Scenario(
      testDescription: "failover and a set",
      hasValue: true,
      lists: [[.setElsewhere, .failOver, .regainLink(0), .setElsewhere], [.set(0)]], count: 1_000),
    Scenario(
      testDescription: "failover and a read",
      hasValue: true,
      lists: [[.replicate, .setElsewhere, .failOver, .regainLink(0), .setElsewhere], [.read(0)]],
      count: 800),
    Scenario(
      testDescription: "failover and reads",
      hasValue: true,
      lists: [
        [.replicate, .setElsewhere, .failOver, .regainLink(0), .setElsewhere],
        [.read(0), .read(0)],
      ], count: 10_000),
    Scenario(
      testDescription: "failover between removals",
      hasValue: true,
      lists: [
        [.replicate, .removeElsewhere, .failOver, .regainLink(0), .removeElsewhere], [.read(0)],
      ], count: 800),
    Scenario(
      testDescription: "failover between removals of all",
      hasValue: true,
      lists: [
        [.replicate, .removeAllElsewhere, .failOver, .regainLink(0), .removeAllElsewhere],
        [.read(0)],
      ], count: 800),
    Scenario(
      testDescription: "failover before a removal of all",
      hasValue: true,
      lists: [
        [
          .replicate, .setAnotherKey, .setElsewhere, .failOver, .regainLink(0), .removeAllElsewhere,
        ], [.read(0)],
      ], count: 1_500),
    Scenario(
      testDescription: "two processes that set",
      processCount: 2,
      lists: [[.set(0)], [.set(1)]], count: 700),
    Scenario(
      testDescription: "two processes that set, one of which loses the link",
      processCount: 2,
      lists: [[.set(0)], [.set(1)], [.loseLink(1)]], count: 7_000),
    Scenario(
      testDescription: "two processes that read, and a set elsewhere",
      hasValue: true, processCount: 2,
      lists: [[.read(0)], [.read(1)], [.setElsewhere]], count: 100),
    Scenario(
      testDescription: "two processes, one of which stores what the other one removes",
      hasOldAnswer: true, processCount: 2,
      lists: [
        [.setElsewhere, .read(0), .removeElsewhere, .removeOutdated(0), .loseLink(0), .read(0)],
        [.read(1)],
      ], count: 60_000),
    Scenario(
      testDescription: "two processes, one of which stores what the other one does not find",
      hasOldAnswer: true, processCount: 2,
      lists: [
        [.setElsewhere, .read(0), .removeOutdated(0), .loseLink(0), .read(0)], [.read(1)],
        [.removeElsewhere],
      ], count: 200_000),
    Scenario(
      testDescription: "two processes, one of which removes, and the other one loses the link",
      hasValue: true, processCount: 2,
      lists: [[.remove(0)], [.read(1)], [.loseLink(1)]], count: 1_000),
  ]

  @Test(arguments: Coverage.isComplete ? scenarios : scenarios.filter { $0.count < 200 })
  func interleavings(_ scenario: Scenario) {
    var search = Search(scenario)
    search.run()
    #expect(search.count >= scenario.count)
    if let failure = search.failure { Issue.record(Comment(rawValue: failure)) }
  }

  /// Goes depth-first through the interleavings. Sleep sets leave out those that differ from
  /// another one only in the order of steps which do not affect each other (Godefroid,
  /// Partial-Order Methods for the Verification of Concurrent Systems).
  private struct Search {
    let scenario: Scenario
    var count = 0
    /// The steps that were made to come here.
    private var path: [Step] = []
    private var shortest: (failure: String, path: [Step])?

    init(_ scenario: Scenario) { self.scenario = scenario }

    mutating func run() { visit(World(scenario), []) }

    private mutating func visit(_ world: World, _ asleep: [Step]) {
      if world.failure != nil { return note(world) }
      let steps = world.steps
      if steps.isEmpty {
        count += 1
        var world = world
        world.finish()
        if world.failure != nil { note(world) }
        return
      }
      var asleep = asleep
      for step in steps where !asleep.contains(where: { $0.isSame(as: step) }) {
        var next = world
        next.perform(step)
        path.append(step)
        visit(next, asleep.filter { !$0.affects(step) })
        path.removeLast()
        asleep.append(step)
      }
    }

    private mutating func note(_ world: World) {
      if let shortest, path.count >= shortest.path.count { return }
      shortest = (world.failure ?? "", path)
    }

    /// The shortest history that breaks a promise.
    var failure: String? {
      guard let shortest else { return nil }
      var world = World(scenario)
      var lines = ["\(shortest.failure), after:"]
      for step in shortest.path {
        lines.append(world.description(of: step))
        world.perform(step)
      }
      return lines.joined(separator: "\n")
    }
  }

  /// What is done at once, without anything in between.
  private struct Step {
    /// The list that does it; -1 if a message arrives at process 0, and so on.
    let actor: Int
    /// Whether the reply of the server is lost.
    var isLoss = false
    let reads: Parts
    let writes: Parts

    func isSame(as other: Self) -> Bool { actor == other.actor && isLoss == other.isLoss }

    /// Whether their order matters.
    func affects(_ other: Self) -> Bool {
      actor == other.actor || !writes.isDisjoint(with: other.reads.union(other.writes))
        || !other.writes.isDisjoint(with: reads)
    }
  }

  /// What a step may read or write.
  private struct Parts: OptionSet {
    let rawValue: UInt8
    static let server = Parts(rawValue: 1)
    static let disk = Parts(rawValue: 2)
    static func process(_ number: Int) -> Parts { Parts(rawValue: 4 << UInt8(number)) }
  }

  private enum Message: Equatable {
    case followed
    case lost
    case changed(KeyOrder.Held, UInt64)
    case changedAnother(UInt64)
    case removedAll(UInt64)
  }

  /// An entry on disk.
  private struct File: Equatable {
    let version: EntryVersion
    /// Tells it from all others.
    let id: Int
  }

  /// Where a change is in the order of all. One that the server was not told of comes after all
  /// that it had made before.
  private typealias Rank = UInt64

  private struct Server {
    var number: UInt64 = 0
    var value: EntryVersion?
    /// How often all keys were removed.
    var removalCount = 0
    /// The changes of the key, and whether each gave it a value.
    var changes: [(rank: Rank, hasValue: Bool)] = [(0, false)]
    var replica: (number: UInt64, value: EntryVersion?) = (0, nil)
    /// The value that was evicted last.
    var evicted: EntryVersion?
  }

  private struct Process {
    var order = KeyOrder()
    var queue: [Message] = []
    var isLinked = true
    /// How often the link was lost.
    var lossCount = 0
    /// Whether the key, or all of them, is to be removed on the server.
    var isPending = false
    var isAllPending = false
    /// Whether a call is doing that. The others wait for it.
    var isSending = false
    /// Of changes that the server was not told of.
    var unsentCount: UInt64 = 0
    /// What it has counted in the ledger.
    var changeCount = 0
    /// How often it was told later.
    var sentCount: UInt64 = 0
    /// The latest change that a call has made, or of which it has returned the value.
    var returned: Rank = 0
    /// The latest change that a message was about.
    var told: Rank = 0
    /// The names of the versions that messages were about.
    var toldNames: Set<UInt64> = []

    var hasPending: Bool { isPending || isAllPending }
  }

  /// What the server replies; nil if it cannot be reached.
  private enum Reply: Equatable {
    case value(EntryVersion)
    case nothing(UInt64)
    case made(UInt64)
  }

  /// What a call does next.
  private enum Phase {
    case begin
    case look
    case check
    case request
    case sent
    case value
    case reply
    case disk
    case offline
    case lookAgain
    case offlineAgain
    case noteMissing
    case end
  }

  /// What is done one after the other, with the call that is running.
  private struct List {
    let operations: [Operation]
    var next = 0
    var phase = Phase.begin
    var call: KeyOrder.Call?
    var isQuestion = false
    /// The call that began before the disk was looked at.
    var check: KeyOrder.Call?
    /// The entry that was found.
    var present: File?
    /// How often other processes had changed the disk when the call began.
    var foreignCount = 0
    /// Whether the server may not have the value of a set.
    var isOnlyHere = false
    /// The version that the call stores.
    var version: EntryVersion?
    var reply: Reply?
    var rank: Rank = 0
    /// Whether the server was not told of the change.
    var isUnsent = false
    /// How often the link had been lost when the server was asked.
    var lossCount = 0
    /// How many changes had been made then.
    var changeCount = 0
    /// How often all keys had been removed then.
    var removalCount = 0
    var unsentCount: UInt64 = 0
    /// The removal of all keys that was sent.
    var removal: KeyOrder.Call?
    /// Whether a value may be missing because of an outage or an eviction.
    var mayMiss = false
    /// What had been returned, and told, when the call began.
    var returned: Rank = 0
    var told: Rank = 0
    var result: EntryVersion?

    var operation: Operation? { next < operations.count ? operations[next] : nil }

    mutating func end() {
      next += 1
      phase = .begin
      version = nil
      rank = 0
      isUnsent = false
      isOnlyHere = false
    }
  }

  private struct World {
    private var server = Server()
    private var disk: File?
    private var fileCount = 0
    private var processes: [Process]
    private var lists: [List]
    /// Those of values that the server was not told of, by their names.
    private var unsent: [UInt64: (rank: Rank, process: Int)] = [:]
    private let losesChanges: Bool
    private let losesReplies: Bool
    /// Which promise was broken.
    private(set) var failure: String?

    init(_ scenario: Scenario) {
      processes = Array(repeating: Process(), count: scenario.processCount)
      lists = scenario.lists.map { List(operations: $0) }
      losesReplies = scenario.losesReplies
      losesChanges = scenario.lists.joined().contains(.failOver)
      if scenario.hasValue {
        let version = makeChange(name: 1)
        store(version, 0)
      }
      if scenario.hasOldAnswer { makeChange(name: 1) }
      for index in processes.indices {
        processes[index].queue = []
        processes[index].order.setFollowing(true)
      }
    }

    private mutating func require(_ isKept: Bool, _ promise: String) {
      if !isKept, failure == nil { failure = promise }
    }

    // MARK: Steps

    /// Those that can be made now.
    var steps: [Step] {
      var steps: [Step] = []
      for index in processes.indices {
        if processes[index].queue.isEmpty { continue }
        steps.append(Step(actor: -1 - index, reads: [], writes: .process(index)))
      }
      for index in lists.indices { addSteps(of: index, to: &steps) }
      return steps
    }

    private func addSteps(of index: Int, to steps: inout [Step]) {
      let list = lists[index]
      guard list.next < list.operations.count else { return }
      let operation = list.operations[list.next]
      let (reads, writes) = parts(of: operation, list)
      if list.phase == .request, processes[operation.process!].isSending { return }
      steps.append(Step(actor: index, reads: reads, writes: writes))
      // A reply that has not been noted when the link is lost may be lost, too.
      if list.phase == .reply || list.phase == .sent, list.reply != nil,
        let process = operation.process,
        losesReplies || processes[process].lossCount != list.lossCount
      {
        steps.append(Step(actor: index, isLoss: true, reads: .server, writes: writes))
      }
    }

    private func parts(of operation: Operation, _ list: List) -> (reads: Parts, writes: Parts) {
      guard let process = operation.process else { return ([], .server) }
      let own = Parts.process(process)
      switch (operation, list.phase) {
      case (.loseLink, _): return ([], [.server, own])
      case (.regainLink, _): return ([], .server)
      case (_, .look), (_, .lookAgain): return (.disk, [])
      case (.read, .check), (.splitRead, .check), (.set, .begin): return (.disk, own)
      case (.read, .request) where !processes[process].hasPending,
        (.splitRead, .request) where !processes[process].hasPending:
        return ([.server, own], [])
      case (_, .request): return ([], [.server, own])
      case (_, .value): return (.server, [])
      case (_, .reply), (_, .sent): return (list.reply == nil ? .server : [], own)
      case (_, .end) where list.isUnsent: return (.server, own)
      case (_, .disk): return ([], [.disk, own])
      default: return ([], own)
      }
    }

    mutating func perform(_ step: Step) {
      if step.actor < 0 { return deliver(to: -1 - step.actor) }
      if step.isLoss { lists[step.actor].reply = nil }
      perform(step.actor)
    }

    /// What a step would do.
    func description(of step: Step) -> String {
      if step.actor < 0 {
        let process = -1 - step.actor
        return "process \(process): \(processes[process].queue[0])"
      }
      let list = lists[step.actor]
      return "list \(step.actor): \(list.operations[list.next]), \(list.phase)"
        + (step.isLoss ? " is lost" : "")
    }

    private mutating func perform(_ index: Int) {
      var list = lists[index]
      switch list.operations[list.next] {
      case .read(let process), .splitRead(let process): read(process, &list)
      case .set(let process): set(process, &list, name: UInt64(index * 16 + list.next + 2))
      case .remove(let process): remove(process, &list)
      case .removeAll(let process): removeAll(process, &list)
      case .removeOutdated(let process): removeOutdated(process, &list)
      case .loseLink(let process):
        list.end()
        loseLink(process)
      case .regainLink(let process):
        list.end()
        processes[process].isLinked = true
        processes[process].queue.append(.followed)
      case .setElsewhere:
        makeChange(name: UInt64(index * 16 + list.next + 2))
        list.end()
      case .removeElsewhere:
        makeChange(name: nil)
        list.end()
      case .removeAllElsewhere:
        makeRemovalOfAll()
        list.end()
      case .setAnotherKey:
        list.end()
        server.number += 1
        tell(.changedAnother(server.number))
      case .evict:
        list.end()
        server.evicted = server.value ?? server.evicted
        server.value = nil
      case .replicate:
        list.end()
        server.replica = (server.number, server.value)
      case .failOver:
        list.end()
        (server.number, server.value) = server.replica
        for index in processes.indices { loseLink(index) }
      }
      lists[index] = list
    }

    // MARK: The server

    @discardableResult
    private mutating func makeChange(name: UInt64?) -> EntryVersion {
      server.number += 1
      let version = EntryVersion(number: server.number, name: name ?? 0)
      server.value = name == nil ? nil : version
      server.changes.append((server.number << 8, name != nil))
      tell(.changed(name == nil ? .nothing : .entry(version), server.number))
      return version
    }

    private mutating func makeRemovalOfAll() {
      server.number += 1
      server.value = nil
      server.removalCount += 1
      server.changes.append((server.number << 8, false))
      tell(.removedAll(server.number))
    }

    private mutating func tell(_ message: Message) {
      for index in processes.indices where processes[index].isLinked {
        processes[index].queue.append(message)
      }
    }

    private mutating func loseLink(_ process: Int) {
      processes[process].isLinked = false
      processes[process].lossCount += 1
      processes[process].queue = [.lost]
    }

    private mutating func deliver(to index: Int) {
      let message = processes[index].queue.removeFirst()
      switch message {
      case .followed: processes[index].order.setFollowing(true)
      case .lost: processes[index].order.setFollowing(false)
      case .changed(let held, let number):
        _ = processes[index].order.noteMessage("k", held, number)
        processes[index].told = max(processes[index].told, number << 8)
        if case .entry(let version?) = held { processes[index].toldNames.insert(version.name) }
      case .changedAnother(let number):
        let version = EntryVersion(number: number, name: 1)
        _ = processes[index].order.noteMessage("l", .entry(version), number)
      case .removedAll(let number):
        processes[index].order.noteRemovalOfAll(number)
        processes[index].told = max(processes[index].told, number << 8)
      }
    }

    /// Asks the server, unless it cannot be reached. What is pending is sent before, in a step of
    /// its own.
    private mutating func request(
      _ process: Int, _ list: inout List, _ question: (inout World) -> Reply
    ) {
      list.lossCount = processes[process].lossCount
      list.unsentCount = processes[process].unsentCount
      list.mayMiss = server.evicted != nil || processes.contains { $0.lossCount > 0 }
      list.changeCount = server.changes.count
      list.reply = nil
      list.phase = .reply
      guard processes[process].isLinked else { return }
      if list.operations[list.next] == .removeAll(process) {
        processes[process].isSending = true
        list.removal = processes[process].order.begin("")
      } else if processes[process].hasPending {
        processes[process].isSending = true
        if processes[process].isAllPending {
          list.removal = processes[process].order.begin("")
          makeRemovalOfAll()
        } else {
          list.removal = nil
          makeChange(name: nil)
        }
        list.reply = .made(server.number)
        list.phase = .sent
        return
      }
      list.reply = question(&self)
    }

    /// Notes the reply to what was pending.
    private mutating func noteSent(_ process: Int, _ list: inout List) {
      processes[process].isSending = false
      list.phase = .reply
      guard case .made(let number) = list.reply else { return }
      list.reply = nil
      list.phase = .request
      processes[process].sentCount += 1
      // What another machine has set since must not be removed.
      require(
        processes.count > 1 || processes[process].sentCount <= processes[process].unsentCount,
        "change is told twice")
      let isUnchanged = list.unsentCount == processes[process].unsentCount
      if isUnchanged {
        processes[process].isPending = false
        // These changes may still be running, but come before all that follow the removal.
        for index in lists.indices where lists[index].operation?.process == process {
          lists[index].isUnsent = false
        }
      }
      if let removal = list.removal {
        if isUnchanged { processes[process].isAllPending = false }
        processes[process].order.noteRemovalOfAll(number, removal)
      } else if isUnchanged {
        _ = processes[process].order.noteSent("k", number)
      }
    }

    // MARK: Calls

    private mutating func store(_ version: EntryVersion, _ process: Int) {
      fileCount += 1
      // An entry that replaces one of the same size is not counted.
      if disk == nil { processes[process].changeCount += 1 }
      disk = File(version: version, id: fileCount)
    }

    private mutating func removeFile(_ process: Int) {
      processes[process].changeCount += 1
      disk = nil
    }

    /// How often the other processes have changed the disk.
    private func foreignCount(_ process: Int) -> Int {
      processes.indices.reduce(0) { $0 + ($1 == process ? 0 : processes[$1].changeCount) }
    }

    private mutating func noteUnsent(_ held: KeyOrder.Held, _ process: Int, _ list: inout List) {
      processes[process].unsentCount += 1
      list.isUnsent = processes[process].order.noteUnsent(held, list.call!)
      if list.isUnsent { processes[process].isPending = true }
      rankUnsent(process, &list)
    }

    /// It may be later than changes that were made while it was running.
    private mutating func rankUnsent(_ process: Int, _ list: inout List) {
      if list.isUnsent {
        list.rank = server.number << 8 + UInt64(process * 16) + processes[process].unsentCount
      }
      if let version = list.version { unsent[version.name] = (list.rank, process) }
    }

    private mutating func read(_ process: Int, _ list: inout List) {
      switch list.phase {
      case .begin:
        list.check = processes[process].order.begin("k")
        list.returned = processes[process].returned
        list.told = processes[process].told
        list.reply = nil
        list.phase = .look
      case .look:
        list.present = disk
        list.phase = .check
      case .check:
        if let version = list.present?.version {
          let state = processes[process].order.state(of: "k", version, nil, isUse: true)
          if state == .current(version, tell: nil) {
            return finishRead(version, process, &list)
          }
        }
        list.foreignCount = foreignCount(process)
        let call = processes[process].order.beginQuestion("k")
        list.call = call
        list.isQuestion = true
        list.phase = .request
        if let version = list.present?.version, version.number == 0,
          !processes[process].order.wasSent("k", version)
        {
          if processes[process].order.isUnchanged(since: call) {
            processes[process].isPending = true
          } else {
            list.phase = .offline
          }
        }
      case .request:
        let isSplit = list.operation == .splitRead(process)
        request(process, &list) { world in
          if isSplit { return .nothing(world.server.number) }
          return world.server.value.map { .value($0) } ?? .nothing(world.server.number)
        }
        list.removalCount = server.removalCount
        if isSplit, list.phase == .reply, list.reply != nil { list.phase = .value }
      case .value:
        if let value = server.value, list.removalCount == server.removalCount {
          list.reply = .value(value)
        }
        list.changeCount = server.changes.count
        list.mayMiss = server.evicted != nil || processes.contains { $0.lossCount > 0 }
        list.phase = .reply
      case .sent: noteSent(process, &list)
      case .reply:
        switch list.reply {
        case .value(let version):
          if isOvertaken(.entry(version), version.number, process, list) {
            list.phase = .offline
            return
          }
          if list.present?.version == version { return finishRead(version, process, &list) }
          list.phase = .disk
        case .nothing(let number):
          if isOvertaken(.nothing, number, process, list) {
            list.phase = .offline
            return
          }
          if list.present == nil { return finishRead(nil, process, &list) }
          list.phase = .disk
        case .made, nil: list.phase = .offline
        }
      case .disk:
        guard case .value(let version) = list.reply else {
          removeCompared(list.present!, process)
          return finishRead(nil, process, &list)
        }
        let isUntouched =
          disk == nil ? foreignCount(process) == list.foreignCount : disk == list.present
        if processes[process].order.isLatest("k", version),
          isUntouched || version.isLater(than: disk?.version)
        {
          store(version, process)
          processes[process].order.noteStored("k", version)
        } else if let present = list.present {
          removeCompared(present, process)
        }
        finishRead(version, process, &list)
      case .offline:
        list.check = processes[process].order.begin("k")
        list.phase = .lookAgain
      case .lookAgain:
        list.present = disk
        list.phase = .offlineAgain
      case .offlineAgain:
        guard let version = list.present?.version,
          processes[process].order.use("k", version, since: list.check!)
        else { return finishRead(nil, process, &list) }
        finishRead(version, process, &list)
      case .noteMissing, .end: break
      }
    }

    /// Notes an answer. Returns whether it is older than a change that the server was not told of.
    private mutating func isOvertaken(
      _ held: KeyOrder.Held, _ number: UInt64, _ process: Int, _ list: List
    ) -> Bool {
      let isNoted = processes[process].order.note(held, number, list.call!)
      return !isNoted && processes[process].order.isUnsent("k")
    }

    /// Removes an entry that was compared with another version.
    private mutating func removeCompared(_ present: File, _ process: Int) {
      let isLatest = processes[process].order.isLatest("k", present.version)
      if disk == present, !isLatest { removeFile(process) }
    }

    /// Checks what a read returns.
    private mutating func finishRead(
      _ version: EntryVersion?, _ process: Int, _ list: inout List
    ) {
      if list.isQuestion { processes[process].order.endQuestion(list.call!) }
      list.isQuestion = false
      list.result = version
      list.end()
      if losesChanges { return }
      var isOwn = false
      var rank: Rank
      if let version {
        rank = version.number << 8
        if version.number == 0, let change = unsent[version.name] {
          rank = change.rank
          isOwn = change.process == process
        }
        let isRunning = lists.contains { $0.isUnsent && $0.version == version }
        require(isRunning || rank >= list.returned, "read goes backwards")
        // Whether the server was told of another change before an own one is not known.
        require(isOwn || rank >= list.told, "read returns what is known to be outdated")
      } else {
        guard let reply = list.reply, case .nothing = reply else {
          return require(
            losesReplies || processes[process].lossCount > 0, "read returns nothing")
        }
        let floor = max(list.returned, list.told)
        let changes = server.changes.prefix(list.changeCount)
        let removal = changes.indices.first { index in
          !changes[index].hasValue
            && (index + 1 == changes.endIndex || changes[index + 1].rank > floor)
        }
        guard let removal else { return require(list.mayMiss, "read misses the value") }
        rank = changes[removal].rank
      }
      processes[process].returned = max(processes[process].returned, rank)
    }

    /// Removes an entry that must not be used.
    @discardableResult
    private mutating func removeFromDisk(_ present: File, _ process: Int) -> Bool {
      if disk != present || processes[process].order.mayUse("k", present.version) { return false }
      removeFile(process)
      return true
    }

    private mutating func finishChange(_ process: Int, _ list: inout List) {
      processes[process].order.endChange(list.call!)
      if list.isUnsent { rankUnsent(process, &list) }
      processes[process].returned = max(processes[process].returned, list.rank)
      list.end()
    }

    private mutating func set(_ process: Int, _ list: inout List, name: UInt64) {
      switch list.phase {
      case .begin:
        list.foreignCount = foreignCount(process)
        list.call = processes[process].order.beginChange("k", storing: name)
        list.phase = .request
      case .request: request(process, &list) { .made($0.makeChange(name: name).number) }
      case .sent: noteSent(process, &list)
      case .reply:
        list.phase = .disk
        if list.reply == nil,
          let number = processes[process].order.number(of: list.call!)
        {
          list.reply = .made(number)
          list.isOnlyHere = true
        }
        if case .made(let number) = list.reply {
          let version = EntryVersion(number: number, name: name)
          list.version = version
          list.rank = number << 8
          if processes[process].order.note(.entry(version), number, list.call!) {
            processes[process].isPending = false
          }
        } else {
          require(!processes[process].toldNames.contains(name), "change that was told of is unsent")
          let version = EntryVersion(number: 0, name: name)
          list.version = version
          list.isOnlyHere = true
          noteUnsent(.entry(version), process, &list)
        }
      case .disk:
        let version = list.version!
        let isOvertaken =
          foreignCount(process) != list.foreignCount
          && (disk.map { $0.version.isLater(than: version) } ?? true)
        if processes[process].order.isLatest("k", version), list.isOnlyHere || !isOvertaken {
          store(version, process)
          if list.reply != nil { processes[process].order.noteStored("k", version) }
        }
        list.phase = .end
      default: finishChange(process, &list)
      }
    }

    private mutating func remove(_ process: Int, _ list: inout List) {
      switch list.phase {
      case .begin:
        list.call = processes[process].order.beginChange("k")
        list.phase = .request
      case .request:
        request(process, &list) { .made($0.makeChange(name: nil).number) }
      case .sent: noteSent(process, &list)
      case .reply:
        list.phase = .check
        if case .made(let number) = list.reply {
          list.rank = number << 8
          if processes[process].order.note(.nothing, number, list.call!) {
            processes[process].isPending = false
          }
        } else {
          noteUnsent(.nothing, process, &list)
        }
      case .check:
        list.check = processes[process].order.begin("k")
        list.phase = .disk
      case .disk:
        let isRemoved = disk.map { removeFromDisk($0, process) }
        if isRemoved == nil { removeFile(process) }
        list.phase = isRemoved == false ? .end : .noteMissing
      case .noteMissing:
        processes[process].order.noteNoOlderEntry(list.check!, hasEntry: false)
        list.phase = .end
      default: finishChange(process, &list)
      }
    }

    private mutating func removeAll(_ process: Int, _ list: inout List) {
      switch list.phase {
      case .begin: list.phase = .request
      case .request:
        request(process, &list) { world in
          world.makeRemovalOfAll()
          return .made(world.server.number)
        }
      case .reply:
        processes[process].isSending = false
        list.phase = .disk
        if case .made(let number) = list.reply {
          list.rank = number << 8
          if list.unsentCount == processes[process].unsentCount {
            processes[process].isPending = false
            processes[process].isAllPending = false
          }
          processes[process].order.noteRemovalOfAll(number, list.removal!)
        } else {
          processes[process].unsentCount += 1
          list.isUnsent = true
          rankUnsent(process, &list)
          processes[process].order.noteUnsentRemovalOfAll()
          processes[process].isAllPending = true
        }
      default:
        removeFile(process)
        processes[process].returned = max(processes[process].returned, list.rank)
        list.end()
      }
    }

    private mutating func removeOutdated(_ process: Int, _ list: inout List) {
      switch list.phase {
      case .begin:
        list.call = processes[process].order.takeRemoval()
        if list.call == nil { list.end() } else { list.phase = .look }
      case .look:
        list.present = disk
        list.phase = .check
      case .check:
        guard let version = list.present?.version else {
          if processes[process].order.noteMissing(list.call!) { return list.end() }
          list.phase = .disk
          return
        }
        if version.number == 0, !processes[process].order.wasSent("k", version) {
          return list.end()
        }
        if processes[process].order.mayUse("k", version) {
          processes[process].order.noteNoOlderEntry(list.call!, hasEntry: true)
          return list.end()
        }
        list.phase = .disk
      case .disk:
        guard let present = list.present else {
          if disk != nil { return list.end() }
          removeFile(process)
          list.phase = .noteMissing
          return
        }
        if removeFromDisk(present, process) { list.phase = .noteMissing } else { list.end() }
      default:
        processes[process].order.noteNoOlderEntry(list.call!, hasEntry: false)
        list.end()
      }
    }

    // MARK: The end

    private mutating func run(_ operation: Operation) -> List {
      lists = [List(operations: [operation])]
      while lists[0].next == 0 { perform(0) }
      return lists[0]
    }

    /// Checks what is read after everything.
    mutating func finish() {
      for index in processes.indices {
        guard processes[index].isLinked else {
          _ = run(.read(index))
          continue
        }
        for _ in 0..<2 { _ = run(.removeOutdated(index)) }
        let first = run(.read(index))
        while !processes[index].queue.isEmpty { deliver(to: index) }
        let value = first.result
        // The machines are not told of evictions.
        require(
          value == server.value || server.value == nil && value == server.evicted,
          "server has another value")
        let second = run(.read(index))
        require(second.result == value, "value changes by itself")
        require(value == nil || second.reply == nil, "read asks without need")
        // Numbers that a failover has given twice do not tell what is outdated.
        if losesChanges { continue }
        loseLink(index)
        deliver(to: index)
        require(run(.read(index)).result == value, "value is not used without the server")
      }
    }
  }
}

extension KeyOrderInterleavingTests.Operation {
  /// The process that does it; nil for what other machines do.
  fileprivate var process: Int? {
    switch self {
    case .read(let process), .splitRead(let process), .set(let process), .remove(let process),
      .removeAll(let process), .removeOutdated(let process), .loseLink(let process),
      .regainLink(let process):
      process
    default: nil
    }
  }
}
