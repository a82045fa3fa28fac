#if SecureVault
internal import Synchronization

/// The file of a header, as it was at one moment.
///
/// The file is kept open, so that no later file can have the same inode number.
struct HeaderFile: Sendable {
  private let file: File
  private let status: FileStatus

  init(_ file: File, _ status: FileStatus) {
    self.file = file
    self.status = status
    file.keep(status)
  }

  func isSame(as other: FileStatus) -> Bool {
    status.isSameFile(as: other) && status.size == other.size && status.changed == other.changed
      && status.modified == other.modified
  }
}

/// A vault in a directory: the file of the header, and a file for each entry.
///
/// A writer of an entry locks one byte of the lock file, which the entry's file name determines. A
/// writer of the header locks all bytes. Readers take no lock.
final class VaultDirectory: VaultStorage {
  let paths: VaultPaths
  /// How long to wait for a lock.
  let timeout: Duration
  /// nil if this belongs to no header.
  let headerFile: HeaderFile?
  let directories = Locked(KnownDirectories())
  let lock: ByteRangeLock
  let temporaryCount = Atomic(UInt64.random(in: .min ... .max))

  /// The directories that were written to.
  struct KnownDirectories {
    var vault: DirectoryHandle?
    /// The names of service directories that are known to survive a power cut.
    var durable = ByteKeyedDictionary<Void>()
  }

  init(_ paths: VaultPaths, timeout: Duration = .seconds(10), _ headerFile: HeaderFile? = nil) {
    self.paths = paths
    self.timeout = timeout
    self.headerFile = headerFile
    lock = ByteRangeLock(paths.lock)
  }

  var path: String { paths.directory }
  var headerPath: String { paths.header }
  /// Empty, so that a vault's directory can be moved and copied.
  var context: String { "" }

  func keyFile() throws(StorageError) -> KeyFile? { try ownKeyFile() }

  func ownKeyFile() throws(StorageError) -> KeyFile {
    KeyFile(path: try paths.keyFilePath(), timeout: timeout, vault: paths.directory)
  }

  func entryDirectories() throws(StorageError) -> [String] {
    try FileSystem.list(paths.directory).filter(EntryPath.isName).sorted()
  }

  func entries(in directoryName: String) throws(StorageError) -> [EntryPath] {
    let names: [String]
    do throws(StorageError) {
      names = try FileSystem.list(paths.directory + "/" + directoryName)
    } catch  where error.code == .notDirectory {
      return []  // a file that the vault did not make
    }
    return names.filter(EntryPath.isName).sorted()
      .map { EntryPath(vault: paths.directory, directoryName: directoryName, fileName: $0) }
  }

  func allEntries() throws(StorageError) -> [EntryPath] {
    var all: [EntryPath] = []
    for directoryName in try entryDirectories() { all += try entries(in: directoryName) }
    return all
  }

  func synchronizeEntries() throws(StorageError) {
    for directoryName in try entryDirectories() { try synchronize(directoryName) }
  }

  func removeEmptyDirectories() throws(StorageError) -> [StorageError] {
    var failures: [StorageError] = []
    for directoryName in try entryDirectories() where try entries(in: directoryName).isEmpty {
      let directory = ConfinedPath(base: paths.directory).appending(directoryName)
      do throws(StorageError) {
        _ = try isDirectory(directoryName)  // no link and no mount
        // A writer that is about to wait for the lock may have made its file after the others were
        // removed. Writers whose files are gone find another header or none, and begin again.
        var isRemoved = false
        for _ in 0..<10 where !isRemoved {
          try paths.removeTemporaryEntries(in: directoryName, olderThan: nil)
          isRemoved = try directory.removeEmptyDirectory()
        }
        if !isRemoved { failures.append(Self.otherFiles(in: directory.path)) }
      } catch {
        failures.append(error)
      }
    }
    return failures
  }

  private static func otherFiles(in directory: String) -> StorageError {
    StorageError(
      .damaged, operation: "rmdir", path: directory,
      reason: "the directory stays because it also holds other files",
      remedy: "Move those files away, and repeat the call.")
  }

  // MARK: The header

