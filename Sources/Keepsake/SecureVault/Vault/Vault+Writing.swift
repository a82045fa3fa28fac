#if SecureVault
extension Vault {
  /// What a set stores.
  struct Secret {
    let kind: Payload.Kind
    let value: UnsafeRawBufferPointer
    let service: String
    let key: String
    /// nil keeps what the secret has that is there.
    let access: SecureVault.Access?
  }

  /// Stores a value such that it survives a power cut.
  func write(_ secret: Secret) throws(StorageError) {
    var presence: PresenceKey?
    for attempt in 0..<Self.maxAttempts {
      // Who loses to rotations again and again keeps them off.
      switch try write(secret, presence, holdingOffOthers: attempt >= 8) {
      case .done: return
      case .overtaken: continue
      case .presenceNeeded(let header):
        presence = try presenceKeyForWriting(header, reason: "Store the secret \(secret.key)")
      }
    }
    throw headerKeepsChanging
  }

  private enum WriteOutcome {
    case done
    /// The header or the old value changed meanwhile.
    case overtaken
    /// What is asked for may take its time, so nothing holds the keys meanwhile.
    case presenceNeeded(VaultHeader)
  }

  private func write(
    _ secret: Secret, _ presence: PresenceKey?, holdingOffOthers: Bool
  ) throws(StorageError) -> WriteOutcome {
    let session = try sessionForWriting()
    let place = try place(of: secret.service, secret.key, session)
    if holdingOffOthers {
      return try holding(place, session) { () throws(StorageError) -> WriteOutcome in
        if try !isCurrent(session) { try refresh(session) }
        // Another thread may have put an older one in its place meanwhile.
        guard let current = try openSession(), try isCurrent(current),
          current.header.vaultID == session.header.vaultID
        else { return .overtaken }
        return try write(secret, presence, at: place, current, isLockHeld: true)
      }
    }
    let outcome = try write(secret, presence, at: place, session, isLockHeld: false)
    if case .overtaken = outcome, try !isCurrent(session) { try refresh(session) }
    return outcome
  }

  private func write(
    _ secret: Secret, _ presence: PresenceKey?, at place: EntryPath, _ session: VaultSession,
    isLockHeld: Bool
  ) throws(StorageError) -> WriteOutcome {
    let now = WallClock.now
    var names = EntryNames(created: now, modified: now, service: secret.service, key: secret.key)
    var isPresenceRequired = secret.access == .userPresence
    if let old = try namesOfOld(place, session) {
      names.created = old.names.created
      if secret.access == nil { isPresenceRequired = old.isPresenceRequired }
    }
    // Sealed once more where a person has to be present, so that both keys are needed.
    var box: [UInt8]?
    if isPresenceRequired {
      guard let presence, presence.slot == session.header.presenceSlot else {
        return .presenceNeeded(session.header)
      }
      box = try presence.seal(secret.kind, secret.value, place, vaultID: session.header.vaultID)
    }
    let isDone: Bool
    if let box {
      isDone = try box.withBytes { box throws(StorageError) in
        try put(
          Contents(names: names, isPresenceRequired: true, kind: PaddedValue.boxKind, value: box),
          secret.access, at: place, session, isLockHeld: isLockHeld)
      }
    } else {
      isDone = try put(
        Contents(
          names: names, isPresenceRequired: false, kind: secret.kind.rawValue, value: secret.value),
        secret.access, at: place, session, isLockHeld: isLockHeld)
    }
    return isDone ? .done : .overtaken
  }

  private struct Contents {
    let names: EntryNames
    let isPresenceRequired: Bool
    let kind: UInt8
    let value: UnsafeRawBufferPointer
  }

  /// The names of what a set is going to replace; nil when nothing is there, or nothing that
  /// anybody will ever read.
  private func namesOfOld(
    _ place: EntryPath, _ session: VaultSession
  ) throws(StorageError) -> (names: EntryNames, isPresenceRequired: Bool)? {
    var unknown: UInt32?
    do throws(StorageError) {
      switch try SealedFile.read(place, .names, session) {
      case .missing: return nil
      case .opened(let opened):
        return opened.names.map { ($0, opened.head.isPresenceRequired) }
      case .unknownKey(let id): unknown = id
      }
    } catch  where error.code == .damaged {
      return nil
    }
    // With the right header it could be read again, so it is not overwritten.
    if let unknown, try isCurrent(session) { throw SealedFile.unknownKey(unknown, place) }
    return nil
  }

