internal import CKeepsake
internal import KeepsakeLibc

/// Renaming, linking and touching files.
extension FileSystem {
  /// Renames a file. An existing file of the name `target` is replaced.
  static func rename(
    _ source: String, to target: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) {
    try systemCall(.rename, recordedPaths(source, target, in: directory)) {
      source.withCString { source in
        target.withCString {
          Int(renameat(directory.descriptor, source, directory.descriptor, $0))
        }
      }
    }.get(.rename, directory.path(of: target))
  }

  /// Moves a file or directory to another directory. An existing file of the name `target` is
  /// replaced.
  ///
  /// - Returns: false, without moving anything, if the directories are on different file systems.
  static func move(
    _ source: String, in directory: DirectoryHandle?, to target: String,
    in newDirectory: DirectoryHandle
  ) throws(StorageError) -> Bool {
    let targetPath = newDirectory.path(of: target)
    let result = systemCall(.rename, directory.path(of: source) + "\u{0}" + targetPath) {
      source.withCString { source in
        target.withCString {
          Int(renameat(directory.descriptor, source, newDirectory.descriptor, $0))
        }
      }
    }
    if case .failure(let error) = result {
      if error.code == EXDEV { return false }
      // The source is missing: the open target directory exists.
      if error.code == ENOENT {
        throw StorageError(
          errno: ENOENT, operation: "rename", path: directory.path(of: source))
      }
    }
    try result.get(.rename, targetPath)
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
    let result = systemCall(.exchange, recordedPaths(source, target, in: directory)) {
      source.withCString { source in
        target.withCString { Int(keepsake_exchange(directory.descriptor, source, $0)) }
      }
    }
    switch result {
    case .success: return true
    case .failure(let error) where error.code == ENOENT || isUnsupported(error): return false
    case .failure(let error):
      throw StorageError(errno: error.code, operation: "rename", path: directory.path(of: target))
    }
  }

  /// Whether a call failed because the file system, or a sandbox, does not have it. If it failed
  /// for lack of permission, so does the fallback.
  private static func isUnsupported(_ error: Errno) -> Bool {
    [EINVAL, ENOSYS, ENOTSUP, EPERM].contains(error.code)
  }

  /// Gives a file a second name, which nothing has; false if the file system has no hard links, or
  /// a sandbox forbids this one.
  static func link(_ source: String, to target: String) throws(StorageError) -> Bool {
    let result = systemCall(.link, recordedPaths(source, target, in: nil)) {
      source.withCString { source in
        target.withCString { Int(linkat(AT_FDCWD, source, AT_FDCWD, $0, 0)) }
      }
    }
    if case .failure(let error) = result, isUnsupported(error) || error.code == EXDEV {
      return false
    }
    try result.get(.link, target)
    return true
  }

  /// Renames a file that no other process knows.
  ///
  /// - Returns: false, without renaming it, if something has the new name already.
  static func moveIfAbsent(
    _ source: String, to target: String, in directory: DirectoryHandle?
  ) throws(StorageError) -> Bool {
    let result = systemCall(.link, recordedPaths(source, target, in: directory)) {
      source.withCString { source in
        target.withCString {
          Int(linkat(directory.descriptor, source, directory.descriptor, $0, 0))
        }
      }
    }
    switch result {
    case .success:
      try unlink(source, in: directory)
      return true
    case .failure(let error) where error.code == EEXIST: return false
    case .failure(let error) where isUnsupported(error):
      if try status(target, in: directory, followsLinks: false) != nil { return false }
      return try renameIfAbsent(source, to: target, in: directory)
    case .failure(let error):
      throw StorageError(errno: error.code, operation: "link", path: directory.path(of: target))
    }
  }

  /// Renames a file or directory; false if something has the new name already.
  ///
  /// On a file system that cannot do both in one step, a file that gets the name at the same moment
  /// is replaced. Callers hold a lock, or replace an empty directory.
  static func renameIfAbsent(
    _ source: String, to target: String, in directory: DirectoryHandle?
  ) throws(StorageError) -> Bool {
    if let isRenamed = try renameExclusively(source, to: target, in: directory) {
      return isRenamed
    }
    try rename(source, to: target, in: directory)
    return true
  }

  /// Renames a file or directory in one step; false if something has the new name already, and nil
  /// if the file system cannot do that.
  static func renameExclusively(
    _ source: String, to target: String, in directory: DirectoryHandle?
  ) throws(StorageError) -> Bool? {
    let result = systemCall(.rename, recordedPaths(source, target, in: directory)) {
      source.withCString { source in
        target.withCString { Int(keepsake_rename_new(directory.descriptor, source, $0)) }
      }
    }
    switch result {
    case .success: return true
    case .failure(let error) where error.code == EEXIST: return false
    case .failure(let error) where isUnsupported(error): return nil
    case .failure(let error):
      throw StorageError(errno: error.code, operation: "rename", path: directory.path(of: target))
    }
  }

  /// Both paths of a call in one string, the form in which tests record them.
  private static func recordedPaths(
    _ source: String, _ target: String, in directory: DirectoryHandle?
  ) -> String {
    directory.path(of: source) + "\u{0}" + directory.path(of: target)
  }

  /// Sets the times of a file to now; false if the file does not exist.
  static func touch(
    _ path: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) -> Bool {
    let result = systemCall(.times, directory.path(of: path)) {
      Int(utimensat(directory.descriptor, path, nil, AT_SYMLINK_NOFOLLOW))
    }
    switch result {
    case .success: return true
    case .failure(let error) where error.code == ENOENT: return false
    case .failure(let error):
      throw StorageError(errno: error.code, operation: "touch", path: directory.path(of: path))
    }
  }
}
