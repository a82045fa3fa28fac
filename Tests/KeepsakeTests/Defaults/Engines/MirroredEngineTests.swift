import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A suite on an engine whose values are mirrored in memory.
@Suite(.timeLimit(.minutes(20))) struct MirroredEngineTests {
  private struct Model: Codable, Equatable, Sendable {
    var name = "Ann"
    var scores = [1.5, 2]
  }

  private struct Refused: Error {}

  private let server = SharedServer()

  private func entry(_ key: String, _ text: String?) -> StorageEngines.Entry {
    StorageEngines.Entry(key: key, data: text.map { Data($0.utf8) })
  }

  private func withSuite<R>(
    on engine: ServerEngine, _ body: (Defaults.Store) async throws -> R
  ) async throws -> R {
    try await StorageSystem.withTemporary(engines: ["own": engine]) {
      try await body(Defaults.suite("own"))
    }
  }

  @Test func readsMakeNoCallOnceTheMirrorIsFilled() async throws {
    try await withSuite(on: ServerEngine(server)) { store async throws in
      try store.set(Model(), forKey: "model")
      try store.set(16, forKey: "size")
      let calls = Locked<[String]>([])
      server.hook.withLock { $0 = { call in calls.withLock { $0.append(call) } } }
      for _ in 0..<3 {
        #expect(try store.int("size") == 16)
        #expect(try store.model("model") == Model())
        #expect(try store.get("missing") as String? == nil)
        #expect(try store.keys().sorted() == ["model", "size"])
        #expect(try store.contains("size"))
      }
      #expect(calls.withLock { $0 } == ["fill"])
    }
  }

  /// Reports something each time a mirror is filled.
  private final class ReportingEngine: StorageEngines.MirroredEngine {
    func fill(_ mirror: StorageEngines.Mirror) {
      mirror.report(StorageError(.unreachable, operation: "connect", remedy: "Wait."))
    }
    func data(forKey key: String) -> Data? { nil }
    func keys() -> [String] { [] }
    func set(_ data: Data?, forKey key: String) {}
    func replace(_ old: Data?, with new: Data?, forKey key: String) -> Bool { true }
  }

  @Test func aReportWhileTheMirrorIsFilledMayReadTheSuite() async throws {
    let (reads, continuation) = AsyncStream.makeStream(of: Int?.self)
    try await StorageSystem.withTemporary(engines: ["own": ReportingEngine()]) { () async throws in
      let store = Defaults.suite("own")
      StorageSystem.onFailure = { _ in continuation.yield(try? store.int("n")) }
      #expect(try store.int("n") == 0)
      for await read in reads {
        #expect(read == 0)
        break
      }
    }
  }

  @Test func readsGoOnWhileTheServerIsAway() async throws {
    try await withSuite(on: ServerEngine(server)) { store async throws in
      try store.set(16, forKey: "size")
      #expect(try store.int("size") == 16)
      server.hook.withLock {
        $0 = { _ in
          throw StorageError(.unreachable, operation: "connect", remedy: "Start the server.")
        }
      }
      #expect(try store.int("size") == 16)
      let error = expectFailure(.unreachable) { try store.set(17, forKey: "size") }
      #expect(error?.key == "size" && error?.operation == "set")
      expectFailure(.unreachable) { try store.update("size", default: 0) { $0 += 1 } }
      #expect(try store.int("size") == 16)
    }
  }

  @Test func aReadFillsTheMirrorOnceTheServerIsBack() async throws {
    try await withSuite(on: ServerEngine(server)) { store async throws in
      server.hook.withLock { $0 = { _ in throw Refused() } }
      let error = try #require(expectFailure(.engineFailed) { _ = try store.int("size") })
      #expect(error.underlyingError is Refused && error.key == "size")
      server.hook.withLock { $0 = { _ in } }
      try store.set(16, forKey: "size")
      #expect(try store.int("size") == 16)
    }
  }

  @Test func sameModelIsNotDecodedAgainUntilItChanges() async throws {
    let (one, two) = (ServerEngine(server), ServerEngine(server))
    try await withSuite(on: one) { store async throws in
      try store.set(Model(), forKey: "model")
      #expect(try store.model("model") == Model())
      let cached = try store.engine.get().cachedModel(forKey: "model")
      #expect(cached?.value(as: Model.self) == Model())
      try two.set(Data(#"{"name":"Bo","scores":[]}"#.utf8), forKey: "model")
      try await eventually("the change arrives") {
        try store.model("model") == Model(name: "Bo", scores: [])
      }
    }
  }

  @Test func changesOfOtherProcessesAreSeen() async throws {
    let (one, two) = (ServerEngine(server), ServerEngine(server))
    try await withSuite(on: one) { store async throws in
      var sizes = store.changes("size", default: 0).makeAsyncIterator()
      var keys = store.changes().makeAsyncIterator()
      try two.set(Data("16".utf8), forKey: "size")
      #expect(await sizes.next() == 16)
      #expect(await keys.next(isolation: nil) == ["size"])
      _ = try two.apply(
        [entry("size", nil), entry("theme", "\"dark\"")], ifCurrent: [])
      #expect(await sizes.next() == 0)
      #expect(await keys.next(isolation: nil) == ["size", "theme"])
    }
  }

  @Test func aLoopOverChangesStartsOnceTheServerCanBeReached() async throws {
    let (one, two) = (ServerEngine(server), ServerEngine(server))
    try await withSuite(on: one) { store async throws in
      let failures = Failures()
      StorageSystem.onFailure = failures.append
      let attempts = Locked(0)
      server.hook.withLock {
        $0 = { call in
          guard call == "fill" else { return }
          attempts.withLock { $0 += 1 }
          throw Refused()
        }
      }
      let sizes = store.changes("size", default: 0)
      async let size = sizes.first { _ in true }
      // The call above has tried once, and the loop does not try itself.
      try await eventually("there are further attempts") { attempts.withLock { $0 } >= 3 }
      server.hook.withLock { $0 = { _ in } }
      try two.set(Data("16".utf8), forKey: "size")
      #expect(await size == 16)
      #expect(failures.all.contains { $0.operation == "Defaults.changes" })
    }
  }

  /// Each attempt may take as long as a time-out.
  @Test func readersThatWaitForAFailingAttemptFailWithIt() async throws {
    try await withSuite(on: ServerEngine(server)) { store async throws in
      // If no reader waited for the attempt of another, there would be eight each time. On a busy
      // machine, all may begin when the first attempt has failed.
      var count = 8
      for _ in 0..<100 where count == 8 { count = try await attemptsOfEightReaders(store) }
      #expect(count < 8)
    }
  }

  /// How many attempts eight readers make, of which seven begin while the first attempt runs.
  private func attemptsOfEightReaders(_ store: Defaults.Store) async throws -> Int {
    let attempts = Locked(0)
    let (isFilling, mayFail) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    server.hook.withLock {
      $0 = { _ in
        let count = attempts.increment()
        if count == 1 {
          isFilling.signal()
          mayFail.wait()
        }
        throw Refused()
      }
    }
    @Sendable func read() { expectFailure(.engineFailed) { _ = try store.int("size") } }
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await StorageSystem.perform { read() } }
      group.addTask {
        try await StorageSystem.perform {
          isFilling.wait()
          let isReading = DispatchSemaphore(value: 0)
          let ends = (1..<8).map { _ in
            startThread {
              isReading.signal()
              read()
            }
          }
          // Those that are not waiting yet are counted as later attempts.
          for _ in ends { isReading.wait() }
          mayFail.signal()
          for end in ends { end.wait() }
        }
      }
      try await group.waitForAll()
    }
    return attempts.withLock { $0 }
  }

  /// The mirror does not know yet what another process has set.
  @Test func aClosureThatRefusesAnOldValueIsGivenTheNewOne() async throws {
    struct SoldOut: Error {}
    let (one, two) = (ServerEngine(server, delay: 50_000), ServerEngine(server))
    try await withSuite(on: one) { store async throws in
      #expect(try store.int("seats") == 0)
      try two.set(Data("5".utf8), forKey: "seats")
      let rest = try store.update("seats", default: 0) { seats throws(SoldOut) in
        guard seats > 0 else { throw SoldOut() }
        seats -= 1
      }
      #expect(rest == 4 && server.data(forKey: "seats") == Data("4".utf8))
    }
  }

  @Test func repeatedKeysCountOnceAndTheLastOneWins() async throws {
    try await withSuite(on: ServerEngine(server)) { store async throws in
      let counts = Locked<[Int]>([])
      server.onApply.withLock { $0 = { count in counts.withLock { $0.append(count) } } }
      try store.import(Data(#"{"a": 1, "b": 2, "a": 3}"#.utf8))
      #expect(try store.int("a") == 3 && store.int("b") == 2)
      try store.remove(["a", "a", "b"])
      #expect(counts.withLock { $0 } == [2, 2])
      let mirror = try #require(try store.engine.get() as? StorageEngines.Mirror)
      mirror.replaceAll(with: [entry("a", "2")])
      mirror.replaceAll(with: [entry("a", "1"), entry("a", "2")])
      #expect(try store.int("a") == 2)
    }
  }

  @Test func replacedSnapshotSignalsOnlyWhatDiffers() async throws {
    let mirror = StorageEngines.Mirror(ServerEngine(server)) { _ in }
    let engine: any ValueEngine = mirror
    // The first read fills the mirror, from a server without values.
    #expect(try engine.keys().isEmpty)
    mirror.replaceAll(with: [entry("a", "1"), entry("b", "1")])
    let signaled = Locked<[String]>([])
    let changes = try engine.changes { key in
      signaled.withLock { $0.append(key) }
      return true
    }
    let known = try engine.changedValues(since: nil).version
    mirror.replaceAll(with: [entry("a", "1"), entry("b", "2")])
    let changed = try engine.changedValues(since: known)
    #expect(!changed.isComplete && changed.values.map(\.key) == ["b"])
    #expect(signaled.withLock { $0 } == ["b"])
    mirror.replaceAll(with: [entry("b", "2")])
    #expect(try engine.keys() == ["b"] && engine.value(forKey: "a") == nil)
    #expect(signaled.withLock { $0 } == ["b", "a"])
    withExtendedLifetime(changes) {}
  }

  @Test func bytesThatAreNotJSONFailForTheirKeyOnly() async throws {
    let engine = ServerEngine(server)
    try engine.set(Data("dark".utf8), forKey: "theme")
    try engine.set(Data("1".utf8), forKey: "size")
    try await withSuite(on: engine) { store async throws in
      let error = expectFailure(.damaged) { _ = try store.string("theme") }
      #expect(error?.key == "theme")
      expectFailure(.damaged) { _ = try store.model("theme") as Model? }
      expectFailure(.damaged) { try store.update("theme", default: "") { $0 += "!" } }
      #expect(try store.int("size") == 1)
      #expect(try store.keys().sorted() == ["size", "theme"])
      try store.set("dark", forKey: "theme")
      #expect(try store.string("theme") == "dark")
      #expect(try store.keys().sorted() == ["size", "theme"])
    }
  }

  @Test func keysAreComparedByTheirBytes() async throws {
    try await withSuite(on: ServerEngine(server)) { store async throws in
      let mirror = try #require(try store.engine.get() as? StorageEngines.Mirror)
      #expect(try store.keys().isEmpty)
      mirror.replaceAll(with: [
        entry("\u{E9}", "1"), entry("e\u{301}", "2"),
      ])
      #expect(try store.int("\u{E9}") == 1 && store.int("e\u{301}") == 2)
      mirror.apply([entry("e\u{301}", nil)])
      #expect(try store.int("\u{E9}") == 1 && store.keys().count == 1)
    }
  }

  @Test func mirrorIsReleasedWithItsStores() async throws {
    let engine = ServerEngine(server)
    try await withSuite(on: engine) { store async throws in
      #expect(try store.keys().isEmpty)
      #expect(engine.mirrorCount == 1)
    }
    try await eventually("the mirror is released") { engine.mirrorCount == 0 }
  }

  /// Nothing tells the parent's mirror of changes in a child.
  @Test(.multiprocess) func aForkedChildFillsItsOwnMirror() throws {
    let directory = try TemporaryDirectory()
    #expect(try Peer.start(directory, "fork-mirror").finish() == "1 2 1\n")
  }

  @Test func updatesOfTwoMirrorsCountExactly() async throws {
    let (one, two) = (ServerEngine(server, delay: 100), ServerEngine(server, delay: 100))
    try await StorageSystem.withTemporary(engines: ["one": one, "two": two]) {
      try await withThrowingTaskGroup(of: Void.self) { group in
        for suite in ["one", "two", "one", "two"] {
          group.addTask {
            try await StorageSystem.perform {
              let store = Defaults.suite(Defaults.Suite(suite))
              for _ in 0..<100 { try store.update("count", default: 0) { $0 += 1 } }
            }
          }
        }
        try await group.waitForAll()
      }
      #expect(server.data(forKey: "count") == Data("400".utf8))
    }
  }
}
