import Foundation
import Testing

/// Expects `condition` to become true within a minute. Blocks the thread: for tests in
/// ``OneAtATime``, whose tasks would wait for the tests that run beside them.
func waitUntil(
  _ comment: Comment, sourceLocation: SourceLocation = #_sourceLocation,
  _ condition: () throws -> Bool
) throws {
  let deadline = ContinuousClock.now + .seconds(60)
  while try !condition() {
    guard ContinuousClock.now < deadline else {
      Issue.record(comment, sourceLocation: sourceLocation)
      return
    }
    usleep(1_000)
  }
}

/// Expects `condition` to become true within a minute, without blocking a thread of the pool.
func eventually(
  _ comment: Comment, sourceLocation: SourceLocation = #_sourceLocation,
  _ condition: () throws -> Bool, isolation: isolated (any Actor)? = #isolation
) async throws {
  let deadline = ContinuousClock.now + .seconds(60)
  while try !condition() {
    guard ContinuousClock.now < deadline else {
      Issue.record(comment, sourceLocation: sourceLocation)
      return
    }
    try await Task.sleep(for: .milliseconds(2))
  }
}
