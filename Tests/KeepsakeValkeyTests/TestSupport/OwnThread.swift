import Dispatch
import Foundation
import Testing

/// Runs each test of a suite on a thread of its own: the calls of a link block, and tests share the
/// few threads of Swift's pool.
struct OwnThread: SuiteTrait, TestTrait, TestScoping {
  var isRecursive: Bool { true }

  func provideScope(
    for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
  ) async throws {
    try await withTaskExecutorPreference(ThreadExecutor()) { try await function() }
  }
}

extension Trait where Self == OwnThread {
  static var ownThread: Self { Self() }
}

private final class ThreadExecutor: TaskExecutor {
  private let queue = DispatchQueue(label: "tests")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}

/// Runs `body` on so many threads at the same time, and waits for all.
func onThreads(_ count: Int, _ body: @escaping @Sendable (Int) -> Void) {
  let group = DispatchGroup()
  for number in 0..<count {
    group.enter()
    Thread.detachNewThread {
      body(number)
      group.leave()
    }
  }
  group.wait()
}

/// Expects `condition` to become true within ten minutes, however busy the machine is.
///
/// Suspends the task, so that others can run on its thread.
func eventually(
  _ comment: Comment, sourceLocation: SourceLocation = #_sourceLocation,
  _ condition: () async throws -> Bool, isolation: isolated (any Actor)? = #isolation
) async throws {
  let deadline = ContinuousClock.now + .seconds(600)
  var pause = Duration.milliseconds(1)
  while try await !condition() {
    guard ContinuousClock.now < deadline else {
      Issue.record(comment, sourceLocation: sourceLocation)
      return
    }
    try await Task.sleep(for: pause)
    pause = min(pause * 1.25, .milliseconds(16))
  }
}

/// The same, but blocks the thread.
func waitUntil(
  _ comment: Comment, sourceLocation: SourceLocation = #_sourceLocation,
  _ condition: () throws -> Bool
) rethrows {
  let deadline = ContinuousClock.now + .seconds(600)
  var pause = UInt32(1_000)
  while try !condition() {
    guard ContinuousClock.now < deadline else {
      Issue.record(comment, sourceLocation: sourceLocation)
      return
    }
    usleep(pause)
    // Frequent looks would take time from the tests that run beside this one.
    pause = min(pause * 5 / 4, 16_000)
  }
}
