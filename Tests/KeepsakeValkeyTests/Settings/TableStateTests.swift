import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeValkey

/// What a process knows of a table, step by step and without a server.
@Suite struct TableStateTests {
  /// A state that was subscribed and has read a snapshot, and a mirror of it.
  private final class Follower {
    var state: TableState
    let mirror = StorageEngines.Mirror(NoEngine(), report: { _ in })

    /// - Parameter snapshot: nil for one that has not been read.
    init(_ snapshot: TableContents?, maximumByteCount: Int = 32 << 20) {
      state = TableState(table: "table", maximumByteCount: maximumByteCount)
      _ = state.beginFollowing()
      let load = state.beginReceiving()
      state.add(mirror)
      if let snapshot, let load { _ = state.finishLoading(load, snapshot) }
    }

    func receive(
      _ version: Int64, _ entries: [String: String?]?, id: String = "id", byteCount: Int = 100
    ) -> TableState.Load? {
      state.receive(TableStateTests.message(version, entries, id: id), byteCount: byteCount)
    }

    func receive(_ message: TableMessage?) -> TableState.Load? {
      state.receive(message, byteCount: 100)
    }

    func note(_ changes: TableChanges?, version: Int64, id: String) -> Bool {
      state.note(changes, version: version, name: "c\(version)", id: id)
    }

    func noteEarly(_ changes: TableChanges?, version: Int64) -> TableState.Load? {
      state.noteEarly(changes, version: version, name: "c\(version)")
    }

    func noteServerVersion(
      _ version: Int64, named name: String? = nil, since baseline: TableState.Baseline
    ) -> TableState.NextSteps {
      state.noteServerVersion(version, name: name ?? "c\(version)", since: baseline)
    }
    func nextName() -> String { state.nextName() }

    func lose(_ error: StorageError) { state.lose(error) }
    func restore(_ copy: TableContents) { state.restore(copy) }
    func planOutageReport() -> Int? { state.planOutageReport() }
    func reportOutage(_ number: Int) -> StorageError? { state.reportOutage(number) }
    func beginReceiving() -> TableState.Load? { state.beginReceiving() }
    func beginLoading() -> TableState.Load? { state.beginLoading() }
    func retryLoading() -> TableState.Load? { state.retryLoading() }

    func finishLoading(
      _ load: TableState.Load, _ contents: TableContents, askedName: String = "",
      isReplacement: Bool = false
    ) -> TableState.NextSteps {
      state.finishLoading(load, contents, askedName: askedName, isReplacement: isReplacement)
    }

    func failLoading(
      _ load: TableState.Load, _ error: StorageError, isTooLarge: Bool = false
    ) -> Duration? {
      state.failLoading(load, error, isTooLarge: isTooLarge)
    }

    /// What is shown, which is also what is known.
    var values: [String: String] {
      var shown: [String: String] = [:]
      for key in (try? mirror.keys()) ?? [] {
        shown[key] = (try? mirror.value(forKey: key)).map {
          String(decoding: $0.engineData, as: UTF8.self)
        }
      }
      var known: [String: String] = [:]
      for entry in state.contents.entries {
        known[entry.key] = entry.data.map { String(decoding: $0, as: UTF8.self) }
      }
      return shown == known ? shown : ["shown": "\(shown)", "known": "\(known)"]
    }
  }

  private final class NoEngine: StorageEngines.MirroredEngine {
    func fill(_ mirror: StorageEngines.Mirror) {}
    func data(forKey key: String) -> Data? { nil }
    func set(_ data: Data?, forKey key: String) {}
    func replace(_ old: Data?, with new: Data?, forKey key: String) -> Bool { false }
    func keys() -> [String] { [] }
  }

  private static func changes(_ entries: [String: String?]) -> TableChanges {
    TableChanges(entries.map { StorageEngines.Entry(key: $0, data: $1.map { Data($0.utf8) }) })
  }

