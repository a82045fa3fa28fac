/// The directory of a store's files, and the modes for what is created in it.
///
/// A directory that the caller chose must exist, and files follow its mode: that is how programs
/// share a store. Any other directory is created, and only its user can access it.
struct StoreDirectory: Sendable {
  let path: String
  let isCallerOwned: Bool
  /// Whether what is created here is never writable by all users, and keeps the sticky bit.
  var isRestricted = false

  /// The path of a lock file. It starts with a dot so that shell patterns do not match it by
  /// accident.
  func lockPath(for name: String, suffix: String = ".lock") -> String {
    path + "/." + name + suffix
  }

  /// Creates the directory if it is missing. A directory that the caller chose must already exist.
  ///
  /// - Returns: The mode for subdirectories; files take it without the execute bits.
  func createIfNeeded(durable: Bool = true) throws(StorageError) -> UInt32 {
    if !isCallerOwned {
      try FileSystem.createDirectory(path, durable: durable)
      return Self.privateMode
    }
    if let status = try FileSystem.status(path) { return mode(following: status) }
    throw StorageError(
      .notFound, operation: "open", path: path,
      reason: "the directory chosen for this store does not exist",
      remedy: "Create the directory with the owner and mode that all its users need.")
  }

  /// The mode that ``createIfNeeded(durable:)`` returns, without creating anything.
  @inline(never)
  func directoryMode() throws(StorageError) -> UInt32 {
    guard isCallerOwned, let status = try FileSystem.status(path) else { return Self.privateMode }
    return mode(following: status)
  }

  private static let privateMode: UInt32 = 0o700

  /// Includes the setgid bit, which makes new files inherit the directory's group.
  private func mode(following status: FileStatus) -> UInt32 {
    status.mode & (isRestricted ? 0o3775 : 0o2777) | 0o700
  }
}