  func readHeader() throws(StorageError) -> (VaultHeader, any VaultStorage)? {
    try FileSystem.requireTrustedLinks(paths.directory)
    guard let file = try File.openIfPresent(paths.header) else { return nil }
    let status = try file.status(withTimes: true)
    guard status.isRegularFile, status.size <= VaultHeader.maxSize else {
      throw VaultHeader.foreignError(file.path)
    }
    let bytes = try file.read(from: 0, count: status.size)
    let header = try VaultHeader(bytes, path: paths.header)
    return (header, VaultDirectory(paths, timeout: timeout, HeaderFile(file, status)))
  }

  func isCurrent() throws(StorageError) -> Bool {
    let status = try FileSystem.status(paths.header, withTimes: true)
    return status.map { headerFile?.isSame(as: $0) ?? false } ?? (headerFile == nil)
  }

  func isStillStored() throws(StorageError) -> Bool { try isCurrent() }

  func replaceHeader(
    _ makeHeader: () throws(StorageError) -> VaultHeader?
  ) throws(StorageError) -> (VaultHeader, any VaultStorage)? {
    let (lock, mode) = try lockExclusively()
    defer { lock.unlock() }
    guard try isCurrent() else { return nil }
    if headerFile == nil { try requireNoEntries() }
    guard let header = try makeHeader() else { return nil }
    return try write(header, mode: mode).map { (header, $0) }
  }

  /// Writes the header's file. The caller holds the exclusive lock.
  ///
  /// - Returns: nil if another program has put another file there.
  private func write(
    _ header: VaultHeader, mode: UInt32
  ) throws(StorageError) -> (any VaultStorage)? {
    let path = paths.header
    let bytes = try header.bytesToStore(path: path)
    try FileSystem.removeStaleTemporaryFiles(for: path)
    // Never wider than the file that it replaces.
    let newMode = try mode & 0o666 & (FileSystem.status(path)?.mode ?? mode)
    let isInPlace = try bytes.withBytes { bytes throws(StorageError) in
      try FileSystem.write(
        bytes, to: path, mode: newMode, durable: true, replacing: headerFile != nil)
    }
    guard isInPlace, let (header, storage) = try readHeader(), try header.bytes() == bytes else {
      return nil
    }
    return storage
  }

  /// Keeps all other threads and processes from writing to the vault.
  ///
  /// - Returns: What the caller unlocks, and the mode of directories in the vault.
  func lockExclusively() throws(StorageError) -> (lock: HeldLock, mode: UInt32) {
    try FileSystem.requireTrustedLinks(paths.directory)
    let mode = try paths.prepareDirectory()
    // A lock of its own: it is rarely taken, so its file is not kept open.
    let lock = try ByteRangeLock(paths.lock)
      .lock(ByteRangeLock.allBytes, mode: mode & 0o666, Wait(timeout: timeout))
    return (lock, mode)
  }

  // MARK: Erasing

  func erase(reporting report: (StorageError) -> Void) throws(StorageError) -> Bool {
    let isPresent = try FileSystem.status(paths.directory) != nil
    // A restore has the lock while it replaces the vault.
    let lock = isPresent ? try lockExclusively().lock : nil
    defer { lock?.unlock() }
    let copies = try replacedVaults(reporting: report) + abandonedCopies()
    var failure: StorageError?
    for path in copies {
      do throws(StorageError) {
        try eraseCopy(at: path, reporting: report)
      } catch {
        failure = failure ?? error
      }
    }
    if isPresent { try eraseFiles(reporting: report) }
    if let failure {
      throw StorageError(
        failure.code, operation: "eraseVault", path: failure.path,
        reason: "a vault that a restore has replaced or copied is still there "
          + "(\(failure.reason ?? ""))",
        remedy: "Remove it: anyone who has its key can open it.", underlyingError: failure)
    }
    return isPresent || !copies.isEmpty
  }

