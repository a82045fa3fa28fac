#if SecureVault
/// Key slots besides the one of the source that protects the vault.
extension Vault {
  /// Adds a recovery code, which opens the vault.
  ///
  /// - Returns: The code. It is not stored anywhere.
  func addRecoveryCode() throws(StorageError) -> String {
    let (secret, text) = try RecoveryCode.makeNew()
    try addRecoverySlot(for: secret)
    return text
  }

  /// Adds another passphrase, which opens the vault.
  func addRecovery(passphrase: String) throws(StorageError) {
    try addRecoverySlot(
      for: SecureVault.KeySource.secret(passphrase: passphrase, logN: KeySlot.defaultLogN))
  }

  private func addRecoverySlot(for secret: SlotSecret) throws(StorageError) {
    for _ in 0..<Self.maxAttempts {
      let session = try sessionForWriting()
      let header = session.header
      let slot = try session.ring.makeSlot(.recovery, vaultID: header.vaultID, for: secret)
      let slots = header.slots + [slot]
      guard slots.count <= VaultHeader.maxSlotCount,
        PassphraseWorkBudget.allow(slots, maxLogN: options.maxLogN)
      else {
        // Another process may have removed some.
        if try !session.storage.isStillStored() {
          try reloadHeader(of: session)
          continue
        }
        throw StorageError(
          .misuse, operation: "addRecovery", path: storage.headerPath,
          reason: "the vault already has the maximum number of recovery codes and passphrases",
          remedy: "Call SecureVault.shared.removeRecovery first.")
      }
      let replaced: Void? = try replaceHeader(of: session, slots: slots + header.sealedSlots) {
        session.ring
      }
      if replaced != nil { return }
      try reloadHeader(of: session)
    }
    throw headerKeepsChanging
  }

  /// Removes one recovery slot, or all of them. A missing one is not an error.
  func removeRecovery(id: String?) throws(StorageError) {
    _ = try withStoredVault { session throws(StorageError) -> Void? in
      let slots = session.header.allSlots.filter {
        $0.purpose != .recovery || (id != nil && $0.id != id)
      }
      if slots.count == session.header.allSlots.count, try session.storage.isStillStored() {
        return ()
      }
      return try replaceHeader(of: session, slots: slots) { session.ring }
    }
  }

  /// What opens the vault, in the order of the header; empty when there is no vault yet.
  func unlockMethods() throws(StorageError) -> [SecureVault.UnlockMethod] {
    try (storage.readHeader()?.0.slots ?? []).map {
      SecureVault.UnlockMethod($0)
    }
  }
}
#endif
