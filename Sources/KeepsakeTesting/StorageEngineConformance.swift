#if canImport(Testing)
internal import FoundationEssentials
public import Keepsake
internal import Synchronization
public import Testing

/// Tests a ``/Keepsake/StorageEngine`` and names each rule that it breaks.
///
/// ```swift
/// @Test func conforms() async throws {
///   try await StorageEngineConformance.check { TableEngine() }
/// }
/// ```
///
/// For an engine whose values outlive the instance, also pass a closure that opens a second engine
/// on the same values. The check then uses both at once, as two processes would:
///
/// ```swift
/// try await StorageEngineConformance.check {
///   RedisEngine(database: 7)
/// } reopening: {
///   RedisEngine(database: 7)
/// }
/// ```
///
/// An engine that answers reads from a copy may take a moment to see what the second one has set.
/// Say how long with `seenWithin`. The same holds for the mirrors of a
/// ``/Keepsake/MirroredEngine``, which are tested too.
public enum StorageEngineConformance {
  /// Records an issue for each rule that an engine breaks.
  ///
  /// The check consists of a dozen steps and ends after the first step that finds a broken rule. It
  /// takes a few seconds. It needs an empty engine, which it fills and leaves empty; an engine that
  /// is not empty is reported and left unchanged. The engine is called on several threads at once,
  /// none of them in Swift's pool, and finds the stores of the calling task.
  ///
  /// - Parameters:
  ///   - timeLimit: The longest time that one step may take. A call that has not returned by then
  ///     is recorded as an issue, and the check ends without waiting for it.
  ///   - delay: The longest time after which a read returns what a second engine on the same values
  ///     has set. By default that is the next read.
  ///   - sourceLocation: The source location of the recorded issues.
  ///   - make: Creates the engine, which must be empty.
  ///   - reopen: Opens a second engine on the same values, or nil if values do not outlive the
  ///     engine.
  /// - Throws: An error that the engine throws where no call should fail.
  public static func check(
    timeLimit: Duration = .seconds(60), seenWithin delay: Duration = .zero,
    sourceLocation: SourceLocation = #_sourceLocation, _ make: () throws -> any StorageEngine,
    reopening reopen: (() throws -> any StorageEngine)? = nil
  ) async throws {
    let engine = try make()
    let steps = StepRunner(timeLimit: timeLimit, delay: delay, sourceLocation: sourceLocation)
    do {
      try await steps.run { checker in
        try await blocking {
          checker.expect(
            try engine.keys().isEmpty, "the engine is empty at the start (it was not changed)")
        }
      }
      do {
        try await check(engine, steps, reopening: reopen)
      } catch let error where !(error is StepRunner.TimedOut) {
        // The next check needs an empty engine.
        try? await steps.run { _ in try await blocking { try engine.removeAll() } }
        throw error
      }
    } catch is any StepRunner.Stop {}
  }

  private static func check(
    _ engine: any StorageEngine, _ steps: StepRunner,
    reopening reopen: (() throws -> any StorageEngine)?
  ) async throws {
    // The steps with many calls come last, so that most broken rules are found soon.
    try await steps.run { checker in try await blocking { try checker.checkValues(of: engine) } }
    try await steps.run { checker in try await blocking { try checker.checkKeys(of: engine) } }
    try await steps.run { checker in try await blocking { try checker.checkReplace(in: engine) } }
    try await steps.run { checker in try await blocking { try checker.checkApply(in: engine) } }
    var other: (any StorageEngine)?
    if let reopen {
      try await steps.run { _ in try await blocking { try Checker.storeValue(in: engine) } }
      let reopened = try reopen()
      other = reopened
      try await steps.run { checker in
        try await blocking { try checker.checkReopening(of: engine, as: reopened) }
      }
      try await steps.run { checker in
        try await checker.checkChanges(of: engine, madeBy: reopened)
        try await blocking { try engine.removeAll() }
      }
      if engine is any MirroredEngine {
        try await steps.run { checker in try await checker.checkMirrors(of: engine, and: reopened) }
        try await steps.run { checker in
          try await checker.checkOrderInMirrors(of: engine, and: reopened)
        }
      }
    }
    try await steps.run { checker in try await checker.checkConcurrentUse(of: engine, and: engine) }
    try await steps.run { checker in try await checker.checkSetDuringReplace(in: engine) }
    try await steps.run { checker in try await checker.checkConcurrentApply(in: engine) }
    if let other {
      try await steps.run { checker in
        try await checker.checkConcurrentUse(of: engine, and: other)
      }
    }
    try await steps.run { checker in try await checker.checkSuite(on: engine) }
    try await steps.run { checker in try await blocking { try checker.checkRemoveAll(in: engine) } }
  }
}

