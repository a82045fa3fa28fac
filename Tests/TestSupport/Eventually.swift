import Foundation
import Testing

/// Expects `condition` to become true within ten minutes: it may need a thread of the pool, or one
/// for work in the background, which other tests hold for long on a busy machine.
///
/// Blocks the thread: for tests in ``OneAtATime``, whose tasks would wait for the tests that run
/// beside them.
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
    // A condition may depend on other processes, which cannot wake this thread.
    usleep(pause)
    // Frequent looks would take time from the tests that run beside this one.
    pause = min(pause * 5 / 4, 16_000)
  }
}

/// Does the same without blocking a thread of the pool. Time in which other tests use all threads
/// of the pool hardly counts.
func eventually(
  _ comment: Comment, sourceLocation: SourceLocation = #_sourceLocation,
  _ condition: () async throws -> Bool, isolation: isolated (any Actor)? = #isolation
) async throws {
  var rest = Duration.seconds(600)
  var pause = Duration.milliseconds(2)
  while try await !condition() {
    guard rest > .zero else {
      Issue.record(comment, sourceLocation: sourceLocation)
      return
    }
    let start = ContinuousClock.now
    // As above.
    try await Task.sleep(for: pause)
    pause = min(pause * 1.25, .milliseconds(16))
    rest -= min(ContinuousClock.now - start, .milliseconds(20))
  }
}
