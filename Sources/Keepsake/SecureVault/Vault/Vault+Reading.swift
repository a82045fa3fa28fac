#if SecureVault
/// A secret's value, opened.
struct OpenedSecret: ~Copyable {
  let kind: Payload.Kind
  let memory: SecretBytes
  /// The part of the memory that is the value.
  let range: Range<Int>

  /// - Parameter plaintext: The plaintext of the value box.
  fileprivate init(
    _ plaintext: consuming SecretBytes, at path: EntryPath
  ) throws(StorageError) {
    guard let (rawKind, range) = PaddedValue.parse(UnsafeRawBufferPointer(plaintext.bytes)),
      let kind = Payload.Kind(rawValue: rawKind)
    else { throw path.damageError("its value has an unknown kind") }
    self.kind = kind
    self.range = range
    memory = plaintext
  }

  /// nil when the bytes are not valid for their kind.
  var value: StoredValue? { kind.value(of: UnsafeRawBufferPointer(memory.bytes)[part: range]) }

  func withBytes<R, E: Error>(_ body: (RawSpan) throws(E) -> R) throws(E) -> R {
    try body(UnsafeRawBufferPointer(memory.bytes)[part: range].bytes)
  }
}

extension Vault {
  /// The value of a secret; nil when there is none.
  ///
  /// - Parameters:
  ///   - reason: Shown to the user if the secret requires the user's presence.
  ///   - expectsPresence: Whether a secret that does not require the user's presence is an error.
  func read(
    _ service: String, _ key: String, reason: String?, expectsPresence: Bool = false
  ) throws(StorageError) -> OpenedSecret? {
    guard let entry = try findEntry(service, key, .value) else { return nil }
    let (path, header) = (entry.path, entry.vaultHeader)
    guard entry.isPresenceRequired else {
      if expectsPresence {
        throw StorageError(
          .accessDenied, operation: "get", path: path.path,
          reason: "the secret was stored without requiring the user's presence",
          remedy: "Set it again with this key; another program may have replaced it.")
      }
      return try OpenedSecret(entry.plaintext(), at: path)
    }
    let plaintext = entry.plaintext()
    return try OpenedSecret(
      try openPresenceBox(
        in: plaintext,
        authenticating: KeyRing.presenceAssociatedData(service, key, vaultID: header.vaultID),
        at: path, header, reason: reason ?? "Read the secret \(key)"), at: path)
  }

  /// Whether a secret exists; it is not opened.
  func contains(_ service: String, _ key: String) throws(StorageError) -> Bool {
    let exists = try withSession { session throws(StorageError) -> Bool? in
      let path = try session.entryPath(service: service, key: key)
      if try session.revision.contains(path) { return true }
      for path in try session.pathsAfterMiss(of: path, service: service, key: key)
      where try session.revision.contains(path) { return true }
      return try session.isCurrent() ? false : nil
    }
    return exists ?? false
  }

  /// A secret's dates, and whether it requires the user's presence; nil when there is none.
  func names(
    _ service: String, _ key: String
  ) throws(StorageError) -> (names: EntryNames, isPresenceRequired: Bool)? {
    guard let entry = try findEntry(service, key, .names), let names = entry.names else {
      return nil
    }
    return (names, entry.isPresenceRequired)
  }

  /// An entry without the session it came from: asking the user may take long, and must not keep
  /// the keys in memory.
  private struct FoundEntry: ~Copyable {
    let path: EntryPath
    let vaultHeader: VaultHeader
    private let opened: OpenedEntry

    init(_ path: EntryPath, _ vaultHeader: VaultHeader, _ opened: consuming OpenedEntry) {
      self.path = path
      self.vaultHeader = vaultHeader
      self.opened = opened
    }

    var isPresenceRequired: Bool { opened.header.isPresenceRequired }
    var names: EntryNames? { opened.names }
    consuming func plaintext() -> SecretBytes { opened.plaintext }
  }

  /// Reads an entry; nil when there is none.
  private func findEntry(
    _ service: String, _ key: String, _ part: EntryPart
  ) throws(StorageError) -> FoundEntry? {
    var found: FoundEntry?
    _ = try withSession { session throws(StorageError) -> Void? in
      let path = try session.entryPath(service: service, key: key)
      guard let isFound = try find(path, session, part, &found) else { return nil }
      if isFound { return () }
      for path in try session.pathsAfterMiss(of: path, service: service, key: key) {
        guard let isFound = try find(path, session, part, &found) else { return nil }
        if isFound { return () }
      }
      return try session.isCurrent() ? () : nil
    }
    return found
  }

  /// Reads the entry at a path.
  ///
  /// - Returns: Whether there is one; nil if the header has changed.
  private func find(
    _ path: EntryPath, _ session: VaultSession, _ part: EntryPart, _ found: inout FoundEntry?
  ) throws(StorageError) -> Bool? {
    switch try session.readEntry(at: path, part) {
    case .opened(let entry):
      // The header also has the slot of the presence key, which may have been replaced.
      if part == .value, entry.header.isPresenceRequired, try !session.isCurrent() { return nil }
      found = FoundEntry(path, session.header, entry)
      return true
    case .missing: return false
    case .unknownKey(let id):
      if try session.isCurrent() { throw path.unknownKeyError(id) }
      return nil
    }
  }
}
#endif
