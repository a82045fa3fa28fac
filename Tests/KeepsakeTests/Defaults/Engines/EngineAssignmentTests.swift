import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// The assignment of engines to suites.
@Suite struct EngineAssignmentTests {
  @Test func engineServesOnlyItsSuite() async throws {
    let (session, standard) = (TableEngine(), TableEngine())
    try await StorageSystem.withTemporary(engines: ["session": session, .standard: standard]) {
      () async throws in
      for suite: Defaults.Suite in ["session", "standard", "other", .memory] {
        Defaults.set(suite.name, forKey: "k", suite: suite)
        #expect(Defaults.string("k", suite: suite) == suite.name)
      }
      #expect(session.data(forKey: "k") == Data("\"session\"".utf8))
      #expect(standard.data(forKey: "k") == Data("\"standard\"".utf8))
      #expect(try Defaults.shared.suites() == ["other", "session", .standard])
      #expect(try Defaults.shared.fileURL == nil)
      #expect(try Defaults.suite("other").fileURL != nil)
    }
    #expect(session.keys() == ["k"], "the scope does not empty the engine")
  }

  @Test func removeAllEmptiesEngines() async throws {
    let directory = try TemporaryDirectory()
    let (table, memory, elsewhere) = (TableEngine(), TableEngine(), TableEngine())
    let foreign = Defaults.Suite("team", in: directory.url)
    try await StorageSystem.withTemporary(engines: [
      "table": table, .memory: memory, foreign: elsewhere,
      "files": FileEngine(Folder(directory.file("files"))), "session": MemoryEngine(),
    ]) {
      for suite: Defaults.Suite in ["table", .memory, foreign, "files", "session", "journal"] {
        Defaults.set(1, forKey: "k", suite: suite)
      }
      #expect(StorageSystem.removeAll())
      for suite: Defaults.Suite in ["table", .memory, "files", "session", "journal"] {
        #expect(Defaults.keys(suite: suite).isEmpty, "\(suite)")
      }
      #expect(table.keys().isEmpty && memory.keys().isEmpty)
      #expect(elsewhere.keys() == ["k"], "a suite with its own directory is not removed")
    }
  }

  @Test func removeAllReportsAFailingEngine() async throws {
    struct Refused: Error {}
    let engine = HookedEngine()
    try await StorageSystem.withTemporary(engines: ["own": engine]) {
      Defaults.set(1, forKey: "k", suite: "own")
      Defaults.set(1, forKey: "k")
      engine.hook.withLock { $0 = { _ in throw Refused() } }
      let failures = Failures()
      StorageSystem.onFailure = failures.append
      #expect(!StorageSystem.removeAll())
      #expect(failures.all.map(\.code) == [.engineFailed])
      #expect(Defaults.keys().isEmpty, "the other suites are still cleared")
    }
  }

  @Test func testRunDoesNotUseTheEnginesOfBootstrap() throws {
    let engine = TableEngine()
    let configuration = StorageSystem.Configuration()
    try configuration.bootstrap(.init(app: "a", engines: ["session": engine]))
    let scope = configuration.makeProcessScope()
    defer { scope.close() }
    try scope.defaults("session").set(1, forKey: "k")
    #expect(engine.keys().isEmpty)
    #expect(try scope.defaults("session").fileURL?.path.contains("/tests-") == true)
  }
}

/// Each case has its own values, even on engines.
@Suite(.temporaryStorage(engines: ["session": MemoryEngine(), "table": TableEngine()]))
struct EnginesOfATraitTests {
  @Test(arguments: 0..<100)
  func eachCaseHasItsOwnValues(_ number: Int) async {
    let suites: [Defaults.Suite] = [.standard, .memory, "session", "table", "other"]
    for suite in suites { #expect(Defaults.keys(suite: suite).isEmpty, "\(suite)") }
    #expect(DiskCache.keys().isEmpty && DiskCache.keys(cache: .memory).isEmpty)
    for _ in 0..<5 {
      for suite in suites { Defaults.update("k", default: number, suite: suite) { $0 += 1_000 } }
      DiskCache.set(number, forKey: "\(number)", cache: .memory)
      await Task.yield()
    }
    for suite in suites { #expect(Defaults.int("k", suite: suite) == number + 5_000, "\(suite)") }
    #expect(DiskCache.keys(cache: .memory) == ["\(number)"])
  }
}
