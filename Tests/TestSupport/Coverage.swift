import Foundation
import Testing

/// How much of each proof a run of the tests covers.
///
/// `swift test` checks all behavior within two minutes, and a sample of what the proofs repeat: of
/// the system calls that fail, the bytes that are damaged, the processes that are killed.
/// `Tests/Proofs/run` sets `KEEPSAKE_TESTS=all` to cover everything, and to run the tests that are
/// `.slow`.
enum Coverage {
  static let isComplete = ProcessInfo.processInfo.environment["KEEPSAKE_TESTS"] == "all"

  /// How often a proof repeats, unless the environment variable `name` has another number.
  static func count(_ name: String? = nil, sample: Int, complete: Int) -> Int {
    let number = name.flatMap { ProcessInfo.processInfo.environment[$0] }.flatMap { Int($0) }
    return number ?? (isComplete ? complete : sample)
  }

  /// All cases of a proof, or every `step`th of them, beginning with the one at `start`.
  static func cases<Case>(_ all: [Case], every step: Int, from start: Int = 0) -> [Case] {
    if isComplete { return all }
    return stride(from: start % step, to: all.count, by: step).map { all[$0] }
  }
}

extension Trait where Self == ConditionTrait {
  /// For tests that build other packages, or that observe a process for long.
  static var slow: Self {
    .enabled(if: Coverage.isComplete, "slow, runs with KEEPSAKE_TESTS=all")
  }

  /// For tests in which only one thread at a time uses the library. `Tests/Proofs/run` sets
  /// `KEEPSAKE_SANITIZER`.
  static var singleThreaded: Self {
    .disabled(if: sanitizer == "thread", "has no threads for the sanitizer to check")
  }

  /// For tests that fork while another thread runs. Under the thread sanitizer, Swift's runtime
  /// takes a lock at each use of a global or a generic type, and not only at the first: a child
  /// that is forked meanwhile finds it locked by a thread that it does not have.
  static var forksBesideThreads: Self {
    .disabled(if: sanitizer == "thread", "forks beside threads")
  }

  /// For tests that start a program more than a hundred times, which takes minutes under the thread
  /// sanitizer.
  static var manyPrograms: Self {
    .disabled(if: sanitizer == "thread", "starts too many programs for the sanitizer")
  }

  /// For tests of a program that uses Swift's `Mutex` in two threads: the thread sanitizer does not
  /// see that it keeps them apart.
  static var usesMutex: Self {
    .disabled(if: sanitizer == "thread", "uses a lock that the sanitizer does not know")
  }

  /// For tests that need other processes, whose output and memory a sanitizer changes.
  static var multiprocess: Self {
    .disabled(if: sanitizer == "address", "checks other processes")
  }

  /// For tests of how much stack a call needs, which a sanitizer multiplies.
  static var smallStack: Self {
    .disabled(if: sanitizer == "address", "needs more stack than without the sanitizer")
  }

  private static var sanitizer: String? {
    ProcessInfo.processInfo.environment["KEEPSAKE_SANITIZER"]
  }
}
