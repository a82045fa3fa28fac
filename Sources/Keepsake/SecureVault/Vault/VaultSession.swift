#if SecureVault
internal import Synchronization

/// An open vault: its header at one moment, and the keys that came from it.
final class VaultSession: Sendable {
  let header: VaultHeader
  let identity: HeaderIdentity
  let ring: KeyRing
  let paths: VaultPaths
  /// What the session knows of the vault's directory.
  let directories = Locked(KnownDirectories())
  private let lock: ByteRangeLock
  private let lockTimeout: Duration
  private let entryPathCache = Locked(EntryPathCache())
  private let temporaryCount = Atomic(UInt64.random(in: .min ... .max))

  init(
    header: VaultHeader, identity: HeaderIdentity, ring: KeyRing, paths: VaultPaths,
    lockTimeout: Duration
  ) {
    self.header = header
    self.identity = identity
    self.ring = ring
    self.paths = paths
    self.lockTimeout = lockTimeout
    lock = ByteRangeLock(paths.lock)
  }

  /// Whether the vault header is still the one that the keys came from.
  func isCurrent() throws(StorageError) -> Bool {
    let status = try FileSystem.status(paths.header, withTimes: true)
    return status.map { identity.isSame(as: $0) } ?? false
  }

  func keyFile() throws(StorageError) -> KeyFile {
    KeyFile(path: try paths.keyFilePath(), timeout: lockTimeout)
  }

  /// Runs `body` while no other thread or process writes that entry or the header.
  func withLock<R>(
    on path: EntryPath, _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    try lock.withLock(path.lockByte, mode: try paths.fileMode(), timeout: lockTimeout, body)
  }

  func makeTemporaryFile(
    for path: EntryPath, in directory: DirectoryHandle
  ) throws(StorageError) -> TemporaryFile {
    // Counting from a random number makes the name unique without a system call.
    let number = temporaryCount.wrappingAdd(1, ordering: .relaxed).newValue
    return try TemporaryFile.make(
      at: paths.temporaryEntry(number), for: path.subpath, in: directory,
      mode: try paths.fileMode())
  }

  /// The vault's directory, which stays open; nil if it is not the one that the header is in.
  ///
  /// Another process may replace the vault. Callers that write through this handle therefore check
  /// the header under the lock.
  func directory() throws(StorageError) -> DirectoryHandle? {
    if let known = directories.withLock({ $0.vault }) { return known }
    let opened = try DirectoryHandle(paths.directory)
    let status = try FileSystem.status(VaultMarker.fileName, in: opened, withTimes: true)
    guard let status, identity.isSame(as: status) else { return nil }
    directories.withLock { $0.vault = opened }
    return opened
  }

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
      vault: paths.directory, directoryName: directoryName,
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

/// The directories that a session has written to.
struct KnownDirectories {
  var vault: DirectoryHandle?
  /// The names of service directories that are known to survive a power cut.
  var durable = ByteKeyedDictionary<Void>()
}

/// Identifies the file that a header was read from.
///
/// The file is kept open, so that no later file can have the same inode number.
struct HeaderIdentity: Sendable {
  let file: File
  let status: FileStatus

  func isSame(as other: FileStatus) -> Bool {
    status.isSameFile(as: other) && status.size == other.size && status.changed == other.changed
      && status.modified == other.modified
  }
}
#endif
