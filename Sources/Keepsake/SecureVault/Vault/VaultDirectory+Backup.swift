#if SecureVault
/// Backups of a vault, and replacing a vault by a backup. A backup is a vault's directory too.
extension VaultDirectory {
  /// Copies the header and all entries as they are at one moment, so that no entry is sealed under
  /// a key that the header does not have. Durable.
  ///
  /// - Parameters:
  ///   - directory: The path of the copy, where nothing exists yet.
  ///   - keyFile: The path for a copy of the key file; nil for no copy.
  func backUp(to directory: String, keyFile: String?) throws(StorageError) {
    do {
      let lock = try lockExclusively().lock
      defer { lock.unlock() }
      guard try readHeader() != nil else { throw StorageError.missing(paths.header) }
      try Self.copyFiles(from: paths.directory, to: directory, mode: 0o700)
    }
    if let keyFile { try ownKeyFile().copy(to: keyFile) }
    try Self.synchronizeFiles(in: directory)
  }

  /// Prepares to replace the vault by a backup.
  ///
  /// - Parameter keyFile: The path of the backup's key file; nil if it has none.
  func prepareRestore(
    from directory: String, keyFile: String?
  ) throws(StorageError) -> PreparedRestore {
    let backedUpKeys = keyFile.map {
      KeyFile(path: $0, timeout: timeout, vault: directory)
    }
    let keys = if let backedUpKeys { backedUpKeys } else { try ownKeyFile() }
    try requireKey(to: directory, in: keys)
    let mode = try paths.prepareDirectory()
    // A link stays; the vault that it leads to is replaced.
    let path = try FileSystem.resolvingLink(paths.directory)
    try requireNoMount(path)
    try FileSystem.removeStaleTemporaryFiles(for: path)
    // Never wider than the directory that it replaces.
    let newMode = try mode & ((FileSystem.status(path)?.mode ?? mode) | 0o700)
    let staged = try StagedDirectory(
      "\(FileSystem.parent(of: path))/.\(FileSystem.name(of: path))."
        + String(UInt64.random(in: .min ... .max), radix: 16) + ".tmp", mode: newMode)
    try Self.copyFiles(from: directory, to: staged.path, mode: newMode)
    try Self.synchronizeFiles(in: staged.path)
    return PreparedRestore { () throws(StorageError) in
      // Keys are only added, so the vault that is replaced can still be opened.
      if let backedUpKeys { try self.ownKeyFile().addKeys(of: backedUpKeys) }
      return try self.restore(staged, replacing: path)
    }
  }

  /// Throws if the vault's directory is a mount point, which cannot be exchanged.
  private func requireNoMount(_ path: String) throws(StorageError) {
    guard let vault = try FileSystem.status(path),
      let parent = try FileSystem.status(FileSystem.parent(of: path)),
      vault.isMountPoint || vault.device != parent.device
    else { return }
    throw StorageError(
      .misuse, operation: "restore", path: path, reason: "another file system is mounted here",
      remedy: "Unmount it and restore what it holds, or end all programs that use the vault, move "
        + "its files away and copy the files of the backup here.")
  }

  /// Throws if the vault in a backup is damaged, or needs a key file that is missing.
  private func requireKey(to directory: String, in keyFile: KeyFile) throws(StorageError) {
    let path = directory + "/" + VaultMarker.fileName
    let file = try File(path, .readNoFollow)
    let header = try VaultHeader(file.read(from: 0, count: file.status().size), path: path)
    if let slot = header.masterSlot, slot.kind == .keyFile {
      _ = try keyFile.secret(forID: slot.locator)
    }
  }

  /// A new directory that is removed unless it has got another one's name.
  private final class StagedDirectory: Sendable {
    private let currentPath: Locked<String>
    private let status: FileStatus
    /// Locked, so that no other process takes it for one that was left.
    private let handle: DirectoryHandle

    init(_ path: String, mode: UInt32) throws(StorageError) {
      currentPath = Locked(path)
      try FileSystem.createDirectory(path, mode: mode, durable: false)
      do throws(StorageError) {
        handle = try DirectoryHandle(path)
        status = try handle.status()
        _ = handle.lock()
      } catch {
        // It is empty.
        try? FileSystem.remove(path)
        throw error
      }
    }

