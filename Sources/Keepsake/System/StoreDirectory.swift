/// The directory in which a store's files lie, and who may read them.
///
/// The caller's own directory must exist, and the files' modes follow its mode: that is how
/// programs share. Any other is made, for the user alone.
struct StoreDirectory: Sendable {
  let path: String
  let isCallerOwned: Bool

  /// The lock file of what has this name: hidden, so that shell patterns do not match it by
  /// accident.
  func lockPath(for name: String, suffix: String = ".lock") -> String {
    path + "/." + name + suffix
  }

  /// Marks the directory of a vault, also for a program that was built without vaults.
  static let vaultHeaderName = "vault.hdr"

  /// Makes the directory where it is missing; returns the mode for directories in it, which for
  /// files is to be taken without its execute bits.
  func createIfNeeded(durable: Bool = true) throws(StorageError) -> UInt32 {
    if !isCallerOwned {
      try FileSystem.createDirectory(path, durable: durable)
      return Self.ownMode
    }
    guard let status = try FileSystem.status(path) else {
      throw StorageError(
        .notFound, operation: "open", path: path, reason: "the caller's own directory is missing",
        remedy: "Create the directory with the owner and mode that all its users need.")
    }
    return Self.mode(in: status)
  }

  /// What ``createIfNeeded(durable:)`` returns, without making anything.
  func directoryMode() throws(StorageError) -> UInt32 {
    guard isCallerOwned, let status = try FileSystem.status(path) else { return Self.ownMode }
    return Self.mode(in: status)
  }

  private static let ownMode: UInt32 = 0o700
  /// With the bit that hands the directory's group on to what is made in it.
  private static func mode(in status: FileStatus) -> UInt32 { status.mode & 0o2777 | 0o700 }
}
