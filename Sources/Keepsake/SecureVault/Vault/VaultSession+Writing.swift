#if SecureVault
/// What is to be sealed in one entry.
struct EntryPlaintext {
  let names: EntryNames
  let isPresenceRequired: Bool
  /// The plaintext of the value's box: these two in a row, then zeros.
  let prefix: UnsafeRawBufferPointer
  let value: UnsafeRawBufferPointer
  let paddingLength: Int
}

/// What an attempt to store a secret led to.
enum WriteOutcome {
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
    if !secret.replaces, try revision.contains(path) { return .exists }
    let now = WallClock.now
    var names = EntryNames(created: now, modified: now, service: secret.service, key: secret.key)
    var isPresenceRequired = secret.access == .userPresence
    // Opens the old names and seals the new ones: setting it up takes longer than both.
    var cipher: XAES?
    var replaced: StoredEntry?
    if let old = try entryToReplace(at: path, keeping: &cipher, &replaced) {
      names.created = old.names.created
      if secret.access == nil { isPresenceRequired = old.isPresenceRequired }
    }
    var condition = secret.replaces ? EntryCondition.none : .isAbsent
    // If the access was taken from the old entry, another process may replace that entry meanwhile,
    // provided that this header has a key for presence.
    if secret.access == nil, header.presenceSlot != nil {
      condition = .hasAccess(of: replaced, isPresenceRequired: isPresenceRequired)
    }
    // A value that requires presence is sealed twice, so that reading it takes both keys.
    var box: [UInt8]?
    if isPresenceRequired {
      guard let presenceKey, presenceKey.slot == header.presenceSlot else {
        return .presenceKeyNeeded(header)
      }
      box = try presenceKey.seal(secret, vaultID: header.vaultID)
    }
    let makeHeader: (() throws(StorageError) -> VaultHeader)? =
      if isPresenceRequired {
        { [self] () throws(StorageError) in
          try ring.makeHeader(
            vaultID: header.vaultID, slots: header.allSlots, context: storage.context)
        }
      } else {
        nil
      }
    func put(
      _ kind: UInt8, _ value: UnsafeRawBufferPointer
    ) throws(StorageError) -> WriteOutcome {
      try revision.store(
        at: path, if: condition, isLockHeld: isLockHeld, renewing: makeHeader
      ) { output throws(StorageError) in
        try PaddedValue.withPrefix(kind: kind, length: value.count) { prefix throws(StorageError) in
          let size = prefix.count + value.count
          let plaintext = EntryPlaintext(
            names: names, isPresenceRequired: isPresenceRequired, prefix: prefix, value: value,
            paddingLength: PaddedValue.paddedLength(value.count) - size)
          try write(plaintext, at: path, to: &output, reusing: &cipher)
        }
      }
    }
    guard let box else { return try put(secret.kind.rawValue, secret.value) }
    return try box.withBytes { box throws(StorageError) in try put(PaddedValue.boxKind, box) }
  }

  /// The entry that a set is about to replace; nil if there is none or it is beyond repair.
  private func entryToReplace(
    at path: EntryPath, keeping cipher: inout XAES?, _ replaced: inout StoredEntry?
  ) throws(StorageError) -> (names: EntryNames, isPresenceRequired: Bool)? {
    var unknownKeyID: UInt32?
    do throws(StorageError) {
      switch try readEntry(at: path, .names, for: .replacing, keeping: &cipher, &replaced) {
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

  // MARK: Changing keys

  /// What became of an entry that was to be sealed again.
  private enum Resealing {
    case done
    /// There is an entry at its primary path, so this one was replaced or moved already.
    case outdated
    case damaged(StorageError)
    case unknownKey(UInt32)
    /// The header or the entry has changed.
    case overtaken
  }

  /// Seals an entry again under the primary key, and moves it to its primary path.
  ///
  /// - Returns: nil if the header or the entry has changed.
  func resealEntry(at path: EntryPath) throws(StorageError) -> Void? {
    var primaryPath = path
    if ring.nameKeyCount > 1 {
      switch try readEntry(at: path, .names, for: .changingKeys) {
      case .missing: return ()
      case .unknownKey(let id): return try requireOutdatedKeys(id, path)
      case .opened(let entry):
        if let names = entry.names {
          primaryPath = try entryPath(service: names.service, key: names.key)
        }
      }
    }
    switch try resealEntry(at: path, movingTo: primaryPath) {
    case .done: return ()
    case .outdated: return try revision.removeEntry(at: [path])
    case .damaged(let error): throw error
    case .unknownKey(let id): return try requireOutdatedKeys(id, path)
    case .overtaken: return nil
    }
  }

  /// Throws if an entry's key is not just unknown to this session.
  private func requireOutdatedKeys(_ id: UInt32, _ path: EntryPath) throws(StorageError) -> Void? {
    if try revision.isStillStored() { throw path.unknownKeyError(id) }
    return nil
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
      case .damaged where !secret.replaces: return .exists
      case .outdated, .damaged:
        if try revision.removeEntry(at: [older]) == nil { return .overtaken }
      case .unknownKey(let id):
        _ = try requireOutdatedKeys(id, older)
        return .overtaken
      case .overtaken: return .overtaken
      }
    }
    return nil
  }

  private func resealEntry(
    at path: EntryPath, movingTo primaryPath: EntryPath
  ) throws(StorageError) -> Resealing {
    // Writers of the entry lock its primary path, whichever path it has now.
    try revision.withLock(on: primaryPath) { () throws(StorageError) in
      guard try isCurrent() else { return .overtaken }
      let isMove = primaryPath.subpath != path.subpath
      if isMove, try revision.openEntry(primaryPath, for: .changingKeys) != nil {
        return .outdated
      }
      var old: StoredEntry?
      var cipher: XAES?
      do throws(StorageError) {
        switch try readEntry(at: path, .all, for: .changingKeys, keeping: &cipher, &old) {
        case .missing: return .done
        case .unknownKey(let id): return .unknownKey(id)
        case .opened(let entry):
          guard let names = entry.names, isMove || entry.header.keyID != ring.primaryID
          else { return .done }
          let plaintext = EntryPlaintext(
            names: names, isPresenceRequired: entry.header.isPresenceRequired,
            prefix: .init(start: nil, count: 0),
            value: UnsafeRawBufferPointer(entry.plaintext.bytes), paddingLength: 0)
          let replaced: Void? = try revision.replace(old, at: path, movingTo: primaryPath) {
            output throws(StorageError) in
            try write(plaintext, at: primaryPath, to: &output, reusing: &cipher)
          }
          return replaced == nil ? .overtaken : .done
        }
      } catch  where error.code == .damaged {
        return .damaged(error)
      }
    }
  }

  // MARK: Sealing

  /// Seals an entry under the primary key.
  ///
  /// Larger entries pass through a chunk buffer that is reused: allocating memory for a whole
  /// ciphertext costs more than encrypting it. The buffer never holds plaintext.
  ///
  /// - Parameter knownCipher: A cipher under the primary key, which this releases.
  private func write(
    _ plaintext: EntryPlaintext, at path: EntryPath, to destination: inout EntryOutput,
    reusing knownCipher: inout XAES?
  ) throws(StorageError) {
    let size = plaintext.prefix.count + plaintext.value.count + plaintext.paddingLength
    let names = plaintext.names
    let namesBoxLength = names.length + XAES.overhead
    let header = EntryHeader(
      isPresenceRequired: plaintext.isPresenceRequired, keyID: ring.primaryID,
      namesLength: namesBoxLength, valueLength: size + XAES.overhead)
    // The associated data of the value: the header, what binds the boxes to this path, and the
    // names box. What is before that is the associated data of the names.
    let bindingEnd = EntryHeader.size + EntryPath.bindingLength
    let dataLength = bindingEnd + namesBoxLength
    let isDone: Void? = try ring.withEntryKey(ring.primaryID) { key throws(StorageError) in
      try withUnsafeTemporaryAllocation(
        byteCount: dataLength + XAES.nonceSize + names.length, alignment: 8
      ) { memory throws(StorageError) in
        let (data, rest) = (memory[part: ..<dataLength], memory[part: dataLength...])
        var writer = ByteWriter(data)
        header.write(to: &writer)
        path.writeBinding(of: .names, vaultID: self.header.vaultID, to: &writer)
        let (nonce, namesText) = (rest[part: ..<XAES.nonceSize], rest[part: XAES.nonceSize...])
        let namesBox = data[part: bindingEnd...]
        // Both nonces at once: a call takes as long as sealing a small box. The names, which take
        // the place of the second one, are longer.
        try SystemRandom.fill(rest[part: ..<(2 * XAES.nonceSize)])
        namesBox.copyMemory(from: UnsafeRawBufferPointer(namesText[part: ..<XAES.nonceSize]))
        writer = ByteWriter(namesText)
        names.write(to: &writer)

        let cipher = try Self.takeCipher(&knownCipher, key: key)
        try cipher.seal(
          UnsafeRawBufferPointer(namesText),
          authenticating: UnsafeRawBufferPointer(data)[part: ..<bindingEnd], into: namesBox)
        // With the names box in it, opening the value alone detects a change of either.
        data[bindingEnd - 1] = EntryPath.Box.value.rawValue
        try cipher.begin(.sealing, nonce: UnsafeRawBufferPointer(nonce))
        try cipher.gcm.authenticate(UnsafeRawBufferPointer(data))

        try destination.write(header.fileLength) { output throws(StorageError) in
          try output.append(UnsafeRawBufferPointer(data)[part: ..<EntryHeader.size])
          try output.append(UnsafeRawBufferPointer(namesBox))
          try output.append(UnsafeRawBufferPointer(nonce))
          try output.append(plaintext.prefix, sealedWith: cipher.gcm)
          try output.append(plaintext.value, sealedWith: cipher.gcm)
          var paddingLeft = plaintext.paddingLength
          while paddingLeft > 0 {
            let count = min(paddingLeft, zeros.count)
            try zeros.withBytes { zeros throws(StorageError) in
              try output.append(zeros[part: ..<count], sealedWith: cipher.gcm)
            }
            paddingLeft -= count
          }
          try output.appendTag(of: cipher.gcm)
        }
      }
    }
    if isDone == nil { throw path.unknownKeyError(ring.primaryID) }
  }

  private static func takeCipher(
    _ known: inout XAES?, key: UnsafeRawBufferPointer
  ) throws(StorageError) -> XAES {
    if let cipher = known.take() { return cipher }
    return try XAES(key: key)
  }
}

private let zeros = [UInt8](repeating: 0, count: VaultSession.smallEntrySize)
#endif