/// Runs blocking work on a thread that is not in Swift's pool.
private func blocking<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
  try await BlockingWork.run { try body() }
}

/// Runs steps one after another and records the rules that they find broken.
private struct StepRunner {
  let timeLimit: Duration
  let delay: Duration
  let sourceLocation: SourceLocation

  /// Ends the check after an issue was recorded.
  protocol Stop: Error {}
  struct RuleBroken: Stop {}
  struct TimedOut: Stop {}

  enum Event: Sendable {
    case ruleBroken(String)
    case finished(Result<Void, any Error>)
    case timedOut
  }

  func run(_ step: @escaping @Sendable (Checker) async throws -> Void) async throws {
    let (events, continuation) = AsyncStream.makeStream(of: Event.self)
    // Unstructured, because a child task that never ends could not be abandoned.
    Task {
      do {
        try await step(Checker(events: continuation, delay: delay))
        continuation.yield(.finished(.success(())))
      } catch {
        continuation.yield(.finished(.failure(error)))
      }
    }
    let timer = Task {
      try await Task.sleep(for: timeLimit)
      continuation.yield(.timedOut)
    }
    defer { timer.cancel() }
    var brokenRules: Set<String> = []
    for await event in events {
      switch event {
      case .ruleBroken(let rule):
        if brokenRules.insert(rule).inserted { record(rule) }
      case .finished(let result):
        try result.get()
        if !brokenRules.isEmpty { throw RuleBroken() }
        return
      case .timedOut:
        record("every call returns (one did not return within \(timeLimit))")
        throw TimedOut()
      }
    }
    throw CancellationError()
  }

  private func record(_ rule: String) {
    Issue.record("The engine breaks a rule: \(rule)", sourceLocation: sourceLocation)
  }
}

/// The checks of one step.
private struct Checker: Sendable {
  let events: AsyncStream<StepRunner.Event>.Continuation
  /// The longest time after which a read returns what another engine has set.
  let delay: Duration

  func expect(_ condition: Bool, _ rule: String) {
    if !condition { events.yield(.ruleBroken(rule)) }
  }

  /// Checks a condition that another engine's change may make true only after a delay.
  func expectSoon(_ condition: @autoclosure () throws -> Bool, _ rule: String) rethrows {
    let end = ContinuousClock.now + delay
    while true {
      let isLast = ContinuousClock.now >= end
      if try condition() { return }
      if isLast { break }
      BackgroundThread.sleep(for: .milliseconds(1))
    }
    expect(false, rule)
  }

  private static func json(_ text: String) -> Data { Data("\"\(text)\"".utf8) }

  func checkValues(of engine: any StorageEngine) throws {
    expect(try engine.data(forKey: "a") == nil, "data(forKey:) returns nil for a missing key")
    try engine.set(nil, forKey: "a")
    expect(try engine.keys().isEmpty, "removing a missing key adds no key")

    let texts = [
      "1", "true", "null", "\"\"", "\"dark\"", #"{"name":"Ann","ids":[1,2]}"#,
      #"{"$data": "AP8="}"#,
      "\"" + String(repeating: "é", count: 100_000) + "\"", "2",
    ]
    for text in texts {
      try engine.set(Data(text.utf8), forKey: "a")
      let found = try engine.data(forKey: "a")
      expect(
        found == Data(text.utf8),
        "data(forKey:) returns the bytes that were set: \(text.prefix(30))")
    }
    expect(try Set(engine.keys()) == ["a"], "keys() returns a key exactly as it was given")
    expect(try engine.keys().count == 1, "keys() lists a key once that was set twice")
    try engine.set(nil, forKey: "a")
    expect(try engine.data(forKey: "a") == nil, "setting nil removes the bytes")
    expect(try engine.keys().isEmpty, "keys() does not list a removed key")
  }

