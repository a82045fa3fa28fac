@testable import Keepsake

/// Waits until all work that is queued in the background now, and due within `delay`, has begun.
func waitForBackgroundWork(dueWithin delay: Duration = .zero) async {
  // Jobs begin in the order in which they are due.
  await withCheckedContinuation { continuation in
    BackgroundWork.run(after: delay) { continuation.resume() }
  }
}
