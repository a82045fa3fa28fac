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

/// Sealing entries and writing their files.
extension VaultSession {
  // MARK: Storing

  /// Seals a secret and moves its file into place.
  ///
  /// - Parameter isLockHeld: Whether the caller has locked the entry already.
  func write(
    _ secret: NewSecret, _ presenceKey: PresenceKey?, at path: EntryPath, isLockHeld: Bool
  ) throws(StorageError) -> WriteOutcome {
    // Before the user is asked for anything; what counts is the same look under the lock.
    if !secret.replaces, try isPresent(path) { return .exists }
    let now = WallClock.now
    var names = EntryNames(created: now, modified: now, service: secret.service, key: secret.key)
    var isPresenceRequired = secret.access == .userPresence
    // Opens the old names and seals the new ones: setting it up takes longer than both.
    var cipher: XAES?
    if let old = try entryToReplace(at: path, keeping: &cipher) {
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
    guard let box else {
      return try put(
        NewEntry(
          names: names, isPresenceRequired: false, kind: secret.kind.rawValue, value: secret.value),
        for: secret, at: path, isLockHeld: isLockHeld, reusing: &cipher)
    }
    return try box.withBytes { box throws(StorageError) in
      try put(
        NewEntry(names: names, isPresenceRequired: true, kind: PaddedValue.boxKind, value: box),
        for: secret, at: path, isLockHeld: isLockHeld, reusing: &cipher)
    }
  }

  private func isPresent(_ path: EntryPath) throws(StorageError) -> Bool {
    try FileSystem.status(path.path, followsLinks: false) != nil
  }

  private struct NewEntry {
    let names: EntryNames
    let isPresenceRequired: Bool
    let kind: UInt8
    let value: UnsafeRawBufferPointer
  }

  /// The entry that a set is about to replace; nil if there is none or it is beyond repair.
  private func entryToReplace(
    at path: EntryPath, keeping cipher: inout XAES?
  ) throws(StorageError) -> (names: EntryNames, isPresenceRequired: Bool)? {
    var unknownKeyID: UInt32?
    do throws(StorageError) {
      let directory = directories.withLock { $0.vault }
      switch try readEntry(at: path, in: directory, .names, keeping: &cipher) {
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

  /// Writes an entry and moves it into place, unless the header or the old value changed in the
  /// meantime.
  private func put(
    _ entry: NewEntry, for secret: NewSecret, at path: EntryPath, isLockHeld: Bool,
    reusing cipher: inout XAES?
  ) throws(StorageError) -> WriteOutcome {
    var attempts = 0
    while true {
      do throws(StorageError) {
        guard let directory = try prepareDirectory(of: path) else { return .overtaken }
        var temporary = try makeTemporaryFile(for: path, in: directory)
        try write(entry, at: path, to: temporary.file, reusing: &cipher)
        try temporary.file.synchronize()
        if isLockHeld {
          if !secret.replaces, try isPresent(path) { return .exists }
          try temporary.moveToDestination()
        } else {
          let outcome = try withLock(on: path) { () throws(StorageError) -> WriteOutcome in
            guard try isCurrent() else { return .overtaken }
            if !secret.replaces, try isPresent(path) { return .exists }
            // If the access was taken from the old entry, another process may have replaced that
            // entry since, provided that this header has a key for presence.
            if secret.access == nil, header.hasPresenceSlot,
              try isPresenceRequired(at: path) != entry.isPresenceRequired
            {
              return .overtaken
            }
            try temporary.moveToDestination()
            return .stored
          }
          guard case .stored = outcome else { return outcome }
        }
        try FileSystem.synchronizeDirectory(path.directoryName, in: directory)
        return .stored
      } catch  where error.code == .notFound && attempts < 3 {
        // Another process removed the service's directory, or the whole vault.
        attempts += 1
        directories.withLock { _ = $0.durable.remove(path.directoryName) }
        if try !isCurrent() { return .overtaken }
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
  ///
  /// - Returns: The vault's directory; nil if it is not the one that the header is in.
  private func prepareDirectory(of path: EntryPath) throws(StorageError) -> DirectoryHandle? {
    let known = directories.withLock { known in
      known.durable[path.directoryName] == nil ? nil : known.vault
    }
    if let known { return known }
    let mode = try paths.prepareDirectory()
    guard let directory = try directory() else { return nil }
    try FileSystem.makeDirectory(path.directoryName, in: directory, mode: mode)
    // The process that made that directory, the header or the key may have been killed before it
    // synchronized them.
    try paths.synchronize()
    if header.masterSlot?.kind == .keyFile { try keyFile().synchronize() }
    try FileSystem.removeStaleTemporaryFiles(for: paths.entryStem)
    directories.withLock { _ = $0.durable.set(path.directoryName, ()) }
    return directory
  }

  // MARK: Sealing

  private func write(
    _ entry: NewEntry, at path: EntryPath, to file: File, reusing cipher: inout XAES?
  ) throws(StorageError) {
    try PaddedValue.withPrefix(kind: entry.kind, length: entry.value.count) {
      prefix throws(StorageError) in
      let size = prefix.count + entry.value.count
      let plaintext = EntryPlaintext(
        names: entry.names, isPresenceRequired: entry.isPresenceRequired, prefix: prefix,
        value: entry.value, paddingLength: PaddedValue.paddedLength(entry.value.count) - size)
      try write(plaintext, at: path, to: file, reusing: &cipher)
    }
  }

  /// Seals an entry under the primary key.
  ///
  /// Larger entries pass through a chunk buffer that is reused: allocating memory for a whole
  /// ciphertext costs more than encrypting it. The buffer never holds plaintext.
  ///
  /// - Parameter knownCipher: A cipher under the primary key, which this releases.
  func write(
    _ plaintext: EntryPlaintext, at path: EntryPath, to file: File,
    reusing knownCipher: inout XAES?
  ) throws(StorageError) {
    let size = plaintext.prefix.count + plaintext.value.count + plaintext.paddingLength
    guard size <= AESGCM.maxMessageSize else {
      throw StorageError(
        .misuse, operation: "set", reason: "the value is too large for one secret",
        remedy: "Encrypt it in a file of your own, and store that file's key here.")
    }
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
        try OpenSSL.randomize(rest[part: ..<(2 * XAES.nonceSize)])
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

        try ChunkBuffer.with(header.fileLength) { buffer throws(StorageError) in
          var output = ChunkOutput(file: file, buffer: buffer)
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
          try output.flush()
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

  // MARK: Removing

  /// Removes an entry, and makes the removal survive a power cut.
  ///
  /// - Returns: nil when the vault header has changed.
  func removeEntry(at path: EntryPath) throws(StorageError) -> Void? {
    let directoryPath = paths.directory + "/" + path.directoryName
    guard try FileSystem.status(directoryPath) != nil else {
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
    return try FileSystem.synchronizeDirectory(directoryPath)
  }
}

private let zeros = [UInt8](repeating: 0, count: VaultSession.smallEntrySize)
#endif
