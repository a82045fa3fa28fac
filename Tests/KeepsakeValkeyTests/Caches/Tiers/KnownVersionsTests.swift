import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What a process knows of a shared cache, without a server and without files.
@Suite(.ownThread) struct KnownVersionsTests {
  private var known = KnownVersions()

  init() { known.setFollowing(true) }

  private func version(_ number: UInt64) -> EntryVersion {
    EntryVersion(number: number, name: 1_000 + number)
  }

  private let unsent = EntryVersion(number: 0, name: 1)

  /// Notes the answer to a question.
  private mutating func isNoted(_ number: UInt64, _ call: KnownVersions.Call) -> Bool {
    known.note(.entry(version(number)), number, call)
  }

  private mutating func isNoted(_ number: UInt64, of key: String = "k") -> Bool {
    let call = known.begin(key)
    defer { known.end(call) }
    return isNoted(number, call)
  }

  /// Receives a message, and returns whether that starts the removal of outdated entries.
  private mutating func startsRemoval(
    _ held: KnownVersions.Held, _ number: UInt64, of key: String = "k"
  ) -> Bool { known.noteMessage(key, held, number) }

  private mutating func isProduced(_ held: KnownVersions.Held, since time: UInt64) -> Bool {
    known.noteProduced(held, "k", since: time)
  }

  private mutating func isAbsenceNoted(_ number: UInt64) -> Bool {
    let call = known.begin("k")
    defer { known.end(call) }
    return known.note(.nothing, number, call)
  }

  private mutating func isCurrent(_ key: String, _ number: UInt64) -> Bool {
    known.state(of: key, version(number), nil, isUse: false)
      == .current(version(number), tell: nil)
  }

  // MARK: The newest version

  @Test mutating func olderAnswerIsNotNoted() {
    let early = known.begin("k")
    #expect(isNoted(5) && isCurrent("k", 5))
    #expect(!isNoted(4, early) && isCurrent("k", 5))
    #expect(isNoted(6, early) && !known.mayUse("k", version(5)) && known.mayUse("k", version(6)))
    let late = known.begin("k")
    #expect(startsRemoval(.nothing, 7) && !isNoted(6, late))
    #expect(known.isNewest("k", .nothing))
  }

  @Test mutating func absenceHasTheNumberOfTheLastChange() {
    let early = known.begin("k")
    #expect(isAbsenceNoted(5) && !known.mayUse("k", version(5)))
    #expect(!isNoted(4, early) && known.mayUse("k", version(6)))
    #expect(isNoted(6) && isAbsenceNoted(6), "evicted")
  }

  @Test mutating func messageMakesAnEntryOutdated() {
    #expect(isNoted(1))
    #expect(startsRemoval(.entry(version(2)), 2) && known.takeRemoval() == "k")
    #expect(!known.mayUse("k", version(1)) && known.mayUse("k", version(2)))
    #expect(!startsRemoval(.entry(version(1)), 1), "late")
    #expect(!isCurrent("k", 2), "the server may have lost changes")
    #expect(isNoted(2) && isCurrent("k", 2) && known.takeRemoval() == nil)
    #expect(startsRemoval(.entry(version(3)), 3) && isCurrent("k", 3))
  }

  @Test mutating func oneRemovalIsStartedForSeveralKeys() {
    #expect(startsRemoval(.nothing, 1) && !startsRemoval(.nothing, 2, of: "l"))
    #expect(!startsRemoval(.nothing, 3))
    #expect(Set([known.takeRemoval(), known.takeRemoval()]) == ["k", "l"])
    #expect(known.takeRemoval() == nil && known.queueRemoval(of: "k"))
  }

  @Test mutating func removalOfAllOutdatesEarlierEntries() {
    #expect(isNoted(4) && isNoted(6, of: "l"))
    let early = known.begin("k")
    known.noteRemovalOfAll(5)
    #expect(!known.mayUse("k", version(4)) && !known.mayUse("m", version(5)))
    #expect(known.mayUse("l", version(6)) && !isCurrent("l", 6))
    #expect(!isNoted(4, early) && !startsRemoval(.entry(version(5)), 5))
    known.noteRemovalOfAll(5)
    #expect(isNoted(6) && isCurrent("k", 6))
  }

  // MARK: Gaps in the messages

  @Test mutating func nothingIsCurrentWithoutMessages() {
    let call = known.begin("k")
    known.setFollowing(false)
    #expect(isNoted(1, call) && !isCurrent("k", 1))
    #expect(isNoted(2) && !isCurrent("k", 2) && known.mayUse("k", version(2)))
    let outage = known.begin("k")
    known.setFollowing(true)
    #expect(isNoted(3, outage) && !isCurrent("k", 3))
    #expect(isNoted(3) && isCurrent("k", 3))
    known.setFollowing(true)
    #expect(!isCurrent("k", 3), "changes were missed")
  }

