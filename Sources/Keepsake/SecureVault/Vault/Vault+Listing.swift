#if SecureVault
extension Vault {
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
          for path in try storage.entries(in: directoryName) {
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

extension VaultSession {
  /// The names in an entry. If it cannot be opened, returns nil and appends the failure.
  fileprivate func readNames(
    at path: EntryPath, _ failures: inout [StorageError]
  ) throws(StorageError) -> EntryNames? {
    do throws(StorageError) {
      return try readEntry(at: path, .names)?.names
    } catch {
      // Says nothing about the entry.
      if error.isDescriptorLimit { throw error }
      failures.append(error)
    }
    return nil
  }
}
#endif
