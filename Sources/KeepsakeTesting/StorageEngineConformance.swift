#if canImport(Testing)
  internal import FoundationEssentials
  public import Keepsake
  public import Testing

  /// Checks that a ``/Keepsake/StorageEngine`` does all that is asked of it.
  ///
  /// ```swift
  /// @Test func conforms() async throws {
  ///   try await StorageEngineConformance.check { TableEngine() }
  /// }
  /// ```
  ///
  /// An engine whose values outlive it also says how it is opened again, which may be in place of another
  /// process:
  ///
  /// ```swift
  /// try await StorageEngineConformance.check {
  ///   RedisEngine(database: 7)
  /// } reopening: {
  ///   RedisEngine(database: 7)
  /// }
  /// ```
  public enum StorageEngineConformance {
    /// Records an issue for each rule that an engine breaks.
    ///
    /// It begins with an empty engine, which it fills and empties; in one that is not empty it changes
    /// nothing. It takes a few seconds.
    ///
    /// - Parameters:
    ///   - sourceLocation: Where issues are shown.
    ///   - make: Makes the engine, which must be empty.
    ///   - reopen: Opens another engine on the same values; nil when they are gone with the first one.
    /// - Throws: What the engine throws where it must not.
    public static func check(
      sourceLocation: SourceLocation = #_sourceLocation,
      _ make: () throws -> any StorageEngine,
      reopening reopen: (() throws -> any StorageEngine)? = nil
    ) async throws {
      let engine = try make()
      guard try engine.keys().isEmpty else {
        Issue.record(
          "the engine is not empty: nothing in it was touched", sourceLocation: sourceLocation)
        return
      }
      let checks = Checks(engine: engine, sourceLocation: sourceLocation)
      try checks.values()
      try checks.keys()
      try checks.replacing()
      try await checks.concurrentUse(engine)
      try await checks.settings()
      if let reopen {
        try checks.reopening(reopen)
        try await checks.concurrentUse(try reopen())
        try await checks.changes(try reopen())
      }
      try engine.synchronize()
      try checks.emptying()
    }
  }

  private struct Checks {
    let engine: any StorageEngine
    let sourceLocation: SourceLocation

    private func expect(_ isRight: Bool, _ rule: String) {
      if !isRight {
        Issue.record("the engine breaks a rule: \(rule)", sourceLocation: sourceLocation)
      }
    }

    private func json(_ text: String) -> Data { Data("\"\(text)\"".utf8) }

    func values() throws {
      expect(try engine.data(forKey: "a") == nil, "a key without bytes has none")
      try engine.set(nil, forKey: "a")
      expect(try engine.keys().isEmpty, "removing what is not there adds no key")

      let texts = [
        "1", "true", "null", "\"\"", "\"dark\"", #"{"name":"Ann","ids":[1,2]}"#,
        #"{"$data": "AP8="}"#, "\"" + String(repeating: "é", count: 100_000) + "\"",
      ]
      for text in texts {
        try engine.set(Data(text.utf8), forKey: "a")
        let found = try engine.data(forKey: "a")
        expect(found == Data(text.utf8), "bytes come back as they were set: \(text.prefix(30))")
      }
      try engine.set(nil, forKey: "a")
      expect(try engine.data(forKey: "a") == nil, "nil removes")
      expect(try engine.keys().isEmpty, "a removed key is not listed")
    }

    func keys() throws {
      let names = [
        "a", "A", "a.b", "a/b", "/a", "..", "../a", ".a", "a ", " ", "", "%", "%41", "a%2Fb",
        "a\nb",
        "a\u{0}b", "key:1", "größe", "鍵", "🔑", "\u{202E}a", "a*?[b]", "'a'", "\"a\"", "a\\b",
        String(repeating: "k", count: 199), String(repeating: "k", count: 200),
        String(repeating: "k", count: 201), String(repeating: "k", count: 200) + ".json",
        String(repeating: "k", count: 900), String(repeating: "鍵", count: 300),
      ]
      for (number, name) in names.enumerated() {
        try engine.set(json("value \(number)"), forKey: name)
      }
      for (number, name) in names.enumerated() {
        let isFound = try engine.data(forKey: name) == json("value \(number)")
        expect(isFound, "any text is a key of its own: \(name.debugDescription.prefix(40))")
      }
      expect(Set(try engine.keys()) == Set(names), "all keys are listed as they were given")
      expect(try engine.keys().count == names.count, "no key is listed twice")
      for name in names { try engine.set(nil, forKey: name) }
      expect(try engine.keys().isEmpty, "removed keys are not listed")
    }

    func replacing() throws {
      let (one, two) = (json("one"), json("two"))
      expect(try engine.replace(nil, with: one, forKey: "a"), "nil is what a missing key has")
      expect(try engine.data(forKey: "a") == one, "what replaces is stored")
      expect(try !engine.replace(nil, with: two, forKey: "a"), "other bytes are not nil")
      expect(try !engine.replace(two, with: nil, forKey: "a"), "other bytes are not replaced")
      expect(try engine.data(forKey: "a") == one, "what is not replaced stays")
      expect(
        try engine.replace(one, with: two, forKey: "a"), "the bytes that are there are replaced")
      expect(try engine.data(forKey: "a") == two, "what replaces is stored")
      expect(try engine.replace(two, with: nil, forKey: "a"), "nil replaces: it removes")
      expect(try engine.keys().isEmpty, "a removed key is not listed")
      expect(
        try !engine.replace(one, with: two, forKey: "a"), "a missing key has no bytes to replace")
      expect(try engine.keys().isEmpty, "what is not replaced is not added")
    }

    /// - Parameter other: The engine itself, or another one on the same values.
    func concurrentUse(_ other: any StorageEngine) async throws {
      let (engine, tasks, rounds) = (engine, 4, 50)
      try await withThrowingTaskGroup(of: Void.self) { group in
        for task in 0..<tasks {
          group.addTask {
            let own = task.isMultiple(of: 2) ? engine : other
            for round in 0..<rounds {
              try own.set(Data("\(round)".utf8), forKey: "own \(task) \(round)")
              while true {
                let old = try own.data(forKey: "count")
                let count = old.flatMap { Int(String(decoding: $0, as: UTF8.self)) } ?? 0
                if try own.replace(old, with: Data("\(count + 1)".utf8), forKey: "count") { break }
                await Task.yield()
              }
            }
          }
        }
        try await group.waitForAll()
      }
      let count = try engine.data(forKey: "count").map { String(decoding: $0, as: UTF8.self) }
      expect(count == "\(tasks * rounds)", "replace lets nothing come between")
      expect(try engine.keys().count == tasks * rounds + 1, "sets of different keys lose none")
      try engine.removeAll()
      expect(try other.keys().isEmpty, "removeAll removes all keys")
    }

    /// The engine under a suite.
    func settings() async throws {
      struct Model: Codable, Equatable, Sendable {
        var name = "Ann"
        var scores = [1.5, 2]
      }
      try await StorageSystem.withTemporary(engines: ["conformance": engine]) {
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
        expect(count == 17, "update changes what is there")
        try suite.remove("int")
        expect(try !suite.contains("int"), "a removed value is gone")
        try suite.removeAll()
        expect(try suite.keys().isEmpty, "removeAll removes all values")
      }
    }

    func reopening(_ reopen: () throws -> any StorageEngine) throws {
      try engine.set(json("kept"), forKey: "a")
      try engine.synchronize()
      let other = try reopen()
      expect(try other.data(forKey: "a") == json("kept"), "what is set is there when opened again")
      expect(try other.keys() == ["a"], "its key is listed when opened again")
      try other.set(json("newer"), forKey: "a")
      expect(try engine.data(forKey: "a") == json("newer"), "a read sees what another one has set")
      expect(
        try !engine.replace(json("kept"), with: nil, forKey: "a"),
        "replace sees what another one has set")
      try other.removeAll()
      expect(try engine.keys().isEmpty, "a listing sees what another one has removed")
    }

    /// An engine that says that it learns of others' changes does.
    func changes(_ other: any StorageEngine) async throws {
      guard let changes = try engine.changes() else { return }
      let isTold = await withTaskGroup(of: Bool.self) { group in
        group.addTask {
          for await _ in changes { return true }
          return false
        }
        group.addTask {
          // Again and again, as the first ones may come before the engine listens.
          for number in 0..<300 {
            try? other.set(Data("\(number)".utf8), forKey: "change")
            guard (try? await Task.sleep(for: .milliseconds(100))) != nil else { break }
          }
          return false
        }
        let isTold = await group.next() ?? false
        group.cancelAll()
        return isTold
      }
      expect(isTold, "an engine that has changes tells of those that others make")
    }

    func emptying() throws {
      try engine.set(json("one"), forKey: "a")
      try engine.set(json("two"), forKey: "b")
      try engine.removeAll()
      expect(try engine.keys().isEmpty, "removeAll removes all keys")
      expect(try engine.data(forKey: "a") == nil, "removeAll removes all bytes")
      try engine.removeAll()
    }
  }
#endif