  /// Puts an entry in its place; false when the header or the old value changed meanwhile.
  private func put(
    _ contents: Contents, _ access: SecureVault.Access?, at place: EntryPath,
    _ session: VaultSession, isLockHeld: Bool
  ) throws(StorageError) -> Bool {
    var attempts = 0
    while true {
      do throws(StorageError) {
        try prepareDirectory(of: place, session)
        var temporary = try makeTemporary(for: place, session)
        try write(contents, at: place, session, to: temporary.file)
        try temporary.file.synchronize()
        if isLockHeld {
          try temporary.moveToDestination()
        } else {
          let isDone = try holding(place, session) { () throws(StorageError) in
            guard try isCurrent(session) else { return false }
            // What was kept may be what somebody else has just replaced, if this header has a key
            // for it.
            if access == nil, session.header.presenceSlot != nil,
              try isPresenceRequired(at: place) != contents.isPresenceRequired
            {
              return false
            }
            try temporary.moveToDestination()
            return true
          }
          guard isDone else { return false }
        }
        try FileSystem.synchronizeDirectory(place.directoryPath)
        return true
      } catch  where error.code == .notFound && attempts < 3 {
        // Somebody removed the service's directory, or the whole vault.
        attempts += 1
        session.durableDirectories.withLock { _ = $0.remove(place.directory) }
        if try !isCurrent(session) { return false }
      }
    }
  }

  private func write(
    _ contents: Contents, at place: EntryPath, _ session: VaultSession, to file: File
  ) throws(StorageError) {
    let prefix = PaddedValue.prefix(kind: contents.kind, length: contents.value.count)
    try prefix.withBytes { prefix throws(StorageError) in
      let count = prefix.count + contents.value.count
      let sealed = SealedFile.Contents(
        names: contents.names, isPresenceRequired: contents.isPresenceRequired,
        pieces: [prefix, contents.value],
        paddingLength: PaddedValue.paddedLength(contents.value.count) - count)
      try SealedFile.write(sealed, at: place, session, to: file)
    }
  }

  /// Makes a service's directory where it is missing, for good.
  private func prepareDirectory(
    of place: EntryPath, _ session: VaultSession
  ) throws(StorageError) {
    if session.durableDirectories.withLock({ $0.contains(place.directory) }) { return }
    try FileSystem.makeDirectory(place.directoryPath, mode: try location.prepare())
    // Whoever made that directory, the header or the key may have been killed before the sync.
    try location.synchronize()
    if session.header.masterSlot?.kind == .keyFile { try keyFile().synchronize() }
    try FileSystem.removeStaleTemporaryFiles(for: location.entryStem)
    session.durableDirectories.withLock { _ = $0.insert(place.directory) }
  }

  /// As the entry's head says it; one that cannot be read is going to be replaced.
  private func isPresenceRequired(at place: EntryPath) throws(StorageError) -> Bool {
    do throws(StorageError) {
      return try SealedFile.head(place)?.isPresenceRequired ?? false
    } catch  where error.code == .damaged {
      return false
    }
  }

  func makeTemporary(
    for place: EntryPath, _ session: VaultSession
  ) throws(StorageError) -> TemporaryFile {
    try TemporaryFile.make(
      at: location.temporaryPath(session.temporaryNumber()), for: place.path,
      mode: try location.host.directoryMode() & 0o666)
  }

  /// Holds off who else writes that entry, or changes the header.
  func holding<R>(
    _ place: EntryPath, _ session: VaultSession, _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    try session.lock.withLock(
      place.lockByte, mode: try location.host.directoryMode() & 0o666, timeout: timeout, body)
  }

  /// Removes a secret such that it stays removed after a power cut; nothing happens when it is
  /// missing.
  func remove(_ service: String, _ key: String) throws(StorageError) {
    _ = try withSession { session throws(StorageError) in
      try remove(place(of: service, key, session), session)
    }
  }

  /// Removes all secrets of a service.
  func removeAll(_ service: String) throws(StorageError) {
    _ = try withSession { session throws(StorageError) -> Void? in
      for place in try location.places(in: try session.ring.directoryName(service)) {
        guard try remove(place, session) != nil else { return nil }
      }
      guard try isCurrent(session) else { return nil }
      // Also when nothing was there: an earlier call may have come no further than that.
      let directory = location.directory + "/" + (try session.ring.directoryName(service))
      if try FileSystem.status(directory) != nil { try FileSystem.synchronizeDirectory(directory) }
      return ()
    }
  }

  /// nil when the vault's header has changed meanwhile.
  private func remove(
    _ place: EntryPath, _ session: VaultSession
  ) throws(StorageError) -> Void? {
    guard try FileSystem.status(place.directoryPath) != nil else {
      return try isCurrent(session) ? () : nil
    }
    let isDone = try holding(place, session) { () throws(StorageError) in
      guard try isCurrent(session) else { return false }
      try FileSystem.unlink(place.path)
      return true
    }
    guard isDone else { return nil }
    // Also when nothing was there: an earlier call may have come no further than that.
    return try FileSystem.synchronizeDirectory(place.directoryPath)
  }
}
#endif
