internal import CKeepsake
internal import KeepsakeLibc
internal import Synchronization

/// The directory of a new backup, which belongs to the user who makes it.
package struct BackupDirectory: Sendable {
  package let path: String

  /// Creates the directory, or uses an empty one. Only its user has access.
  ///
  /// - Throws: ``StorageError`` if something else is there, or if another user could change the
  ///   backup.
  package init(creating path: String) throws(StorageError) {
    self.path = path
    try requireSafeParent()
    let isNew = try Self.make(path)
    let directory = try DirectoryHandle(path)
    try requireOwn(directory.status())
    try directory.setMode(0o700)
    let isEmpty = isNew ? true : try directory.isEmpty()
    guard isEmpty else {
      throw StorageError(
        .misuse, operation: "backUp", path: path, reason: "the directory is not empty",
        remedy: "Name a new directory.")
    }
  }

  private static func make(_ path: String) throws(StorageError) -> Bool {
    let result = systemCall(.mkdir, path) { Int(mkdirat(AT_FDCWD, path, 0o700)) }
    if case .failure(let error) = result, error.code == EEXIST { return false }
    try result.get(.mkdir, path)
    return true
  }

  /// Throws unless the path is a directory of this user, to which no other user may write.
  package func requireOwn() throws(StorageError) { try requireOwn(nil) }

  private func requireOwn(_ opened: FileStatus?) throws(StorageError) {
    let status = try FileSystem.status(path, followsLinks: false)
    let user = ProcessEnvironment.userID
    let problem: String? =
      if let status, status.isDirectory, opened?.isSameFile(as: status) != false {
        if status.owner != user {
          "the directory belongs to user \(status.owner), and this process runs as user \(user)"
        } else if status.mode & 0o022 != 0 {
          "other users may write to the directory (mode \(String(status.mode, radix: 8)))"
        } else {
          nil
        }
      } else {
        "a link or a file is there"
      }
    if let problem { throw unsafe(problem) }
  }

  /// Throws if other users may put another directory in the place of this one. Root may choose any
  /// user's directory.
  private func requireSafeParent() throws(StorageError) {
    let user = ProcessEnvironment.userID
    let found = try FileSystem.unsafeDirectory(onTheWayTo: FileSystem.parent(of: path)) {
      user == 0 || $0 == user
    }
    if let found { throw unsafe(found.reason) }
  }

  private func unsafe(_ problem: String) -> StorageError {
    StorageError(
      .accessDenied, operation: "backUp", path: path,
      reason: "the backup would not be safe: \(problem)",
      remedy: "Name a new directory in one of your own.")
  }

  // MARK: Restoring

  /// Throws if users other than root and this one may have changed an existing backup. Root may
  /// restore any user's.
  ///
  /// - Parameter names: What is in it.
  package static func requireSafe(_ path: String, _ names: [String]) throws(StorageError) {
    let user = ProcessEnvironment.userID
    for name in [""] + names {
      let found = try FileSystem.unsafeDirectory(
        onTheWayTo: name.isEmpty ? path : path + "/" + name
      ) { user == 0 || $0 == user }
      guard let found else { continue }
      throw StorageError(
        .accessDenied, operation: "restore", path: path,
        reason: "somebody else may have changed the backup: \(found.reason)",
        remedy: "If you know that nobody has, copy it to a directory that only you can write to.")
    }
  }

  // MARK: Owners

  private static let current = Locked<String?>(nil)

  /// Runs `body`, in which root gives no file of the backup to another user.
  package func perform<R>(_ body: () throws -> R) throws -> R {
    Self.current.withLock { $0 = path + "/" }
    defer { Self.current.withLock { $0 = nil } }
    return try body()
  }

  /// Whether a path is in the backup that this process is making. Only root asks.
  static func contains(_ path: String) -> Bool {
    current.withLock { current in current.map { path.hasPrefix($0) } ?? false }
  }
}
