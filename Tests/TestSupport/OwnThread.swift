import Dispatch
import Testing

/// Runs the tests of a suite outside Swift's pool. Tests that block or compute for seconds would
/// hold up all others on the few threads of the pool; others cannot wait there for their turn,
/// because what they have stored expires.
struct OwnThread: SuiteTrait, TestTrait, TestScoping {
  fileprivate static let proofs = OwnThread()

  /// Runs all tests of the suite; nil if each has an executor of its own.
  private let executor: ThreadExecutor?
  var isRecursive: Bool { true }

  fileprivate init(isShared: Bool = true) { executor = isShared ? ThreadExecutor() : nil }

  func provideScope(
    for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
  ) async throws {
    try await withTaskExecutorPreference(executor ?? ThreadExecutor()) { try await function() }
  }
}

extension Trait where Self == OwnThread {
  /// A thread for this suite alone.
  static var ownThread: Self { Self() }
  /// A thread for each test: for tests that mostly wait for other processes, and need not wait for
  /// each other.
  static var threadPerTest: Self { Self(isShared: false) }
  /// A thread for all suites with this trait: proofs that only compute.
  static var proofThread: Self { .proofs }
}

/// Calls `body` with each element, on several threads at the same time, which it may block.
func forEach<Element: Sendable>(
  in elements: [Element], threads: Int,
  _ body: @escaping @Sendable (Element) async throws -> Void
) async throws {
  try await withThrowingTaskGroup(of: Void.self) { group in
    for first in 0..<threads {
      group.addTask(executorPreference: ThreadExecutor()) {
        for index in stride(from: first, to: elements.count, by: threads) {
          try await body(elements[index])
        }
      }
    }
    try await group.waitForAll()
  }
}

/// Runs jobs one after the other.
private final class ThreadExecutor: TaskExecutor {
  private let queue = DispatchQueue(label: "tests")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}
