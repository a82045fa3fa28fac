import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// An engine that runs a hook of the test before each call.
final class HookedEngine: StorageEngines.Engine {
  let table = TableEngine()
  /// May throw, or wait.
  let hook = Locked<@Sendable (String) throws -> Void>({ _ in })
  let streams = Locked<[AsyncStream<Void>.Continuation]>([])

  private func ask(_ call: String) throws { try hook.withLock { $0 }(call) }

  func data(forKey key: String) throws -> Data? {
    try ask("data")
    return table.data(forKey: key)
  }
  func set(_ data: Data?, forKey key: String) throws {
    try ask("set")
    table.set(data, forKey: key)
  }
  func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool {
    try ask("replace")
    return table.replace(old, with: new, forKey: key)
  }
  func keys() throws -> [String] {
    try ask("keys")
    return table.keys()
  }
  func removeAll() throws {
    try ask("removeAll")
    for key in table.keys() { table.set(nil, forKey: key) }
  }
  func synchronize() throws { try ask("synchronize") }
  func changes() throws -> AsyncStream<Void>? {
    try ask("changes")
    let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
    streams.withLock { $0.append(continuation) }
    return stream
  }
}

/// A suite on an engine that an app has written.
@Suite(.timeLimit(.minutes(20))) struct CustomEngineTests {
  /// An error whose text contains a value.
  private struct Talkative: LocalizedError, CustomStringConvertible {
    var description: String { "cannot store swordfish" }
    var errorDescription: String? { description }
  }

  private struct Refused: Error {}

  private struct Model: Codable, Equatable, Sendable {
    var name = "Ann"
    var scores = [1.5, 2]
    var born: Date? = Date(timeIntervalSince1970: 0.1)
  }

  private func withSuite<R>(
    on engine: any StorageEngines.Engine, _ body: (Defaults.Store) async throws -> R
  ) async throws -> R {
    try await StorageSystem.withTemporary(engines: ["own": engine]) {
      try await body(Defaults.suite("own"))
    }
  }

  private static let calls: [(name: String, call: @Sendable (Defaults.Store) throws -> Void)] = [
    ("get", { _ = try $0.get("k") as String? }),
    ("model", { _ = try $0.model("k") as Model? }),
    ("contains", { _ = try $0.contains("k") }),
    ("set", { try $0.set("swordfish", forKey: "k") }),
    ("set", { try $0.set(nil as String?, forKey: "k") }),
    ("remove", { try $0.remove("k") }),
    ("update", { try $0.update("k", default: "") { $0 = "swordfish" } }),
    ("keys", { _ = try $0.keys() }),
    ("removeAll", { try $0.removeAll() }),
    ("export", { _ = try $0.export(as: .json) }),
    ("import", { try $0.import(Data(#"{"k": "swordfish"}"#.utf8)) }),
    ("synchronize", { try $0.synchronize() }),
  ]

  @Test(arguments: calls.indices)
  func errorOfTheEngineIsWrappedAndNotQuoted(_ index: Int) async throws {
    let engine = HookedEngine()
    engine.hook.withLock { $0 = { _ in throw Talkative() } }
    try await withSuite(on: engine) { store async throws in
      let (name, call) = Self.calls[index]
      let error = try #require(expectFailure(.engineFailed) { try call(store) })
      #expect(error.underlyingError is Talkative)
      #expect(error.operation == name || name == "set" && error.operation == "remove")
      let isOfAll = ["keys", "removeAll", "export", "synchronize"].contains(name)
      #expect(error.key == (isOfAll ? nil : "k"))
      for text in [
        error.description, error.errorDescription ?? "", error.failureReason ?? "",
        String(reflecting: error), "\(error as any Error)", error.localizedDescription,
      ] {
        #expect(!text.contains("swordfish"), "\(text)")
      }
      #expect(error.description.contains("HookedEngine threw Talkative"))
    }
  }

  @Test(arguments: calls.indices)
  func storageErrorOfTheEngineIsThrownUnchanged(_ index: Int) async throws {
    let engine = HookedEngine()
    engine.hook.withLock {
      $0 = { _ in
        throw StorageError(.timedOut, operation: "ask", path: "server:1", remedy: "Start it.")
      }
    }
    try await withSuite(on: engine) { store async throws in
      let error = try #require(expectFailure(.timedOut) { try Self.calls[index].call(store) })
      #expect(error.path == "server:1" && error.remedy == "Start it." && error.operation != "ask")
    }
  }

  @Test func facadeReportsAndReturnsTheDefault() async throws {
    let engine = HookedEngine()
    try await withSuite(on: engine) { _ in
      Defaults.set("old", forKey: "k", suite: "own")
      engine.hook.withLock { $0 = { _ in throw Refused() } }
      let failures = Failures()
      StorageSystem.onFailure = failures.append
      #expect(Defaults.get("k", default: "none", suite: "own") == "none")
      #expect(!Defaults.set("new", forKey: "k", suite: "own"))
      #expect(Defaults.keys(suite: "own").isEmpty)
      #expect(Defaults.update("k", default: "none", suite: "own") { $0 = "new" } == "none")
      #expect(
        failures.all.map(\.operation) == ["get", "set", "keys", "update"].map { "Defaults." + $0 })
      engine.hook.withLock { $0 = { _ in } }
      #expect(Defaults.string("k", suite: "own") == "old", "the old value is intact")
    }
  }

  /// Users and other programs write such text.
  @Test(arguments: [
    ("16", 16), (" 16\n", 16), ("\u{FEFF}16", 16), ("\r\n\t16 \r\n", 16), ("16.0", 16), ("-3", -3),
  ])
  func whiteSpaceAroundANumberIsIgnored(_ text: String, _ number: Int) async throws {
    let engine = TableEngine()
    engine.set(Data(text.utf8), forKey: "k")
    try await withSuite(on: engine) { store async throws in
      #expect(try store.int("k") == number)
      #expect(try store.update("k", default: 0) { $0 += 1 } == number + 1)
    }
  }

  @Test func prettyPrintedJSONIsRead() async throws {
    let engine = TableEngine()
    let encoder = JSONEncoder()
    encoder.outputFormatting = .prettyPrinted
    let json = "\u{FEFF}" + String(decoding: try encoder.encode(["a b": [1, 2]]), as: UTF8.self)
    engine.set(Data((json + "\n\n").utf8), forKey: "k")
    engine.set(Data("\n { \"$date\" : 1.5 } \n".utf8), forKey: "date")
    engine.set(Data("\" dark \"\n".utf8), forKey: "text")
    try await withSuite(on: engine) { store async throws in
      #expect(try store.model("k") == ["a b": [1, 2]])
      #expect(try store.get("date") == Date(timeIntervalSinceReferenceDate: 1.5))
      #expect(try store.string("text") == " dark ")
      #expect(try store.update("text", default: "") { $0 += "!" } == " dark !")
    }
  }

  static let unreadable = [
    "", " ", "\n", "\u{FEFF}", "1 2", "tr ue", "- 5", "+5", "dark", "\"dark", "{",
    "[1 2]", "16 // size", "'dark'", "NaN", "{\"$data\": 7}", "{\"$date\": \"now\"}",
  ]

  @Test(arguments: unreadable)
  func throwsWhenTheBytesAreNotJSON(_ text: String) async throws {
    try await expectDamage(Data(text.utf8))
  }

  @Test func throwsWhenTheBytesAreNotUTF8() async throws {
    try await expectDamage(Data([0x22, 0xFF, 0x22]))
    try await expectDamage("\u{FEFF}\"dark\"".data(using: .utf16LittleEndian)!)
    try await expectDamage("16".data(using: .utf16BigEndian)!)
  }

  private func expectDamage(_ data: Data) async throws {
    let engine = TableEngine()
    engine.set(data, forKey: "k")
    engine.set(Data("1".utf8), forKey: "other")
    try await withSuite(on: engine) { store async throws in
      let calls: [(Defaults.Store) throws -> Void] = [
        { _ = try $0.get("k") as Int? }, { _ = try $0.get("k") as String? },
        { _ = try $0.model("k") as Model? }, { try $0.update("k", default: 0) { $0 += 1 } },
      ]
      for call in calls {
        #expect(expectFailure(.damaged) { try call(store) }?.key == "k")
      }
      #expect(engine.data(forKey: "k") == data, "it is left as it is")
      #expect(try store.int("other") == 1)
      try store.set(2, forKey: "k")
      #expect(try store.int("k") == 2)
    }
  }

  @Test func valuesOfAllTypesRoundTrip() async throws {
    let engine = TableEngine()
    try await withSuite(on: engine) { store async throws in
      func expect<T: Codable & Equatable>(_ value: T, _ json: String) throws {
        try store.set(value, forKey: "k")
        #expect(try store.get("k") == value)
        #expect(try store.model("k", type: T.self) == value)
        let text = engine.data(forKey: "k").map { String(decoding: $0, as: UTF8.self) }
        #expect(text == json)
      }
      try expect(16, "16")
      try expect(true, "true")
      try expect(UInt64.max, "18446744073709551615")
      try expect(-0.1, "-0.1")
      try expect(Float(0.1), "0.1")
      try expect(-Double.infinity, #"{"$number": "-Infinity"}"#)
      try expect("a \"b\"\n", #""a \"b\"\n""#)
      try expect("", "\"\"")
      try expect(Data([0, 255]), #"{"$data": "AP8="}"#)
      try expect(Data(), #"{"$data": ""}"#)
      try expect(Date(timeIntervalSinceReferenceDate: 1.5), #"{"$date": 1.5}"#)
      try expect(["$data": "AP8="], #"{"$json": {"$data":"AP8="}}"#)
      try expect([1, nil, 2], "[1,null,2]")
      try expect(Decimal(string: "0.12345678901234567890123")!, "0.12345678901234567890123")
      try store.set(Model(), forKey: "k")
      #expect(try store.model("k") == Model())
      expectFailure(.wrongType) { _ = try store.get("k") as Int? }
    }
  }

  @Test func updateThatLosesEightTimesExcludesOtherUpdates() async throws {
    let engine = HookedEngine()
    try await withSuite(on: engine) { store async throws in
      let losses = Locked(0)
      engine.hook.withLock {
        $0 = { [table = engine.table] call in
          // Another writer always wins.
          guard call == "replace" else { return }
          let number = losses.increment()
          if number <= 20 { table.set(Data("\(number * 10)".utf8), forKey: "k") }
        }
      }
      #expect(try store.update("k", default: 0) { $0 += 1 } == 201)
      #expect(losses.withLock { $0 } == 21)
    }
  }

  /// An engine that uses stores itself finds the stores of its own scope.
  @Test func engineFindsTheStoresOfItsScopeFromAnyTask() async throws {
    final class Indirect: StorageEngines.Engine {
      func data(forKey key: String) throws -> Data? { try Folder.caches.load(key) }
      func set(_ data: Data?, forKey key: String) throws { try Folder.caches.save(data!, as: key) }
      func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool { false }
      func keys() throws -> [String] { try Folder.caches.list() }
    }
    try await withSuite(on: Indirect()) { store async throws in
      try await Task.detached { try store.set(1, forKey: "detached") }.value
      try await StorageSystem.withTemporary { try store.set(1, forKey: "inner") }
      #expect(try Folder.caches.list() == ["detached", "inner"])
      #expect(try store.keys() == ["detached", "inner"])
    }
  }

  // MARK: Changes

  @Test func anUpdateThatThrowsButWasStoredSignalsAChange() throws {
    let engine = HookedEngine()
    engine.hook.withLock {
      $0 = { [table = engine.table] call in
        if call == "replace" { table.set(Data("1".utf8), forKey: "k") }
        throw Refused()
      }
    }
    let keys = Locked<[String]>([])
    let suite = CustomEngine(engine) { _ in }
    let changes = suite.changes { key in
      keys.withLock { $0.append(key) }
      return true
    }
    expectFailure(.engineFailed) { _ = try suite.replace(nil, with: .int(1), forKey: "k") }
    #expect(keys.withLock { $0 } == ["k"])
    withExtendedLifetime(changes) {}
  }

  @Test func anotherOrderOfADictionaryIsNoChange() async throws {
    let engine = HookedEngine()
    let reads = Locked(0)
    engine.hook.withLock { $0 = { if $0 == "data" { _ = reads.increment() } } }
    try await withSuite(on: engine) { store async throws in
      engine.table.set(Data(#"{"a":[{"c":1,"d":2}],"b":[]}"#.utf8), forKey: "k")
      let changes = store.changes("k", default: [String: [[String: Int]]]())
      engine.table.set(Data(#"{"b":[],"a":[{"d":2,"c":1}]}"#.utf8), forKey: "k")
      let next = Task {
        var iterator = changes.makeAsyncIterator()
        return await iterator.next()
      }
      try await eventually("the loop has read the value") { reads.withLock { $0 } >= 2 }
      try store.set(["a": [["c": 1]]], forKey: "k")
      #expect(await next.value == ["a": [["c": 1]]])
    }
  }

  @Test(.timeLimit(.minutes(20))) func changesIncludeOwnWrites() async throws {
    try await withSuite(on: TableEngine()) { store async throws in
      let changes = store.changes("k", default: 0)
      let (seen, continuation) = AsyncStream.makeStream(of: Int.self)
      let watch = Task { for await value in changes { continuation.yield(value) } }
      defer { watch.cancel() }
      var values = seen.makeAsyncIterator()
      let writes: [() throws -> Void] = [
        { try store.set(7, forKey: "k") }, { try store.set(1, forKey: "k") },
        { try store.update("k", default: 0) { $0 += 1 } },
        { try store.import(Data(#"{"k": 3}"#.utf8)) }, { try store.removeAll() },
      ]
      // The iterator may find the first value by itself. From then on it waits for signals.
      for (write, value) in zip(writes, [7, 1, 2, 3, 0]) {
        try write()
        #expect(await values.next() == value)
      }
    }
  }

  @Test func changesContinueAfterTheStreamEnded() async throws {
    let engine = HookedEngine()
    try await withSuite(on: engine) { store async throws in
      var changes = store.changes("k", default: 0).makeAsyncIterator()
      engine.table.set(Data("1".utf8), forKey: "k")
      try await eventually("it follows") { !engine.streams.withLock { $0.isEmpty } }
      engine.streams.withLock { _ = $0[0].yield() }
      #expect(await changes.next() == 1)
      // The stream ends, cannot be recreated at first, and then can.
      let tries = Locked(0)
      engine.hook.withLock {
        $0 = { [table = engine.table] call in
          guard call == "changes" else { return }
          let number = tries.increment()
          if number == 1 { throw Refused() }
          table.set(Data("2".utf8), forKey: "k")
        }
      }
      engine.streams.withLock { $0[0].finish() }
      #expect(await changes.next() == 2, "a change during the gap is delivered")
      #expect(tries.withLock { $0 } == 2)
      engine.table.set(Data("3".utf8), forKey: "k")
      engine.streams.withLock { _ = $0[1].yield() }
      #expect(await changes.next() == 3)
      // Own writes do not need the stream.
      try store.set(4, forKey: "k")
      #expect(await changes.next() == 4)
      #expect(engine.streams.withLock { $0.count } == 2)
    }
  }

  @Test func failingChangesAreReportedOnceAndRetried() async throws {
    let engine = HookedEngine()
    let asked = Locked(0)
    engine.hook.withLock { hook in
      hook = { call in
        guard call == "changes" else { return }
        _ = asked.increment()
        throw Refused()
      }
    }
    try await withSuite(on: engine) { store async throws in
      let failures = Failures()
      StorageSystem.onFailure = failures.append
      var changes = store.changes("k", default: 0).makeAsyncIterator()
      try store.set(1, forKey: "k")
      #expect(await changes.next() == 1, "own writes are still delivered")
      try await eventually("it is asked again") { asked.withLock { $0 } > 2 }
      #expect(failures.all.map(\.code) == [.engineFailed])
    }
  }

  @Test func waitingEngineDoesNotBlockObservers() async throws {
    let engine = HookedEngine()
    let isAsked = Locked(false)
    let gate = DispatchSemaphore(value: 0)
    engine.hook.withLock { hook in
      hook = { call in
        guard call == "changes" else { return }
        isAsked.withLock { $0 = true }
        gate.wait()
      }
    }
    try await withSuite(on: engine) { store async throws in
      var changes = store.changes("k", default: 0).makeAsyncIterator()
      try await eventually("it is asked") { isAsked.withLock { $0 } }
      var others = store.changes("k", default: 0).makeAsyncIterator()
      try store.set(1, forKey: "k")
      #expect(await changes.next() == 1)
      #expect(await others.next() == 1)
      gate.signal()
    }
  }

  @Test func iteratorOfChangesRetainsNoStore() async throws {
    weak var weakEngine: HookedEngine?
    weak var weakStore: Defaults.Store?
    let ended = Locked(false)
    do {
      let engine = HookedEngine()
      weakEngine = engine
      try await withSuite(on: engine) { store async throws in
        weakStore = store
        var changes = store.changes("k", default: 0).makeAsyncIterator()
        try store.set(1, forKey: "k")
        #expect(await changes.next() == 1)
        try await eventually("it follows") { !engine.streams.withLock { $0.isEmpty } }
        engine.streams.withLock { $0[0].onTermination = { _ in ended.withLock { $0 = true } } }
      }
    }
    #expect(weakStore == nil)
    try await eventually("the follower is released") {
      weakEngine == nil && ended.withLock { $0 }
    }
  }
}
