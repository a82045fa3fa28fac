internal import CKeepsake
internal import KeepsakeLibc

/// Operations on paths.
///
/// Paths are relative to the `directory` parameter unless they are absolute.
enum FileSystem {
  // MARK: Status

  /// The status of the file that `path` leads to; nil if there is none.
  ///
  /// - Parameter followsLinks: Whether to return the status of a symbolic link's target, not of the
  ///   link.
  @inline(never)
  static func status(
    _ path: String, in directory: DirectoryHandle? = nil, followsLinks: Bool = true,
    withTimes: Bool = false
  ) throws(StorageError) -> FileStatus? {
    var raw = keepsake_status()
    // `withCString` because passing a `String` as a C string copies it, and every write calls this.
    let result = systemCall(.stat, directory.path(of: path)) {
      path.withCString {
        Int(keepsake_stat(directory.descriptor, $0, followsLinks, withTimes, &raw))
      }
    }
    if result.errorCode == ENOENT { return nil }
    try result.get(.stat, directory.path(of: path))
    return FileStatus(raw)
  }

  /// The status of an entry of an open directory, of a symbolic link its own; nil if there is none.
  ///
  /// - Parameter path: Names the entry in errors.
  static func status(
    _ name: UnsafePointer<CChar>, in directory: Int32, withTimes: Bool,
    _ path: @autoclosure () -> String
  ) throws(StorageError) -> FileStatus? {
    var raw = keepsake_status()
    let result = systemCall(.stat, path()) {
      Int(keepsake_stat(directory, name, false, withTimes, &raw))
    }
    if result.errorCode == ENOENT { return nil }
    try result.get(.stat, path())
    return FileStatus(raw)
  }

  /// The status of an open file.
  ///
  /// - Parameter path: Names the file in errors.
  static func status(
    of descriptor: Int32, _ path: @autoclosure () -> String, withTimes: Bool = false
  ) throws(StorageError) -> FileStatus {
    var raw = keepsake_status()
    try systemCall(.stat, path()) { Int(keepsake_stat(descriptor, nil, true, withTimes, &raw)) }
      .get(.stat, path())
    return FileStatus(raw)
  }

  // MARK: Creating directories

  /// Creates a directory and its missing parents.
  ///
  /// - Parameters:
  ///   - mode: The permissions of new directories; by default only the user has access.
  ///   - durable: Whether the names of new directories must survive a power cut.
  static func createDirectory(
    _ path: String, mode: UInt32 = 0o700, durable: Bool = true
  ) throws(StorageError) {
    if let status = try status(path) {
      if status.isDirectory { return }
      throw StorageError(errno: ENOTDIR, operation: "mkdir", path: path)
    }
    let parent = parent(of: path)
    if parent != path { try createDirectory(parent, mode: mode, durable: durable) }
    if try makeDirectory(path, mode: mode), durable { try synchronizeDirectory(parent) }
  }

  /// Creates one directory; false if something has this name already.
  ///
  /// - Parameter followsOwner: Whether root gives the directory to the owner of its parent.
  @inline(never)
  @discardableResult
  static func makeDirectory(
    _ path: String, in directory: DirectoryHandle? = nil, mode: UInt32, followsOwner: Bool = true
  ) throws(StorageError) -> Bool {
    if followsOwner, ForeignDirectory.isPossible(in: directory),
      let parent = try ForeignDirectory(of: path, in: directory)
    {
      return try parent.makeDirectory(mode: mode)
    }
    let result = systemCall(.mkdir, directory.path(of: path)) {
      Int(mkdirat(directory.descriptor, path, mode_t(mode)))
    }
    if result.errorCode == EEXIST { return false }
    try result.get(.mkdir, directory.path(of: path))
    // The umask often restricts other users. If it restricts this user too, a directory such as
    // ~/.config would be of no use to any program.
    var raw = keepsake_status()
    let isRestricted =
      keepsake_stat(directory.descriptor, path, false, false, &raw) == 0
      && FileStatus(raw).mode & 0o700 != mode & 0o700
    if mode & 0o077 != 0 || isRestricted { try setMode(mode, ofDirectory: path, in: directory) }
    return true
  }

  @inline(never)
  private static func setMode(
    _ mode: UInt32, ofDirectory path: String, in directory: DirectoryHandle?
  ) throws(StorageError) {
    let fullPath = directory.path(of: path)
    let result = systemCall(.chmod, fullPath) {
      Int(fchmodat(directory.descriptor, path, mode_t(mode), 0))
    }
    try requireMode(mode, after: result, fullPath, status(path, in: directory))
  }

  /// Throws if setting a mode failed, unless the file system has none, or cannot change it, and the
  /// mode that the file has grants as much.
  static func requireMode(
    _ mode: UInt32, after result: Result<Int, Errno>, _ path: String,
    _ status: @autoclosure () throws(StorageError) -> FileStatus?
  ) throws(StorageError) {
    if let code = result.errorCode, [EPERM, ENOTSUP, ENOSYS, EINVAL].contains(code),
      let status = try status(), status.mode & 0o777 & mode == mode & 0o777
    {
      return
    }
    try result.get(.chmod, path)
  }

  // MARK: Removing

