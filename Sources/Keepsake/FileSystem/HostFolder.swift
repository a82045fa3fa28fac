/// The folder in which a store's files lie, and who may read them.
///
/// The caller's own folder must exist, and the files' modes follow its mode: that is how programs
/// share. Any other is made, for the user alone.
struct HostFolder: Sendable {
  let path: String
  let isCallers: Bool

  /// The lock file of what has this name: hidden, so that shell patterns do not match it by accident.
  func lockPath(of name: String, suffix: String = ".lock") -> String { path + "/." + name + suffix }

  /// Marks the folder of a vault, also for a program that was built without vaults.
  static let vaultHeaderName = "vault.hdr"

  /// Makes the folder where it is missing; returns the mode for folders in it, which for files is
  /// to be taken without its execute bits.
  func prepare(durable: Bool = true) throws(StorageError) -> UInt32 {
    if !isCallers {
      try FileSystem.createFolder(path, durable: durable)
      return Self.ownMode
    }
    guard let status = try FileSystem.status(path) else {
      throw StorageError(
        .notFound, operation: "open", path: path, reason: "the caller's own folder is missing",
        remedy: "Create the folder with the owner and mode that all its users need.")
    }
    return Self.mode(in: status)
  }

  /// What ``prepare()`` returns, without making anything.
  func mode() throws(StorageError) -> UInt32 {
    guard isCallers, let status = try FileSystem.status(path) else { return Self.ownMode }
    return Self.mode(in: status)
  }

  private static let ownMode: UInt32 = 0o700
  /// With the bit that hands the folder's group on to what is made in it.
  private static func mode(in status: FileStatus) -> UInt32 { status.mode & 0o2777 | 0o700 }
}
