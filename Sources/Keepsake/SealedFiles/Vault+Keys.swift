/// Changing keys.
///
/// First a header with the new keys, then entry by entry, then a header without the old keys: each step
/// leaves a vault that opens, so it may end anywhere, and the next call goes on.
extension Vault {
  /// Seals everything anew under a new entry key, and forgets the old ones.
  ///
  /// - Throws: The first failure with an entry, after all others are done; the keys stay then.
  func rotateKeys() throws(StorageError) {
    while true {
      guard let session = try freshSession() else { return }
      let replaced = try replaceHeader(of: session, slots: session.header.slots) {
        () throws(StorageError) in try session.ring.addingPrimary(newMaster: false)
      }
      if replaced != nil { break }
    }
    let failures = try sealAllAnew()
    guard let first = failures.first else { return }
    for failure in failures.dropFirst() { report(failure.during("rotateKeys")) }
    throw first
  }

  /// Puts the vault under another source of keys, with new keys for all that it holds.
  func protect(with source: SecureVault.KeySource) throws(StorageError) {
    // A vault that does not open is to leave no new key in the key file.
    _ = try session()
    // What takes time, or asks somebody, holds no lock.
    guard let secret = try secret(of: source) else {
      throw StorageError(
        .misuse, operation: "protect", reason: "the \(source) is not there",
        remedy: "Give the service LoadCredential= of that name.")
    }
    while true {
      guard let header = try freshSession()?.header else {
        if try createUnder(secret) != nil { return }
        continue
      }
      let presenceSlots = try presenceSlots(header, under: secret)
      guard let session = try freshSession(), session.header == header else { continue }
      let ring = try session.ring.addingPrimary(newMaster: true)
      let slot = try Self.slot(of: ring, vaultID: header.vaultID, secret)
      let replaced = try replaceHeader(of: session, slots: [slot] + presenceSlots) { ring }
      if replaced != nil { break }
    }
    // From here on the vault is under the new source, whatever becomes of the old keys.
    do throws(StorageError) {
      for failure in try sealAllAnew() { report(failure.during("protect")) }
    } catch {
      report(error.during("protect"))
    }
  }

  /// Seals each entry under the primary key, and forgets all others if that could be done.
  ///
  /// - Returns: What failed with single entries.
  private func sealAllAnew() throws(StorageError) -> [StorageError] {
    var failures: [StorageError] = []
    for folder in try location.entryFolders() {
      var isChanged = false
      for place in try location.places(in: folder) {
        do throws(StorageError) {
          if try sealAnew(place) { isChanged = true }
        } catch {
          if error.code == .locked { throw error }
          failures.append(error)
        }
      }
      if isChanged { try FileSystem.synchronizeFolder(location.folder + "/" + folder) }
    }
    // An id in a damaged entry may be any, so it says nothing about which keys are in use.
    if failures.isEmpty { try forgetUnusedKeys() }
    return failures
  }

  /// false when there is nothing to do.
  private func sealAnew(_ place: EntryPlace) throws(StorageError) -> Bool {
    guard let session = try session() else { return false }
    return try holding(place) { () throws(StorageError) in
      // While the lock is held nobody changes the header.
      guard let session = try isCurrent(session) ? session : try reloaded(session) else {
        return false
      }
      switch try SealedFile.read(place, .all, session) {
      case .missing: return false
      case .unknownKey(let id): throw SealedFile.unknownKey(id, place)
      case .opened(let opened):
        guard let names = opened.names, opened.head.keyID != session.ring.primary else {
          return false
        }
        let contents = SealedFile.Contents(
          names: names, isPresenceRequired: opened.head.isPresenceRequired,
          pieces: [UnsafeRawBufferPointer(opened.plaintext.bytes)], paddingLength: 0)
        var temporary = try makeTemporary(for: place)
        try SealedFile.write(contents, at: place, session, to: temporary.file)
        try temporary.file.synchronize()
        try temporary.moveIntoPlace()
        return true
      }
    }
  }

  private func forgetUnusedKeys() throws(StorageError) {
    while let session = try freshSession(), session.ring.ids.count > 1 {
      let replaced = try replaceHeader(of: session, slots: session.header.slots) {
        () throws(StorageError) in
        var used: Set<UInt32> = []
        for folder in try location.entryFolders() {
          for place in try location.places(in: folder) {
            if let head = try SealedFile.head(place) { used.insert(head.keyID) }
          }
        }
        return try session.ring.keeping(used)
      }
      if replaced != nil { return }
    }
  }
}