  @Test mutating func expiredVersionIsAskedFor() {
    #expect(isNoted(1))
    known.expire("k", version(2))
    #expect(isCurrent("k", 1))
    known.expire("k", version(1))
    #expect(!isCurrent("k", 1) && known.mayUse("k", version(1)))
    #expect(isNoted(1) && isCurrent("k", 1))
  }

  /// A replica that lacks changes has become the primary.
  @Test mutating func smallerNumberOfALaterCallMeansThatChangesWereLost() {
    let early = known.begin("k")
    #expect(isNoted(9) && isNoted(9, of: "l"))
    #expect(!isNoted(7, early) && known.isNewest("k", .entry(version(9))))
    #expect(isNoted(7) && !isCurrent("k", 7), "asked for once more")
    #expect(isNoted(7) && isCurrent("k", 7))
    #expect(isNoted(6, of: "l"))
    known.noteRemovalOfAll(9)
    let time = known.now()
    known.noteRemovalOfAll(8, since: time)
    #expect(isNoted(8) && known.mayUse("k", version(8)))
  }

  /// The same, but the connections stay, and another change has the number of the lost one.
  @Test mutating func equalNumberOfAnotherChangeIsAskedFor() {
    #expect(isNoted(5) && isNoted(8, of: "l"))
    #expect(!startsRemoval(.entry(version(5)), 5) && isCurrent("k", 5), "the same change")
    let other = EntryVersion(number: 5, name: 1)
    #expect(!startsRemoval(.entry(other), 5) && !isCurrent("k", 5) && isCurrent("l", 8))
    let call = known.begin("k")
    #expect(known.note(.entry(other), 5, call) && known.isNewest("k", .entry(other)))
    known.noteRemovalOfAll(7)
    #expect(isNoted(8, of: "l") && isCurrent("l", 8))
    known.noteRemovalOfAll(7)
    #expect(!isCurrent("l", 8), "removed by another one")
  }

  // MARK: Changes that the server was not told of

  @Test mutating func unsentChangeIsNewerThanAllOthers() {
    #expect(isNoted(1))
    let call = known.begin("k")
    known.noteUnsent(.entry(unsent), "k")
    #expect(known.isUnsent("k") && !known.isUnsent("l"))
    #expect(known.mayUse("k", unsent) && !known.mayUse("k", version(9)))
    #expect(!isNoted(2, call) && !startsRemoval(.entry(version(3)), 3))
    #expect(known.isNewest("k", .entry(unsent)))
    let removal = known.begin("k")
    #expect(known.noteChange(.nothing, 4, removal) && !known.isUnsent("k"))
    #expect(!known.mayUse("k", unsent) && isNoted(5))
  }

  /// The removal on the server began before it.
  @Test mutating func unsentChangeDuringARemovalStaysUnsent() {
    let removal = known.begin("k")
    known.noteUnsent(.entry(unsent), "k")
    let isNewest = known.noteChange(.nothing, 4, removal)
    #expect(!isNewest && known.isUnsent("k") && known.mayUse("k", unsent))
    let time = known.now()
    known.noteUnsent(.entry(unsent), "l")
    known.noteRemovalOfAll(5, since: time)
    #expect(!known.isUnsent("k") && !known.mayUse("k", unsent))
    #expect(known.isUnsent("l") && known.mayUse("l", unsent))
  }

  @Test mutating func unsentRemovalOfAllCoversEveryKey() {
    #expect(isNoted(5))
    known.noteUnsent(.entry(unsent), "l")
    known.noteAllUnsent()
    #expect(known.isAllUnsent && known.isUnsent("k") && known.isUnsent("l"))
    #expect(!known.mayUse("k", version(5)) && !isNoted(6))
    let time = known.now()
    known.noteRemovalOfAll(7, since: time)
    #expect(!known.isAllUnsent && !known.isUnsent("l") && isNoted(8))
  }

  @Test mutating func messageTellsOfAChangeWhoseReplyWasLost() {
    #expect(known.version(named: 1_002, of: "k") == nil)
    _ = known.noteMessage("k", .entry(version(2)), 2)
    #expect(known.version(named: 1_002, of: "k") == version(2))
    #expect(known.version(named: 1_003, of: "k") == nil)
    known.noteUnsent(.entry(EntryVersion(number: 0, name: 1_003)), "k")
    _ = known.noteMessage("k", .entry(version(4)), 4)
    #expect(known.isUnsent("k"))
    _ = known.noteMessage("k", .entry(version(3)), 3)
    #expect(!known.isUnsent("k") && known.isNewest("k", .entry(version(3))))
  }

  @Test mutating func unsentEntryOfAnotherProcessIsNotedUnlessItIsOutdated() {
    known.noteUnsentEntry("k", unsent)
    #expect(known.isUnsent("k") && known.mayUse("k", unsent))
    #expect(isNoted(1, of: "l"))
    known.noteUnsentEntry("l", unsent)
    #expect(!known.isUnsent("l"))
  }

