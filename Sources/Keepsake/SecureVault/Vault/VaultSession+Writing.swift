#if SecureVault
/// What an attempt to store a secret led to.
package enum WriteOutcome {
  case stored
  /// There is a secret, which may not be replaced.
  case exists
  /// The header or the old value changed in the meantime.
  case overtaken
  /// Asking the user may take long, so it is done while no session is in use.
  case presenceKeyNeeded(VaultHeader)
}

/// Sealing entries and storing them.
extension VaultSession {
  // MARK: Storing

  /// Seals a secret and stores it, unless the header or the old value changed in the meantime.
  ///
  /// - Parameter isLockHeld: Whether the caller has locked the entry already.
  func write(
    _ secret: NewSecret, _ presenceKey: PresenceKey?, at path: EntryPath, isLockHeld: Bool
  ) throws(StorageError) -> WriteOutcome {
    // Before the user is asked for anything; what counts is the same look under the lock.
    if !secret.replaces, try storage.contains(path) { return .exists }
    let now = WallClock.now
    var names = EntryNames(created: now, modified: now, service: secret.service, key: secret.key)
    var isPresenceRequired = secret.access == .userPresence
    // Opens the old names and seals the new ones: setting it up takes longer than both.
    var cipher: XAES?
    var oldPath = path
    var replaced = try storage.openEntry(path, for: .reading)
    // A damaged one is still at an older path.
    for older in try olderPaths(service: secret.service, key: secret.key) where replaced == nil {
      oldPath = older
      replaced = try storage.openEntry(older, for: .reading)
    }
    if let replaced, var old = try openToReplace(replaced, at: oldPath), let oldNames = old.names {
      names.created = oldNames.created
      if secret.access == nil { isPresenceRequired = old.header.isPresenceRequired }
      cipher = old.cipher.take()
    } else if let replaced, secret.access == nil, header.presenceSlot != nil {
      // Its names are damaged. It keeps the protection that its header asks for.
      do throws(StorageError) {
        isPresenceRequired = try replaced.header(at: oldPath).isPresenceRequired
      } catch  where error.code == .damaged {}
    }
    var condition = secret.replaces ? EntryCondition.none : .isAbsent
    // If the access was taken from the old entry, another process may replace that entry in the
    // meantime, provided that this header has a key for presence.
    if secret.access == nil, header.presenceSlot != nil {
      condition =
        oldPath === path
        ? .hasAccess(of: replaced, isPresenceRequired: isPresenceRequired) : .isAbsent
    }
    guard isPresenceRequired else {
      let entry = try sealEntry(
        names, secret.kind.rawValue, secret.value, at: path, reusing: &cipher)
      return try storage.store(
        UnsafeRawBufferPointer(entry.bytes), at: path, if: condition, isLockHeld: isLockHeld,
        renewing: nil)
    }
    // A value that requires presence is sealed twice, so that reading it takes both keys.
    guard let presenceKey, presenceKey.slot == header.presenceSlot else {
      return .presenceKeyNeeded(header)
    }
    let box = try presenceKey.seal(secret, vaultID: header.vaultID)
    let entry = try sealEntry(
      names, PaddedValue.boxKind, UnsafeRawBufferPointer(box.bytes), at: path,
      isPresenceRequired: true, reusing: &cipher)
    let renewedHeader = try ring.makeHeader(
      vaultID: header.vaultID, slots: header.allSlots, context: storage.context)
    return try storage.store(
      UnsafeRawBufferPointer(entry.bytes), at: path, if: condition, isLockHeld: isLockHeld,
      renewing: renewedHeader)
  }

  /// Opens the names of the entry that a set is about to replace; nil if it is beyond repair.
  private func openToReplace(
    _ entry: StoredEntry, at path: EntryPath
  ) throws(StorageError) -> OpenedEntry? {
    do throws(StorageError) {
      return try open(entry, at: path, .names)
    } catch  where error.code == .damaged {
      // It is not overwritten if it could be read again with the right header.
      if try isUnderUnknownKey(path), try isCurrent() { throw error }
      return nil
    }
  }

  /// Whether an entry that does not open is sealed under a key that another header may have.
  private func isUnderUnknownKey(_ path: EntryPath) throws(StorageError) -> Bool {
    do throws(StorageError) {
      return try storage.keyID(of: path).map { !ring.hasKey($0) } ?? false
    } catch  where error.code == .damaged {
      return false
    }
  }

  // MARK: Changing keys

  /// What became of an entry that was to be sealed again.
  private enum Resealing {
    case done
    /// There is an entry at its primary path, so this one was replaced or moved already.
    case outdated
    case damaged(StorageError)
    /// The header or the entry has changed.
    case overtaken
  }

  /// Where the entry at `path` is moved to; nil if there is none.
  func primaryPath(ofEntryAt path: EntryPath) throws(StorageError) -> EntryPath? {
    guard let names = try readEntry(at: path, .names, for: .changingKeys)?.names else { return nil }
    return try entryPath(service: names.service, key: names.key)
  }

  /// Seals an entry again under the primary key, and moves it to its primary path.
  ///
  /// - Returns: nil if the header or the entry has changed.
  func resealEntry(at path: EntryPath) throws(StorageError) -> Void? {
    var primaryPath = path
    do throws(StorageError) {
      if ring.nameKeyCount > 1 {
        guard let found = try self.primaryPath(ofEntryAt: path) else { return () }
        primaryPath = found
      }
      switch try resealEntry(at: path, movingTo: primaryPath) {
      case .done: return ()
      case .outdated: return try storage.removeEntry(at: [path])
      case .damaged(let error): throw error
      case .overtaken: return nil
      }
    } catch  where error.code == .damaged {
      // A later header may have the key.
      if try storage.isStillStored() { throw error }
      return nil
    }
  }

