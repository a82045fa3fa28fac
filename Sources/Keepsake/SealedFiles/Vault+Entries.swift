internal import FoundationEssentials

/// A value as it was stored, out of its box.
struct OpenedSecret: ~Copyable {
  let kind: Payload.Kind
  let memory: SecretBytes
  let range: Range<Int>

  /// What the bytes mean; nil when they do not fit their kind.
  var value: StoredValue? { kind.value(of: UnsafeRawBufferPointer(memory.bytes)[part: range]) }

  func withBytes<R, E: Error>(_ body: (RawSpan) throws(E) -> R) throws(E) -> R {
    try body(UnsafeRawBufferPointer(memory.bytes)[part: range].bytes)
  }
}

// MARK: - Reading

extension Vault {
  /// The value of a key; nil when there is none.
  ///
  /// - Parameter reason: What a person is told if one has to be present.
  func read(
    _ service: String, _ key: String, reason: String?
  ) throws(StorageError) -> OpenedSecret? {
    guard let found = try find(service, key, .value) else { return nil }
    let (place, header) = (found.place, found.header)
    guard found.isPresenceRequired else { return try Self.secret(found.plaintext(), place) }
    let box = found.plaintext()
    return try Self.secret(
      try openPresenceBox(box, place, header, reason: reason ?? "Read the secret \(key)"), place)
  }

  private static func secret(
    _ plaintext: consuming SecretBytes, _ place: EntryPlace
  ) throws(StorageError) -> OpenedSecret {
    guard let (rawKind, range) = Content.parse(UnsafeRawBufferPointer(plaintext.bytes)),
      let kind = Payload.Kind(rawValue: rawKind)
    else { throw SealedFile.damage("its value is of an unknown kind", place) }
    return OpenedSecret(kind: kind, memory: plaintext, range: range)
  }

  /// Whether there is a secret; it is not opened.
  func contains(_ service: String, _ key: String) throws(StorageError) -> Bool {
    let isThere = try withSession { session throws(StorageError) -> Bool? in
      if try FileSystem.status(place(of: service, key, session).path) != nil { return true }
      return try isCurrent(session) ? false : nil
    }
    return isThere ?? false
  }

  /// The dates of a secret, and whether a person has to be present; nil when there is none.
  func names(
    _ service: String, _ key: String
  ) throws(StorageError) -> (names: EntryNames, isPresenceRequired: Bool)? {
    guard let found = try find(service, key, .names), let names = found.names else { return nil }
    return (names, found.isPresenceRequired)
  }

  /// An entry that was found, without the keys to it: what follows may take its time.
  private struct FoundEntry: ~Copyable {
    let place: EntryPlace
    let header: VaultHeader
    private let opened: SealedFile.Opened

    init(_ place: EntryPlace, _ header: VaultHeader, _ opened: consuming SealedFile.Opened) {
      self.place = place
      self.header = header
      self.opened = opened
    }

    var isPresenceRequired: Bool { opened.head.isPresenceRequired }
    var names: EntryNames? { opened.names }
    consuming func plaintext() -> SecretBytes { opened.plaintext }
  }

  private enum Lookup: ~Copyable {
    case missing
    case found(FoundEntry)
  }

  /// Reads an entry; nil when there is none.
  private func find(
    _ service: String, _ key: String, _ part: SealedFile.Part
  ) throws(StorageError) -> FoundEntry? {
    let lookup = try withSession { session throws(StorageError) -> Lookup? in
      let place = try place(of: service, key, session)
      switch try SealedFile.read(place, part, session) {
      case .opened(let opened): return .found(FoundEntry(place, session.header, opened))
      case .missing:
        if try isCurrent(session) { return .missing }
      case .unknownKey(let id):
        if try isCurrent(session) { throw SealedFile.unknownKey(id, place) }
      }
      return nil
    }
    guard let lookup else { return nil }
    switch consume lookup {
    case .missing: return nil
    case .found(let entry): return entry
    }
  }

  private func place(
    of service: String, _ key: String, _ session: VaultSession
  ) throws(StorageError) -> EntryPlace {
    guard service.utf8.count <= EntryNames.longest, key.utf8.count <= EntryNames.longest else {
      throw StorageError(
        .misuse, operation: "open",
        reason: "the name of the key or service is longer than \(EntryNames.longest) bytes",
        remedy: "Use a shorter name, such as a hash of this one.")
    }
    return try session.ring.place(of: service, key, in: location.folder)
  }
}

// MARK: - Writing

