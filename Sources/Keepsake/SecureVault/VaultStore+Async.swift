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

  /// Calls ``unlock(passphrase:rememberFor:)`` on a thread of the library.
  ///
  /// ```swift
  /// try await SecureVault.shared.unlockInBackground(passphrase: typed)
  /// ```
  ///
  /// - Throws: What ``unlock(passphrase:rememberFor:)`` throws, or `CancellationError` if the task
  ///   was cancelled before the call started.
  public func unlockInBackground(
    passphrase: String? = nil, rememberFor period: Duration? = nil
  ) async throws {
    try await perform { store in try store.unlock(passphrase: passphrase, rememberFor: period) }
  }

  /// Calls ``protect(with:)`` on a thread of the library.
  ///
  /// ```swift
  /// try await SecureVault.shared.protectInBackground(with: .passphrase(typed))
  /// ```
  ///
  /// - Throws: What ``protect(with:)`` throws, or `CancellationError` if the task was cancelled
  ///   before the call started.
  public func protectInBackground(with source: SecureVault.KeySource) async throws {
    try await perform { store in try store.protect(with: source) }
  }
}
#endif