  @Test mutating func productDoesNotReplaceAChange() {
    var began = known.now()
    #expect(isProduced(.entry(nil), since: began) && known.mayUse("k", nil))
    #expect(!isProduced(.nothing, since: began), "the first of two products")
    began = known.now()
    #expect(isNoted(1))
    #expect(!isProduced(.entry(nil), since: began) && !known.mayUse("k", nil))
    began = known.now()
    #expect(isNoted(1), "the same version is no change")
    #expect(isProduced(.entry(nil), since: began))
    began = known.now()
    known.noteAllUnsent()
    #expect(!isProduced(.entry(nil), since: began))
  }

  /// A running call has learned the newest change, and has not stored it yet.
  @Test mutating func factOfARunningCallSurvivesLostChanges() {
    let set = known.begin("k")
    #expect(isNoted(9, set) && isNoted(9, of: "l") && isNoted(5, of: "l"), "changes were lost")
    #expect(known.isNewest("k", .entry(version(9))))
    known.end(set)
    let late = known.begin("m")
    #expect(isNoted(4, of: "l") && !isNoted(8, late), "it began before")
    #expect(!known.mayUse("m", version(8)) && known.mayUse("m", version(9)))
  }

  // MARK: What is remembered

  /// Most messages are about keys that this process does not use.
  @Test mutating func messageAboutAMissingEntryIsForgotten() {
    let calls: [(inout KnownVersions, EntryVersion) -> Void] = [
      { known, version in _ = known.note(.entry(version), version.number, known.begin("k")) },
      { known, version in _ = known.use("k", version) },
      { known, version in _ = known.state(of: "k", version, nil, isUse: false) },
    ]
    _ = known.noteMessage("k", .entry(version(1)), 1)
    known.forgetUnlessSeen("k", .entry(version(1)))
    #expect(known.held("k") == nil)
    for (number, call) in calls.enumerated() {
      let version = version(UInt64(number) + 2)
      _ = known.noteMessage("k", .entry(version), version.number)
      call(&known, version)
      known.forgetUnlessSeen("k", .entry(version))
      #expect(known.held("k") != nil, "a call has returned it: \(number)")
    }
  }

  /// It may learn an older answer.
  @Test mutating func messageDuringACallIsRemembered() {
    let call = known.begin("k")
    _ = known.noteMessage("k", .entry(version(2)), 2)
    known.forgetUnlessSeen("k", .entry(version(2)))
    #expect(known.held("k") != nil)
    known.end(call)
    known.forgetUnlessSeen("k", .entry(version(2)))
    #expect(known.held("k") == nil)
  }

  /// - Parameter isLong: Whether the keys take too much memory, and not their number.
  @Test(arguments: [false, true]) mutating func tooManyKeysAreForgotten(_ isLong: Bool) {
    let padding = String(repeating: "x", count: isLong ? 1 << 20 : 0)
    let count = isLong ? 20 : KnownVersions.capacity + 1
    #expect(isNoted(1))
    #expect(isNoted(2, of: "l"))
    known.noteUnsent(.entry(unsent), "u")
    let early = known.begin("m")
    for number in 0..<count { _ = known.noteMessage("\(number)\(padding)", .nothing, 3) }
    #expect(known.held("k") == nil && known.held("l") == nil && known.isUnsent("u"))
    #expect(!known.isAllUnsent && !isNoted(1, early))
    #expect(!known.mayUse("l", version(2)), "an outdated entry may still be there")
    _ = known.noteMessage("k", .entry(version(1)), 1)
    #expect(!isCurrent("k", 1), "the message is late")
    #expect(isNoted(1) && isCurrent("k", 1))
  }

  @Test mutating func tooManyUnsentChangesAreOneOfAllKeys() {
    for number in 0...KnownVersions.capacity { known.noteUnsent(.nothing, "\(number)") }
    #expect(known.isAllUnsent && known.isUnsent("k"))
  }

  @Test mutating func entriesThatCouldNotBeRemovedAreNotUsed() {
    known.outdateAll()
    #expect(!known.mayUse("k", version(9)) && !known.mayUse("k", nil))
    #expect(isNoted(1) && known.mayUse("k", version(1)) && !known.mayUse("l", version(1)))
  }

  @Test mutating func usesAreToldWhenTheyAreDue() {
    let use = EntryUse(lifetime: 7, interval: 3_600 * 1_000_000_000, lastTold: 0)
    let version = version(1)
    let call = known.begin("k")
    #expect(known.note(.entry(version), 1, call, use: use) && isCurrent("k", 1))
    #expect(known.state(of: "k", version, nil, isUse: true) == .current(version, tell: 7))
    #expect(known.state(of: "k", version, nil, isUse: true) == .current(version, tell: nil))
  }
}
