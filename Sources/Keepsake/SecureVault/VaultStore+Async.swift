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

  /// Opens the vault as ``unlock(passphrase:)`` does, on a thread of the library.
  ///
  /// ```swift
  /// try await SecureVault.shared.unlockInBackground(passphrase: typed)
  /// ```
  ///
  /// - Parameter passphrase: The vault's passphrase; nil to use the key sources of bootstrap again
  ///   after ``lock()``.
  /// - Throws: What ``unlock(passphrase:)`` throws, or `CancellationError` if the task was
  ///   cancelled before the call started.
  public func unlockInBackground(passphrase: String? = nil) async throws {
    try await perform { store in try store.unlock(passphrase: passphrase) }
  }

  /// Opens the vault as ``unlock(passphrase:rememberFor:)`` does, on a thread of the library.
  ///
  /// ```swift
  /// try await SecureVault.shared.unlockInBackground(passphrase: typed, rememberFor: .minutes(15))
  /// ```
  ///
  /// - Parameters:
  ///   - passphrase: The vault's passphrase, or a recovery code or recovery passphrase.
  ///   - period: How long other programs of this login may open the vault without asking.
  /// - Throws: What ``unlock(passphrase:rememberFor:)`` throws, or `CancellationError` if the task
  ///   was cancelled before the call started.
  public func unlockInBackground(
    passphrase: String, rememberFor period: Duration
  ) async throws {
    try await perform { store in try store.unlock(passphrase: passphrase, rememberFor: period) }
  }

  /// Protects the vault as ``protect(with:)`` does, on a thread of the library.
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

extension SecureVault {
  /// Opens the vault as ``unlock(passphrase:service:)`` does, on a thread of the library.
  ///
  /// ```swift
  /// guard await SecureVault.unlockInBackground(passphrase: typed) else { return }
  /// ```
  ///
  /// - Parameters:
  ///   - passphrase: The vault's passphrase; nil to use the key sources of bootstrap again after
  ///     ``lock(service:)``.
  ///   - service: A service of the vault.
  /// - Returns: Whether the vault was opened. If not, the failure is reported, unless the task was
  ///   cancelled before the call started.
  public static func unlockInBackground(
    passphrase: String? = nil, service: Service = defaultService
  ) async -> Bool {
    let result = try? await StorageSystem.perform {
      unlock(passphrase: passphrase, service: service)
    }
    return result ?? false
  }

  /// Opens the vault as ``unlock(passphrase:rememberFor:service:)`` does, on a thread of the
  /// library.
  ///
  /// ```swift
  /// let isOpen = await SecureVault.unlockInBackground(passphrase: typed, rememberFor: .hours(1))
  /// ```
  ///
  /// - Parameters:
  ///   - passphrase: The vault's passphrase, or a recovery code or recovery passphrase.
  ///   - period: How long other programs of this login may open the vault without asking.
  ///   - service: A service of the vault.
  /// - Returns: Whether the vault was opened. If not, the failure is reported, unless the task was
  ///   cancelled before the call started.
  public static func unlockInBackground(
    passphrase: String, rememberFor period: Duration, service: Service = defaultService
  ) async -> Bool {
    let result = try? await StorageSystem.perform {
      unlock(passphrase: passphrase, rememberFor: period, service: service)
    }
    return result ?? false
  }

  /// Protects the vault as ``protect(with:service:)`` does, on a thread of the library.
  ///
  /// ```swift
  /// guard await SecureVault.protectInBackground(with: .passphrase(typed)) else { return }
  /// ```
  ///
  /// - Returns: Whether the new source protects the vault. If not, the failure is reported, unless
  ///   the task was cancelled before the call started.
  public static func protectInBackground(
    with source: KeySource, service: Service = defaultService
  ) async -> Bool {
    let result = try? await StorageSystem.perform { protect(with: source, service: service) }
    return result ?? false
  }
}
#endif