  fileprivate static func message(
    _ version: Int64, _ entries: [String: String?]?, id: String = "id"
  ) -> TableMessage? {
    let payload = entries.map { TableMessage.payload(of: changes($0)) } ?? Array("?".utf8)
    return TableMessage(Array("\(id) \(version) c\(version - 1) c\(version) ".utf8) + payload)
  }

  private static func snapshot(
    _ version: Int64, _ values: [String: String], id: String = "id"
  ) -> TableContents {
    TableContents(
      id: id, version: version, name: "c\(version)",
      entries: changes(values.mapValues { $0 }).entries)
  }

  private static func follower(_ version: Int64 = 5, _ values: [String: String] = ["a": "1"])
    -> Follower
  {
    Follower(snapshot(version, values))
  }

  private let unreachable = StorageError(.unreachable, operation: "connect", remedy: "Wait.")
  private let follower = TableStateTests.follower()

  @Test func messagesThatFollowAreShown() {
    #expect(follower.receive(6, ["b": "2"]) == nil)
    #expect(follower.receive(7, ["a": nil, "c": "3"]) == nil)
    #expect(follower.values == ["b": "2", "c": "3"])
    let all = TableMessage(Array("id 8 c7 c8 !1:z+1:9".utf8))
    #expect(follower.receive(all) == nil)
    #expect(follower.values == ["z": "9"] && follower.state.phase == .current)
  }

  @Test func firstMessageMakesTheTable() {
    let follower = Follower(TableContents())
    #expect(follower.receive(1, ["a": "1"], id: "new") == nil)
    #expect(follower.values == ["a": "1"] && follower.state.contents.id == "new")
    let late = Follower(TableContents())
    #expect(late.receive(2, ["a": "1"], id: "new") != nil)
  }

  enum Unexpected: CaseIterable {
    case gap, duplicateOfAMessage, wentBack, otherTable, omitted, notUnderstood
  }

  /// None of them is shown. A snapshot is read, and what it has is shown.
  @Test(arguments: Unexpected.allCases) func unexpectedMessageMeansASnapshot(_ kind: Unexpected) {
    #expect(follower.receive(6, ["a": "2"]) == nil)
    let load =
      switch kind {
      case .gap: follower.receive(8, ["a": "wrong"])
      case .duplicateOfAMessage: follower.receive(6, ["a": "wrong"])
      case .wentBack: follower.receive(4, ["a": "wrong"])
      case .otherTable: follower.receive(7, ["a": "wrong"], id: "other")
      case .omitted: follower.receive(7, nil)
      case .notUnderstood: follower.receive(nil)
      }
    #expect(load != nil && follower.values == ["a": "2"] && follower.state.phase == .loading)
    let next = follower.finishLoading(load ?? 0, Self.snapshot(9, ["a": "3"]))
    #expect(next.load == nil && next.report == nil)
    #expect(follower.values == ["a": "3"] && follower.state.phase == .current)
    #expect(follower.receive(10, ["a": "4"]) == nil)
    #expect(follower.values == ["a": "4"])
  }

