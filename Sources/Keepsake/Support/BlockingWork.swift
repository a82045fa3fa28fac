internal import Dispatch

/// Work that waits for the disk, off the threads that tasks share.
package enum BlockingWork {
  private static let queue = DispatchQueue(label: "keepsake.work", attributes: .concurrent)

  /// Runs `work` soon, on a thread of its own.
  static func start(_ work: @escaping @Sendable () -> Void) {
    // A forked child has no dispatch threads.
    if ForkGuard.isForkedChild { work() } else { queue.async(execute: carryingTaskLocals(work)) }
  }

  /// Runs `body` there, with the calling task's stores for calls to the facades inside of it.
  ///
  /// - Throws: What `body` throws, or `CancellationError` when the task was cancelled before it
  ///   began.
  package static func run<R>(
    _ body: sending @escaping () throws -> sending R
  ) async throws -> sending R {
    try Task.checkCancellation()
    // Handed over, not shared: this function does not use it again.
    nonisolated(unsafe) let body = body
    return try await withCheckedThrowingContinuation { continuation in
      let scope = StorageScope.temporary
      start {
        do {
          // Handed on at once, and not used here again.
          nonisolated(unsafe) let result = try StorageScope.$temporary.withValue(scope) {
            try body()
          }
          continuation.resume(returning: result)
        } catch {
          continuation.resume(throwing: error)
        }
      }
    }
  }
}
