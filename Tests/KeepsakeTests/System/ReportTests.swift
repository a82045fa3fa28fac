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

  /// Nothing can be stored, as if another process held the lock.
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

  @Test func handlerOnABackgroundThreadUsesTheStoresOfItsScope() throws {
    countFailures()
    let scope = try #require(StorageScope.temporary)
    let error = StorageError(.diskFull, operation: "synchronize", reason: "", remedy: "")
    startThread { scope.report(error) }.wait()
    #expect(Defaults.int("failures") == 1 && failures.all.count == 1)
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
