#if SecureVault
extension Vault {
  /// The value of a secret; nil when there is none.
  ///
  /// - Parameters:
  ///   - reason: Shown to the user if the secret requires the user's presence.
  ///   - expectsPresence: Whether a secret that does not require the user's presence is an error.
  func read(
    _ service: String, _ key: String, reason: String?, expectsPresence: Bool = false
  ) throws(StorageError) -> OpenedEntry? {
    guard var entry = try findEntry(service, key, .value) else { return nil }
    if let header = entry.vaultHeader {
      let presenceKey = try presenceKey(
        for: entry, in: header, reason: reason ?? "Read the secret \(key)")
      try entry.openValue(
        under: presenceKey,
        authenticating: KeyRing.presenceAssociatedData(service, key, vaultID: header.vaultID))
    } else if expectsPresence {
      throw StorageError(
        .accessDenied, operation: "get", path: entry.path.path,
        reason: "the secret was stored without requiring the user's presence",
        remedy: "Set it again with this key; another program may have replaced it.")
    }
    if Payload.Kind(rawValue: entry.kind) == nil { throw entry.path.unknownKindError }
    return entry
  }

  /// Whether a secret exists; it is not opened.
  func contains(_ service: String, _ key: String) throws(StorageError) -> Bool {
    let exists = try withSession { session throws(StorageError) -> Bool? in
      let path = try session.entryPath(service: service, key: key)
      if try session.storage.contains(path) { return true }
      for path in try session.pathsAfterMiss(of: path, service: service, key: key)
      where try session.storage.contains(path) { return true }
      return try session.isCurrent() ? false : nil
    }
    return exists ?? false
  }

  /// Reads an entry; nil when there is none.
  func findEntry(
    _ service: String, _ key: String, _ part: EntryPart
  ) throws(StorageError) -> OpenedEntry? {
    var found: OpenedEntry?
    _ = try withSession { session throws(StorageError) -> Void? in
      do throws(StorageError) {
        guard var entry = try session.findEntry(service, key, part) else {
          return try session.isCurrent() ? () : nil
        }
        entry.cipher = nil  // it holds a key
        // The header also has the slot of the presence key, which may have been replaced.
        if part == .value, entry.header.isPresenceRequired, try !session.isCurrent() {
          return nil
        }
        found = consume entry
        return ()
      } catch  where error.code == .damaged {
        // A later header may have the key.
        if try session.isCurrent() { throw error }
        return nil
      }
    }
    return found
  }

  // MARK: Listing

  /// The keys of a service, sorted. An entry that cannot be opened is reported and hides no other.
  func keys(_ service: String) throws(StorageError) -> [String] {
    try list { session, failures throws(StorageError) in
      var keys: [String] = []
      for directoryName in try session.directoryNames(of: service) {
        for path in try storage.entries(in: directoryName) {
          if let names = try session.readNames(at: path, &failures) { keys.append(names.key) }
        }
      }
      return keys
    }
  }

  /// The services that have secrets, sorted.
  func services() throws(StorageError) -> [String] {
    try list { session, failures throws(StorageError) in
      var services: [String] = []
      for _ in 0..<session.passCount {
        for directoryName in try storage.entryDirectories() {
          let paths = try withoutFailing(&failures) { () throws(StorageError) in
            try storage.entries(in: directoryName)
          }
          for path in paths ?? [] {
            guard let names = try session.readNames(at: path, &failures) else { continue }
            services.append(names.service)
            break
          }
        }
      }
      return services
    }
  }

  private func list(
    _ body: (VaultSession, inout [StorageError]) throws(StorageError) -> [String]
  ) throws(StorageError) -> [String] {
    var failures: [StorageError] = []
    let names = try withSession { session throws(StorageError) -> [String]? in
      failures = []
      let names = try body(session, &failures)
      return try session.isCurrent() ? names : nil
    }
    // Only once the session is released: the handler may lock the vault, which waits for that.
    for failure in failures { report(failure.inContext(of: "list")) }
    // An entry that was moved in the meantime was found twice.
    var distinct = ByteKeyedDictionary<Void>()
    return (names ?? []).filter { distinct.set($0, ()) == nil }.sorted()
  }
}

/// What `body` returns. If it throws, returns nil and appends the failure: one bad entry hides no
/// other.
private func withoutFailing<R>(
  _ failures: inout [StorageError], _ body: () throws(StorageError) -> R?
) throws(StorageError) -> R? {
  do throws(StorageError) {
    return try body()
  } catch {
    // Says nothing about the entry.
    if error.isDescriptorLimit { throw error }
    failures.append(error)
    return nil
  }
}

extension VaultSession {
  fileprivate func readNames(
    at path: EntryPath, _ failures: inout [StorageError]
  ) throws(StorageError) -> EntryNames? {
    try withoutFailing(&failures) { () throws(StorageError) in
      try readEntry(at: path, .names)?.names
    }
  }
}
#endif
