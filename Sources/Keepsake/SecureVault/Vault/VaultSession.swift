#if SecureVault
/// An open vault: its header at one moment, and the keys that came from it.
final class VaultSession: Sendable {
  let header: VaultHeader
  let revision: any VaultRevision
  let ring: KeyRing
  private let entryPathCache = Locked(EntryPathCache())

  init(header: VaultHeader, revision: any VaultRevision, ring: KeyRing) {
    self.header = header
    self.revision = revision
    self.ring = ring
  }

  var storage: any VaultStorage { revision.storage }

  /// Whether the vault header is still the one that the keys came from.
  func isCurrent() throws(StorageError) -> Bool { try revision.isCurrent() }

  // MARK: Paths

  /// The path of an entry's file, whether it exists or not.
  func entryPath(service: String, key: String) throws(StorageError) -> EntryPath {
    guard service.utf8.count <= EntryNames.maxNameSize, key.utf8.count <= EntryNames.maxNameSize
    else {
      throw StorageError(
        .misuse, operation: "open",
        reason: "the key or the service is longer than \(EntryNames.maxNameSize) bytes",
        remedy: "Use a shorter name, such as a hash of this one.")
    }
    if let path = entryPathCache.withLock({ $0[service, key] }) { return path }
    let known = entryPathCache.withLock { $0.directoryName(of: service) }
    let directoryName = if let known { known } else { try ring.directoryName(service) }
    let path = EntryPath(
      vault: storage.path, directoryName: directoryName,
      fileName: try ring.fileName(service, key))
    entryPathCache.withLock { $0.insert(path, service, key) }
    return path
  }

  /// Whether `path` is where the entry of this service and key belongs.
  func isPath(_ path: EntryPath, of service: String, _ key: String) throws(StorageError) -> Bool {
    if let known = entryPathCache.withLock({ $0[service, key] }) {
      return known.directoryName == path.directoryName && known.fileName == path.fileName
    }
    let directoryName = try ring.directoryName(service)
    let fileName = try ring.fileName(service, key)
    return directoryName == path.directoryName && fileName == path.fileName
  }
}
#endif
