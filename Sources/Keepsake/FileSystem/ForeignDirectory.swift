internal import CKeepsake
internal import KeepsakeLibc

/// A directory of another user in which this process, running as root, creates an entry.
///
/// The entry gets the owner and group of the directory. A file of root's, with access for its owner
/// only, would make the user's own programs fail.
struct ForeignDirectory {
  private let directory: DirectoryHandle
  private let name: String
  private let status: FileStatus

  /// Whether there may be one for paths in this directory. Costs one load if it is known.
  @inline(__always)
  static func isPossible(in base: DirectoryHandle?) -> Bool {
    base.map { $0.mayHaveForeignOwner } ?? ProcessEnvironment.mayBeRoot
  }

  /// nil unless this process runs as root, and another user owns the directory that contains
  /// `path`.
  ///
  /// - Parameters:
  ///   - makePath: The path. It is only made if the process runs as root.
  ///   - base: What the path is relative to; nil if it is absolute.
  init?(
    of makePath: @autoclosure () -> String, in base: DirectoryHandle?
  ) throws(StorageError) {
    // The parent is cut from the path only if it is needed: that costs a quarter of a cache's set.
    let path: String
    if let base {
      guard base.foreignOwner != nil else { return nil }
      path = makePath()
      let parent = FileSystem.parent(of: path)
      directory = parent == "." ? base : try DirectoryHandle(parent, in: base)
    } else {
      guard ProcessEnvironment.userID == 0 else { return nil }
      path = makePath()
      let parent = FileSystem.parent(of: path)
      var raw = keepsake_status()
      // If this fails, so does creating the entry, which reports the error.
      guard keepsake_stat(AT_FDCWD, parent, true, false, &raw) == 0, raw.owner != 0 else {
        return nil
      }
      directory = try DirectoryHandle(parent)
    }
    // The user may exchange directories at any time: what counts is the one that is open.
    status = try directory.status()
    if status.owner == 0 { return nil }
    name = FileSystem.name(of: path)
  }

  // MARK: Files

  /// Opens a file that may have to be created, and returns its descriptor.
  func openFile(_ access: File.Access, mode: UInt32) throws(StorageError) -> Int {
    guard access == .createOrOpen else { return try createFile(name, access, mode: mode) }
    while true {
      let existing = File.open(name, in: directory, .readWriteNoFollow, mode: 0)
      if existing.errorCode == ENOENT {
        if let descriptor = try createFileIfAbsent(mode: mode) { return descriptor }
      } else {
        return try existing.get(.open, directory.path(of: name))
      }
    }
  }

  /// Gives the file its name when the user owns it; nil if something has that name already.
  private func createFileIfAbsent(mode: UInt32) throws(StorageError) -> Int? {
    let temporaryName = TemporaryFile.makeName()
    let descriptor = try createFile(temporaryName, .create, mode: mode)
    var isNamed = false
    defer {
      if !isNamed {
        close(Int32(descriptor))
        try? FileSystem.unlink(temporaryName, in: directory)
      }
    }
    isNamed = try FileSystem.create(temporaryName, as: name, in: directory)
    return isNamed ? descriptor : nil
  }

  private func createFile(
    _ name: String, _ access: File.Access, mode: UInt32
  ) throws(StorageError) -> Int {
    let path = directory.path(of: name)
    let descriptor = try File.open(name, in: directory, access, mode: mode).get(.open, path)
    do throws(StorageError) {
      try giveToOwner(Int32(descriptor), path)
    } catch {
      close(Int32(descriptor))
      try? FileSystem.unlink(name, in: directory)
      throw error
    }
    return descriptor
  }

  // MARK: Directories

  /// Creates the directory; false if something has this name already.
  func makeDirectory(mode: UInt32) throws(StorageError) -> Bool {
    if try FileSystem.status(name, in: directory, followsLinks: false) != nil { return false }
    // It gets its name when the user owns it.
    let temporaryName = TemporaryFile.makeName()
    let path = directory.path(of: temporaryName)
    try systemCall(.mkdir, path) { Int(mkdirat(directory.descriptor, temporaryName, 0o700)) }
      .get(.mkdir, path)
    var isNamed = false
    defer {
      if !isNamed {
        _ = systemCall(.rmdir, path) {
          Int(unlinkat(directory.descriptor, temporaryName, AT_REMOVEDIR))
        }
      }
    }
    let new = try DirectoryHandle(temporaryName, in: directory)
    // On some file systems one user owns everything.
    let owner = try new.status().owner
    if owner != status.owner {
      // The user may have put another directory of root's in its place, which is not theirs.
      guard owner == 0, try new.isEmpty() else { throw notOwnable }
      try giveToOwner(new.descriptor, path)
    }
    try new.setMode(mode)
    isNamed = try FileSystem.create(temporaryName, as: name, in: directory)
    return isNamed
  }

  // MARK: Owners

  private func giveToOwner(_ descriptor: Int32, _ path: String) throws(StorageError) {
    let result = systemCall(.chown, path, on: descriptor) {
      Int(fchown(descriptor, status.owner, status.group))
    }
    // The owner has no number in this user namespace, as in a container that another user started.
    if result.errorCode == EINVAL { return }
    guard result.errorCode == EPERM else {
      try result.get(.chown, path)
      return
    }
    // On some file systems one user owns everything.
    if try FileSystem.status(of: descriptor, path).owner == status.owner { return }
    throw notOwnable
  }

  private var notOwnable: StorageError {
    StorageError(
      .accessDenied, operation: "chown", path: directory.path,
      reason: "the directory belongs to user \(status.owner), who could not use what this process "
        + "creates in it (chown: \(String(cString: strerror(EPERM))))",
      remedy: "Run the program as that user.")
  }
}
