#if SecureVault
/// The paths of a vault's files.
///
/// The paths are built once: building them for each call takes longer than a `stat`.
struct VaultPaths: Sendable {
  let finder: DirectoryFinder
  /// The directory that holds the vault's directory, and whose mode the vault follows.
  private let storeDirectory: StoreDirectory
  let directory: String
  let header: String
  let lock: String
  /// The name of which new entries' temporary files are variations; they are beside the header.
  let entryStem: String

  init(in storeDirectory: StoreDirectory, finder: DirectoryFinder) {
    self.finder = finder
    var storeDirectory = storeDirectory
    storeDirectory.isRestricted = true
    self.storeDirectory = storeDirectory
    directory = storeDirectory.path + "/vault"
    header = directory + "/" + VaultMarker.fileName
    lock = directory + "/.lock"
    entryStem = directory + "/entry"
  }

  /// The name of a new entry's file before it is moved into place.
  func temporaryEntry(_ number: UInt64) -> String {
    let (prefix, suffix, digits) = (".entry.", ".tmp", 16)
    let count = prefix.utf8.count + digits + suffix.utf8.count
    return String(unsafeUninitializedCapacity: count) { name in
      _ = name.update(fromContentsOf: prefix.utf8)
      Hexadecimal.write(number, to: name[prefix.utf8.count..<(prefix.utf8.count + digits)])
      _ = name[(prefix.utf8.count + digits)...].update(fromContentsOf: suffix.utf8)
      return count
    }
  }

  func keyFilePath() throws(StorageError) -> String {
    try finder.directory(.state) + "/vault.key"
  }

  /// The mode of the vault's files.
  func fileMode() throws(StorageError) -> UInt32 { try storeDirectory.directoryMode() & 0o666 }

  /// Creates the vault's directory if it is missing.
  ///
  /// - Returns: The mode of directories in it. Without its execute bits, it is the files' mode.
  func prepareDirectory() throws(StorageError) -> UInt32 {
    let mode = try storeDirectory.createIfNeeded()
    try FileSystem.createDirectory(directory, mode: mode)
    return mode
  }

  /// Makes the names in the vault's directory, and the names on the way to it, survive a power cut.
  func synchronize() throws(StorageError) {
    try FileSystem.synchronizeDirectory(directory)
    try FileSystem.synchronizeParent(of: directory)
    if !storeDirectory.isCallerOwned {
      try FileSystem.synchronizeParent(of: storeDirectory.path)
    }
  }

  // MARK: Listing

  /// The names of the directories that hold entries, sorted.
  func entryDirectories() throws(StorageError) -> [String] {
    try FileSystem.list(directory).filter(EntryPath.isName).sorted()
  }

  /// The paths of the entries in one of these directories, sorted.
  func entries(in directoryName: String) throws(StorageError) -> [EntryPath] {
    let names: [String]
    do throws(StorageError) {
      names = try FileSystem.list(directory + "/" + directoryName)
    } catch  where error.code == .notDirectory {
      return []  // a file that the vault did not make
    }
    return names.filter(EntryPath.isName).sorted()
      .map { EntryPath(vault: directory, directoryName: directoryName, fileName: $0) }
  }
}
#endif