  /// The vaults that a restore has replaced and kept. They open with what opened them then.
  ///
  /// - Parameter report: Gets those that are links or mounts, which are not removed.
  func replacedVaults(
    reporting report: (StorageError) -> Void = { _ in }
  ) throws(StorageError) -> [String] {
    // Beside a link, too: the vault may have been moved since.
    let places = try Set([paths.directory, FileSystem.resolvingLink(paths.directory)])
    var found: [String] = []
    for place in places where try FileSystem.status(FileSystem.parent(of: place)) != nil {
      found += try FileSystem.copies(place + ".replaced")
    }
    var vaults: [String] = []
    for path in found {
      guard let status = try FileSystem.status(path, followsLinks: false) else { continue }
      if status.isDirectory, !status.isMountPoint {
        vaults.append(path)
      } else if status.isSymbolicLink || status.isDirectory {
        report(
          StorageError(
            .misuse, operation: "eraseVault", path: path,
            reason: status.isSymbolicLink
              ? "a symbolic link has the name of a vault that a restore has replaced"
              : "another file system is mounted over a vault that a restore has replaced",
            remedy: "Remove what is there: anyone who has its key can open it."))
      }
    }
    return vaults
  }

  /// The copies of a vault that restores which were killed have left here.
  private func abandonedCopies() throws(StorageError) -> [String] {
    let path = try FileSystem.resolvingLink(paths.directory)
    let parent = FileSystem.parent(of: path)
    guard try FileSystem.status(parent) != nil else { return [] }
    var copies: [String] = []
    for name in try FileSystem.list(parent)
    where FileSystem.isTemporary(name, for: FileSystem.name(of: path)) {
      let copy = parent + "/" + name
      let status = try FileSystem.status(copy, followsLinks: false)
      guard let status, status.isDirectory, !status.isMountPoint else { continue }
      // A restore that is running holds the lock.
      if try DirectoryHandle(copy).lock() { copies.append(copy) }
    }
    return copies
  }

  /// Erases a vault that a restore has replaced or copied, which has no readers and no writers.
  func eraseCopy(
    at path: String, reporting report: (StorageError) -> Void = { _ in }
  ) throws(StorageError) {
    let copy = VaultDirectory(paths.ofCopy(at: path), timeout: timeout)
    try copy.eraseFiles(reporting: report)
    try FileSystem.unlink(copy.paths.lock)
    let directory = ConfinedPath(base: FileSystem.parent(of: path))
      .appending(FileSystem.name(of: path))
    if try !directory.removeEmptyDirectory() { report(Self.otherFiles(in: path)) }
  }

  private func eraseFiles(reporting report: (StorageError) -> Void) throws(StorageError) {
    try unlinkEntries(in: entryDirectories())
    for failure in try removeEmptyDirectories() { report(failure.inContext(of: "eraseVault")) }
    // Make the removal of the entries durable before removing the header: an entry that reappeared
    // after a power cut could never be opened.
    try FileSystem.synchronizeDirectory(paths.directory)
    try eraseHeader(reporting: report)
    try FileSystem.synchronizeDirectory(paths.directory)
  }

  /// Overwrites the header and removes it, so that the disk keeps no copy if the file system writes
  /// in place.
  ///
  /// A header that has another hard link is only removed: the link may be a backup.
  private func eraseHeader(reporting report: (StorageError) -> Void) throws(StorageError) {
    // Readers find the whole header or none.
    let doomed = paths.directory + "/." + VaultMarker.fileName + ".0.tmp"
    // The first one is there if an earlier call was killed.
    for path in [doomed, paths.header]
    where try FileSystem.status(path, followsLinks: false)?.isRegularFile == true {
      try FileSystem.rename(path, to: doomed)
      do throws(StorageError) {
        // After a power cut, too.
        try FileSystem.synchronizeDirectory(paths.directory)
        let file = try File(doomed, .readWriteNoFollow)
        let status = try file.status()
        guard status.linkCount == 1 else { continue }
        let zeros = [UInt8](repeating: 0, count: min(status.size, VaultHeader.maxSize))
        try file.overwrite(zeros.span.bytes, at: 0)
        try file.synchronize()
      } catch {
        report(error.inContext(of: "eraseVault"))
      }
    }
    try FileSystem.removeStaleTemporaryFiles(for: paths.header, olderThan: nil)
    for path in [doomed, paths.header] { try FileSystem.unlink(path) }
  }
}
#endif