  /// Removes a file. A missing file is not an error.
  @inline(never)
  static func unlink(_ path: String, in directory: DirectoryHandle? = nil) throws(StorageError) {
    let result = systemCall(.unlink, directory.path(of: path)) {
      path.withCString { Int(unlinkat(directory.descriptor, $0, 0)) }
    }
    if result.errorCode == ENOENT { return }
    try result.get(.unlink, directory.path(of: path))
  }

  /// Removes a file, or a directory and everything in it.
  static func remove(_ path: String, in directory: DirectoryHandle? = nil) throws(StorageError) {
    do throws(StorageError) {
      try unlink(path, in: directory)
    } catch  where error.code == .isDirectory || error.code == .accessDenied {
      // The errors of unlink(2) for a directory: EISDIR on Linux, EPERM elsewhere. A symbolic link
      // that cannot be removed is not followed either.
      guard let status = try status(path, in: directory, followsLinks: false) else { return }
      guard status.isDirectory else { throw error }
      try removeTree(directory.path(of: path))
    }
  }

  // MARK: Durability

  /// Makes the names in a directory survive a power cut.
  static func synchronizeDirectory(_ path: String) throws(StorageError) {
    try DirectoryHandle(path).synchronize()
  }

  /// The same for a directory in an open one, which may be a link to a directory.
  static func synchronizeDirectory(
    _ name: String, in parent: DirectoryHandle
  ) throws(StorageError) {
    let result = openDescriptor(.open, parent.path(of: name)) {
      name.withCString {
        Int(openat(parent.descriptor, $0, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
      }
    }
    let descriptor = Int32(try result.get(.open, parent.path(of: name)))
    defer { close(descriptor) }
    try DirectoryHandle.synchronize(descriptor, parent.path(of: name))
  }

  /// Makes the name of a directory survive a power cut. If its parent cannot be opened, it was
  /// another user who created the name.
  static func synchronizeParent(of directory: String) throws(StorageError) {
    do throws(StorageError) {
      try synchronizeDirectory(parent(of: directory))
    } catch  where error.code == .accessDenied {}
  }

  // MARK: Writing whole files

  /// Replaces the contents of a file, so that readers find either the old or the new contents
  /// whole, even after a crash.
  ///
  /// - Parameter durable: Whether the new contents survive a power cut once this returns.
  @inline(never)
  static func replace(
    _ path: String, with bytes: [UInt8], mode: UInt32, durable: Bool
  ) throws(StorageError) {
    _ = try bytes.span.bytes.withUnsafeBytes { bytes throws(StorageError) in
      try write(bytes, to: path, mode: mode, durable: durable, replacing: true)
    }
  }

  /// Like ``replace(_:with:mode:durable:)``, but without `replacing` it creates the file.
  ///
  /// - Parameter validate: Throws if the new file, which is still empty, must not be used.
  /// - Returns: Whether the file was written; false if there was one and `replacing` is false.
  @inline(never)
  static func write(
    _ bytes: UnsafeRawBufferPointer, to path: String, mode: UInt32, durable: Bool, replacing: Bool,
    validate: ((FileStatus) throws(StorageError) -> Void)? = nil
  ) throws(StorageError) -> Bool {
    var temporary = try TemporaryFile.make(beside: path, mode: mode)
    if let validate { try validate(temporary.file.status()) }
    try temporary.write(bytes)
    if durable { try temporary.file.synchronize() }
    if replacing {
      try temporary.moveToDestination()
    } else {
      guard try temporary.claimDestination() else { return false }
    }
    if durable { try synchronizeDirectory(parent(of: path)) }
    return true
  }

  /// Whether a file or directory of this name is made before it gets the name `destination`.
  static func isTemporary(_ name: String, for destination: String) -> Bool {
    let suffix = ".tmp"
    guard name.hasPrefix(".\(destination)."), name.hasSuffix(suffix),
      // Another program's file may have a similar name.
      let token = name.dropLast(suffix.count).split(separator: ".").last
    else { return false }
    return Hexadecimal.number(token) != nil
  }

  /// Removes the temporary files and directories that killed processes left beside `destination`.
  ///
  /// - Parameters:
  ///   - age: The minimum number of seconds since the file was last written; nil for any age.
  ///   - countsRenames: Whether renaming a file counts as writing it.
  static func removeStaleTemporaryFiles(
    for destination: String, olderThan age: Int64? = 600, countsRenames: Bool = false
  ) throws(StorageError) {
    let directory = parent(of: destination)
    let destinationName = name(of: destination)
    let now = WallClock.now
    for name in try list(directory) where isTemporary(name, for: destinationName) {
      let path = directory + "/" + name
      guard let status = try status(path, followsLinks: false, withTimes: true) else { continue }
      let written = countsRenames ? max(status.modified, status.changed) : status.modified
      if let age, now.subtractingSaturated(written) <= age * WallClock.second { continue }
      // A process that still fills a directory holds its lock.
      let handle = status.isDirectory ? try? DirectoryHandle(path) : nil
      if status.isDirectory, handle?.lock() != true { continue }
      // In a shared directory it may be another user's file: no reason to refuse a write.
      try? remove(path)
      withExtendedLifetime(handle) {}
    }
  }
}