  func checkKeys(of engine: any StorageEngine) throws {
    let names = [
      "a", "A", "a.b", "a/b", "/a", "..", "../a", ".a", "a ", " ", "", "%", "%41", "a%2Fb",
      "a\nb",
      "a\u{0}b", "key:1", "größe", "鍵", "🔑", "\u{202E}a", "a*?[b]", "'a'", "\"a\"", "a\\b",
      String(repeating: "k", count: 199), String(repeating: "k", count: 200),
      String(repeating: "k", count: 201), String(repeating: "k", count: 200) + ".json",
      String(repeating: "k", count: 900), String(repeating: "鍵", count: 300),
    ]
    for (number, name) in names.enumerated() {
      try engine.set(Self.json("value \(number)"), forKey: name)
    }
    for (number, name) in names.enumerated() {
      let isFound = try engine.data(forKey: name) == Self.json("value \(number)")
      expect(isFound, "every string is a distinct key: \(name.debugDescription.prefix(40))")
    }
    expect(Set(try engine.keys()) == Set(names), "keys() lists every key exactly as it was given")
    expect(try engine.keys().count == names.count, "keys() lists no key twice")
    for (number, name) in names.enumerated() {
      try engine.set(nil, forKey: name)
      let rest = Set(names[(number + 1)...])
      expect(
        try Set(engine.keys()) == rest,
        "setting nil removes one key and no other: \(name.debugDescription.prefix(40))")
    }
  }

  func checkReplace(in engine: any StorageEngine) throws {
    let (one, two) = (Self.json("one"), Self.json("two"))
    expect(
      try engine.replace(nil, with: nil, forKey: "a"), "replacing nil succeeds for a missing key")
    expect(try engine.keys().isEmpty, "replacing nil with nil adds no key")
    expect(
      try engine.replace(nil, with: one, forKey: "a"), "replacing nil succeeds for a missing key")
    expect(try engine.data(forKey: "a") == one, "a successful replace stores the new bytes")
    expect(
      try !engine.replace(nil, with: two, forKey: "a"),
      "replacing nil fails for a key that has bytes")
    expect(
      try !engine.replace(two, with: nil, forKey: "a"),
      "replace fails if the stored bytes are not the old bytes")
    expect(try engine.data(forKey: "a") == one, "a failed replace keeps the stored bytes")
    expect(
      try engine.replace(one, with: one, forKey: "a"),
      "replace succeeds if old and new bytes are equal")
    expect(
      try engine.replace(one, with: two, forKey: "a"),
      "replace succeeds if the stored bytes are the old bytes")
    expect(try engine.data(forKey: "a") == two, "a successful replace stores the new bytes")
    try engine.set(one, forKey: "b")
    expect(try engine.replace(two, with: nil, forKey: "a"), "replacing bytes with nil removes them")
    expect(try engine.data(forKey: "a") == nil, "replacing bytes with nil removes them")
    expect(try engine.keys() == ["b"], "replace changes one key and no other")
    try engine.set(nil, forKey: "b")
    expect(
      try !engine.replace(one, with: two, forKey: "a"), "replacing bytes fails for a missing key")
    expect(try engine.keys().isEmpty, "a failed replace adds no key")
  }

  /// - Parameter other: The engine itself, or another instance on the same values.
  func checkConcurrentUse(
    of engine: any StorageEngine, and other: any StorageEngine
  ) async throws {
    let keyCount = 50
    let colors = ["r", "g", "b"].enumerated().map {
      Self.json(String(repeating: $1, count: 1_000 + 8_000 * $0))
    }
    try await blocking { try engine.set(colors[0], forKey: "color") }
    let progress = Progress()
    let total = try await withThrowingTaskGroup(of: Int.self) { group in
      for task in 0..<4 {
        let own = task.isMultiple(of: 2) ? engine : other
        group.addTask {
          try await blocking {
            var round = 0
            var last: Data?
            while round < keyCount || !progress.isEnough {
              if round < keyCount {
                try own.set(Data("\(round)".utf8), forKey: "own \(task) \(round)")
              }
              // Until the end, because a busy machine may start the reading tasks late.
              if task < 2 { try own.set(colors[round % 3], forKey: "color") }
              if try !incrementCount(in: own) { break }
              round += 1
              let color = try own.data(forKey: "color")
              expect(
                colors.contains { $0 == color }, "a read returns the complete old or new bytes")
              // A task that only reads has seen another task's set.
              if task >= 2, color != last { progress.overlaps.add(1, ordering: .relaxed) }
              last = color
              if round % 25 == 0 {
                let listed = Set(try own.keys())
                let isComplete = (0..<min(round, keyCount)).allSatisfy {
                  listed.contains("own \(task) \($0)")
                }
                expect(isComplete, "keys() lists every key while other keys are set")
              }
            }
            return round
          }
        }
      }
      return try await group.reduce(0, +)
    }
    try await blocking {
      let count = Data("\(total)".utf8)
      try expectSoon(try engine.data(forKey: "count") == count, "replace is atomic")
      try expectSoon(
        try engine.keys().count == 4 * keyCount + 2,
        "concurrent sets of different keys lose none of them")
      try engine.removeAll()
      try expectSoon(try other.keys().isEmpty, "removeAll removes every key")
    }
  }

