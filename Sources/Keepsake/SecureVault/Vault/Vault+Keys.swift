#if SecureVault
/// Changing keys.
///
/// First a header with the new keys, then entry by entry, then a header without the old keys: each
/// step leaves a vault that opens, so it may end anywhere, and the next call goes on.
extension Vault {
  /// Seals everything anew under a new entry key, and forgets the old ones.
  ///
  /// - Throws: The first failure with an entry, after all others are done, or at once one that all
  ///   of them would meet; the keys stay then.
  func rotateKeys() throws(StorageError) {
    let replaced: Void? = try withSession { session throws(StorageError) in
      try replaceHeader(of: session, slots: session.header.slots) { () throws(StorageError) in
        try session.ring.addingPrimary(newMaster: false)
      }
    }
    if replaced == nil { return }
    let failures = try sealAllAnew()
    guard let first = failures.first else { return }
    for failure in failures.dropFirst() { report(failure.inContext(of: "rotateKeys")) }
    throw first
  }

  /// Puts the vault under another source of keys, with new keys for all that it holds.
  func protect(with source: SecureVault.KeySource) throws(StorageError) {
    // A vault that does not open is to leave no new key in the key file.
    _ = try freshSession()
    guard try putUnder(source) else { return }
    // From here on the vault is under the new source, whatever becomes of the old keys.
    do throws(StorageError) {
      for failure in try sealAllAnew() { report(failure.inContext(of: "protect")) }
    } catch {
      report(error.inContext(of: "protect"))
    }
  }

  private func secret(of source: SecureVault.KeySource) throws(StorageError) -> SlotSecret? {
    if case .keyFile = source.kind { return try keyFile().addSecret() }
    return try source.secret(for: nil, in: self)
  }

  /// false when the vault is a new one, in which there is nothing to do any more.
  private func putUnder(_ source: SecureVault.KeySource) throws(StorageError) -> Bool {
    // What takes time, or asks somebody, holds no lock.
    guard let secret = try secret(of: source) else {
      throw StorageError(
        .misuse, operation: "protect", reason: "the \(source) is not there",
        remedy: "Give the service LoadCredential= of that name.")
    }
    for _ in 0..<Self.maxAttempts {
      let epoch = state.withLock { $0.epoch }
      guard let header = try freshSession()?.header else {
        if try create(under: secret, since: epoch) != nil { return false }
        continue
      }
      let presenceSlots = try presenceSlots(header, under: secret)
      let replaced = try withSession { session throws(StorageError) -> Bool? in
        guard session.header.hasSlots(of: header) else { return false }
        let ring = try session.ring.addingPrimary(newMaster: true)
        let slot = try Self.slot(of: ring, vaultID: header.vaultID, secret)
        return try replaceHeader(of: session, slots: [slot] + presenceSlots) { ring }.map { true }
      }
      if replaced == true { return true }
    }
    throw headerKeepsChanging
  }

  /// Seals each entry under the primary key, and forgets all others if that could be done.
  ///
  /// - Returns: What failed with single entries.
  private func sealAllAnew() throws(StorageError) -> [StorageError] {
    var failures: [StorageError] = []
    for directory in try location.entryDirectories() {
      for place in try location.places(in: directory) {
        do throws(StorageError) {
          try sealAnew(place)
        } catch {
          // The next one would fail as well.
          let isGeneral = [.locked, .timedOut, .diskFull].contains(error.code)
          if isGeneral || error.isDescriptorLimit {
            for failure in failures { report(failure.inContext(of: "rotateKeys")) }
            throw error
          }
          failures.append(error)
        }
      }
    }
    // An id in a damaged entry may be any, so it says nothing about which keys are in use.
    if failures.isEmpty { try forgetUnusedKeys() }
    return failures
  }

  private func sealAnew(_ place: EntryPath) throws(StorageError) {
    _ = try withSession { session throws(StorageError) -> Void? in
      try holding(place, session) { () throws(StorageError) in
        guard try isCurrent(session) else { return nil }
        switch try SealedFile.read(place, .all, session) {
        case .missing: return
        case .unknownKey(let id): throw SealedFile.unknownKey(id, place)
        case .opened(let opened):
          guard let names = opened.names, opened.head.keyID != session.ring.primary else { return }
          let contents = SealedFile.Contents(
            names: names, isPresenceRequired: opened.head.isPresenceRequired,
            pieces: [UnsafeRawBufferPointer(opened.plaintext.bytes)], paddingLength: 0)
          var temporary = try makeTemporary(for: place, session)
          try SealedFile.write(contents, at: place, session, to: temporary.file)
          try temporary.file.synchronize()
          try temporary.moveToDestination()
        }
      }
    }
  }

  private func forgetUnusedKeys() throws(StorageError) {
    _ = try withSession { session throws(StorageError) -> Void? in
      if session.ring.ids.count == 1, try isCurrent(session) { return () }
      return try replaceHeader(of: session, slots: session.header.slots) {
        () throws(StorageError) in
        var used: Set<UInt32> = []
        for directory in try location.entryDirectories() {
          for place in try location.places(in: directory) {
            if let head = try SealedFile.head(place) { used.insert(head.keyID) }
          }
          // Else a power cut could bring an entry back whose key is forgotten.
          let path = location.directory + "/" + directory
          if try FileSystem.status(path)?.isDirectory == true {
            try FileSystem.synchronizeDirectory(path)
          }
        }
        return try session.ring.keeping(used)
      }
    }
  }
}
#endif