    var path: String { currentPath.withLock { $0 } }

    func rename(to path: String) throws(StorageError) {
      try currentPath.withLock { current throws(StorageError) in
        try FileSystem.rename(current, to: path)
        current = path
      }
    }

    // After an exchange, another directory has the path. One that cannot be removed has only sealed
    // files.
    deinit {
      let found = try? FileSystem.status(path, followsLinks: false)
      if let found, found.isSameFile(as: status) { try? FileSystem.remove(path) }
    }
  }

  /// Exchanges the vault at `path` with a complete one.
  ///
  /// - Returns: The path of the replaced vault; nil if its directory was empty.
  private func restore(
    _ staged: StagedDirectory, replacing path: String
  ) throws(StorageError) -> String? {
    let lock = try lockExclusively().lock
    defer { lock.unlock() }
    // All processes continue to lock the same file. Without hard links they lock a new one, and
    // their sessions are out of date.
    _ = try FileSystem.link(paths.lock, to: staged.path + "/.lock")
    let isEmpty = try FileSystem.list(path).allSatisfy { $0 == ".lock" }
    // The exchange gives the replaced vault this name, so that nothing takes it for a temporary
    // directory if a later step fails or this process is killed.
    let stem = path + ".replaced"
    let kept = try FileSystem.unusedPath(stem)
    try staged.rename(to: kept)
    guard try FileSystem.exchange(kept, with: path) else {
      throw StorageError(
        .misuse, operation: "restore", path: path,
        reason: "this file system cannot exchange two directories",
        remedy: "End all programs that use the vault, and replace it with the one in the backup.")
    }
    try FileSystem.synchronizeParent(of: path)
    guard isEmpty else {
      // What cannot be removed now is removed with the next one.
      try? FileSystem.removeOldCopies(before: kept, stem) { path throws(StorageError) in
        try eraseCopy(at: path)
      }
      return kept
    }
    // Nothing is lost if it stays.
    try? FileSystem.unlink(kept + "/.lock")
    _ = try? ConfinedPath(base: FileSystem.parent(of: kept))
      .appending(FileSystem.name(of: kept)).removeEmptyDirectory()
    return nil
  }

  // MARK: Copying files

  /// Copies the header and the entries in one directory to a new one.
  private static func copyFiles(
    from source: String, to target: String, mode: UInt32
  ) throws(StorageError) {
    try FileSystem.createDirectory(target, mode: mode, durable: false)
    for directory in try FileSystem.list(source).filter(EntryPath.isName) {
      let path = source + "/" + directory
      let status = try FileSystem.status(path, followsLinks: false)
      if status?.isSymbolicLink == true { throw .linkInTheWay(path) }
      guard status?.isDirectory == true else { continue }
      try FileSystem.makeDirectory(target + "/" + directory, mode: mode)
      for name in try FileSystem.list(path).filter(EntryPath.isName) {
        try copyFile(path + "/" + name, to: "\(target)/\(directory)/\(name)", mode & 0o666)
      }
    }
    let header = "/" + VaultMarker.fileName
    try copyFile(source + header, to: target + header, mode & 0o666)
  }

  private static func copyFile(
    _ source: String, to target: String, _ mode: UInt32
  ) throws(StorageError) {
    let original = try File(source, .readNoFollow)
    let copy = try File(target, .create, mode: mode)
    if mode & 0o077 != 0 { try copy.setMode(mode) }
    if copy.clone(from: original) { return }
    let size = 1 << 20
    var position = 0
    while true {
      let bytes = try original.read(from: position, count: size)
      try copy.writeAll(bytes)
      if bytes.count < size { return }
      position += size
    }
  }

  /// Makes the files in a copy, and their names, survive a power cut.
  private static func synchronizeFiles(in directory: String) throws(StorageError) {
    for name in try FileSystem.list(directory) {
      let path = directory + "/" + name
      if try FileSystem.status(path)?.isDirectory == true {
        try synchronizeFiles(in: path)
      } else {
        try File(path, .read).synchronize()
      }
    }
    try FileSystem.synchronizeDirectory(directory)
  }
}
#endif
