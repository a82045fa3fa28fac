internal import KeepsakeLibc

/// Listing directories.
extension FileSystem {
  /// What a name in a directory refers to.
  enum Kind {
    case file, directory, symbolicLink, other
  }

  /// The names in a directory, without `.` and `..`; empty if the directory does not exist.
  static func list(
    _ path: String = ".", in parent: DirectoryHandle? = nil
  ) throws(StorageError) -> [String] {
    var names: [String] = []
    do throws(StorageError) {
      try scan(path, in: parent) { (entry) throws(StorageError) in
        names.append(String(cString: entry.rawName))
      }
    } catch  where error.code == .notFound {}
    return names
  }

  /// An entry that ``scan(_:in:_:)`` passes to its closure; valid only during that call.
  struct DirectoryEntry {
    /// The bytes of the name, which need not be UTF-8.
    let rawName: UnsafePointer<CChar>
    fileprivate let type: Int32
    fileprivate let directory: Int32
    fileprivate let directoryPath: String

    /// nil for a name that is not UTF-8, which could be passed to no other call.
    var name: String? { String(validatingCString: rawName) }

    private var path: String { directoryPath + "/" + String(cString: rawName) }

    func kind() throws(StorageError) -> Kind {
      switch type {
      case Int32(DT_REG): return .file
      case Int32(DT_DIR): return .directory
      case Int32(DT_LNK): return .symbolicLink
      // Some file systems do not include the type in listings.
      case Int32(DT_UNKNOWN): return try status()?.kind ?? .other
      default: return .other
      }
    }

    /// The status of the entry, of a symbolic link its own; nil if the entry is gone.
    func status(withTimes: Bool = false) throws(StorageError) -> FileStatus? {
      try FileSystem.status(rawName, in: directory, withTimes: withTimes, path)
    }

    func unlink() throws(StorageError) {
      let result = systemCall(.unlink, path) { Int(unlinkat(directory, rawName, 0)) }
      if result.errorCode == ENOENT { return }
      try result.get(.unlink, path)
    }
  }

  /// Calls `body` with each entry of a directory except `.` and `..`.
  ///
  /// - Parameter followsLinks: Whether `path` may be a link; otherwise that is an error.
  static func scan(
    _ path: String = ".", in parent: DirectoryHandle? = nil, followsLinks: Bool = true,
    _ body: (DirectoryEntry) throws(StorageError) -> Void
  ) throws(StorageError) {
    let fullPath = parent.path(of: path == "." ? "" : path)
    let descriptor = Int32(
      try openDescriptor(.list, fullPath) {
        let flags =
          O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | (followsLinks ? 0 : O_NOFOLLOW)
        return path.withCString { Int(openat(parent.descriptor, $0, flags)) }
      }.get(.list, fullPath))
    guard let directory = fdopendir(descriptor) else {
      let code = errno
      close(descriptor)
      throw StorageError(errno: code, operation: "list", path: fullPath)
    }
    defer { closedir(directory) }
    while true {
      var next: UnsafeMutablePointer<dirent>?
      try systemCall(.list, fullPath) {
        errno = 0
        next = readdir(directory)
        return next == nil && errno != 0 ? -1 : 0
      }.get(.list, fullPath)
      guard let entry = next else { return }
      let type = Int32(entry.pointee.d_type)
      try withUnsafePointer(to: &entry.pointee.d_name) { name throws(StorageError) in
        let rawName = UnsafeRawPointer(name).assumingMemoryBound(to: CChar.self)
        if strcmp(rawName, ".") == 0 || strcmp(rawName, "..") == 0 { return }
        try body(
          DirectoryEntry(
            rawName: rawName, type: type, directory: descriptor, directoryPath: fullPath))
      }
    }
  }

  /// Removes a directory and everything in it. Symbolic links are removed, not followed; a path
  /// that is a link is an error.
  static func removeTree(_ path: String) throws(StorageError) {
    try ConfinedPath(base: parent(of: path)).appending(name(of: path)).removeTree()
  }
}
