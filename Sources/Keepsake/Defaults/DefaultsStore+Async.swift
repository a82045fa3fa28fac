extension Defaults.Store {
  /// Runs `body` with this store on a thread of the library, so that the caller's thread does not
  /// wait for the disk or for other processes.
  ///
  /// ```swift
  /// try await Defaults.shared.perform { store in
  ///   try store.set("dark", forKey: "theme")
  ///   try store.synchronize()
  /// }
  /// ```
  ///
  /// See ``StorageSystem/perform(_:)``.
  ///
  /// - Returns: What `body` returns.
  /// - Throws: What `body` throws, or `CancellationError` if the task was cancelled before `body`
  ///   started.
  @discardableResult
  public func perform<R>(
    _ body: sending @escaping (Defaults.Store) throws -> sending R
  ) async throws -> sending R {
    // The closure is transferred rather than shared: this function does not use it again.
    nonisolated(unsafe) let body = body
    return try await BlockingWork.run { try body(self) }
  }
}
