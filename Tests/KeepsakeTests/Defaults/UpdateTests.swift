import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

@Suite(.temporaryStorage(engines: ["table": TableEngine()])) struct UpdateTests {
  struct Failure: Error, Equatable {}

  /// In a journal, in memory, and on an engine of an app.
  private static let suites: [Defaults.Suite] = [.standard, .memory, "table"]

  @Test(arguments: suites) func concurrentUpdatesAreAllCounted(_ suite: Defaults.Suite) {
    let store = Defaults.suite(suite)
    DispatchQueue.concurrentPerform(iterations: 8) { _ in
      #expect(throws: Never.self) {
        for _ in 0..<250 {
          try retryingTimeouts { try store.update("count", default: 0) { $0 += 1 } }
        }
      }
    }
    #expect(Defaults.int("count", suite: suite) == 2_000)
  }

  @Test(arguments: suites)
  func errorOfTheClosureIsRethrownAndNothingChanges(_ suite: Defaults.Suite) {
    Defaults.set(1, forKey: "k", suite: suite)
    #expect(throws: Failure.self) {
      try Defaults.update("k", default: 0, suite: suite) { (value: inout Int) throws(Failure) in
        value = 2
        throw Failure()
      }
    }
    #expect(Defaults.int("k", suite: suite) == 1)
  }

  @Test(arguments: suites) func nilRemoves(_ suite: Defaults.Suite) {
    Defaults.set(1, forKey: "k", suite: suite)
    for _ in 0..<2 {
      let result = Defaults.update("k", default: Int?.none, suite: suite) { $0 = nil }
      #expect(result == nil)
      #expect(!Defaults.contains("k", suite: suite))
    }
  }

  @Test func valueOfAnotherTypeIsNotOverwritten() {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    Defaults.set("text", forKey: "k")
    #expect(Defaults.update("k", default: 5) { $0 += 1 } == 5)
    #expect(Defaults.string("k") == "text")
    #expect(failures.all.map(\.code) == [.wrongType])
  }

  @Test(arguments: suites)
  func throwsWhenWritingInsideAnUpdateOfTheSameSuite(_ suite: Defaults.Suite) throws {
    let store = Defaults.suite(suite)
    let attempts: [() throws -> Void] = [
      { try store.update("k", default: 0) { $0 += 1 } },
      { try store.set(1, forKey: "other") },
      { try store.remove("k") },
      { try store.removeAll() },
    ]
    for attempt in attempts {
      var code: StorageError.Code?
      try store.update("k", default: 0) { value in
        value += 1
        do { try attempt() } catch let error as StorageError { code = error.code }
      }
      #expect(code == .misuse)
    }
    #expect(try store.int("k") == attempts.count)
    // Reading is allowed, and so is writing to another suite.
    try store.update("k", default: 0) { value in
      value = try store.int("k") + 1
      Defaults.set(1, forKey: "k", suite: "another")
    }
    #expect(try store.int("k") == attempts.count + 1)
  }

  /// A value whose coding writes to its suite.
  private struct Careless: Codable {
    static let codes = Locked<[StorageError.Code?]>([])

    init() {}
    init(from decoder: any Decoder) { Self.write() }
    func encode(to encoder: any Encoder) throws {
      Self.write()
      var container = encoder.singleValueContainer()
      try container.encode(0)
    }

    private static func write() {
      let error = #expect(throws: StorageError.self) {
        try Defaults.shared.set(1, forKey: "other")
      }
      codes.withLock { $0.append(error?.code) }
    }
  }

  @Test func throwsWhenWritingWhileAnUpdateDecodesOrEncodes() throws {
    for _ in 0..<2 { try Defaults.shared.update("k", default: Careless()) { _ in } }
    #expect(Careless.codes.withLock { $0 } == [.misuse, .misuse, .misuse])
  }

  @Test func updateThatKeepsLosingTakesTheLock() throws {
    let store = Defaults.shared
    let directory = try #require(try store.fileURL).deletingLastPathComponent()
    // Another store of the same file, which does not count as inside the update.
    let rival = Defaults.suite(Defaults.Suite("standard", in: directory))
    try store.set(0, forKey: "k")
    let journal = try File(try #require(try store.fileURL).path(percentEncoded: false), .readWrite)
    var runs = 0
    let result = try store.update("k", default: 0) { value in
      runs += 1
      let isLocked = try !journal.tryLock()
      if !isLocked { journal.unlock() }
      #expect(isLocked == (runs == 9))
      if runs <= 8 { try rival.set(runs * 100, forKey: "k") }
      value += 1
    }
    #expect(runs == 9)
    #expect(result == 801)
    #expect(try rival.int("k") == 801)
  }

  @Test(arguments: [Defaults.Suite.standard, .memory])
  func closureCanReadItsSuiteUnderTheLock(_ suite: Defaults.Suite) throws {
    let store = try TemporaryDirectory().store(suite)
    let isRead = Locked(false)
    startThread {
      try? retryingTimeouts {
        var runs = 0
        try store.update("k", default: 0) { value in
          runs += 1
          if runs <= 8 {
            let number = runs
            startThread { try? retryingTimeouts { try store.set(number, forKey: "k") } }.wait()
          } else {
            let found = try? store.int("k")
            isRead.withLock { $0 = found == 8 }
          }
          value += 1
        }
      }
    }.wait()
    #expect(isRead.withLock { $0 }, "a read that waits for the lock fails")
    #expect(try store.int("k") == 9)
  }
}
