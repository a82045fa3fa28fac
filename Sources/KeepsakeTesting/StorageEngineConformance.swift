#if canImport(Testing)
internal import FoundationEssentials
public import Keepsake
internal import Synchronization
public import Testing

/// Checks that a ``/Keepsake/StorageEngine`` does all that is asked of it.
///
/// ```swift
/// @Test func conforms() async throws {
///   try await StorageEngineConformance.check { TableEngine() }
/// }
/// ```
///
/// An engine whose values outlive it also says how it is opened again, which may be in place of
/// another process:
///
/// ```swift
/// try await StorageEngineConformance.check {
///   RedisEngine(database: 7)
/// } reopening: {
///   RedisEngine(database: 7)
/// }
/// ```
public enum StorageEngineConformance {
  /// Records an issue for each rule that an engine breaks, up to the end of the step that finds the
  /// first.
  ///
  /// It begins with an empty engine, which it fills and empties; in one that is not empty it
  /// changes nothing. It takes a few seconds. The engine is called on threads of its own, with the
  /// stores of the calling task.
  ///
  /// - Parameters:
  ///   - timeLimit: How long each of a dozen steps may take. A call that does not return by then is
  ///     an issue as well, and left to itself.
  ///   - sourceLocation: Where issues are shown.
  ///   - make: Makes the engine, which must be empty.
  ///   - reopen: Opens another engine on the same values; nil when they are gone with the first
  ///     one.
  /// - Throws: What the engine throws where it must not.
  public static func check(
    timeLimit: Duration = .seconds(60), sourceLocation: SourceLocation = #_sourceLocation,
    _ make: () throws -> any StorageEngine,
    reopening reopen: (() throws -> any StorageEngine)? = nil
  ) async throws {
    let engine = try make()
    let run = Run(timeLimit: timeLimit, sourceLocation: sourceLocation)
    do {
      try await run.step { checks in
        try await blocking {
          checks.expect(
            try engine.keys().isEmpty, "it is empty at the start (nothing in it was touched)")
        }
      }
      do {
        try await check(engine, run, reopening: reopen)
      } catch let error where !(error is Run.Stuck) {
        // What is left must not keep the next run from starting.
        try? await run.step { _ in try await blocking { try engine.removeAll() } }
        throw error
      }
    } catch is any Run.Ended {}
  }

  private static func check(
    _ engine: any StorageEngine, _ run: Run, reopening reopen: (() throws -> any StorageEngine)?
  ) async throws {
    try await run.step { checks in try await blocking { try checks.values(engine) } }
    try await run.step { checks in try await blocking { try checks.keys(engine) } }
    try await run.step { checks in try await blocking { try checks.replacing(engine) } }
    try await run.step { checks in try await checks.concurrentUse(engine, engine) }
    try await run.step { checks in try await checks.settingBesideReplacing(engine) }
    try await run.step { checks in try await checks.settings(engine) }
    if let reopen {
      try await run.step { _ in try await blocking { try Checks.keep(engine) } }
      let other = try reopen()
      try await run.step { checks in try await blocking { try checks.reopening(engine, other) } }
      try await run.step { checks in try await checks.concurrentUse(engine, other) }
      try await run.step { checks in try await checks.changes(engine, other) }
    }
    try await run.step { checks in try await blocking { try checks.emptying(engine) } }
  }
}

/// Runs what may wait, off the threads that tasks share.
private func blocking<R: Sendable>(_ body: @escaping @Sendable () throws -> R) async throws -> R {
  try await BlockingWork.run { try body() }
}

/// Runs one step after another until one finds something.
private struct Run {
  let timeLimit: Duration
  let sourceLocation: SourceLocation

  /// Why there is no next step; the issue is recorded.
  protocol Ended: Error {}
  struct Broken: Ended {}
  struct Stuck: Ended {}

  enum Event: Sendable {
    case broken(String)
    case done(Result<Void, any Error>)
    case late
  }

