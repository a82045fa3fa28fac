#if SecureVault
/// A secret to store.
struct NewSecret {
  let kind: Payload.Kind
  let value: UnsafeRawBufferPointer
  let service: String
  let key: String
  /// nil keeps the access that the secret has.
  let access: SecureVault.Access?
  /// Whether it may replace a secret.
  var replaces = true
}

extension Vault {
  /// Stores a secret such that it survives a power cut.
  ///
  /// - Returns: False if there is one already that it may not replace.
  @discardableResult
  func write(_ secret: NewSecret) throws(StorageError) -> Bool {
    guard secret.value.count <= PaddedValue.maxValueSize else {
      throw StorageError(
        .misuse, operation: "set",
        reason: "the value is longer than \(PaddedValue.maxValueSize) bytes",
        remedy: "Encrypt it in a separate file, and store that file's key here.")
    }
    var presenceKey: PresenceKey?
    for attempt in 0..<Self.maxAttempts {
      let outcome: WriteOutcome
      do {
        let session = try sessionForWriting()
        let path = try session.entryPath(service: secret.service, key: secret.key)
        if let early = try session.makeWay(for: secret, at: path) {
          if case .overtaken = early { try reloadHeader(of: session) }
          outcome = early
        } else if attempt < 8 {
          outcome = try session.write(secret, presenceKey, at: path, isLockHeld: false)
          if case .overtaken = outcome, try !session.isCurrent() { try reloadHeader(of: session) }
        } else {
          // A writer that keeps losing to rotations takes the lock before it starts.
          outcome = try writeUnderLock(secret, presenceKey, at: path, session)
        }
        // Removes what was damaged and is replaced by now. If that fails, the next set does it:
        // until then, readers find the new secret first.
        if case .stored = outcome { _ = try? session.makeWay(for: secret, at: path) }
      }
      // The session is released by now: `lock()` waits for that, and asking the user may take long.
      switch outcome {
      case .stored: return true
      case .exists where !secret.replaces: return false
      case .exists, .overtaken: continue
      case .presenceKeyNeeded(let header):
        presenceKey = try presenceKeyForWriting(
          header, reason: "Store the secret \(secret.key)")
      }
    }
    throw headerKeepsChanging
  }

  private func writeUnderLock(
    _ secret: NewSecret, _ presenceKey: PresenceKey?, at path: EntryPath, _ session: VaultSession
  ) throws(StorageError) -> WriteOutcome {
    let lock = try session.storage.lockEntry(path)
    defer { lock?.unlock() }
    if try !session.isCurrent() { try reloadHeader(of: session) }
    // Another thread may have made an older session the open one in the meantime.
    guard let current = try existingSession(), try current.isCurrent(),
      current.header.vaultID == session.header.vaultID,
      try current.entryPath(service: secret.service, key: secret.key).subpath == path.subpath
    else { return .overtaken }
    return try current.write(secret, presenceKey, at: path, isLockHeld: true)
  }

  /// Removes a secret such that it stays removed after a power cut. Removing a missing secret is
  /// not an error.
  func remove(_ service: String, _ key: String) throws(StorageError) {
    _ = try withStoredVault { session throws(StorageError) -> Void? in
      let primaryPath = try session.entryPath(service: service, key: key)
      let older = try session.olderPaths(service: service, key: key).reversed()
      return try session.storage.removeEntry(at: older + [primaryPath])
    }
  }

  /// Removes all secrets of a service.
  func removeAll(_ service: String) throws(StorageError) {
    _ = try withStoredVault { session throws(StorageError) -> Void? in
      try session.storage.removeEntries(in: session.directoryNames(of: service))
    }
  }
}
#endif
