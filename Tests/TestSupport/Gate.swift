/// Counts the tasks that enter, and holds them until it is opened.
actor Gate {
  private(set) var entered = 0
  private var isOpen = false
  private var waiting: [CheckedContinuation<Void, Never>] = []

  func enter() { entered += 1 }

  /// Enters, and suspends until the gate is open.
  func pass() async {
    enter()
    if !isOpen { await withCheckedContinuation { waiting.append($0) } }
  }

  func open() {
    isOpen = true
    for continuation in waiting { continuation.resume() }
    waiting = []
  }
}

/// Suspends until the task is cancelled.
///
/// - Throws: `CancellationError`.
func waitForCancellation() async throws {
  let (never, continuation) = AsyncStream.makeStream(of: Never.self)
  for await _ in never {}
  withExtendedLifetime(continuation) {}
  throw CancellationError()
}
