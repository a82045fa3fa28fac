#if SecureVault
extension SecureVault.Store {
  /// Runs `body` with this store on a thread of the library, so that the caller's thread does not
  /// wait for the disk, for a passphrase or for the user.
  ///
  /// ```swift
  /// let token = try await SecureVault.shared.perform { store in try store.get("token") }
  /// ```
  ///
  /// See ``StorageSystem/perform(_:)``.
  ///
  /// - Returns: What `body` returns.
  /// - Throws: What `body` throws, or `CancellationError` if the task was cancelled before `body`
  ///   started.
  @discardableResult
  public func perform<R>(
    _ body: sending @escaping (SecureVault.Store) throws -> sending R
  ) async throws -> sending R {
    // The closure is transferred rather than shared: this function does not use it again.
    nonisolated(unsafe) let body = body
    return try await BlockingWork.run { try body(self) }
  }
}
#endif