extension Vault {
  /// Stores a value such that it survives a power cut.
  ///
  /// - Parameter access: nil keeps what the secret has that is there.
  func write(
    _ kind: Payload.Kind, _ value: UnsafeRawBufferPointer, _ service: String, _ key: String,
    access: SecureVault.Access?
  ) throws(StorageError) {
    var presence: PresenceKey?
    for attempt in 0..<Self.mostAttempts {
      // Who loses to rotations again and again keeps them off.
      let outcome = try write(
        kind, value, service, key, access, presence, holdingOffOthers: attempt >= 8)
      switch outcome {
      case .done: return
      case .headerChanged: continue
      case .presenceNeeded(let header):
        presence = try presenceKeyForWriting(header, reason: "Store the secret \(key)")
      }
    }
    throw restless
  }

  private enum WriteOutcome {
    case done
    case headerChanged
    /// What is asked for may take its time, so nothing holds the keys meanwhile.
    case presenceNeeded(VaultHeader)
  }

  private func write(
    _ kind: Payload.Kind, _ value: UnsafeRawBufferPointer, _ service: String, _ key: String,
    _ access: SecureVault.Access?, _ presence: PresenceKey?, holdingOffOthers: Bool
  ) throws(StorageError) -> WriteOutcome {
    let session = try sessionForWriting()
    let place = try place(of: service, key, session)
    if holdingOffOthers {
      return try holding(place) { () throws(StorageError) -> WriteOutcome in
        if try !isCurrent(session) { try refresh(session) }
        guard let current = try openSession(), current.header.vaultID == session.header.vaultID
        else { return .headerChanged }
        return try write(
          kind, value, service, key, access, presence, place, current, isLockHeld: true)
      }
    }
    let outcome = try write(
      kind, value, service, key, access, presence, place, session, isLockHeld: false)
    if case .headerChanged = outcome { try refresh(session) }
    return outcome
  }

  private func write(
    _ kind: Payload.Kind, _ value: UnsafeRawBufferPointer, _ service: String, _ key: String,
    _ access: SecureVault.Access?, _ presence: PresenceKey?, _ place: EntryPlace,
    _ session: VaultSession, isLockHeld: Bool
  ) throws(StorageError) -> WriteOutcome {
    let now = WallClock.now
    var names = EntryNames(created: now, modified: now, service: service, key: key)
    var isPresenceRequired = access == .userPresence
    if let old = try namesOfOld(place, session) {
      names.created = old.names.created
      if access == nil { isPresenceRequired = old.isPresenceRequired }
    }
    let isDone: Bool
    if isPresenceRequired {
      guard let presence, presence.slot == session.header.presenceSlot else {
        return .presenceNeeded(session.header)
      }
      // Sealed once more, so that both keys are needed.
      let box = try presence.seal(kind, value, place, vaultID: session.header.vaultID)
      isDone = try box.withBytes { box throws(StorageError) in
        try put(box, Content.boxKind, names, true, place, session, isLockHeld)
      }
    } else {
      isDone = try put(value, kind.rawValue, names, false, place, session, isLockHeld)
    }
    return isDone ? .done : .headerChanged
  }

