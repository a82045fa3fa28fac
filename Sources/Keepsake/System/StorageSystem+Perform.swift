extension StorageSystem {
  /// Runs any calls of the library on the library's threads, so that the caller's thread does not
  /// wait.
  ///
  /// ```swift
  /// let token = try await StorageSystem.perform { SecureVault.get("token") }
  /// ```
  ///
  /// Swift's tasks share about as many threads as the machine has processors. In a server, use
  /// `perform` for calls that may wait for the disk, for a lock that another process holds, or for
  /// a passphrase. Up to 64 closures run at a time; more are queued and start in the order of the
  /// calls, whatever the priorities of their tasks. The closures use the stores of the calling
  /// task's `withTemporary` block.
  ///
  /// In `body`, `Task.isCancelled` and task-local values have the values of the calling task. Check
  /// for cancellation in a long loop:
  ///
  /// ```swift
  /// try await StorageSystem.perform {
  ///   for photo in photos {
  ///     try Task.checkCancellation()
  ///     try Folder.documents.save(photo.bytes, as: photo.name)
  ///   }
  /// }
  /// ```
  ///
  /// The call returns when `body` has ended, even if the task is cancelled in the meantime. If it
  /// is cancelled while `body` is queued, `body` does not run.
  ///
  /// - Returns: What `body` returns.
  /// - Throws: What `body` throws, or `CancellationError` if the task was cancelled before `body`
  ///   started.
  @discardableResult
  public static func perform<R>(
    _ body: sending @escaping () throws -> sending R
  ) async throws -> sending R {
    try await BlockingWork.run(body)
  }
}
