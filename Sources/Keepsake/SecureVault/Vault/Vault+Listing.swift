#if SecureVault
extension Vault {
  /// The keys of a service, sorted. An entry that cannot be opened is reported and hides no other.
  func keys(_ service: String) throws(StorageError) -> [String] {
    try list { session, failures throws(StorageError) in
      var keys: [String] = []
      for place in try location.places(in: try session.ring.directoryName(service)) {
        if let names = try names(of: place, session, &failures) { keys.append(names.key) }
      }
      return keys
    }
  }

  /// The services that have secrets, sorted.
  func services() throws(StorageError) -> [String] {
    try list { session, failures throws(StorageError) in
      var services: [String] = []
      for directory in try location.entryDirectories() {
        for place in try location.places(in: directory) {
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
    for failure in failures { report(failure.inContext(of: "list")) }
    return (names ?? []).sorted()
  }

  /// nil, and perhaps a failure more, where nothing can be opened.
  private func names(
    of place: EntryPath, _ session: VaultSession, _ failures: inout [StorageError]
  ) throws(StorageError) -> EntryNames? {
    do throws(StorageError) {
      switch try SealedFile.read(place, .names, session) {
      case .missing: return nil
      case .unknownKey(let id): failures.append(SealedFile.unknownKey(id, place))
      case .opened(let opened): return opened.names
      }
    } catch {
      // That is no property of the entry.
      if error.isDescriptorLimit { throw error }
      failures.append(error)
    }
    return nil
  }
}
#endif
