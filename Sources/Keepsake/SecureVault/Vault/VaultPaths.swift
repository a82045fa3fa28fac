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

  init(in storeDirectory: StoreDirectory, finder: DirectoryFinder) {
    var storeDirectory = storeDirectory
    storeDirectory.isRestricted = true
    self.init(storeDirectory.path + "/vault", in: storeDirectory, finder)
  }

  private init(_ directory: String, in storeDirectory: StoreDirectory, _ finder: DirectoryFinder) {
    self.finder = finder
    self.storeDirectory = storeDirectory
    self.directory = directory
    header = directory + "/" + VaultMarker.fileName
    lock = directory + "/.lock"
  }

  /// The paths of a copy of the vault, or of one that it has replaced.
  func ofCopy(at directory: String) -> VaultPaths {
    VaultPaths(directory, in: storeDirectory, finder)
  }

  /// The path of a new entry's file, below the vault's directory, before it is moved into place. It
  /// is in the directory of its place: a sandbox may forbid moving a file to another one.
  func temporaryEntry(_ number: UInt64, in directoryName: String) -> String {
    let (prefix, digits, suffix) = ("/.entry.", 16, ".tmp")
    let count = directoryName.utf8.count + prefix.utf8.count + digits + suffix.utf8.count
    return String(unsafeUninitializedCapacity: count) { path in
      var writer = ByteWriter(UnsafeMutableRawBufferPointer(path))
      writer.append(directoryName)
      writer.append(prefix)
      Hexadecimal.write(number, to: path[writer.count..<(writer.count + digits)])
      writer.skip(digits)
      writer.append(suffix)
      return writer.count
    }
  }

  /// Removes the temporary files of entries that killed processes left in a service's directory.
  ///
  /// - Parameter age: The minimum number of seconds since a file was last written; nil for any age.
  func removeTemporaryEntries(
    in directoryName: String, olderThan age: Int64? = 600
  ) throws(StorageError) {
    try FileSystem.removeStaleTemporaryFiles(
      for: "\(directory)/\(directoryName)/entry", olderThan: age)
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
}
#endif
