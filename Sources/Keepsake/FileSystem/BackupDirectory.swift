/// The directory of a new backup, which belongs to the user who makes it.
package struct BackupDirectory: Sendable {
  package let path: String

  /// Creates the directory, or uses an empty one. Only its user has access.
  ///
  /// - Throws: ``StorageError`` if something else is there, or if another user could change the
  ///   backup.
  package init(creating path: String) throws(StorageError) {
    self.path = path
    if let found = try Self.unsafeDirectory(onTheWayTo: FileSystem.parent(of: path)) {
      throw unsafe(found.reason)
    }
    try FileSystem.makeDirectory(path, mode: 0o700, followsOwner: false)
    let directory = try DirectoryHandle(path)
    try requireOwn(directory.status())
    guard try directory.isEmpty() else {
      throw StorageError(
        .misuse, operation: "backUp", path: path, reason: "the directory is not empty",
        remedy: "Name a new directory.")
    }
    try directory.setMode(0o700)
  }

  private func requireOwn(_ opened: FileStatus) throws(StorageError) {
    let status = try FileSystem.status(path, followsLinks: false)
    let user = ProcessEnvironment.userID
    guard let status, status.isDirectory, opened.isSameFile(as: status) else {
      throw unsafe("a link or a file is there")
    }
    guard status.owner == user else {
      throw unsafe(
        "the directory belongs to user \(status.owner), and this process runs as user \(user)")
    }
    guard status.mode & 0o022 == 0 else {
      throw unsafe(
        "other users may write to the directory (mode \(String(status.mode, radix: 8)))")
    }
  }

  private func unsafe(_ problem: String) -> StorageError {
    StorageError(
      .accessDenied, operation: "backUp", path: path,
      reason: "the backup would not be safe: \(problem)",
      remedy: "Name a new directory in one of your own.")
  }

  /// The closest directory in which others may exchange what leads to `path`. The rule is the same
  /// for root: whoever owns a directory decides what root finds there.
  private static func unsafeDirectory(
    onTheWayTo path: String
  ) throws(StorageError) -> UnsafeDirectory? {
    try FileSystem.unsafeDirectory(onTheWayTo: path) { $0 == ProcessEnvironment.userID }
  }

  /// Throws if users other than root and this one may have changed an existing backup.
  ///
  /// - Parameter names: What is in it.
  package static func requireSafe(_ path: String, _ names: [String]) throws(StorageError) {
    for name in [""] + names {
      let found = try unsafeDirectory(onTheWayTo: name.isEmpty ? path : path + "/" + name)
      guard let found else { continue }
      throw StorageError(
        .accessDenied, operation: "restore", path: path,
        reason: "somebody else may have changed the backup: \(found.reason)",
        remedy: "If you know that nobody has, copy it to a directory that only you can write to.")
    }
  }
}