  /// Moves the entry that is about to be replaced, or kept by an `add`, to its primary path. Nobody
  /// stores one at another path while the header is this one.
  ///
  /// - Returns: nil when the caller may go on.
  func makeWay(
    for secret: NewSecret, at path: EntryPath
  ) throws(StorageError) -> WriteOutcome? {
    for older in try olderPaths(service: secret.service, key: secret.key) {
      switch try resealEntry(at: older, movingTo: path) {
      case .done: continue
      case .overtaken: return .overtaken
      case .damaged(let error):
        if try isUnderUnknownKey(older) {
          if try storage.isStillStored() { throw error }
          return .overtaken
        }
        // A set keeps it until the new one is stored.
        return secret.replaces ? nil : .exists
      case .outdated:
        if try storage.removeEntry(at: [older]) == nil { return .overtaken }
      }
    }
    return nil
  }

  private func resealEntry(
    at path: EntryPath, movingTo primaryPath: EntryPath
  ) throws(StorageError) -> Resealing {
    // Writers of the entry lock its primary path, whichever path it has now.
    let lock = try storage.lockEntry(primaryPath)
    defer { lock?.unlock() }
    guard try isCurrent() else { return .overtaken }
    let isMove = primaryPath.subpath != path.subpath
    if isMove, try storage.openEntry(primaryPath, for: .changingKeys) != nil { return .outdated }
    do throws(StorageError) {
      guard let old = try storage.openEntry(path, for: .changingKeys) else { return .done }
      let entry = try open(old, at: path, .all)
      guard let names = entry.names, isMove || entry.header.keyID != ring.primaryID
      else { return .done }
      var cipher: XAES?
      let sealed = try sealEntry(
        names, entry.kind, entry.bytes, at: primaryPath,
        isPresenceRequired: entry.header.isPresenceRequired, reusing: &cipher)
      let replaced: Void? = try storage.replace(
        old, at: path, by: UnsafeRawBufferPointer(sealed.bytes), movingTo: primaryPath)
      return replaced == nil ? .overtaken : .done
    } catch  where error.code == .damaged {
      return .damaged(error)
    }
  }

  // MARK: Sealing

  private static var maxCopiedSize: Int { 4_096 }

  /// Seals an entry under the primary key.
  ///
  ///     0   header (24 bytes)
  ///     24  names box: nonce (24), the names, tag (16)
  ///         value box: nonce (24), the value with prefix and padding, tag (16)
  ///
  /// All is written in its place and encrypted there. Only a large value is encrypted from where it
  /// is: copying it takes as long as the cipher. For a small one, two more calls of the cipher take
  /// longer than a copy.
  ///
  /// - Parameter knownCipher: A cipher under the primary key, which this releases.
  /// - Returns: The bytes to store.
  func sealEntry(
    _ names: EntryNames, _ kind: UInt8, _ value: UnsafeRawBufferPointer, at path: EntryPath,
    isPresenceRequired: Bool = false, reusing knownCipher: inout XAES?
  ) throws(StorageError) -> SecretBytes {
    let header = EntryHeader(
      isPresenceRequired: isPresenceRequired, keyID: ring.primaryID,
      namesLength: names.length + XAES.overhead,
      valueLength: PaddedValue.paddedLength(value.count) + XAES.overhead)
    var entry = try SecretBytes(count: header.fileLength)
    let start = entry.bytes[part: ..<(EntryHeader.size + header.namesLength)]
    let (namesBox, valueBox) = (
      start[part: EntryHeader.size...], entry.bytes[part: start.count...]
    )
    // Both nonces at once: a call takes as long as sealing a small box. The names, which are
    // longer, take the place of the second one.
    try SystemRandom.fill(namesBox[part: ..<(2 * XAES.nonceSize)])
    valueBox.copyMemory(
      from: UnsafeRawBufferPointer(namesBox)[part: XAES.nonceSize..<(2 * XAES.nonceSize)])
    var writer = ByteWriter(start)
    header.write(to: &writer)
    writer = ByteWriter(XAES.message(in: namesBox))
    names.write(to: &writer)
    let isCopied = value.count <= Self.maxCopiedSize
    PaddedValue.write(kind, value, isCopied: isCopied, to: XAES.message(in: valueBox))
    let (part, position) = isCopied ? (value[part: ..<0], 0) : (value, PaddedValue.prefixSize)
    let (bytes, vaultID) = (UnsafeRawBufferPointer(start), self.header.vaultID)
    let cipher = try takeCipher(&knownCipher)
    let size = path.associatedDataSize(bytes, vaultID: vaultID)
    try withUnsafeTemporaryAllocation(byteCount: size, alignment: 1) {
      memory throws(StorageError) in
      var data = path.writeAssociatedData(of: .names, bytes, vaultID: vaultID, to: memory)
      try cipher.seal(namesBox, authenticating: data)
      data = path.writeAssociatedData(of: .value, bytes, vaultID: vaultID, to: memory)
      try cipher.seal(valueBox, authenticating: data, inserting: part, at: position)
    }
    entry.isSecret = false
    return entry
  }

  private func takeCipher(_ known: inout XAES?) throws(StorageError) -> XAES {
    if let cipher = known.take() { return cipher }
    if let cipher = try makeCipher(ring.primaryID) { return cipher }
    throw OpenSSL.inputError("there is no primary key")
  }
}
#endif
