#if SecureVault
/// Changing the vault's keys.
///
/// This takes three steps: write a header that also has the new keys, seal each entry again, and
/// write a header without the old keys. The vault opens after each step, so the work may be
/// interrupted anywhere and the next call continues it.
///
/// A new master key comes with a new name key, so the second step also moves the entries. Until
/// then, each is at one of its paths under the name keys. If a process was killed, it may be at
/// two, and the one under the newest key counts.
extension Vault {
  /// Seals all entries under a new entry key, and drops the old keys.
  ///
  /// - Throws: The first failure of a single entry after all others are done, or at once a failure
  ///   that every entry would meet. The old keys are kept then.
  func rotateKeys() throws(StorageError) {
    let replaced: Void? = try withStoredVault { session throws(StorageError) in
      try replaceHeader(of: session, slots: session.header.allSlots) { () throws(StorageError) in
        try session.ring.addingPrimaryKey(newMasterKey: false)
      }
    }
    if replaced == nil { return }
    let failures = try resealEntries("rotateKeys")
    guard let first = failures.first else { return }
    for failure in failures.dropFirst() { report(failure.inContext(of: "rotateKeys")) }
    throw first
  }

  /// Protects the vault with another key source, and replaces all keys.
  func protect(with source: SecureVault.KeySource) throws(StorageError) {
    // Fails before a key is added to the key file if the vault cannot be opened.
    let old = try currentSession()?.header
    guard let replaced = try replaceMasterKey(under: source) else { return }
    // From here on the vault is protected with the new source, so failures are only reported.
    do throws(StorageError) {
      if let failure = forgetRemembered([old, replaced].compactMap { $0 }) {
        report(failure.inContext(of: "protect"))
      }
      for failure in try resealEntries("protect") { report(failure.inContext(of: "protect")) }
    } catch {
      report(error.inContext(of: "protect"))
    }
  }

  /// Seals each entry under the primary key, and drops all other keys even if entries are damaged.
  ///
  /// - Throws: The first failure of another kind than damage. The old keys are kept then.
  func forgetOldKeys() throws(StorageError) {
    // A key that is current here may be an old one elsewhere.
    let isUpToDate: Void? = try withStoredVault { session throws(StorageError) in
      try session.storage.isStillStored() ? () : nil
    }
    if isUpToDate == nil { return }
    let failures = try resealEntries("forgetOldKeys", dropsKeys: false)
    if let failure = failures.first(where: { !isDamage($0) }) { throw failure }
    try dropUnusedKeys("forgetOldKeys", forgetsOthers: true)
  }

  /// Whether no key would open the entry. A directory that has the name of an entry is not one.
  private func isDamage(_ failure: StorageError) -> Bool {
    [.damaged, .isDirectory].contains(failure.code)
  }

  private func newSecret(of source: SecureVault.KeySource) throws(StorageError) -> SlotSecret? {
    if case .keyFile = source.kind {
      if let keyFile = try storage.keyFile() { return try keyFile.addSecret() }
      throw StorageError(
        .misuse, operation: "protect",
        reason: "several machines share the vault, and a key file is on one of them",
        remedy: "Use a passphrase, a credential or a closure.")
    }
    return try source.secret(for: nil, in: self)
  }

  /// Writes a header with a new master key, which the source's secret opens.
  ///
  /// - Returns: The header with the slots that were replaced; nil when this created the vault, so
  ///   that there are no entries to seal again.
  private func replaceMasterKey(
    under source: SecureVault.KeySource
  ) throws(StorageError) -> VaultHeader? {
    // No lock is held here: the source may be slow or ask the user.
    guard let secret = try newSecret(of: source) else {
      throw StorageError(
        .misuse, operation: "protect", reason: "the \(source.protection) is missing",
        remedy: "Add a LoadCredential= line with its name to the systemd unit.")
    }
    for _ in 0..<Self.maxAttempts {
      let lockCount = state.withLock { $0.lockCount }
      guard let header = try currentSession()?.header else {
        if try create(under: secret, ifNotLockedSince: lockCount) != nil { return nil }
        continue
      }
      let presence = try presenceSlots(header, under: secret)
      let replaced = try withSession { session throws(StorageError) -> Bool? in
        guard session.header.hasSlots(of: header) else { return false }
        let ring = try session.ring.addingPrimaryKey(newMasterKey: true)
        let slot = try ring.makeSlot(vaultID: header.vaultID, for: secret)
        var isOutdated = false
        let replaced: Void? = try replaceHeader(of: session, slots: [slot] + presence.slots) {
          () throws(StorageError) in
          if presence.areForNoSecrets { isOutdated = try session.hasEntryRequiringPresence() }
          return isOutdated ? nil : ring
        }
        return isOutdated ? false : replaced.map { true }
      }
      if replaced == true { return header }
    }
    throw headerKeepsChanging
  }