  /// Counts how often the work of concurrent tasks has overlapped.
  ///
  /// A number of rounds would not do: a fast engine might finish them without any overlap, and a
  /// busy machine may run one task for long before it starts another.
  private final class Progress: Sendable {
    let overlaps = Atomic(0)
    let isOver = Atomic(false)
    private let start = ContinuousClock.now

    var isEnough: Bool {
      let time = ContinuousClock.now - start
      let overlaps = overlaps.load(ordering: .relaxed)
      return time > .milliseconds(300) && overlaps > 100 || time > .seconds(5)
    }
  }

  /// One task sets bytes, which only a replace that names them as the old bytes may change.
  func checkSetDuringReplace(in engine: any StorageEngine) async throws {
    let progress = Progress()
    @Sendable func text(_ kind: String, _ number: Int) -> Data {
      Data("\"\(kind) \(number)\"".utf8)
    }
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask {
        try await blocking {
          defer { progress.isOver.store(true, ordering: .relaxed) }
          var number = 0
          while !progress.isEnough {
            number += 1
            let (set, replaced) = (text("set", number), text("replaced", number))
            try engine.set(set, forKey: "a")
            for _ in 0..<100 {
              let found = try engine.data(forKey: "a")
              expect(
                found == set || found == replaced,
                "replace is atomic even while another thread calls set")
              if found != set { break }
            }
          }
        }
      }
      group.addTask {
        try await blocking {
          while !progress.isOver.load(ordering: .relaxed) {
            guard let old = try engine.data(forKey: "a"), old.starts(with: "\"set ".utf8) else {
              continue
            }
            let new = Data("\"replaced ".utf8) + old.dropFirst(5)
            if try engine.replace(old, with: new, forKey: "a") {
              progress.overlaps.add(1, ordering: .relaxed)
            }
          }
        }
      }
      try await group.waitForAll()
    }
    try await blocking { try engine.set(nil, forKey: "a") }
  }

  /// Adds one to the stored count with replace; false if every retry failed.
  private func incrementCount(in engine: any StorageEngine) throws -> Bool {
    let end = ContinuousClock.now + delay
    var attempts = 0
    while attempts < 1_000 || ContinuousClock.now < end {
      attempts += 1
      let old = try engine.data(forKey: "count")
      let count = old.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
      if try engine.replace(old, with: Data("\(count + 1)".utf8), forKey: "count") { return true }
    }
    expect(false, "replace succeeds when it is retried (it failed 1,000 times in a row)")
    return false
  }

  func checkApply(in engine: any StorageEngine) throws {
    let (one, two) = (Self.json("one"), Self.json("two"))
    func entry(_ key: String, _ data: Data?) -> EngineEntry { EngineEntry(key: key, data: data) }
    func holds(_ a: Data?, _ b: Data?, _ c: Data?) throws -> Bool {
      try engine.data(forKey: "a") == a && engine.data(forKey: "b") == b
        && engine.data(forKey: "c") == c
    }
    expect(
      try engine.apply([entry("a", one), entry("b", one)], ifCurrent: []),
      "apply succeeds without conditions")
    expect(try holds(one, one, nil), "apply makes every change")
    expect(
      try engine.apply([entry("a", nil), entry("b", two)], ifCurrent: []),
      "apply succeeds without conditions")
    expect(try holds(nil, two, nil), "apply removes a key whose new bytes are nil")
    expect(
      try engine.apply([entry("b", one)], ifCurrent: [entry("b", two)]),
      "apply succeeds if the condition on the key is met")
    expect(
      try !engine.apply([entry("b", two)], ifCurrent: [entry("b", two)]),
      "apply fails if the condition on the key is not met")
    expect(try holds(nil, one, nil), "apply makes no change if it fails")
    guard let isMet = try appliesUnderConditions(engine) else { return try engine.removeAll() }
    expect(isMet, "apply succeeds if all of several conditions are met")
    expect(
      try !engine.apply(
        [entry("a", one), entry("c", one)], ifCurrent: [entry("a", nil), entry("b", two)]),
      "apply fails if one of several conditions is not met")
    expect(try holds(nil, one, nil), "apply makes no change if one of several conditions fails")
    expect(
      try engine.apply(
        [entry("a", one), entry("b", nil), entry("c", two)],
        ifCurrent: [entry("a", nil), entry("b", one)]),
      "apply succeeds if all of several conditions are met")
    expect(try holds(one, nil, two), "apply makes every change under several conditions")
    try engine.removeAll()
  }

  /// Whether the engine finds that two missing keys are missing; nil if it cannot change several
  /// keys under conditions, which it does not have to.
  private func appliesUnderConditions(_ engine: any StorageEngine) throws -> Bool? {
    do {
      let entries = [EngineEntry(key: "x", data: nil), EngineEntry(key: "y", data: nil)]
      return try engine.apply(entries, ifCurrent: entries)
    } catch StorageError.Code.misuse {
      return nil
    }
  }

  /// Each round of a task adds one to one key and takes one from another. Their sum stays 0.
  func checkConcurrentApply(in engine: any StorageEngine) async throws {
    let isSupported = try await blocking { try appliesUnderConditions(engine) != nil }
    guard isSupported else { return }
    @Sendable func number(_ data: Data?) -> Int {
      data.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
    }
    @Sendable func data(_ number: Int) -> Data { Data("\(number)".utf8) }
    let progress = Progress()
    let total = try await withThrowingTaskGroup(of: Int.self) { group in
      for _ in 0..<4 {
        group.addTask {
          try await blocking {
            var moved = 0
            var last = 0
            var round = 0
            while round < 50 || !progress.isEnough {
              round += 1
              let (from, to) = (try engine.data(forKey: "a"), try engine.data(forKey: "b"))
              if number(to) != last { progress.overlaps.add(1, ordering: .relaxed) }
              last = number(to)
              let isDone = try engine.apply(
                [
                  EngineEntry(key: "a", data: data(number(from) - 1)),
                  EngineEntry(key: "b", data: data(number(to) + 1)),
                ],
                ifCurrent: [EngineEntry(key: "a", data: from), EngineEntry(key: "b", data: to)])
              if isDone { (moved, last) = (moved + 1, number(to) + 1) }
            }
            return moved
          }
        }
      }
      return try await group.reduce(0, +)
    }
    try await blocking {
      let end = ContinuousClock.now + delay
      while ContinuousClock.now < end, try number(engine.data(forKey: "b")) != total {
        BackgroundThread.sleep(for: .milliseconds(1))
      }
      let (from, to) = (try engine.data(forKey: "a"), try engine.data(forKey: "b"))
      expect(total > 0 && number(from) == -total && number(to) == total, "apply is atomic")
      try engine.removeAll()
    }
  }

  /// Uses the engine through a suite of ``Defaults``.
  func checkSuite(on engine: any StorageEngine) async throws {
    struct Model: Codable, Equatable, Sendable {
      var name = "Ann"
      var scores = [1.5, 2]
    }
    try await StorageSystem.withTemporary(engines: ["conformance": engine]) {
      try await blocking {
        let suite = Defaults.suite("conformance")
        let (bytes, date) = (Data([0, 255, 10]), Date(timeIntervalSinceReferenceDate: 1.1))
        try suite.set(16, forKey: "int")
        try suite.set("dark", forKey: "text")
        try suite.set(bytes, forKey: "bytes")
        try suite.set(date, forKey: "date")
        try suite.set(Double.infinity, forKey: "infinity")
        try suite.set(Model(), forKey: "model")
        expect(try suite.get("int") == 16, "a suite returns the integer that was set")
        expect(try suite.get("text") == "dark", "a suite returns the string that was set")
        expect(try suite.get("bytes") == bytes, "a suite returns the data that was set")
        expect(try suite.get("date") == date, "a suite returns the date that was set")
        expect(
          try suite.get("infinity") == Double.infinity, "a suite returns infinity if it was set")
        expect(try suite.model("model") == Model(), "a suite returns the model that was set")
        let count = try suite.update("int", default: 0) { $0 += 1 }
        expect(try count == 17 && suite.get("int") == 17, "update changes the stored value")
        try suite.remove("int")
        expect(try !suite.contains("int"), "a suite does not contain a removed value")
        try suite.removeAll()
        expect(try suite.keys().isEmpty, "removeAll removes every value")
      }
    }
  }

  /// Stores the value that ``checkReopening(of:as:)`` expects.
  static func storeValue(in engine: any StorageEngine) throws {
    try engine.set(json("kept"), forKey: "a")
    try engine.synchronize()
  }

  func checkReopening(of engine: any StorageEngine, as other: any StorageEngine) throws {
    let (kept, newer, newest) = (Self.json("kept"), Self.json("newer"), Self.json("newest"))
    try expectSoon(
      try other.data(forKey: "a") == kept, "values are there after reopening")
    expect(try other.keys() == ["a"], "keys() lists the stored keys after reopening")
    try other.set(newer, forKey: "a")
    try expectSoon(
      try engine.data(forKey: "a") == newer, "a read returns what another instance has set")
    try engine.set(newest, forKey: "a")
    try expectSoon(
      try other.data(forKey: "a") == newest, "a read returns what another instance has set")
    try other.set(newer, forKey: "a")
    expect(
      try !engine.replace(newest, with: nil, forKey: "a"),
      "replace compares with what another instance has set"
    )
    expect(
      try engine.replace(newer, with: kept, forKey: "a"),
      "replace compares with what another instance has set")
    try other.set(nil, forKey: "a")
    try expectSoon(
      try engine.data(forKey: "a") == nil,
      "a read returns nil once another instance has removed the key")
    try engine.set(kept, forKey: "b")
    try expectSoon(
      try other.keys() == ["b"], "keys() lists what another instance has set")
    try other.removeAll()
    try expectSoon(
      try engine.keys().isEmpty, "keys() does not list what another instance has removed")
  }

  /// If the engine has changes, they report every kind of change that another instance makes.
  func checkChanges(of engine: any StorageEngine, madeBy other: any StorageEngine) async throws {
    let one = Data("1".utf8)
    let long = String(repeating: "k", count: 900)
    let rounds = 0..<100
    let kinds: [(name: String, change: @Sendable (Int) throws -> Void)] = [
      ("sets", { try other.set(Data("\($0)".utf8), forKey: "a") }),
      ("sets of long keys", { try other.set(Data("\($0)".utf8), forKey: long) }),
      ("replacements", { _ = try other.replace(nil, with: one, forKey: "new \($0)") }),
      ("removals", { try other.set(nil, forKey: "old \($0)") }),
    ]
    // Set now, so that only their removal is reported later.
    try await blocking { for number in rounds { try other.set(one, forKey: "old \(number)") } }
    for kind in kinds {
      guard let changes = try await blocking({ try engine.changes() }) else { return }
      let isReported = try await withThrowingTaskGroup(of: Bool.self) { group in
        group.addTask {
          for await _ in changes { return true }
          return false
        }
        group.addTask {
          // Repeated, because the first changes may be made before the engine watches.
          for number in rounds {
            try await blocking { try kind.change(number) }
            guard (try? await Task.sleep(for: .milliseconds(100))) != nil else { break }
          }
          return false
        }
        let isReported = try await group.next() ?? false
        group.cancelAll()
        return isReported
      }
      expect(isReported, "changes() reports the changes of another instance: \(kind.name)")
      if !isReported { return }
    }
  }

  /// Reads two engines on the same values through suites, which have mirrors of them.
  func checkMirrors(of engine: any StorageEngine, and other: any StorageEngine) async throws {
    try await StorageSystem.withTemporary(engines: ["one": engine, "two": other]) {
      try await blocking {
        let (one, two) = (Defaults.suite("one"), Defaults.suite("two"))
        expect(try one.keys().isEmpty, "a mirror of no values is empty")
        try expectSoon(try two.keys().isEmpty, "a mirror of no values is empty")
        for number in 0..<100 {
          try one.set(number, forKey: "a")
          expect(try one.get("a") == number, "a mirror shows a set when the call returns")
        }
        try expectSoon(try two.get("a") == 99, "a mirror shows what another instance has set")
        try two.update("a", default: 0) { $0 += 1 }
        expect(try two.get("a") == 100, "a mirror shows an update when the call returns")
        try expectSoon(
          try one.get("a") == 100, "a mirror shows what another instance has updated")
        try one.import(Data(#"{"b": [1, 2], "c": "dark"}"#.utf8))
        expect(
          try one.get("b") == [1, 2] && one.get("c") == "dark",
          "a mirror shows an import when the call returns")
        try expectSoon(
          try two.get("b") == [1, 2] && two.get("c") == "dark",
          "a mirror shows what another instance has imported")
        try two.remove("b")
        expect(try two.keys().sorted() == ["a", "c"], "a mirror shows a removal when it returns")
        try expectSoon(
          try one.keys().sorted() == ["a", "c"], "a mirror shows what another instance removed")
        try engine.set(Data("not JSON".utf8), forKey: "c")
        try expectSoon(
          try fails(.damaged) { _ = try two.get("c") as String? },
          "reading a key of a mirror whose bytes are not JSON fails")
        try one.removeAll()
        expect(try one.keys().isEmpty, "a mirror is empty when removeAll returns")
        try expectSoon(
          try two.keys().isEmpty, "a mirror is empty after another instance's removeAll")
      }
    }
  }

  /// Several writers count up in two suites, while readers look at the mirrors.
  func checkOrderInMirrors(
    of engine: any StorageEngine, and other: any StorageEngine
  ) async throws {
    try await StorageSystem.withTemporary(engines: ["one": engine, "two": other]) {
      let suites = [Defaults.suite("one"), Defaults.suite("two")]
      let progress = Progress()
      let total = try await withThrowingTaskGroup(of: Int.self) { group in
        for suite in suites {
          group.addTask {
            try await blocking {
              var last = 0
              while !progress.isOver.load(ordering: .relaxed) {
                let number = try suite.int("order")
                expect(
                  number >= last, "a mirror shows changes in the order in which they were made")
                if number != last { progress.overlaps.add(1, ordering: .relaxed) }
                last = number
                // The writers need the processors, too.
                BackgroundThread.sleep(for: .microseconds(20))
              }
              return 0
            }
          }
        }
        group.addTask {
          defer { progress.isOver.store(true, ordering: .relaxed) }
          return try await withThrowingTaskGroup(of: Int.self) { writers in
            for suite in suites + suites {
              writers.addTask {
                try await blocking {
                  var round = 0
                  while round < 25 || !progress.isEnough {
                    try suite.update("order", default: 0) { $0 += 1 }
                    round += 1
                  }
                  return round
                }
              }
            }
            return try await writers.reduce(0, +)
          }
        }
        return try await group.reduce(0, +)
      }
      try await blocking {
        for suite in suites {
          try expectSoon(try suite.int("order") == total, "updates of two mirrors lose none")
        }
        try suites[0].removeAll()
        try expectSoon(
          try suites[1].keys().isEmpty, "a mirror is empty after another instance's removeAll")
      }
    }
  }

  private func fails(_ code: StorageError.Code, _ body: () throws -> Void) throws -> Bool {
    do {
      try body()
      return false
    } catch let error as StorageError where error.code == code {
      return true
    }
  }

  func checkRemoveAll(in engine: any StorageEngine) throws {
    try engine.set(Self.json("one"), forKey: "a")
    try engine.set(Self.json("two"), forKey: "b")
    try engine.synchronize()
    try engine.removeAll()
    expect(try engine.keys().isEmpty, "removeAll removes every key")
    expect(try engine.data(forKey: "a") == nil, "removeAll removes the bytes of every key")
    try engine.removeAll()
  }
}
#endif
