import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Handlers for failures that use stores, as one does that counts failures.
@Suite(.temporaryStorage, .timeLimit(.minutes(20))) struct ReportTests {
  private let failures = Failures()

  /// Calls the handler for each failure, however soon they follow each other.
  private func withoutLimit(_ body: () -> Void) {
    ReportLimiter.$period.withValue(.zero, operation: body)
  }

  private func countFailures(in suite: Defaults.Suite = .standard) {
    StorageSystem.onFailure = { [failures] failure in
      failures.append(failure)
      // A handler that is called inside itself would never return otherwise.
      guard failures.all.count < 5 else { return }
      Defaults.update("failures", default: 0, suite: suite) { $0 += 1 }
    }
  }

  /// Nothing can be stored, as while another process holds the lock.
  @Test(arguments: [Defaults.Suite.standard, "failures"])
  func handlerIsNotCalledForItsOwnFailures(_ suite: Defaults.Suite) {
    countFailures(in: suite)
    let plan = FaultPlan(decide: { $0.call == .lock ? .fail(EIO) : .proceed })
    withoutLimit {
      FaultPlan.$current.withValue(plan) { _ = Defaults.set(1, forKey: "a") }
      #expect(failures.all.map(\.key) == ["a"])
      FaultPlan.$current.withValue(plan) { _ = Defaults.set(1, forKey: "b") }
    }
    #expect(failures.all.map(\.key) == ["a", "b"])
    #expect(failures.all.map(\.suppressedCount) == [0, 1], "its own failure is counted")
  }

  @Test(.multiprocess) func handlerIsNotCalledInsideWhileAnotherProcessHoldsTheLock() throws {
    let directory = try TemporaryDirectory()
    try directory.store().set(1, forKey: "a")
    let setter = Locked<@Sendable (String) -> Void>({ _ in })
    let finder = DirectoryFinder(app: "test", chosen: .init(configuration: directory.url))
    let scope = StorageScope(finder: finder) { [failures] failure in
      failures.append(failure)
      let set = setter.withLock { $0 }
      if failures.all.count < 5 { set("failures") }
    }
    defer { scope.close() }
    let location = JournalPaths(
      directory: StoreDirectory(path: directory.path, isCallerOwned: false), name: "standard")
    let journal = Journal(location: location, timeout: .milliseconds(50)) { scope.report($0) }
    /// Does what a facade does, which waits longer for the lock.
    @Sendable func set(_ key: String) {
      do throws(StorageError) {
        try journal.set(.int(2), forKey: key)
      } catch {
        scope.report(error.inContext(of: "set", key: key))
      }
    }
    setter.withLock { $0 = set }
    defer { setter.withLock { $0 = { _ in } } }
    let holder = try Peer.start(directory, "hold-lock", TemporaryDirectory.journal)
    try #require(holder.line() == "held")
    withoutLimit { for key in ["a", "b"] { set(key) } }
    #expect(holder.isRunning)
    #expect(failures.all.map(\.code) == [.timedOut, .timedOut])
    #expect(failures.all.map(\.key) == ["a", "b"])
    #expect(failures.all.map(\.suppressedCount) == [0, 1], "its own failure is counted")
    holder.finish()
    set("c")
    #expect(try journal.value(forKey: "c") == .int(2) && failures.all.count == 2)
  }

  @Test func handlerOfAnotherScopeIsNotCalledInside() async throws {
    let inner = Failures()
    let isDone = Locked(false)
    let directory = try TemporaryDirectory()
    let (cache, secrets) = (directory.cache(failures: inner), directory.secrets(failures: inner))
    StorageSystem.onFailure = { [failures] failure in
      failures.append(failure)
      cache.report(failure)
      secrets.report(failure)
      isDone.withLock { $0 = true }
    }
    Defaults.set("text", forKey: "k")
    #expect(Defaults.get("k", default: 1) == 1)
    #expect(isDone.withLock { $0 } && failures.all.count == 1 && inner.all.isEmpty)
    cache.report(failures.all[0])
    #expect(inner.all.count == 1, "this thread is not in a handler any more")
  }

  /// The closure of an update may hold the lock of its suite.
  @Test func handlerCanWriteToTheSuiteInWhoseUpdateACallHasFailed() async throws {
    countFailures()
    Defaults.set("text", forKey: "text")
    let isStored: Int = Defaults.update("size", default: 0) { size in
      size += 1 + Defaults.get("text", default: 0)
    }
    #expect(isStored == 1)
    try await eventually("the failure is counted") { Defaults.int("failures") == 1 }
    #expect(failures.all.map(\.code) == [.wrongType])
  }
}