  /// Seals each entry under the primary key, and drops all other keys if no entry failed.
  ///
  /// - Parameter operation: The call, for reports.
  /// - Returns: The failures of single entries.
  private func resealEntries(
    _ operation: String, dropsKeys: Bool = true
  ) throws(StorageError) -> [StorageError] {
    var failures: [StorageError] = []
    for path in try storage.allEntries() {
      do throws(StorageError) {
        _ = try withSession { session throws(StorageError) in try session.resealEntry(at: path) }
      } catch {
        // The next entry would fail in the same way.
        let isGeneral =
          [.locked, .timedOut, .diskFull, .unreachable, .outcomeUnknown].contains(error.code)
        if isGeneral || error.isDescriptorLimit {
          for failure in failures { report(failure.inContext(of: operation)) }
          throw error
        }
        failures.append(error)
      }
    }
    // The key id in a damaged entry may be wrong, so it is unknown which keys are in use.
    if failures.isEmpty, dropsKeys { try dropUnusedKeys(operation) }
    return failures
  }

  /// The key under which an entry is sealed; nil if the entry is missing or damaged.
  private func keyID(
    ofIntact path: EntryPath, _ session: VaultSession
  ) throws(StorageError) -> UInt32? {
    do throws(StorageError) {
      return try session.readEntry(at: path, .all, for: .changingKeys)?.header.keyID
    } catch  where isDamage(error) {
      return nil
    }
  }

  /// Whether an entry is at its primary path. One that cannot be opened may be anywhere.
  private func isMoved(_ path: EntryPath, _ session: VaultSession) throws(StorageError) -> Bool {
    do throws(StorageError) {
      let primaryPath = try session.primaryPath(ofEntryAt: path)
      return primaryPath == nil || primaryPath?.subpath == path.subpath
    } catch  where isDamage(error) {
      return false
    }
  }

  /// - Parameter forgetsOthers: Whether to drop also those that a damaged entry may need. Another
  ///   process may have changed the primary key since the entries were sealed again.
  private func dropUnusedKeys(
    _ operation: String, forgetsOthers: Bool = false
  ) throws(StorageError) {
    var failures: [StorageError] = []
    _ = try withSession { session throws(StorageError) -> Void? in
      let ring = session.ring
      if ring.keyIDs.count == 1, ring.nameKeyCount == 1, try session.isCurrent() { return () }
      return try replaceHeader(of: session, slots: session.header.allSlots) {
        () throws(StorageError) in
        // Otherwise a power cut could bring back an entry whose key is gone.
        try storage.synchronizeEntries()
        var usedIDs: Set<UInt32> = []
        var keepsOldNames = false
        for path in try storage.allEntries() {
          let id =
            forgetsOthers
            ? try keyID(ofIntact: path, session) : try session.storage.keyID(of: path)
          if let id { usedIDs.insert(id) }
          if ring.nameKeyCount > 1, try !isMoved(path, session) { keepsOldNames = true }
        }
        failures = ring.nameKeyCount > 1 ? try storage.removeEmptyDirectories() : []
        if !failures.isEmpty { keepsOldNames = true }
        return try ring.keepingKeys(usedIDs, keepsOldNames: keepsOldNames)
      }
    }
    // Only once the session is released: the handler may lock the vault, which waits for that.
    for failure in failures { report(failure.inContext(of: operation)) }
  }
}
#endif