  func step(_ body: @escaping @Sendable (Checks) async throws -> Void) async throws {
    let (events, continuation) = AsyncStream.makeStream(of: Event.self)
    // Not a child: nobody could leave one that never ends.
    Task {
      do {
        try await body(Checks(events: continuation))
        continuation.yield(.done(.success(())))
      } catch {
        continuation.yield(.done(.failure(error)))
      }
    }
    let clock = Task {
      try await Task.sleep(for: timeLimit)
      continuation.yield(.late)
    }
    defer { clock.cancel() }
    var broken: Set<String> = []
    for await event in events {
      switch event {
      case .broken(let rule):
        if broken.insert(rule).inserted { record("the engine breaks a rule: \(rule)") }
      case .done(let result):
        try result.get()
        if !broken.isEmpty { throw Broken() }
        return
      case .late:
        record("the engine breaks a rule: every call returns (one has not within \(timeLimit))")
        throw Stuck()
      }
    }
    throw CancellationError()
  }

  private func record(_ text: String) {
    Issue.record(Comment(rawValue: text), sourceLocation: sourceLocation)
  }
}

private struct Checks: Sendable {
  let events: AsyncStream<Run.Event>.Continuation

  func expect(_ isRight: Bool, _ rule: String) {
    if !isRight { events.yield(.broken(rule)) }
  }

  private static func json(_ text: String) -> Data { Data("\"\(text)\"".utf8) }

  func values(_ engine: any StorageEngine) throws {
    expect(try engine.data(forKey: "a") == nil, "a key without bytes has none")
    try engine.set(nil, forKey: "a")
    expect(try engine.keys().isEmpty, "removing what is not there adds no key")

    let texts = [
      "1", "true", "null", "\"\"", "\"dark\"", #"{"name":"Ann","ids":[1,2]}"#,
      #"{"$data": "AP8="}"#,
      "\"" + String(repeating: "é", count: 100_000) + "\"", "2",
    ]
    for text in texts {
      try engine.set(Data(text.utf8), forKey: "a")
      let found = try engine.data(forKey: "a")
      expect(found == Data(text.utf8), "bytes come back as they were set: \(text.prefix(30))")
    }
    expect(try Set(engine.keys()) == ["a"], "a key is listed as it was given")
    expect(try engine.keys().count == 1, "a key that is set again is listed once")
    try engine.set(nil, forKey: "a")
    expect(try engine.data(forKey: "a") == nil, "nil removes")
    expect(try engine.keys().isEmpty, "a removed key is not listed")
  }