  /// The server published them before it was asked for the snapshot.
  @Test func oldMessagesAfterASnapshotAreIgnored() {
    for version: Int64 in 3...5 { #expect(follower.receive(version, ["a": "wrong"]) == nil) }
    #expect(follower.receive(6, ["a": "2"]) == nil)
    #expect(follower.values == ["a": "2"])
  }

  // MARK: Snapshots

  @Test func messagesDuringTheSnapshotAreApplied() {
    let follower = Follower(nil)
    for version: Int64 in 4...7 { #expect(follower.receive(version, ["v": "\(version)"]) == nil) }
    let next = follower.finishLoading(1, Self.snapshot(5, ["v": "5", "a": "1"]))
    #expect(next.load == nil && follower.state.phase == .current)
    #expect(follower.values == ["v": "7", "a": "1"] && follower.state.contents.version == 7)
  }

  @Test func gapDuringTheSnapshotMeansAnother() {
    let follower = Follower(nil)
    #expect(follower.receive(7, ["v": "7"]) == nil)
    let next = follower.finishLoading(1, Self.snapshot(5, ["v": "5"]))
    #expect(next.load == 2 && follower.state.phase == .loading && follower.values == ["v": "5"])
    _ = follower.finishLoading(2, Self.snapshot(7, ["v": "7"]))
    #expect(follower.state.phase == .current && follower.values == ["v": "7"])
  }

  /// They would take too much memory.
  @Test func tooManyMessagesMeanAnotherSnapshot() {
    let follower = Follower(nil)
    for version: Int64 in 6...25 { _ = follower.receive(version, ["v": "1"], byteCount: 1 << 20) }
    let next = follower.finishLoading(1, Self.snapshot(5, ["v": "5"]))
    #expect(next.load == 2 && follower.values == ["v": "5"])
    _ = follower.receive(26, ["v": "26"])
    _ = follower.finishLoading(2, Self.snapshot(25, ["v": "25"]))
    #expect(follower.state.phase == .current && follower.values == ["v": "26"])
  }

  /// Messages were missed since it was asked for.
  @Test func snapshotOfBeforeALossIsIgnored() {
    let follower = Follower(nil)
    follower.lose(unreachable)
    #expect(follower.beginReceiving() == 2)
    let next = follower.finishLoading(1, Self.snapshot(5, ["v": "5"]))
    #expect(next.load == nil && follower.values == [:] && follower.state.phase == .loading)
    #expect(follower.failLoading(1, unreachable) == nil)
    _ = follower.finishLoading(2, Self.snapshot(6, ["v": "6"]))
    #expect(follower.values == ["v": "6"] && follower.state.phase == .current)
  }

  @Test func secondRequestDuringASnapshotReadsAnother() {
    let follower = Follower(nil)
    #expect(follower.beginLoading() == nil)
    #expect(follower.finishLoading(1, Self.snapshot(5, ["v": "5"])).load == 2)
    #expect(follower.finishLoading(2, Self.snapshot(6, ["v": "6"])).load == nil)
    #expect(follower.values == ["v": "6"])
  }

  @Test func failedSnapshotKeepsTheValues() {
    let load = follower.receive(8, ["a": "8"]) ?? 0
    #expect(follower.failLoading(load, unreachable) != nil)
    #expect(follower.state.phase == .apart && follower.state.failure?.code == .unreachable)
    #expect(follower.values == ["a": "1"])
    let retry = follower.retryLoading() ?? 0
    _ = follower.finishLoading(retry, Self.snapshot(9, ["a": "9"]))
    #expect(follower.values == ["a": "9"] && follower.state.failure == nil)
    #expect(follower.retryLoading() == nil)
  }

  /// A snapshot alone does not make it current: later changes would not arrive.
  @Test func snapshotWithoutASubscriptionIsShownOnly() {
    follower.lose(unreachable)
    let load = follower.beginLoading() ?? 0
    _ = follower.finishLoading(load, Self.snapshot(9, ["a": "9"]))
    #expect(follower.values == ["a": "9"] && follower.state.phase == .apart)
    #expect(follower.receive(10, ["a": "wrong"]) == nil)
  }

  @Test func copyOnDiskIsShownUntilTheServerIsRead() {
    var state = TableState(table: "table")
    _ = state.beginFollowing()
    state.restore(Self.snapshot(5, ["a": "1"]))
    #expect(state.isKnown && state.phase == .apart)
    let load = state.beginReceiving() ?? 0
    let next = state.finishLoading(load, Self.snapshot(7, ["a": "2"]))
    #expect(next.report == nil)
    #expect(state.contents.version == 7)
    state.restore(Self.snapshot(99, ["a": "wrong"]))
    #expect(state.contents.version == 7)
  }

  // MARK: Losses

  /// The version of an own change tells it, too: once, although two threads and the snapshot do.
  @Test(arguments: [false, true]) func ownChangeOfAnOldVersionIsALoss(_ isApart: Bool) {
    let follower = Self.follower(20)
    if isApart { follower.lose(unreachable) }
    let baseline = follower.state.baseline
    #expect(follower.noteServerVersion(20, since: baseline).report == nil)
    #expect(follower.receive(21, ["a": "2"]) == nil)
    // The message may come before the reply.
    #expect(follower.noteServerVersion(20, since: baseline).report == nil)
    #expect(follower.state.phase == (isApart ? .apart : .current))
    let next = follower.noteServerVersion(17, since: baseline)
    #expect(next.report?.code == .damaged)
    #expect(next.report?.reason?.contains(isApart ? "last 3 " : "last 4 ") == true)
    #expect((next.load == nil) == isApart)
    #expect(follower.noteServerVersion(18, since: baseline).report == nil)
    let load = next.load ?? follower.beginReceiving() ?? 0
    _ = follower.note(Self.changes(["b": "1"]), version: 18, id: "id")
    #expect(follower.finishLoading(load, Self.snapshot(19, ["b": "1"])).report == nil)
    #expect(follower.noteServerVersion(19, since: baseline).report == nil)
    #expect(follower.values == ["b": "1"] && follower.state.phase == .current)
    #expect(follower.noteServerVersion(18, since: follower.state.baseline).report != nil)
  }

  @Test(arguments: ["", "other"]) func anotherTableIsAConflict(_ id: String) {
    follower.lose(unreachable)
    var load = follower.beginReceiving() ?? 0
    let other = Self.snapshot(id.isEmpty ? 0 : 3, id.isEmpty ? [:] : ["b": "2"], id: id)
    let next = follower.finishLoading(load, other)
    #expect(next.report?.code == .notFound && follower.state.conflict?.code == .notFound)
    #expect(follower.values == ["a": "1"] && follower.state.phase == .apart)
    // Reported once, and looked at again only when the known table is back.
    load = follower.beginLoading() ?? 0
    #expect(follower.finishLoading(load, other).report == nil)
    #expect(follower.receive(4, ["b": "3"], id: "other") == nil)
    let back = follower.receive(6, nil) ?? 0
    #expect(back != 0)
    _ = follower.finishLoading(back, Self.snapshot(6, ["a": "1"]))
    #expect(follower.state.conflict == nil && follower.state.phase == .current)
  }

  @Test(arguments: [1, 3]) func replacementIsTakenAndReported(_ version: Int64) {
    let load = follower.beginLoading() ?? 0
    let values = version == 1 ? [:] : ["b": "2"]
    let other = Self.snapshot(version, values, id: "other")
    let next = follower.finishLoading(load, other, isReplacement: true)
    #expect(next.report?.code == .damaged && next.load == nil)
    #expect(follower.values == values && follower.state.phase == .current)
    #expect(follower.receive(version + 1, ["c": "3"], id: "other") == nil)
    #expect(follower.values["c"] == "3")
    // The process that decides need not be told.
    let adopting = Self.follower()
    adopting.state.isAdopting = true
    let first = adopting.beginLoading() ?? 0
    #expect(adopting.finishLoading(first, other, isReplacement: true).report == nil)
    #expect(adopting.values == values && adopting.state.phase == .current)
    // Nothing is lost with an empty table.
    let empty = Self.follower(5, [:])
    let second = empty.beginLoading() ?? 0
    #expect(empty.finishLoading(second, other, isReplacement: true).report == nil)
  }

  private static let adoption = TableMessage(Array("other 3  c3 *".utf8))

  /// A process that knows a third table, which was not given up.
  @Test func adoptionInPlaceOfAnotherTableIsAConflict() {
    let other = Self.snapshot(3, ["b": "2"], id: "other")
    let first = follower.finishLoading(follower.receive(Self.adoption) ?? 0, other)
    #expect(first.report?.code == .notFound && first.load == nil)
    let next = follower.finishLoading(follower.receive(Self.adoption) ?? 0, other)
    #expect(next.report == nil && next.load == nil && follower.state.conflict != nil)
    #expect(follower.values == ["a": "1"] && follower.state.phase == .apart)
  }

  /// The snapshot may be of the moment before.
  @Test func adoptionDuringASnapshotMeansAnother() {
    let load = follower.beginLoading() ?? 0
    #expect(follower.receive(Self.adoption) == nil)
    let next = follower.finishLoading(load, TableContents())
    #expect(next.load != nil && next.report == nil && follower.state.conflict == nil)
    let other = Self.snapshot(3, ["b": "2"], id: "other")
    #expect(follower.finishLoading(next.load ?? 0, other, isReplacement: true).load == nil)
    #expect(follower.values == ["b": "2"] && follower.state.phase == .current)
  }

  /// What the server said is about the table that the process knew when it asked.
  @Test func tableThatBecameKnownSinceIsAskedAbout() {
    let follower = Follower(nil)
    #expect(follower.state.request.id == "")
    follower.restore(Self.snapshot(5, ["a": "1"]))
    let other = Self.snapshot(3, ["b": "2"], id: "other")
    let next = follower.finishLoading(1, other)
    #expect(next.load == 2 && next.report == nil && follower.state.request.id == "id")
    #expect(follower.finishLoading(2, other, isReplacement: true).report?.code == .damaged)
    #expect(follower.values == ["b": "2"])
  }

  /// The server has lost changes, and has made more since.
  @Test func lossIsReportedEvenIfTheVersionIsHigher() {
    for (name, isLoss) in [("c20", false), ("other", true), ("", false)] {
      let follower = Self.follower(20)
      follower.lose(unreachable)
      let load = follower.beginReceiving() ?? 0
      #expect(follower.state.request.version == 20)
      let next = follower.finishLoading(load, Self.snapshot(24, ["a": "0"]), askedName: name)
      #expect((next.report?.code == .damaged) == isLoss && next.load == nil)
      #expect(follower.values == ["a": "0"] && follower.state.phase == .current)
    }
    // Also of an own change that was never followed by a message.
    let follower = Self.follower(20)
    follower.lose(unreachable)
    #expect(follower.note(Self.changes(["a": "2"]), version: 22, id: "id"))
    let load = follower.beginReceiving() ?? 0
    #expect(follower.state.request.version == 22)
    let next = follower.finishLoading(load, Self.snapshot(23, [:]), askedName: "other")
    #expect(next.report?.code == .damaged)
  }

  /// The same table has a lower version again, and so versions that had other values.
  @Test func restoredTableIsReadAgain() {
    let follower = Self.follower(100)
    let load = follower.receive(TableMessage(Array("id 96 w x *".utf8)))
    #expect(load != nil)
    let next = follower.finishLoading(load ?? 0, Self.snapshot(96, ["a": "96"]))
    #expect(next.report?.code == .damaged && follower.values == ["a": "96"])
    #expect(follower.receive(97, ["a": "97"]) == nil)
    #expect(follower.values == ["a": "97"])
  }

  /// What this process has set while it knew no table is of the table that it then finds.
  @Test func tableThatAppearsWhileApartIsNoConflict() {
    let follower = Follower(TableContents())
    follower.lose(unreachable)
    #expect(follower.note(Self.changes(["a": "1"]), version: 1, id: "new"))
    let load = follower.beginReceiving() ?? 0
    let next = follower.finishLoading(load, Self.snapshot(1, ["a": "1"], id: "new"))
    #expect(next.report == nil && follower.state.conflict == nil)
    #expect(follower.values == ["a": "1"] && follower.state.phase == .current)
  }

  @Test func outageIsReportedOnce() throws {
    follower.lose(unreachable)
    let number = try #require(follower.planOutageReport())
    #expect(follower.planOutageReport() == nil)
    #expect(follower.reportOutage(number)?.code == .unreachable)
    #expect(follower.reportOutage(number) == nil)
    // A short one is not reported.
    _ = follower.finishLoading(follower.beginReceiving() ?? 0, Self.snapshot(5, ["a": "1"]))
    follower.lose(unreachable)
    let next = try #require(follower.planOutageReport())
    _ = follower.finishLoading(follower.beginReceiving() ?? 0, Self.snapshot(5, ["a": "1"]))
    follower.lose(unreachable)
    #expect(follower.reportOutage(next) == nil)
  }

  /// However often it fails and whatever arrives meanwhile.
  @Test func failedSnapshotIsReadAgainOnceAndLaterEachTime() throws {
    var delays: [Duration] = []
    var load = follower.beginLoading()
    for _ in 0..<9 {
      delays.append(try #require(follower.failLoading(load ?? 0, unreachable)))
      // Neither a message nor another failure makes a second attempt.
      #expect(follower.receive(9, ["a": "9"]) == nil)
      let other = follower.beginLoading() ?? 0
      #expect(follower.failLoading(other, unreachable) == nil)
      load = follower.retryLoading()
    }
    #expect(delays.first == .milliseconds(500) && delays.last == .seconds(30))
    #expect(delays == delays.sorted())
    _ = follower.finishLoading(load ?? 0, Self.snapshot(9, ["a": "9"]))
    #expect(follower.failLoading(follower.beginLoading() ?? 0, unreachable) == delays.first)
  }

  /// A server must not fill the memory with messages: those that make the values too large lead to
  /// a snapshot, and none is applied until one has been read.
  @Test func messagesCannotLetTheValuesGrowWithoutEnd() throws {
    let follower = Follower(Self.snapshot(1, [:]), maximumByteCount: 500)
    let text = "\"" + String(repeating: "x", count: 100) + "\""
    var (version, load) = (Int64(1), TableState.Load?.none)
    while load == nil, version < 100 {
      version += 1
      load = follower.receive(version, ["\(version)": text])
    }
    // Each takes about 135 bytes, and twice the maximum is allowed.
    #expect(version == 9 && follower.state.phase == .loading)
    #expect(follower.receive(10, ["10": text]) == nil && follower.values.count == 8)
    let error = StorageError(.engineFailed, operation: "request", remedy: "Store less.")
    let failed = try #require(load)
    #expect(follower.failLoading(failed, error, isTooLarge: true) == .milliseconds(500))
    #expect(follower.receive(11, ["11": text]) == nil && follower.values.count == 8)
    let retried = try #require(follower.retryLoading())
    _ = follower.finishLoading(retried, Self.snapshot(11, ["a": text]))
    // A message that replaces a value adds nothing.
    for version in Int64(12)..<50 { #expect(follower.receive(version, ["a": text]) == nil) }
    #expect(follower.values == ["a": text] && follower.state.phase == .current)
  }

  /// Each attempt ends the connection, and so leads to another subscription, which must not lead to
  /// another attempt.
  @Test func tooLargeSnapshotIsNotReadAgainAtOnce() throws {
    let tooLarge = StorageError(.engineFailed, operation: "request", remedy: "Store less.")
    var load = try #require(follower.beginLoading())
    for delay in [Duration.milliseconds(500), .seconds(1), .seconds(2)] {
      #expect(follower.failLoading(load, tooLarge, isTooLarge: true) == delay)
      for _ in 0..<3 {
        follower.lose(unreachable)
        #expect(follower.beginReceiving() == nil && follower.receive(9, ["a": "9"]) == nil)
        #expect(follower.state.failure?.code == .engineFailed)
      }
      load = try #require(follower.retryLoading())
    }
    // A retry that comes while there is no connection is made when there is one.
    _ = follower.failLoading(load, tooLarge, isTooLarge: true)
    follower.lose(unreachable)
    #expect(follower.retryLoading() == nil)
    load = try #require(follower.beginReceiving())
    _ = follower.finishLoading(load, Self.snapshot(9, ["a": "9"]))
    #expect(follower.values == ["a": "9"] && follower.state.phase == .current)
    follower.lose(unreachable)
    #expect(follower.state.failure == nil && follower.beginReceiving() != nil)
  }

  // MARK: Own changes

  @Test func ownChangeBeforeItsMessage() {
    #expect(follower.note(Self.changes(["a": "2"]), version: 6, id: "id"))
    #expect(follower.values == ["a": "2"])
    #expect(follower.receive(6, ["a": "2"]) == nil && follower.state.phase == .current)
    #expect(follower.receive(7, ["a": "3"]) == nil)
    #expect(follower.values == ["a": "3"])
  }

  @Test func ownChangeAfterItsMessage() {
    #expect(follower.receive(6, ["a": "2"]) == nil)
    #expect(follower.receive(7, ["a": "3"]) == nil)
    #expect(follower.note(Self.changes(["a": "2"]), version: 6, id: "id"))
    #expect(follower.values == ["a": "3"])
  }

  @Test func ownLargeChangeNeedsNoSnapshot() {
    #expect(follower.note(Self.changes(["a": "2"]), version: 6, id: "id"))
    #expect(follower.receive(6, nil) == nil && follower.state.phase == .current)
  }

  @Test func ownChangeWaitsForEarlierOnes() {
    #expect(!follower.note(Self.changes(["a": "7"]), version: 7, id: "id"))
    #expect(follower.values == ["a": "1"])
    #expect(follower.receive(6, ["a": "6"]) == nil)
    #expect(follower.note(Self.changes(["a": "7"]), version: 7, id: "id"))
    #expect(follower.values == ["a": "7"])
  }

  @Test func ownChangeWaitsForTheSnapshot() {
    let follower = Follower(nil)
    #expect(!follower.note(Self.changes(["a": "6"]), version: 6, id: "id"))
    _ = follower.finishLoading(1, Self.snapshot(5, ["a": "5"]))
    #expect(follower.note(Self.changes(["a": "6"]), version: 6, id: "id"))
    #expect(follower.values == ["a": "6"])
  }

  /// The mirror needs the change because of which a condition was not met.
  @Test func unmetConditionWaitsForItsVersion() {
    #expect(follower.note(nil, version: 5, id: "id"))
    #expect(!follower.note(nil, version: 6, id: "id"))
    _ = follower.receive(6, ["a": "2"])
    #expect(follower.note(nil, version: 6, id: "id"))
  }

  /// Two threads, whose replies come in another order than the changes were made.
  @Test func ownChangesWhileApartKeepTheirOrder() {
    follower.lose(unreachable)
    #expect(follower.note(Self.changes(["a": "8", "b": "8"]), version: 8, id: "id"))
    #expect(follower.note(Self.changes(["a": "7", "c": "7"]), version: 7, id: "id"))
    #expect(follower.values == ["a": "8", "b": "8", "c": "7"])
    let all = TableChanges([], removesAll: true)
    #expect(follower.note(all, version: 10, id: "id"))
    #expect(follower.values == [:])
    #expect(follower.note(Self.changes(["a": "9"]), version: 9, id: "id"))
    #expect(follower.note(Self.changes(["b": "12"]), version: 12, id: "id"))
    #expect(follower.note(all, version: 11, id: "id"))
    #expect(follower.values == ["b": "12"])
    let load = follower.beginReceiving() ?? 0
    _ = follower.finishLoading(load, Self.snapshot(12, ["b": "12"]))
    #expect(follower.receive(13, ["a": "13"]) == nil)
    #expect(follower.values == ["a": "13", "b": "12"])
  }

  /// A snapshot that has a later one was read before its thread went on.
  @Test(arguments: [false, true]) func ownChangeIsNotShownOverANewerOne(_ removesAll: Bool) {
    follower.lose(unreachable)
    _ = follower.finishLoading(follower.beginLoading() ?? 0, Self.snapshot(7, ["a": "7"]))
    let changes = removesAll ? TableChanges([], removesAll: true) : Self.changes(["a": "6"])
    #expect(follower.note(changes, version: 6, id: "id"))
    #expect(follower.noteEarly(changes, version: 6) == nil)
    #expect(follower.values == ["a": "7"])
  }

  /// Two threads hear that the server has lost changes, the later one first.
  @Test func ownChangesAfterALossAreShown() {
    let follower = Self.follower(20)
    follower.lose(unreachable)
    let baseline = follower.state.baseline
    #expect(follower.noteServerVersion(18, since: baseline).report?.code == .damaged)
    #expect(follower.note(Self.changes(["a": "19"]), version: 19, id: "id"))
    #expect(follower.noteServerVersion(17, since: baseline).report == nil)
    #expect(follower.note(Self.changes(["b": "18"]), version: 18, id: "id"))
    #expect(follower.values == ["a": "19", "b": "18"])
  }

  /// After waiting in vain for earlier changes.
  @Test func ownChangeIsShownEarlyAndTheTableReadAgain() {
    let load = follower.noteEarly(Self.changes(["a": "9"]), version: 9)
    #expect(load != nil && follower.values == ["a": "9"])
    // Earlier changes that arrive now must not be shown in its place.
    #expect(follower.receive(6, ["a": "6"]) == nil)
    #expect(follower.values == ["a": "9"])
    _ = follower.finishLoading(load ?? 0, Self.snapshot(9, ["a": "9"]))
    #expect(follower.values == ["a": "9"] && follower.state.phase == .current)
  }

  /// It is shown until a snapshot has it, not undone by an older one.
  @Test func snapshotOfBeforeAnOwnChangeIsNotShown() {
    let load = follower.beginLoading() ?? 0
    #expect(!follower.note(Self.changes(["a": "7"]), version: 7, id: "id"))
    _ = follower.noteEarly(Self.changes(["a": "7"]), version: 7)
    let next = follower.finishLoading(load, Self.snapshot(6, ["a": "6"]))
    #expect(next.load != nil && next.report == nil && follower.values == ["a": "7"])
    _ = follower.finishLoading(next.load ?? 0, Self.snapshot(7, ["a": "7"]))
    #expect(follower.values == ["a": "7"] && follower.state.phase == .current)
  }

  @Test func sizeOfTheContentsIsKnown() {
    // Two keys and their values, which are four elements of a reply.
    let size = 6 + 4 * ReplyParser.overhead
    var contents = Self.snapshot(1, ["a": "1", "bb": "22"])
    #expect(contents.byteCount == size)
    let changes = Self.changes(["a": "111", "bb": nil, "c": "3"])
    #expect(contents.byteCount(after: changes) == size)
    contents.apply(changes)
    #expect(contents.byteCount == size)
    let all = TableChanges(changes.entries, removesAll: true)
    #expect(contents.byteCount(after: all) == size)
    contents.apply(TableChanges([], removesAll: true))
    #expect(contents.byteCount == 0)
  }

  /// A server that became a replica of another one: its connections stay, and the messages go on.
  @Test func messageThatFollowsAnotherChangeMeansASnapshot() {
    let follower = Self.follower(20)
    let load = follower.receive(TableMessage(Array("id 21 other c21 1:a+1:2".utf8)))
    #expect(load != nil && follower.values == ["a": "1"])
    let next = follower.finishLoading(load ?? 0, Self.snapshot(21, ["a": "2"]), askedName: "other")
    #expect(next.report?.code == .damaged && follower.values == ["a": "2"])
    // An own change finds it out as well.
    let baseline = follower.state.baseline
    let other = follower.noteServerVersion(21, named: "other", since: baseline)
    #expect(other.load != nil && follower.state.phase == .loading)
    #expect(follower.nextName() != follower.nextName())
  }
}
