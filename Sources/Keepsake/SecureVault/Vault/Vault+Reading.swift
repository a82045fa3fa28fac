#if SecureVault
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
    _ plaintext: consuming SecretBytes, _ place: EntryPath
  ) throws(StorageError) -> OpenedSecret {
    guard let (rawKind, range) = PaddedValue.parse(UnsafeRawBufferPointer(plaintext.bytes)),
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
    let place: EntryPath
    let header: VaultHeader
    private let opened: SealedFile.Opened

    init(_ place: EntryPath, _ header: VaultHeader, _ opened: consuming SealedFile.Opened) {
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

  func place(
    of service: String, _ key: String, _ session: VaultSession
  ) throws(StorageError) -> EntryPath {
    guard service.utf8.count <= EntryNames.maxNameSize, key.utf8.count <= EntryNames.maxNameSize
    else {
      throw StorageError(
        .misuse, operation: "open",
        reason: "the name of the key or service is longer than \(EntryNames.maxNameSize) bytes",
        remedy: "Use a shorter name, such as a hash of this one.")
    }
    return try session.ring.place(of: service, key, in: location.directory)
  }
}
#endif
