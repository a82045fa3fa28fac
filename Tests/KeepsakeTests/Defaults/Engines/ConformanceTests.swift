import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// The suite for engines finds what is wrong with an engine, and says which rule it breaks.
///
/// Serialized, as each case keeps four threads busy.
@Suite(.serialized, .timeLimit(.minutes(20))) struct ConformanceTests {
  @Test(arguments: Coverage.cases(Flaw.allCases, every: 20))
  func checkNamesTheRuleThatAFlawBreaks(_ flaw: Flaw) async throws {
    let shared = FlawedEngine.Shared()
    let found = try await issues {
      let reopened = flaw == .forgets ? FlawedEngine.Shared() : shared
      try await StorageEngineConformance.check(
        timeLimit: .seconds(600), { FlawedEngine(flaw, shared) },
        reopening: flaw.needsReopening ? { FlawedEngine(flaw, reopened) } : nil)
    }
    #expect(found.contains { $0.contains("a rule: " + flaw.rule) }, "\(found)")
    #expect(shared.table.withLock { $0.isEmpty } || flaw.isLitterer, "something was left")
  }

  @Test(arguments: Coverage.cases(MirrorFlaw.allCases, every: 10))
  func checkNamesTheRuleThatAMirrorBreaks(_ flaw: MirrorFlaw) async throws {
    let server = SharedServer()
    let found = try await issues {
      // Long enough for what is only late, short for what never comes.
      try await StorageEngineConformance.check(
        timeLimit: .seconds(600), seenWithin: .seconds(2)
      ) {
        ServerEngine(server, flaw: flaw)
      } reopening: {
        ServerEngine(server, flaw: flaw)
      }
    }
    #expect(found.contains { $0.contains("a rule: " + flaw.rule) }, "\(found)")
    #expect(server.isEmpty, "something was left")
  }

  /// Checks engines on one server, which is empty afterwards.
  private func expectConformance(
    of make: @escaping (SharedServer) -> ServerEngine
  ) async throws {
    let server = SharedServer()
    try await StorageEngineConformance.check(
      timeLimit: .seconds(600), seenWithin: .seconds(600), { make(server) },
      reopening: { make(server) })
    #expect(server.isEmpty)
  }

  @Test(arguments: Coverage.cases([0, 300], every: 2))
  func mirroredEngineConforms(_ delay: useconds_t) async throws {
    try await expectConformance { ServerEngine($0, delay: delay) }
  }

  /// An engine that reads a copy passes only if it is given the time that messages take.
  @Test func engineThatReadsACopyConformsWithADelay() async throws {
    try await expectConformance { ServerEngine($0, delay: 300, readsCopy: true) }
    let server = SharedServer()
    let found = try await issues {
      try await StorageEngineConformance.check(timeLimit: .seconds(600)) {
        ServerEngine(server, delayOfOthers: 300_000, readsCopy: true)
      } reopening: {
        ServerEngine(server, readsCopy: true)
      }
    }
    #expect(found.contains { $0.contains("another instance has") }, "\(found)")
  }

  /// Else a flaw could be found for another reason.
  @Test func engineWithoutAFlawConforms() async throws {
    let shared = FlawedEngine.Shared()
    try await StorageEngineConformance.check(timeLimit: .seconds(600)) {
      FlawedEngine(nil, shared)
    } reopening: {
      FlawedEngine(nil, shared)
    }
    #expect(shared.table.withLock { $0.isEmpty })
  }

  @Test func eachRuleHasAFlaw() throws {
    var rules: [String] = []
    for name in ["StorageEngineConformance", "Checker", "Checker+Mirrors"] {
      let file = Repository.file("Sources/KeepsakeTesting/\(name).swift")
      let source = try String(contentsOf: file.standardized, encoding: .utf8)
      let found = source.matches(of: /expect\((?s:.*?)"([a-z][^"\\]* [^"\\]*)/)
      #expect(!found.isEmpty, "\(name)")
      rules += found.map { String($0.1) }
    }
    #expect(rules.count > 40)
    let broken =
      Flaw.allCases.map(\.rule) + MirrorFlaw.allCases.map(\.rule) + ["a new engine has no keys"]
    for rule in rules {
      #expect(broken.contains { rule.hasPrefix($0) || $0.hasPrefix(rule) }, "\(rule)")
    }
  }

  @Test func checkLeavesANonEmptyEngineAlone() async throws {
    let table = TableEngine()
    table.set(Data("1".utf8), forKey: "mine")
    let found = try await issues {
      try await StorageEngineConformance.check(timeLimit: .seconds(600)) { table }
    }
    #expect(found.count == 1 && found[0].contains("a new engine has no keys"), "\(found)")
    #expect(table.keys() == ["mine"] && table.data(forKey: "mine") == Data("1".utf8))
  }

  @Test func checkEndsWhenTheEngineThrows() async throws {
    let engine = HookedEngine()
    engine.hook.withLock { $0 = { call in if call == "replace" { throw Unreachable() } } }
    let found = try await issues {
      try await StorageEngineConformance.check(timeLimit: .seconds(600)) { engine }
    }
    #expect(found.count == 1 && found[0].contains("Unreachable"), "\(found)")
    #expect(engine.table.keys().isEmpty, "something was left")
  }

  private struct Unreachable: Error {}
}

/// The check ends when an engine's call does not.
@Suite(.timeLimit(.minutes(20))) struct ConformanceTimeLimitTests {
  @Test(arguments: ["data", "set", "replace", "keys", "removeAll", "synchronize"])
  func checkEndsWhenACallNeverReturns(_ call: String) async throws {
    let engine = HookedEngine()
    let gate = DispatchSemaphore(value: 0)
    engine.hook.withLock { $0 = { if $0 == call { gate.wait() } } }
    let found = try await issues {
      try await StorageEngineConformance.check(timeLimit: .seconds(1)) { engine }
    }
    #expect(found.count == 1 && found[0].contains("every call returns"), "\(found)")
    engine.hook.withLock { $0 = { _ in } }
    gate.signal()
  }
}

/// The issues that `check` records, and what it throws; there must be some.
private func issues(of check: () async throws -> Void) async throws -> [String] {
  let found = Locked<[String]>([])
  try await withKnownIssue {
    try await check()
  } matching: { issue in
    let text = issue.error.map { "\($0)" } ?? issue.comments.map(\.rawValue).joined()
    found.withLock { $0.append(text) }
    return true
  }
  return found.withLock { $0 }
}

/// What is wrong with an engine, in the order in which it is found: the rule that it breaks.
enum Flaw: String, CaseIterable {
  // Values and keys
  case findsWhatIsNotThere = "data(forKey:) returns nil for a missing key"
  case keepsName = "removing a missing key adds no key"
  case cutsOff = "data(forKey:) returns the bytes that were set"
  case addsNewline
  case addsPrefix = "keys() returns a key exactly as it was given"
  case listsAgain = "keys() lists a key once that was set twice"
  case ignoresNil = "setting nil removes the bytes"
  case listsWhatIsRemoved = "keys() does not list a removed key"
  case lowersCase = "every string is a distinct key"
  case trims
  case listsLessOfMany = "keys() lists every key exactly as it was given"
  case listsManyTwice = "keys() lists no key twice"
  case removesByPrefix = "setting nil removes one key and no other"
  // Replacing
  case neverReplaces = "replacing nil succeeds for a missing key"
  case listsNil = "replacing nil with nil adds no key"
  case replaceStoresNothing = "a successful replace stores the new bytes"
  case ignoresNilOld = "replacing nil fails for a key that has bytes"
  case ignoresOld = "replace fails if the stored bytes are not the old bytes"
  case replacesAndDenies = "a failed replace keeps the stored bytes"
  case refusesTheSame = "replace succeeds if old and new bytes are equal"
  case refusesOthers = "replace succeeds if the stored bytes are the old bytes"
  case replaceKeepsNil = "replacing bytes with nil removes them"
  case replacesOthersToo = "replace changes one key and no other"
  case replacesMissing = "replacing bytes fails for a missing key"
  case addsAndDenies = "a failed replace adds no key"
  // Several changes in one step
  case deniesApply = "apply succeeds without conditions"
  case appliesFirstOnly = "apply makes every change"
  case applyKeepsNil = "apply removes a key whose new bytes are nil"
  case deniesCondition = "apply succeeds if the condition on the key is met"
  case ignoresCondition = "apply fails if the condition on the key is not met"
  case appliesAndDenies = "apply makes no change if it fails"
  case checksFirstOnly = "apply fails if one of several conditions is not met"
  case appliesManyAndDenies = "apply makes no change if one of several conditions fails"
  case deniesManyConditions = "apply succeeds if all of several conditions are met"
  case appliesFirstOfMany = "apply makes every change under several conditions"
  case comesBetweenApply = "apply is atomic"
  // Several at once
  case comesBetween = "replace is atomic"
  case setsBetween = "replace is atomic even while another thread calls set"
  case losesForever = "replace succeeds when it is retried"
  case tears = "a read returns the complete old or new bytes"
  case holdsFew = "concurrent sets of different keys lose none of them"
  case listsLessOfVeryMany = "keys() lists every key while other keys are set"
  case leavesOne = "removeAll removes every key"
  // Settings
  case hidesInt = "a suite returns the integer that was set"
  case hidesText = "a suite returns the string that was set"
  case hidesBytes = "a suite returns the data that was set"
  case hidesDate = "a suite returns the date that was set"
  case hidesInfinity = "a suite returns infinity if it was set"
  case hidesModel = "a suite returns the model that was set"
  case losesUpdate = "update changes the stored value"
  case keepsInt = "a suite does not contain a removed value"
  case keepsModel = "removeAll removes every value"
  // Opened again
  case forgets = "values are there after reopening"
  case listsOwnOnly = "keys() lists the stored keys after reopening"
  case cachesReads = "a read returns what another instance has set"
  case replacesCached = "replace compares with what another instance has set"
  case cachesRemoved = "a read returns nil once another instance has removed the key"
  case cachesListing = "keys() lists what another instance has set"
  case listsOwnForever = "keys() does not list what another instance has removed"
  case comesBetweenInstances
  case tellsNothing = "changes() reports the changes of another instance: sets"
  case tellsOfSetsOnly = "changes() reports the changes of another instance: repl"
  case tellsOfNoRemovals = "changes() reports the changes of another instance: remo"
  // The end
  case keepsBytes = "removeAll removes the bytes of every key"

  var rule: String {
    switch self {
    case .addsNewline: Self.cutsOff.rule
    case .trims: Self.lowersCase.rule
    case .comesBetweenInstances: Self.comesBetween.rule
    default: rawValue
    }
  }

  var needsReopening: Bool {
    switch self {
    case .forgets, .listsOwnOnly, .cachesReads, .replacesCached, .cachesRemoved, .cachesListing,
      .listsOwnForever, .comesBetweenInstances, .tellsNothing, .tellsOfSetsOnly, .tellsOfNoRemovals:
      true
    default: false
    }
  }

  /// Whether it cannot be cleared either.
  var isLitterer: Bool { [.leavesOne, .keepsModel, .keepsBytes].contains(self) }

  /// A key without bytes, in the eyes of this engine.
  var hiddenKey: String? {
    switch self {
    case .hidesInt: "int"
    case .hidesText: "text"
    case .hidesBytes: "bytes"
    case .hidesDate: "date"
    case .hidesInfinity: "infinity"
    case .hidesModel: "model"
    default: nil
    }
  }
}

/// An engine with one flaw, or none.
final class FlawedEngine: StorageEngines.Engine {
  /// What all engines on the same values have in common.
  final class Shared: Sendable {
    let table = Locked<[String: Data]>([:])
    let listeners = Locked<[AsyncStream<Void>.Continuation]>([])
  }

  /// What one engine knows by itself.
  private struct Memory {
    var cache: [String: Data] = [:]
    var listing: [String] = []
  }

  private let flaw: Flaw?
  private let shared: Shared
  private let memory = Locked(Memory())
  private let gate = Locked(())

  init(_ flaw: Flaw?, _ shared: Shared) {
    self.flaw = flaw
    self.shared = shared
    let names = shared.table.withLock { Array($0.keys) }
    if flaw == .cachesListing { memory.withLock { $0.listing = names } }
  }

  func data(forKey key: String) -> Data? {
    let key = stored(key)
    let found = shared.table.withLock { seen($0, key) }
    switch flaw {
    case .findsWhatIsNotThere: return found ?? Data("null".utf8)
    case .cachesRemoved: return found ?? memory.withLock { $0.cache[key] }
    case .cachesReads: return memory.withLock { $0.cache[key] } ?? found
    default: return found
    }
  }

  func set(_ data: Data?, forKey key: String) {
    let key = stored(key)
    var data = data
    switch flaw {
    case .ignoresNil where data == nil: return
    case .keepsInt where data == nil && key == "int": return
    case .keepsName where data == nil: data = Data()
    case .cutsOff: data = data?.prefix(65_536)
    case .addsNewline: data = data.map { $0 + [10] }
    case .tears:
      if let data { shared.table.withLock { $0[key] = data.prefix(data.count / 2) } }
      letOthersCall()
    default: break
    }
    shared.table.withLock { put(data, key, &$0) }
    if data != nil || flaw != .tellsOfNoRemovals && flaw != .tellsOfSetsOnly { tell() }
  }

  func replace(_ old: Data?, with new: Data?, forKey key: String) -> Bool {
    switch flaw {
    case .comesBetween:
      guard data(forKey: key) == old else { return false }
      letOthersCall()
      set(new, forKey: key)
      return true
    case .setsBetween, .comesBetweenInstances:
      return gate.withLock { _ in
        guard data(forKey: key) == old else { return false }
        letOthersCall()
        set(new, forKey: key)
        return true
      }
    default: break
    }
    let key = stored(key)
    let isDone = shared.table.withLock { table in
      var current = seen(table, key)
      if flaw == .replacesCached { current = memory.withLock { $0.cache[key] } }
      let answer = answer(to: old, with: new, where: current, key)
      if answer.stores { put(new, key, &table) }
      if flaw == .replacesOthersToo, new == nil { table = [:] }
      if flaw == .listsNil, old == nil, new == nil { table[key] = Data() }
      return answer.says
    }
    if isDone, flaw != .tellsOfSetsOnly { tell() }
    return isDone
  }

  func apply(_ changes: [StorageEngines.Entry], ifCurrent conditions: [StorageEngines.Entry])
    -> Bool
  {
    var changes = changes
    var checked = conditions
    let isMany = conditions.count > 1
    switch flaw {
    case .deniesApply where conditions.isEmpty: return false
    case .appliesFirstOnly where conditions.isEmpty: changes = [changes[0]]
    case .applyKeepsNil: changes.removeAll { $0.data == nil && $0.key == "a" }
    case .deniesCondition where conditions.count == 1: return false
    case .ignoresCondition: checked = isMany ? conditions : []
    case .checksFirstOnly where isMany: checked = [conditions[0]]
    case .deniesManyConditions where isMany: return false
    case .appliesFirstOfMany where isMany && changes.count > 2: changes = [changes[0]]
    case .comesBetweenApply where isMany:
      let isMet = shared.table.withLock { table in
        conditions.allSatisfy { seen(table, stored($0.key)) == $0.data }
      }
      letOthersCall()
      if isMet { for change in changes { set(change.data, forKey: change.key) } }
      return isMet
    default: break
    }
    let isDone = shared.table.withLock { table in
      let isMet = checked.allSatisfy { seen(table, stored($0.key)) == $0.data }
      let isForced = flaw == .appliesAndDenies && !isMany || flaw == .appliesManyAndDenies && isMany
      if isMet || isForced {
        for change in changes { put(change.data, stored(change.key), &table) }
      }
      return isMet
    }
    if isDone { tell() }
    return isDone
  }

  /// Gives other threads the processor in the middle of a call, where the flaw shows.
  private func letOthersCall() { for _ in 0..<10 { sched_yield() } }

  func keys() -> [String] {
    let names = shared.table.withLock { Array($0.keys) }
    let own = memory.withLock { $0.listing }
    switch flaw {
    case .addsPrefix: return names.map { "app:" + $0 }
    case .listsLessOfMany: return Array(names.prefix(20))
    case .listsLessOfVeryMany: return Array(names.prefix(60))
    case .listsManyTwice: return names.count > 2 ? names + names : names
    case .listsAgain, .listsOwnOnly, .cachesListing: return own
    case .listsWhatIsRemoved, .listsOwnForever: return Array(Set(names + own))
    case .keepsBytes: return names.filter { !own.contains($0) }
    default: return names
    }
  }

  func removeAll() {
    shared.table.withLock { table in
      memory.withLock { memory in
        memory.cache = [:]
        memory.listing = flaw == .keepsBytes ? Array(table.keys) : []
      }
      switch flaw {
      case .keepsBytes: break
      case .leavesOne: table = table.filter { $0.key == table.keys.min() }
      case .keepsModel: table = table.filter { $0.key == "model" }
      default: table = [:]
      }
    }
    tell()
  }

  func changes() -> AsyncStream<Void>? {
    let (stream, continuation) = AsyncStream.makeStream(
      of: Void.self, bufferingPolicy: .bufferingNewest(1))
    shared.listeners.withLock { $0.append(continuation) }
    return stream
  }

  private func tell() {
    if flaw == .tellsNothing { return }
    shared.listeners.withLock { for listener in $0 { listener.yield() } }
  }

  private func stored(_ key: String) -> String {
    switch flaw {
    case .lowersCase: key.lowercased()
    case .trims: key.trimmingCharacters(in: .whitespaces)
    default: key
    }
  }

  private func seen(_ table: [String: Data], _ key: String) -> Data? {
    flaw?.hiddenKey == key ? nil : table[key]
  }

  private func put(_ data: Data?, _ key: String, _ table: inout [String: Data]) {
    table[key] = data
    if flaw == .holdsFew, table.count > 150 {
      table[table.keys.first { $0.hasPrefix("own") } ?? ""] = nil
    }
    if flaw == .removesByPrefix, data == nil { table = table.filter { !$0.key.hasPrefix(key) } }
    memory.withLock { memory in
      memory.cache[key] = data
      let isMarked = flaw == .listsWhatIsRemoved ? data == nil : data != nil && flaw != .keepsBytes
      if flaw != .listsAgain || data == nil { memory.listing.removeAll { $0 == key } }
      if isMarked { memory.listing.append(key) }
    }
  }

  private func answer(
    to old: Data?, with new: Data?, where current: Data?, _ key: String
  ) -> (stores: Bool, says: Bool) {
    let isRight = current == old
    switch flaw {
    case .neverReplaces: return (false, false)
    case .losesForever where key == "count": return (false, false)
    case .refusesTheSame where old == new && old != nil: return (false, false)
    case .refusesOthers where old != nil && new != nil && old != new: return (false, false)
    case .replaceStoresNothing: return (false, isRight)
    case .losesUpdate where key == "int": return (false, isRight)
    case .replaceKeepsNil where new == nil: return (false, isRight)
    case .replacesMissing where current == nil: return (true, true)
    case .ignoresNilOld where old == nil: return (true, true)
    case .ignoresOld where old != nil && current != nil: return (true, true)
    case .replacesAndDenies where !isRight && current != nil: return (true, false)
    case .addsAndDenies where !isRight && current == nil: return (true, false)
    default: return (isRight, isRight)
    }
  }
}
