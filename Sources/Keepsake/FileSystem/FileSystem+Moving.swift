internal import CKeepsake
internal import KeepsakeLibc

/// Renaming, linking and touching files.
extension FileSystem {
  /// Renames a file. An existing file of the name `target` is replaced.
  static func rename(
    _ source: String, to target: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) {
    try call(.rename, source, target, in: directory) { Int(renameat($0, $1, $0, $2)) }
      .get(.rename, directory.path(of: target))
  }

  /// Moves a file or directory to another directory. An existing file of the name `target` is
  /// replaced.
  ///
  /// - Returns: false, without moving anything, if the directories are on different file systems.
  static func move(
    _ source: String, in directory: DirectoryHandle?, to target: String,
    in newDirectory: DirectoryHandle
  ) throws(StorageError) -> Bool {
    let (sourcePath, targetPath) = (directory.path(of: source), newDirectory.path(of: target))
    let result = systemCall(.rename, sourcePath + "\u{0}" + targetPath) {
      source.withCString { source in
        target.withCString {
          Int(renameat(directory.descriptor, source, newDirectory.descriptor, $0))
        }
      }
    }
    if result.errorCode == EXDEV { return false }
    // If something is missing, it is the source: the open target directory exists.
    try result.get(.rename, result.errorCode == ENOENT ? sourcePath : targetPath)
    return true
  }

  /// Creates a copy of a symbolic link. An existing file of the name `name` is replaced.
  ///
  /// - Parameter temporary: A free name in `directory`, which the copy has at first.
  static func copyLink(
    _ link: ConfinedPath, to name: String, by temporary: String, in directory: DirectoryHandle
  ) throws(StorageError) {
    let target =
      try linkText(link.name, in: DirectoryHandle(link.parent)).map { CChar(bitPattern: $0) } + [0]
    let temporaryPath = directory.path(of: temporary)
    try systemCall(.link, temporaryPath) {
      temporary.withCString { Int(symlinkat(target, directory.descriptor, $0)) }
    }.get(.link, temporaryPath)
    do throws(StorageError) {
      try rename(temporary, to: name, in: directory)
    } catch {
      // The first error matters more than a failed cleanup; a later sweep removes the link.
      try? unlink(temporary, in: directory)
      throw error
    }
  }

  /// Exchanges the names of two files in one step.
  ///
  /// - Returns: false if `target` does not exist or the file system cannot exchange names.
  static func exchange(
    _ source: String, with target: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) -> Bool {
    let result = call(.exchange, source, target, in: directory) {
      Int(keepsake_exchange($0, $1, $2))
    }
    if result.errorCode == ENOENT || isUnsupported(result) { return false }
    try result.get(.rename, directory.path(of: target))
    return true
  }

  /// Whether a call failed because the file system, or a sandbox, does not have it. If it failed
  /// for lack of permission, so does the fallback.
  private static func isUnsupported(_ result: Result<Int, Errno>) -> Bool {
    guard let code = result.errorCode else { return false }
    return [EINVAL, ENOSYS, ENOTSUP, EPERM].contains(code)
  }

  /// Gives a file a second name; false if something has that name already, and nil if the file
  /// system has no hard links, or a sandbox forbids this one.
  static func link(
    _ source: String, to target: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) -> Bool? {
    let result = call(.link, source, target, in: directory) { Int(linkat($0, $1, $0, $2, 0)) }
    if result.errorCode == EEXIST { return false }
    if isUnsupported(result) || result.errorCode == EXDEV { return nil }
    try result.get(.link, directory.path(of: target))
    return true
  }

  /// Renames a file or directory; false, without renaming it, if something has the new name
  /// already.
  ///
  /// On a file system that has neither such a rename nor hard links, as some network file systems,
  /// a file that gets the name at the same moment is replaced.
  static func create(
    _ source: String, as target: String, in directory: DirectoryHandle?
  ) throws(StorageError) -> Bool {
    if let isRenamed = try renameExclusively(source, to: target, in: directory) {
      return isRenamed
    }
    if let isLinked = try link(source, to: target, in: directory) {
      if isLinked { try unlink(source, in: directory) }
      return isLinked
    }
    if try status(target, in: directory, followsLinks: false) != nil { return false }
    try rename(source, to: target, in: directory)
    return true
  }

  /// Renames a file or directory in one step; false if something has the new name already, and nil
  /// if the file system cannot do that.
  static func renameExclusively(
    _ source: String, to target: String, in directory: DirectoryHandle?
  ) throws(StorageError) -> Bool? {
    let result = call(.rename, source, target, in: directory) {
      Int(keepsake_rename_new($0, $1, $2))
    }
    if result.errorCode == EEXIST { return false }
    if isUnsupported(result) { return nil }
    try result.get(.rename, directory.path(of: target))
    return true
  }

  /// Makes a call on two names in a directory. Tests record both paths, in one string.
  @inline(__always)
  private static func call(
    _ call: SystemCall, _ source: String, _ target: String, in directory: DirectoryHandle?,
    _ body: (Int32, UnsafePointer<CChar>, UnsafePointer<CChar>) -> Int
  ) -> Result<Int, Errno> {
    systemCall(call, directory.path(of: source) + "\u{0}" + directory.path(of: target)) {
      source.withCString { source in
        target.withCString { body(directory.descriptor, source, $0) }
      }
    }
  }

  /// Sets the times of a file to now.
  static func touch(_ path: String, in directory: DirectoryHandle? = nil) throws(StorageError) {
    try systemCall(.times, directory.path(of: path)) {
      Int(utimensat(directory.descriptor, path, nil, AT_SYMLINK_NOFOLLOW))
    }.get(.times, directory.path(of: path))
  }
}
