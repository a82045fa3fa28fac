#if canImport(Testing)
internal import FoundationEssentials
internal import Keepsake
internal import Synchronization

/// The checks of one step.
struct Checker: Sendable {
  let engine: any StorageEngines.Engine
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

  func checkValues() throws {
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

  func checkKeys() throws {
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

  func checkReplace() throws {
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
  func checkConcurrentUse(and other: any StorageEngines.Engine) async throws {
    let keyCount = 50
    let colors = ["r", "g", "b"].enumerated().map {
      Self.json(String(repeating: $1, count: 1_000 + 8_000 * $0))
    }
    try await blocking { try engine.set(colors[0], forKey: "color") }
    let progress = Progress()
    let total = try await sumOfThreads(4) { thread in
      let own = thread.isMultiple(of: 2) ? engine : other
      var round = 0
      var last: Data?
      while round < keyCount || !progress.isEnough {
        if round < keyCount {
          try own.set(Data("\(round)".utf8), forKey: "own \(thread) \(round)")
        }
        // Until the end, because a busy machine may start the reading threads late.
        if thread < 2 { try own.set(colors[round % 3], forKey: "color") }
        if try !incrementCount(in: own) { break }
        round += 1
        let color = try own.data(forKey: "color")
        expect(colors.contains { $0 == color }, "a read returns the complete old or new bytes")
        // A thread that only reads has seen another thread's set.
        if thread >= 2, color != last { progress.overlaps.add(1, ordering: .relaxed) }
        last = color
        if round % 25 == 0 {
          let listed = Set(try own.keys())
          let isComplete = (0..<min(round, keyCount)).allSatisfy {
            listed.contains("own \(thread) \($0)")
          }
          expect(isComplete, "keys() lists every key while other keys are set")
        }
      }
      return round
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

  /// Runs `body` on several threads at once, and adds up what it returns.
  func sumOfThreads(
    _ count: Int, _ body: @escaping @Sendable (_ thread: Int) throws -> Int
  ) async throws -> Int {
    try await withThrowingTaskGroup(of: Int.self) { group in
      for thread in 0..<count { group.addTask { try await blocking { try body(thread) } } }
      return try await group.reduce(0, +)
    }
  }

  /// Counts how often the work of concurrent threads has overlapped.
  ///
  /// A number of rounds would not do: a fast engine might finish them without any overlap, and a
  /// busy machine may run one thread for long before it starts another.
  final class Progress: Sendable {
    let overlaps = Atomic(0)
    let isOver = Atomic(false)
    private let start = ContinuousClock.now

    var isEnough: Bool {
      let time = ContinuousClock.now - start
      let overlaps = overlaps.load(ordering: .relaxed)
      return time > .milliseconds(300) && overlaps > 100 || time > .seconds(5)
    }
  }

  /// One thread sets bytes, which only a replace that names them as the old bytes may change.
  func checkSetDuringReplace() async throws {
    let progress = Progress()
    @Sendable func text(_ kind: String, _ number: Int) -> Data {
      Data("\"\(kind) \(number)\"".utf8)
    }
    async let setting: Void = blocking {
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
    async let replacing: Void = blocking {
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
    _ = try await (setting, replacing)
    try await blocking { try engine.set(nil, forKey: "a") }
  }

  /// Adds one to the stored count with replace; false if every retry failed.
  private func incrementCount(in engine: any StorageEngines.Engine) throws -> Bool {
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

  private func entry(_ key: String, _ data: Data?) -> StorageEngines.Entry {
    StorageEngines.Entry(key: key, data: data)
  }

  func checkApply() throws {
    let (one, two) = (Self.json("one"), Self.json("two"))
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
    guard let isMet = try appliesUnderConditions() else { return try engine.removeAll() }
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
  /// keys under conditions, which is optional.
  private func appliesUnderConditions() throws -> Bool? {
    do {
      let entries = [entry("x", nil), entry("y", nil)]
      return try engine.apply(entries, ifCurrent: entries)
    } catch StorageError.Code.misuse {
      return nil
    }
  }

  /// Each round of a thread adds one to one key and takes one from another. Their sum stays 0.
  func checkConcurrentApply() async throws {
    let isSupported = try await blocking { try appliesUnderConditions() != nil }
    guard isSupported else { return }
    @Sendable func number(_ data: Data?) -> Int {
      data.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
    }
    @Sendable func data(_ number: Int) -> Data { Data("\(number)".utf8) }
    let progress = Progress()
    let total = try await sumOfThreads(4) { _ in
      var moved = 0
      var last = 0
      var round = 0
      while round < 50 || !progress.isEnough {
        round += 1
        let (from, to) = (try engine.data(forKey: "a"), try engine.data(forKey: "b"))
        if number(to) != last { progress.overlaps.add(1, ordering: .relaxed) }
        last = number(to)
        let isDone = try engine.apply(
          [entry("a", data(number(from) - 1)), entry("b", data(number(to) + 1))],
          ifCurrent: [entry("a", from), entry("b", to)])
        if isDone { (moved, last) = (moved + 1, number(to) + 1) }
      }
      return moved
    }
    try await blocking {
      func sumsAreRight() throws -> Bool {
        let (from, to) = (try engine.data(forKey: "a"), try engine.data(forKey: "b"))
        return total > 0 && number(from) == -total && number(to) == total
      }
      try expectSoon(try sumsAreRight(), "apply is atomic")
      try engine.removeAll()
    }
  }

  /// Uses the engine through a suite of ``Defaults``.
  func checkSuite() async throws {
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

  /// Stores the value that ``checkReopening(as:)`` expects.
  func storeValue() throws {
    try engine.set(Self.json("kept"), forKey: "a")
    try engine.synchronize()
  }

  func checkReopening(as other: any StorageEngines.Engine) throws {
    let (kept, newer, newest) = (Self.json("kept"), Self.json("newer"), Self.json("newest"))
    try expectSoon(try other.data(forKey: "a") == kept, "values are there after reopening")
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
      "replace compares with what another instance has set")
    expect(
      try engine.replace(newer, with: kept, forKey: "a"),
      "replace compares with what another instance has set")
    try other.set(nil, forKey: "a")
    try expectSoon(
      try engine.data(forKey: "a") == nil,
      "a read returns nil once another instance has removed the key")
    try engine.set(kept, forKey: "b")
    try expectSoon(try other.keys() == ["b"], "keys() lists what another instance has set")
    try other.removeAll()
    try expectSoon(
      try engine.keys().isEmpty, "keys() does not list what another instance has removed")
  }

  /// If the engine has changes, they report every kind of change that another instance makes.
  func checkChanges(madeBy other: any StorageEngines.Engine) async throws {
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

  func checkRemoveAll() throws {
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