  /// The names of what a set is going to replace; nil when nothing is there, or nothing that anybody
  /// will ever read.
  private func namesOfOld(
    _ place: EntryPlace, _ session: VaultSession
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

  /// Puts an entry in its place; false when the vault's header has changed meanwhile.
  private func put(
    _ value: UnsafeRawBufferPointer, _ kind: UInt8, _ names: EntryNames,
    _ isPresenceRequired: Bool, _ place: EntryPlace, _ session: VaultSession, _ isLockHeld: Bool
  ) throws(StorageError) -> Bool {
    let prefix = Content.prefix(kind: kind, length: value.count)
    return try prefix.withBytes { prefix throws(StorageError) in
      let contents = SealedFile.Contents(
        names: names, isPresenceRequired: isPresenceRequired, pieces: [prefix, value],
        paddingLength: Content.paddedLength(value.count) - prefix.count - value.count)
      var attempts = 0
      while true {
        do throws(StorageError) {
          return try put(contents, place, session, isLockHeld)
        } catch  where error.code == .notFound && attempts < 3 {
          // Somebody removed the service's folder, or the whole vault.
          attempts += 1
          session.durableFolders.withLock { _ = $0.remove(place.folder) }
          if try !isCurrent(session) { return false }
        }
      }
    }
  }

  private func put(
    _ contents: SealedFile.Contents, _ place: EntryPlace, _ session: VaultSession,
    _ isLockHeld: Bool
  ) throws(StorageError) -> Bool {
    if !session.durableFolders.withLock({ $0.contains(place.folder) }) {
      try FileSystem.makeFolder(place.folderPath, mode: try location.prepare())
      // Whoever made that folder, the header or the key may have been killed before the sync.
      try location.synchronize()
      if session.header.masterSlot?.kind == .keyFile { try keyFile().synchronize() }
      try FileSystem.sweepTemporaries(beside: location.entryStem)
      session.durableFolders.withLock { _ = $0.insert(place.folder) }
    }
    var temporary = try makeTemporary(for: place)
    try SealedFile.write(contents, at: place, session, to: temporary.file)
    try temporary.file.synchronize()
    if isLockHeld {
      try temporary.moveIntoPlace()
    } else {
      let isDone = try holding(place) { () throws(StorageError) in
        guard try isCurrent(session) else { return false }
        try temporary.moveIntoPlace()
        return true
      }
      guard isDone else { return false }
    }
    try FileSystem.synchronizeFolder(place.folderPath)
    return true
  }

  func makeTemporary(for place: EntryPlace) throws(StorageError) -> TemporaryFile {
    try TemporaryFile.make(
      beside: location.entryStem, for: place.path, mode: try location.host.mode() & 0o666)
  }

  /// Holds off who else writes that entry, or changes the header.
  func holding<R>(
    _ place: EntryPlace, _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    try ByteLock.hold(
      place.lockByte, of: location.lockPath, mode: try location.host.mode() & 0o666,
      timeout: timeout, body)
  }

  /// Removes a secret such that it stays removed after a power cut; nothing happens when it is missing.
  func remove(_ service: String, _ key: String) throws(StorageError) {
    _ = try withSession { session throws(StorageError) in
      try remove(place(of: service, key, session), session)
    }
  }

  /// Removes all secrets of a service.
  func removeAll(_ service: String) throws(StorageError) {
    _ = try withSession { session throws(StorageError) -> Void? in
      for place in try location.places(in: try session.ring.folderName(service)) {
        guard try remove(place, session) != nil else { return nil }
      }
      return try isCurrent(session) ? () : nil
    }
  }

  /// nil when the vault's header has changed meanwhile.
  private func remove(
    _ place: EntryPlace, _ session: VaultSession
  ) throws(StorageError) -> Void? {
    guard try FileSystem.status(place.folderPath) != nil else {
      return try isCurrent(session) ? () : nil
    }
    let isDone = try holding(place) { () throws(StorageError) in
      guard try isCurrent(session) else { return false }
      try FileSystem.unlink(place.path)
      return true
    }
    guard isDone else { return nil }
    // Also when nothing was there: an earlier call may have come no further than that.
    return try FileSystem.synchronizeFolder(place.folderPath)
  }
}

// MARK: - Listing

extension Vault {
  /// The keys of a service, sorted. An entry that cannot be opened is reported and hides no other.
  func keys(_ service: String) throws(StorageError) -> [String] {
    try list { session, failures throws(StorageError) in
      var keys: [String] = []
      for place in try location.places(in: try session.ring.folderName(service)) {
        if let names = try names(of: place, session, &failures) { keys.append(names.key) }
      }
      return keys
    }
  }

  /// The services that have secrets, sorted.
  func services() throws(StorageError) -> [String] {
    try list { session, failures throws(StorageError) in
      var services: [String] = []
      for folder in try location.entryFolders() {
        for place in try location.places(in: folder) {
          guard let names = try names(of: place, session, &failures) else { continue }
          services.append(names.service)
          break
        }
      }
      return services
    }
  }

  private func list(
    _ look: (VaultSession, inout [StorageError]) throws(StorageError) -> [String]
  ) throws(StorageError) -> [String] {
    var failures: [StorageError] = []
    let names = try withSession { session throws(StorageError) -> [String]? in
      failures = []
      let names = try look(session, &failures)
      return try isCurrent(session) ? names : nil
    }
    // Not before the keys are let go of: whoever hears of it may lock the vault.
    for failure in failures { report(failure.during("list")) }
    return (names ?? []).sorted()
  }

  /// nil, and perhaps a failure more, where nothing can be opened.
  private func names(
    of place: EntryPlace, _ session: VaultSession, _ failures: inout [StorageError]
  ) throws(StorageError) -> EntryNames? {
    do throws(StorageError) {
      switch try SealedFile.read(place, .names, session) {
      case .missing: return nil
      case .unknownKey(let id): failures.append(SealedFile.unknownKey(id, place))
      case .opened(let opened): return opened.names
      }
    } catch {
      // That is no property of the entry.
      if error.isOfDescriptors { throw error }
      failures.append(error)
    }
    return nil
  }
}
