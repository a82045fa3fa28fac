internal import KeepsakeLibc

/// Walking and removing directory trees.
extension ConfinedPath {
  /// An entry that ``walk(entering:_:)`` visits.
  struct Visit {
    let path: ConfinedPath
    let kind: FileSystem.Kind
    let entry: FileSystem.DirectoryEntry
  }

  /// Visits everything below this directory, each directory before its contents. Entries that
  /// disappear in the meantime are skipped.
  ///
  /// Only one directory is open at a time, so the depth is limited only by the length of a path.
  ///
  /// - Parameter shouldEnter: Whether to visit the entry of this name, and if it is a directory,
  ///   its contents. The name is nil if it is not UTF-8.
  func walk(
    entering shouldEnter: (_ name: String?) -> Bool = { _ in true },
    _ body: (Visit) throws(StorageError) -> Void
  ) throws(StorageError) {
    var pending = [self]
    while let parent = pending.popLast() {
      do throws(StorageError) {
        let directory = try DirectoryHandle(parent)
        try FileSystem.scan(in: directory) { entry throws(StorageError) in
          let name = entry.name
          guard shouldEnter(name) else { return }
          let path = parent.appending(name ?? String(cString: entry.rawName))
          let visit = Visit(path: path, kind: try entry.kind(), entry: entry)
          if visit.kind == .directory {
            guard name != nil else { throw path.invalidNameError }
            pending.append(path)
          }
          try body(visit)
        }
      } catch  where error.code == .notFound && error.path == parent.path {}
    }
  }

  var invalidNameError: StorageError {
    StorageError(
      .invalidName, operation: "list", path: path, reason: "the name is not UTF-8",
      remedy: "Rename the file or delete it.")
  }

  /// Removes everything below this directory. Entries that are created in the meantime may stay.
  ///
  /// - Parameter shouldRemove: Whether to remove the entry of this name, which is nil if it is not
  ///   UTF-8.
  func removeContents(
    where shouldRemove: (_ name: String?) -> Bool = { _ in true }
  ) throws(StorageError) {
    var directories: [ConfinedPath] = []
    // Checks all directories before the first file is removed: one of them may have to stay.
    if !isBase, let status = try status() { try requireNoMount(status, device: status.device) }
    let device = try FileSystem.status(path)?.device
    try walk { visit throws(StorageError) in
      guard visit.kind == .directory, let status = try visit.entry.status() else { return }
      try visit.path.requireNoMount(status, device: device ?? status.device)
    }
    try walk(entering: shouldRemove) { visit throws(StorageError) in
      if visit.kind == .directory {
        directories.append(visit.path)
      } else {
        try visit.entry.unlink()
      }
    }
    for directory in directories.reversed() { try directory.removeEmptyDirectory() }
  }

  /// Throws if another file system is mounted here: its files are not the app's to remove.
  private func requireNoMount(_ status: FileStatus, device: UInt64) throws(StorageError) {
    guard status.isMountPoint || status.device != device else { return }
    throw StorageError(
      .misuse, operation: "remove", path: path, reason: "another file system is mounted here",
      remedy: "Unmount it first.")
  }

  /// Removes this directory and everything in it.
  func removeTree() throws(StorageError) {
    var attempts = 0
    while true {
      try removeContents()
      if try removeEmptyDirectory() { return }
      // Another process had opened the directory and has created a file in it in the meantime.
      attempts += 1
      guard attempts < 10 else {
        throw StorageError(errno: ENOTEMPTY, operation: "rmdir", path: path)
      }
    }
  }

  /// Removes this directory if it is empty.
  ///
  /// - Returns: Whether the directory is gone; false if it is not empty.
  @discardableResult
  func removeEmptyDirectory() throws(StorageError) -> Bool {
    let result: Result<Int, Errno>
    if isBase {
      result = systemCall(.rmdir, path) { Int(rmdir(path)) }
    } else {
      let directory: DirectoryHandle
      do throws(StorageError) {
        directory = try DirectoryHandle(parent)
      } catch  where error.code == .notFound {
        return true
      }
      result = systemCall(.rmdir, path) {
        name.withCString { Int(unlinkat(directory.descriptor, $0, AT_REMOVEDIR)) }
      }
    }
    switch result.errorCode {
    case ENOENT: return true
    case ENOTEMPTY, EEXIST: return false
    default:
      try result.get(.rmdir, path)
      return true
    }
  }
}
