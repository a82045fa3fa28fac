#if SecureVault
/// What is to be sealed in one entry.
struct EntryPlaintext {
  let names: EntryNames
  let isPresenceRequired: Bool
  /// The plaintext of the value's box: these pieces in a row, then zeros.
  var pieces: [UnsafeRawBufferPointer]
  var paddingLength: Int
}

/// What an attempt to store a secret led to.
enum WriteOutcome {
  case stored
  /// The header or the old value changed in the meantime.
  case overtaken
  /// Asking the user may take long, so it is done while no session is in use.
  case presenceKeyNeeded(VaultHeader)
}

/// Sealing entries and writing their files.
extension VaultSession {
  // MARK: Storing

  /// Seals a secret and moves its file into place.
  ///
  /// - Parameter isLockHeld: Whether the caller has locked the entry already.
  func write(
    _ secret: NewSecret, _ presenceKey: PresenceKey?, at path: EntryPath, isLockHeld: Bool
  ) throws(StorageError) -> WriteOutcome {
    let now = WallClock.now
    var names = EntryNames(created: now, modified: now, service: secret.service, key: secret.key)
    var isPresenceRequired = secret.access == .userPresence
    if let old = try entryToReplace(at: path) {
      names.created = old.names.created
      if secret.access == nil { isPresenceRequired = old.isPresenceRequired }
    }
    // A value that requires presence is sealed twice, so that reading it takes both keys.
    var box: [UInt8]?
    if isPresenceRequired {
      guard let presenceKey, presenceKey.slot == header.presenceSlot else {
        return .presenceKeyNeeded(header)
      }
      box = try presenceKey.seal(secret.kind, secret.value, at: path, vaultID: header.vaultID)
    }
    let isStored: Bool
    if let box {
      isStored = try box.withBytes { box throws(StorageError) in
        try put(
          NewEntry(names: names, isPresenceRequired: true, kind: PaddedValue.boxKind, value: box),
          secret.access, at: path, isLockHeld: isLockHeld)
      }
    } else {
      isStored = try put(
        NewEntry(
          names: names, isPresenceRequired: false, kind: secret.kind.rawValue, value: secret.value),
        secret.access, at: path, isLockHeld: isLockHeld)
    }
    return isStored ? .stored : .overtaken
  }

  private struct NewEntry {
    let names: EntryNames
    let isPresenceRequired: Bool
    let kind: UInt8
    let value: UnsafeRawBufferPointer
  }

  /// The entry that a set is about to replace; nil if there is none or it is beyond repair.
  private func entryToReplace(
    at path: EntryPath
  ) throws(StorageError) -> (names: EntryNames, isPresenceRequired: Bool)? {
    var unknownKeyID: UInt32?
    do throws(StorageError) {
      switch try readEntry(at: path, .names) {
      case .missing: return nil
      case .opened(let entry):
        return entry.names.map { ($0, entry.header.isPresenceRequired) }
      case .unknownKey(let id): unknownKeyID = id
      }
    } catch  where error.code == .damaged {
      return nil
    }
    // It is not overwritten: with the right header it could be read again.
    if let unknownKeyID, try isCurrent() { throw path.unknownKeyError(unknownKeyID) }
    return nil
  }

  /// Writes an entry and moves it into place; false when the header or the old value changed in the
  /// meantime.
  private func put(
    _ entry: NewEntry, _ access: SecureVault.Access?, at path: EntryPath, isLockHeld: Bool
  ) throws(StorageError) -> Bool {
    var attempts = 0
    while true {
      do throws(StorageError) {
        try prepareDirectory(of: path)
        var temporary = try makeTemporaryFile(for: path)
        try write(entry, at: path, to: temporary.file)
        try temporary.file.synchronize()
        if isLockHeld {
          try temporary.moveToDestination()
        } else {
          let isInPlace = try withLock(on: path) { () throws(StorageError) in
            guard try isCurrent() else { return false }
            // If the access was taken from the old entry, another process may have replaced that
            // entry since, provided that this header has a key for presence.
            if access == nil, header.presenceSlot != nil,
              try isPresenceRequired(at: path) != entry.isPresenceRequired
            {
              return false
            }
            try temporary.moveToDestination()
            return true
          }
          guard isInPlace else { return false }
        }
        try FileSystem.synchronizeDirectory(path.directoryPath)
        return true
      } catch  where error.code == .notFound && attempts < 3 {
        // Another process removed the service's directory, or the whole vault.
        attempts += 1
        durableDirectories.withLock { _ = $0.remove(path.directoryName) }
        if try !isCurrent() { return false }
      }
    }
  }

  /// According to the entry's header. False if it cannot be read, as the entry will be replaced.
  private func isPresenceRequired(at path: EntryPath) throws(StorageError) -> Bool {
    do throws(StorageError) {
      return try path.readHeader()?.isPresenceRequired ?? false
    } catch  where error.code == .damaged {
      return false
    }
  }

