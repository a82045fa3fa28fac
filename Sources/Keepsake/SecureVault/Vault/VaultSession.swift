#if SecureVault
/// An open vault: its header at one moment, and the keys that came from it.
final class VaultSession: Sendable {
  let header: VaultHeader
  /// The storage with that header.
  let storage: any VaultStorage
  let ring: KeyRing
  private let entryPathCache = Locked(EntryPathCache())

  init(header: VaultHeader, storage: any VaultStorage, ring: KeyRing) {
    self.header = header
    self.storage = storage
    self.ring = ring
  }

  /// Opens a vault; nil if the master key does not open its key set.
  ///
  /// - Parameter unwrap: Writes the master key to the memory that it is given.
  static func open(
    _ header: VaultHeader, _ storage: any VaultStorage,
    unwrap: (UnsafeMutableRawBufferPointer) throws(StorageError) -> Void
  ) throws(StorageError) -> VaultSession? {
    guard let ring = try KeyRing.open(header, unwrap: unwrap) else { return nil }
    var header = header
    header.sealedSlots = ring.sealedSlots
    return VaultSession(header: header, storage: storage, ring: ring)
  }

  /// Whether the vault header is still the one that the keys came from.
  func isCurrent() throws(StorageError) -> Bool { try storage.isCurrent() }

  // MARK: Paths

  /// The path of an entry's file, whether it exists or not, under the primary name key.
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

  /// The paths of an entry under the other name keys, the newest first: it is at one of them until
  /// it is moved. Usually there are none.
  func olderPaths(service: String, key: String) throws(StorageError) -> [EntryPath] {
    var paths: [EntryPath] = []
    for nameKey in 1..<max(1, ring.nameKeyCount) {
      paths.append(
        EntryPath(
          vault: storage.path, directoryName: try ring.directoryName(service, nameKey: nameKey),
          fileName: try ring.fileName(service, key, nameKey: nameKey)))
    }
    return paths
  }

  /// Where to look after `path`, the primary one, had no entry. An entry may be moved while one
  /// looks at the older paths, so this ends with the primary path again.
  func pathsAfterMiss(
    of path: EntryPath, service: String, key: String
  ) throws(StorageError) -> [EntryPath] {
    let older = try olderPaths(service: service, key: key)
    return older.isEmpty ? [] : older + [path]
  }

  /// The names of a service's directories, the primary one last: entries are moved to it.
  func directoryNames(of service: String) throws(StorageError) -> [String] {
    var names: [String] = []
    for nameKey in (0..<ring.nameKeyCount).reversed() {
      names.append(try ring.directoryName(service, nameKey: nameKey))
    }
    return names
  }

  /// How often to go through all entries so that none is missed that is moved in the meantime.
  var passCount: Int { ring.nameKeyCount > 1 ? 2 : 1 }

  /// Whether `path` belongs to the entry of this service and key, under any name key.
  func isPath(_ path: EntryPath, of service: String, _ key: String) throws(StorageError) -> Bool {
    if entryPathCache.withLock({ $0[service, key] })?.subpath == path.subpath { return true }
    for nameKey in 0..<ring.nameKeyCount {
      if try ring.directoryName(service, nameKey: nameKey) == path.directoryName,
        try ring.fileName(service, key, nameKey: nameKey) == path.fileName
      {
        return true
      }
    }
    return false
  }
}
#endif
