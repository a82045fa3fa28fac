extension BlockingWork {
  /// Runs `body` on another thread. Calls to the facades in it use the calling task's stores.
  ///
  /// - Throws: What `body` throws, or `CancellationError` if the task was cancelled before it
  ///   started.
  package static func run<R>(
    _ body: sending @escaping () throws -> sending R
  ) async throws -> sending R {
    try Task.checkCancellation()
    // Safe: `body` is passed on here and not used again.
    nonisolated(unsafe) let body = body
    return try await withCheckedThrowingContinuation { continuation in
      let scope = StorageScope.temporary
      start {
        do {
          // Safe: the result is passed on here and not used again.
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