  /// Creates a service's directory if it is missing, and makes its name survive a power cut.
  private func prepareDirectory(of path: EntryPath) throws(StorageError) {
    if durableDirectories.withLock({ $0.contains(path.directoryName) }) { return }
    try FileSystem.makeDirectory(path.directoryPath, mode: try paths.prepareDirectory())
    // The process that made that directory, the header or the key may have been killed before it
    // synchronized them.
    try paths.synchronize()
    if header.masterSlot?.kind == .keyFile { try keyFile().synchronize() }
    try FileSystem.removeStaleTemporaryFiles(for: paths.entryStem)
    durableDirectories.withLock { _ = $0.insert(path.directoryName) }
  }

  // MARK: Sealing

  private func write(
    _ entry: NewEntry, at path: EntryPath, to file: File
  ) throws(StorageError) {
    let prefix = PaddedValue.prefix(kind: entry.kind, length: entry.value.count)
    try prefix.withBytes { prefix throws(StorageError) in
      let size = prefix.count + entry.value.count
      let plaintext = EntryPlaintext(
        names: entry.names, isPresenceRequired: entry.isPresenceRequired,
        pieces: [prefix, entry.value],
        paddingLength: PaddedValue.paddedLength(entry.value.count) - size)
      try write(plaintext, at: path, to: file)
    }
  }

  /// Seals an entry under the primary key.
  ///
  /// Larger entries pass through a chunk buffer that is reused: allocating memory for a whole
  /// ciphertext costs more than encrypting it. The buffer never holds plaintext.
  func write(
    _ plaintext: EntryPlaintext, at path: EntryPath, to file: File
  ) throws(StorageError) {
    let size = plaintext.pieces.reduce(0) { $0 + $1.count } + plaintext.paddingLength
    guard size <= AESGCM.maxMessageSize else {
      throw StorageError(
        .misuse, operation: "set", reason: "the value is too large for one secret",
        remedy: "Encrypt it in a file of your own, and store that file's key here.")
    }
    let names = plaintext.names.bytes
    let header = EntryHeader(
      isPresenceRequired: plaintext.isPresenceRequired, keyID: ring.primaryID,
      namesLength: names.count + XAES.overhead, valueLength: size + XAES.overhead
    ).bytes
    let isDone: Void? = try ring.withEntryKey(ring.primaryID) { key throws(StorageError) in
      let vaultID = self.header.vaultID
      let cipher = try XAES(key: key)
      // For both boxes at once: each call of the generator costs as much as sealing a box.
      let nonces = try OpenSSL.randomBytes(2 * XAES.nonceSize)
      try nonces.withBytes { nonces throws(StorageError) in
        let namesData = path.associatedData(of: .names, header: header, vaultID: vaultID)
        let namesBox = try names.withBytes { names throws(StorageError) in
          try cipher.seal(
            names, nonce: nonces[part: ..<XAES.nonceSize], authenticating: namesData)
        }
        let nonce = nonces[part: XAES.nonceSize...]
        try cipher.begin(.sealing, nonce: nonce)
        // With the names box in it, opening the value alone detects a change of either.
        let associatedData = path.associatedData(
          of: .value, header: header, vaultID: vaultID, namesBox: namesBox)
        try associatedData.withBytes { bytes throws(StorageError) in
          try cipher.gcm.authenticate(bytes)
        }

        let capacity = header.count + namesBox.count + size + XAES.overhead
        try ChunkBuffer.with(capacity) { buffer throws(StorageError) in
          var output = ChunkOutput(file: file, buffer: buffer)
          for part in [header, namesBox] {
            try part.withBytes { part throws(StorageError) in try output.append(part) }
          }
          try output.append(nonce)
          for piece in plaintext.pieces { try output.append(piece, sealedWith: cipher.gcm) }
          var paddingLeft = plaintext.paddingLength
          while paddingLeft > 0 {
            let count = min(paddingLeft, zeros.count)
            try zeros.withBytes { zeros throws(StorageError) in
              try output.append(zeros[part: ..<count], sealedWith: cipher.gcm)
            }
            paddingLeft -= count
          }
          try output.appendTag(of: cipher.gcm)
          try output.flush()
        }
      }
    }
    if isDone == nil { throw path.unknownKeyError(ring.primaryID) }
  }

  // MARK: Removing

  /// Removes an entry, and makes the removal survive a power cut.
  ///
  /// - Returns: nil when the vault header has changed.
  func removeEntry(at path: EntryPath) throws(StorageError) -> Void? {
    guard try FileSystem.status(path.directoryPath) != nil else {
      return try isCurrent() ? () : nil
    }
    let isRemoved = try withLock(on: path) { () throws(StorageError) in
      guard try isCurrent() else { return false }
      try FileSystem.unlink(path.path)
      return true
    }
    guard isRemoved else { return nil }
    // Synchronize even if there was no file: an earlier call may have removed it without
    // synchronizing.
    return try FileSystem.synchronizeDirectory(path.directoryPath)
  }
}

private let zeros = [UInt8](repeating: 0, count: VaultSession.smallEntrySize)
#endif
