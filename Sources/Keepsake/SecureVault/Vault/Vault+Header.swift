#if SecureVault
/// Reading and replacing the vault header.
extension Vault {
  /// The header; nil when there is no vault yet.
  ///
  /// - Throws: An error of code `damaged` when there are secrets but no header.
  func headerIfVaultExists() throws(StorageError) -> (VaultHeader, any VaultStorage)? {
    var attempts = 0
    while true {
      if let found = try storage.readHeader() { return found }
      do throws(StorageError) {
        try storage.requireNoEntries()
        return nil
      } catch {
        // After the header was found missing, another process may have created the vault and stored
        // a secret, and even have erased and created it again.
        attempts += 1
        if attempts == 4 { throw error }
      }
    }
  }

  /// Replaces the header of `session` by one with these slots and the keys that `makeRing` returns.
  ///
  /// - Parameter makeRing: Called as ``VaultStorage/replaceHeader(_:)`` says. If it returns nil,
  ///   nothing is done.
  /// - Returns: nil when nothing was done, for example because the header of `session` is out of
  ///   date.
  func replaceHeader(
    of session: VaultSession, slots: [KeySlot], _ makeRing: () throws(StorageError) -> KeyRing?
  ) throws(StorageError) -> Void? {
    let lockCount = state.withLock { $0.lockCount }
    var newRing: KeyRing?
    let replaced = try session.storage.replaceHeader { () throws(StorageError) -> VaultHeader? in
      newRing = try makeRing()
      return try newRing?.makeHeader(
        vaultID: session.header.vaultID, slots: slots, context: storage.context)
    }
    guard let (header, storage) = replaced, let newRing else { return nil }
    // The header is in place, so this succeeds even if the vault was locked in the meantime.
    tryMakeCurrent(
      VaultSession(header: header, storage: storage, ring: newRing),
      ifNotLockedSince: lockCount)
    return ()
  }

  /// Removes all entries and the header, whether the vault can be opened or not.
  func erase() throws(StorageError) {
    let header = (try? storage.readHeader())?.0
    var failure: StorageError?
    var reports: [StorageError] = []
    // Once nothing is locked and the old keys are gone: the handler may use the vault.
    defer { reports.forEach(report) }
    do throws(StorageError) {
      guard try storage.erase(reporting: { reports.append($0) }) else { return }
    } catch {
      // What stays may be an older vault beside this one.
      guard (try? storage.isCurrent()) == true else { throw error }
      failure = error
    }
    state.withLock { $0.reset() }
    failure = forgetRemembered(header.map { [$0] } ?? []) ?? failure
    if let failure { throw failure }
  }
}
#endif