  func keys(_ engine: any StorageEngine) throws {
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
      expect(isFound, "any text is a key of its own: \(name.debugDescription.prefix(40))")
    }
    expect(Set(try engine.keys()) == Set(names), "all keys are listed as they were given")
    expect(try engine.keys().count == names.count, "no key is listed twice")
    for (number, name) in names.enumerated() {
      try engine.set(nil, forKey: name)
      let rest = Set(names[(number + 1)...])
      expect(
        try Set(engine.keys()) == rest,
        "one key is removed, and no other: \(name.debugDescription.prefix(40))")
    }
  }

  func replacing(_ engine: any StorageEngine) throws {
    let (one, two) = (Self.json("one"), Self.json("two"))
    expect(try engine.replace(nil, with: nil, forKey: "a"), "nil is what a missing key has")
    expect(try engine.keys().isEmpty, "nil in place of nil adds no key")
    expect(try engine.replace(nil, with: one, forKey: "a"), "nil is what a missing key has")
    expect(try engine.data(forKey: "a") == one, "what replaces is stored")
    expect(try !engine.replace(nil, with: two, forKey: "a"), "other bytes are not nil")
    expect(try !engine.replace(two, with: nil, forKey: "a"), "other bytes are not replaced")
    expect(try engine.data(forKey: "a") == one, "what is not replaced stays")
    expect(
      try engine.replace(one, with: one, forKey: "a"), "bytes are replaced by the same ones")
    expect(
      try engine.replace(one, with: two, forKey: "a"), "the bytes that are there are replaced")
    expect(try engine.data(forKey: "a") == two, "what replaces is stored")
    try engine.set(one, forKey: "b")
    expect(try engine.replace(two, with: nil, forKey: "a"), "nil replaces: it removes")
    expect(try engine.data(forKey: "a") == nil, "nil replaces: it removes")
    expect(try engine.keys() == ["b"], "replace changes one key, and no other")
    try engine.set(nil, forKey: "b")
    expect(
      try !engine.replace(one, with: two, forKey: "a"), "a missing key has no bytes to replace")
    expect(try engine.keys().isEmpty, "what is not replaced is not added")
  }

  /// - Parameter other: The engine itself, or another one on the same values.
  func concurrentUse(_ engine: any StorageEngine, _ other: any StorageEngine) async throws {
    let keyCount = 50
    let colours = ["r", "g", "b"].enumerated().map {
      Self.json(String(repeating: $1, count: 1_000 + 30_000 * $0))
    }
    try await blocking { try engine.set(colours[0], forKey: "colour") }
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
              // To the end, as a busy machine may run those who only read for the first time then.
              if task < 2 { try own.set(colours[round % 3], forKey: "colour") }
              if try !isCounted(own) { break }
              round += 1
              let colour = try own.data(forKey: "colour")
              expect(
                colours.contains { $0 == colour }, "a read finds the old or the new bytes whole")
              // Who only reads has met a set of another's.
              if task >= 2, colour != last { progress.count.add(1, ordering: .relaxed) }
              last = colour
              if round % 25 == 0 {
                let listed = Set(try own.keys())
                let isComplete = (0..<min(round, keyCount)).allSatisfy {
                  listed.contains("own \(task) \($0)")
                }
                expect(isComplete, "all keys are listed while others are set")
              }
            }
            return round
          }
        }
      }
      return try await group.reduce(0, +)
    }
    try await blocking {
      let count = try engine.data(forKey: "count").map { String(decoding: $0, as: UTF8.self) }
      expect(count == "\(total)", "replace lets nothing come between")
      expect(try engine.keys().count == 4 * keyCount + 2, "sets of different keys lose none")
      try engine.removeAll()
      expect(try other.keys().isEmpty, "removeAll removes all keys")
    }
  }

  /// How often tasks that work at the same time have met. Quick engines have to meet as well, and a
  /// busy machine may run one task for long before it runs another.
  private final class Progress: Sendable {
    let count = Atomic(0)
    let isOver = Atomic(false)
    private let start = ContinuousClock.now

    var isEnough: Bool {
      let time = ContinuousClock.now - start
      return time > .milliseconds(300) && count.load(ordering: .relaxed) > 100 || time > .seconds(5)
    }
  }

  /// What is set stays until a replace that knows it.
  func settingBesideReplacing(_ engine: any StorageEngine) async throws {
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
              let isRight = found == set || found == replaced
              expect(isRight, "replace lets nothing come between, not even a set")
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
              progress.count.add(1, ordering: .relaxed)
            }
          }
        }
      }
      try await group.waitForAll()
    }
    try await blocking { try engine.set(nil, forKey: "a") }
  }

  /// Adds one to a number; false when that was lost too often.
  private func isCounted(_ engine: any StorageEngine) throws -> Bool {
    for _ in 0..<1_000 {
      let old = try engine.data(forKey: "count")
      let count = old.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
      if try engine.replace(old, with: Data("\(count + 1)".utf8), forKey: "count") { return true }
    }
    expect(false, "replace is lost to others alone (here a thousand times in a row)")
    return false
  }

  /// The engine under a suite.
  func settings(_ engine: any StorageEngine) async throws {
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
        expect(try suite.get("int") == 16, "an integer comes back")
        expect(try suite.get("text") == "dark", "text comes back")
        expect(try suite.get("bytes") == bytes, "bytes come back")
        expect(try suite.get("date") == date, "a date comes back")
        expect(try suite.get("infinity") == Double.infinity, "any number comes back")
        expect(try suite.model("model") == Model(), "a model comes back")
        let count = try suite.update("int", default: 0) { $0 += 1 }
        expect(try count == 17 && suite.get("int") == 17, "update changes what is there")
        try suite.remove("int")
        expect(try !suite.contains("int"), "a removed value is gone")
        try suite.removeAll()
        expect(try suite.keys().isEmpty, "removeAll removes all values")
      }
    }
  }

  /// What is there when the engine is opened again.
  static func keep(_ engine: any StorageEngine) throws {
    try engine.set(json("kept"), forKey: "a")
    try engine.synchronize()
  }

  func reopening(_ engine: any StorageEngine, _ other: any StorageEngine) throws {
    let (kept, newer, newest) = (Self.json("kept"), Self.json("newer"), Self.json("newest"))
    expect(try other.data(forKey: "a") == kept, "what is set is there when opened again")
    expect(try other.keys() == ["a"], "its key is listed when opened again")
    try other.set(newer, forKey: "a")
    expect(try engine.data(forKey: "a") == newer, "a read sees what another one has set")
    try engine.set(newest, forKey: "a")
    expect(try other.data(forKey: "a") == newest, "a read sees what another one has set")
    try other.set(newer, forKey: "a")
    expect(
      try !engine.replace(newest, with: nil, forKey: "a"), "replace sees what another one has set"
    )
    expect(
      try engine.replace(newer, with: kept, forKey: "a"), "replace sees what another one has set")
    try other.set(nil, forKey: "a")
    expect(try engine.data(forKey: "a") == nil, "a read sees what another one has removed")
    try engine.set(kept, forKey: "b")
    expect(try other.keys() == ["b"], "a listing sees what another one has set")
    try other.removeAll()
    expect(try engine.keys().isEmpty, "a listing sees what another one has removed")
  }

  /// An engine that says that it learns of others' changes does, of each kind.
  func changes(_ engine: any StorageEngine, _ other: any StorageEngine) async throws {
    let one = Data("1".utf8)
    let long = String(repeating: "k", count: 900)
    let rounds = 0..<100
    let kinds: [(name: String, make: @Sendable (Int) throws -> Void)] = [
      ("sets", { try other.set(Data("\($0)".utf8), forKey: "a") }),
      ("sets of long keys", { try other.set(Data("\($0)".utf8), forKey: long) }),
      ("replacements", { _ = try other.replace(nil, with: one, forKey: "new \($0)") }),
      ("removals", { try other.set(nil, forKey: "old \($0)") }),
    ]
    // Set before anybody listens.
    try await blocking { for number in rounds { try other.set(one, forKey: "old \(number)") } }
    for kind in kinds {
      guard let changes = try await blocking({ try engine.changes() }) else { return }
      let isTold = try await withThrowingTaskGroup(of: Bool.self) { group in
        group.addTask {
          for await _ in changes { return true }
          return false
        }
        group.addTask {
          // Again and again, as the first ones may come before the engine listens.
          for number in rounds {
            try await blocking { try kind.make(number) }
            guard (try? await Task.sleep(for: .milliseconds(100))) != nil else { break }
          }
          return false
        }
        let isTold = try await group.next() ?? false
        group.cancelAll()
        return isTold
      }
      expect(isTold, "an engine that has changes tells of those that others make: \(kind.name)")
      if !isTold { return }
    }
  }

  func emptying(_ engine: any StorageEngine) throws {
    try engine.set(Self.json("one"), forKey: "a")
    try engine.set(Self.json("two"), forKey: "b")
    try engine.synchronize()
    try engine.removeAll()
    expect(try engine.keys().isEmpty, "removeAll removes all keys")
    expect(try engine.data(forKey: "a") == nil, "removeAll removes all bytes")
    try engine.removeAll()
  }
}
#endif
