import Testing

@testable import KeepsakeTestSupport

/// Tests that occupy all cores, or block a thread for long, while they wait for other processes.
///
/// They run one at a time, beside the others.
@Suite(.serialized, .multiprocess, .ownThread, .startsFirst) enum OneAtATime {}

/// Runs a suite with a high priority. The serialized tests would otherwise wait for a thread behind
/// all others, each time anew, and begin when the others have ended.
struct StartsFirst: SuiteTrait, TestScoping {
  func provideScope(
    for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
  ) async throws {
    try await withoutActuallyEscaping(function) { function in
      try await Task(priority: .high) { try await function() }.value
    }
  }
}

extension Trait where Self == StartsFirst {
  static var startsFirst: Self { Self() }
}
