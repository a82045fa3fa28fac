internal import KeepsakeLibc

/// What stands in directories.
extension FileSystem {
  enum Kind {
    case file, directory, link, other
  }

  /// The names in a directory, without `.` and `..`; empty when the directory does not exist.
  static func list(_ path: String) throws(StorageError) -> [String] {
    var names: [String] = []
    do throws(StorageError) {
      try scan(path) { (found) throws(StorageError) in names.append(String(cString: found.raw)) }
    } catch  where error.code == .notFound {}
    return names
  }

  /// A name that ``scan(_:in:_:)`` came to, for as long as it is at it.
  struct DirectoryEntry {
    /// As the system has it.
    let raw: UnsafePointer<CChar>
    fileprivate let type: Int32
    fileprivate let directory: Int32
    fileprivate let path: String

    /// nil for a name that is not UTF-8, which no call could be given.
    var name: String? { String(validatingCString: raw) }

    /// What bears the name.
    func kind() throws(StorageError) -> Kind {
      switch type {
      case Int32(DT_REG): return .file
      case Int32(DT_DIR): return .directory
      case Int32(DT_LNK): return .link
      // Some file systems do not say it in their listings.
      case Int32(DT_UNKNOWN): return try status()?.kind ?? .other
      default: return .other
      }
    }

    /// Of a symbolic link its own; nil when it is gone.
    func status(withTimes: Bool = false) throws(StorageError) -> FileStatus? {
      try FileSystem.status(
        raw, in: directory, withTimes: withTimes, path + "/" + String(cString: raw))
    }

    func unlink() throws(StorageError) {
      let path = path + "/" + String(cString: raw)
      let result = systemCall(.unlink, path) { Int(unlinkat(directory, raw, 0)) }
      if case .failure(let error) = result, error.code == ENOENT { return }
      try result.get(.unlink, path)
    }
  }

  /// Calls `body` with each name in a directory, but `.` and `..`.
  static func scan(
    _ path: String = ".", in host: DirectoryHandle? = nil,
    _ body: (DirectoryEntry) throws(StorageError) -> Void
  ) throws(StorageError) {
    let shownPath =
      path == "." ? DirectoryHandle.path("", in: host) : DirectoryHandle.path(path, in: host)
    let descriptor = Int32(
      try systemCall(.list, shownPath) {
        let flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK
        return path.withCString { Int(openat(DirectoryHandle.descriptor(host), $0, flags)) }
      }.get(.list, shownPath))
    guard let directory = fdopendir(descriptor) else {
      let code = errno
      close(descriptor)
      throw StorageError(errno: code, operation: "list", path: shownPath)
    }
    defer { closedir(directory) }
    while true {
      errno = 0
      guard let entry = readdir(directory) else {
        let code = errno
        if code != 0 { throw StorageError(errno: code, operation: "list", path: shownPath) }
        return
      }
      let type = Int32(entry.pointee.d_type)
      try withUnsafePointer(to: &entry.pointee.d_name) { name throws(StorageError) in
        let raw = UnsafeRawPointer(name).assumingMemoryBound(to: CChar.self)
        if strcmp(raw, ".") == 0 || strcmp(raw, "..") == 0 { return }
        try body(DirectoryEntry(raw: raw, type: type, directory: descriptor, path: shownPath))
      }
    }
  }

  /// Removes a directory with all that is in it; symbolic links are removed, not followed.
  static func removeTree(_ path: String) throws(StorageError) {
    try ConfinedPath(base: path).removeTree()
  }
}

extension ConfinedPath {
  /// Something that ``walk(entering:_:)`` came to.
  struct Visit {
    let place: ConfinedPath
    let kind: FileSystem.Kind
    let entry: FileSystem.DirectoryEntry
  }

  /// Visits all that is below, each directory before what is in it; what goes meanwhile is passed
  /// over.
  ///
  /// One directory is open at a time, so that no depth is too great but one whose path is.
  ///
  /// - Parameter enters: Whether to visit what has this name, nil for one that is not UTF-8, and in
  ///   a directory go on.
  func walk(
    entering enters: (_ name: String?) -> Bool = { _ in true },
    _ body: (Visit) throws(StorageError) -> Void
  ) throws(StorageError) {
    var pending = [self]
    while let place = pending.popLast() {
      do throws(StorageError) {
        let directory = try DirectoryHandle(place)
        try FileSystem.scan(in: directory) { found throws(StorageError) in
          let name = found.name
          guard enters(name) else { return }
          let shown = place.appending(name ?? String(cString: found.raw))
          let visit = Visit(place: shown, kind: try found.kind(), entry: found)
          if visit.kind == .directory {
            guard name != nil else { throw visit.place.invalidNameError }
            pending.append(visit.place)
          }
          try body(visit)
        }
      } catch  where error.code == .notFound && error.path == place.path {}
    }
  }

  var invalidNameError: StorageError {
    StorageError(
      .system(EILSEQ), operation: "list", path: path, reason: "the name is not UTF-8",
      remedy: "Rename or remove it.")
  }

  /// Removes all that is below; what comes meanwhile may stay.
  ///
  /// - Parameter removes: Whether to remove what has this name, nil for one that is not UTF-8.
  func removeContents(
    where removes: (_ name: String?) -> Bool = { _ in true }
  ) throws(StorageError) {
    var directories: [ConfinedPath] = []
    // All directories before the first file goes: one of them may have to stay.
    if !isBase, let status = try status() { try requireNoMount(status, device: status.device) }
    let device = try FileSystem.status(path)?.device
    try walk { visit throws(StorageError) in
      guard visit.kind == .directory, let status = try visit.entry.status() else { return }
      try visit.place.requireNoMount(status, device: device ?? status.device)
    }
    try walk(entering: removes) { visit throws(StorageError) in
      if visit.kind == .directory {
        directories.append(visit.place)
      } else {
        try visit.entry.unlink()
      }
    }
    for place in directories.reversed() { try place.removeEmptyDirectory() }
  }

  /// What is mounted there is not ours to remove.
  private func requireNoMount(_ status: FileStatus, device: UInt64) throws(StorageError) {
    guard status.isMountPoint || status.device != device else { return }
    throw StorageError(
      .misuse, operation: "remove", path: path,
      reason: "another file system is mounted there", remedy: "Unmount it first.")
  }

  /// Removes the directory at this place with all that is in it.
  func removeTree() throws(StorageError) {
    var attempts = 0
    while true {
      try removeContents()
      if try removeEmptyDirectory() { return }
      // Somebody who looked it up before has put a file there meanwhile.
      attempts += 1
      guard attempts < 10 else {
        throw StorageError(errno: ENOTEMPTY, operation: "rmdir", path: path)
      }
    }
  }

  /// Removes the directory at this place; false when there is something in it.
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
    switch result {
    case .success: return true
    case .failure(let error) where error.code == ENOENT: return true
    case .failure(let error) where error.code == ENOTEMPTY || error.code == EEXIST: return false
    case .failure(let error):
      throw StorageError(errno: error.code, operation: "rmdir", path: path)
    }
  }
}
