internal import CKeepsake
internal import KeepsakeLibc

/// A path below a base directory that cannot lead out of it, neither through its text nor through a
/// symbolic link.
///
/// Symbolic links in the path of the base directory itself are followed. Below the base directory
/// a symbolic link is an error.
struct ConfinedPath: Sendable {
  /// The absolute path of the base directory.
  let base: String
  /// The path relative to the base directory; empty for the base directory itself.
  let subpath: String

  init(base: String) { self.init(base: base, validated: "") }

  private init(base: String, validated subpath: String) {
    self.base = base
    self.subpath = subpath
  }

  /// The path `text` below `base`. One trailing slash is ignored.
  init(_ text: String, in base: String) throws(StorageError) {
    // Compares bytes: a slash and a combining mark after it form one `Character`.
    let hasSlash = text.utf8.last == UInt8(ascii: "/")
    let isInside = text.utf8.span.bytes.withUnsafeBytes {
      Self.isInside(UnsafeRawBufferPointer(rebasing: $0.dropLast(hasSlash ? 1 : 0)))
    }
    guard isInside else {
      throw StorageError(
        .misuse, operation: "open", key: text, path: base,
        reason: "the name is not a path inside the folder",
        remedy: "Use a relative path without \".\" or \"..\", such as users/1.json.")
    }
    self.init(
      base: base, validated: hasSlash ? String(Substring(text.utf8.dropLast())) : text)
  }

  /// Whether each name of a path is one of an entry: not empty, `.` or `..`, and without a zero.
  private static func isInside(_ path: UnsafeRawBufferPointer) -> Bool {
    let (dot, slash) = (UInt8(ascii: "."), UInt8(ascii: "/"))
    var length = 0
    var dotCount = 0
    for byte in path {
      if byte == 0 { return false }
      if byte == slash {
        if length == 0 || length <= 2 && dotCount == length { return false }
        (length, dotCount) = (0, 0)
      } else {
        length += 1
        if byte == dot { dotCount += 1 }
      }
    }
    return length > 0 && !(length <= 2 && dotCount == length)
  }

  /// Whether this is the base directory itself.
  var isBase: Bool { subpath.isEmpty }
  var path: String { isBase ? base : base + "/" + subpath }
  var name: String { FileSystem.name(of: subpath) }

  /// The directory that contains this path; the parent of the base is the base itself.
  var parent: ConfinedPath {
    guard let slash = subpath.utf8.lastIndex(of: UInt8(ascii: "/")) else {
      return ConfinedPath(base: base)
    }
    return ConfinedPath(base: base, validated: String(subpath[..<slash]))
  }

  /// The path of an entry of this directory.
  func appending(_ name: String) -> ConfinedPath {
    ConfinedPath(base: base, validated: isBase ? name : subpath + "/" + name)
  }

  /// This path relative to `ancestor`, which must have the same base.
  func subpath(below ancestor: ConfinedPath) -> String {
    String(Substring(subpath.utf8.dropFirst(ancestor.isBase ? 0 : ancestor.subpath.utf8.count + 1)))
  }

  // MARK: Opening

  /// Opens the path with `flags` and returns the descriptor.
  func open(_ flags: Int32, _ operation: String = "open") throws(StorageError) -> Int32 {
    switch openWithoutLinks(flags) {
    case .success(let descriptor): return Int32(descriptor)
    case .failure(let error) where error.code == ELOOP && !isBase: throw symbolicLinkError
    case .failure(let error):
      throw StorageError(errno: error.code, operation: operation, path: path)
    }
  }

  private func openWithoutLinks(_ flags: Int32) -> Result<Int, Errno> {
    let flags = flags | O_CLOEXEC | O_NONBLOCK
    if isBase { return open(base, in: AT_FDCWD, flags) }
    // One call for the whole path. It also fails if the path of the base contains a symbolic link,
    // or if the system does not have the call.
    let direct = openDescriptor(.openNoSymlinks, path) {
      // openat2 rejects flags that openat ignores.
      let isForPath = flags & keepsake_path_only != 0
      let flags = isForPath ? flags & ~O_NONBLOCK : flags
      return path.withCString { Int(keepsake_open_no_symlinks(AT_FDCWD, $0, flags)) }
    }
    guard [ELOOP, ENOSYS, EPERM, EINVAL].contains(direct.errorCode) else { return direct }
    return openComponentwise(flags)
  }

  private func open(_ name: String, in directory: Int32, _ flags: Int32) -> Result<Int, Errno> {
    openDescriptor(.open, path) { name.withCString { Int(openat(directory, $0, flags)) } }
  }

  /// Opens one component after the other, so that no link is followed below the base.
  private func openComponentwise(_ flags: Int32) -> Result<Int, Errno> {
    // The same limit as a single call has: both must agree on what exists.
    guard path.utf8.count < 4_096 else { return .failure(Errno(code: ENAMETOOLONG)) }  // PATH_MAX
    let directoryFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC
    var result = open(base, in: AT_FDCWD, directoryFlags)
    // Splits bytes: a slash and a combining mark after it form one `Character`.
    let names = subpath.utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }
    for (index, name) in names.enumerated() {
      guard case .success(let directory) = result else { return result }
      defer { close(Int32(directory)) }
      let isLast = index == names.count - 1
      result = open(name, in: Int32(directory), (isLast ? flags : directoryFlags) | O_NOFOLLOW)
      // With O_DIRECTORY the system reports a symbolic link as "not a directory".
      if result.errorCode == ENOTDIR {
        var raw = keepsake_status()
        let isSymbolicLink =
          name.withCString { keepsake_stat(Int32(directory), $0, false, false, &raw) } == 0
          && FileStatus(raw).isSymbolicLink
        if isSymbolicLink { result = .failure(Errno(code: ELOOP)) }
      }
    }
    return result
  }

  var symbolicLinkError: StorageError { Self.symbolicLinkError(at: path) }

  static func symbolicLinkError(at path: String) -> StorageError {
    StorageError(
      .accessDenied, operation: "open", path: path,
      reason: "a symbolic link is in the way and could lead out of the folder",
      remedy: "Replace the link with the file or directory itself.")
  }

  // MARK: Status

  /// The status of the entry at this path, of a symbolic link its own; nil if there is none.
  func status(withTimes: Bool = false) throws(StorageError) -> FileStatus? {
    let parent = parent
    do throws(StorageError) {
      // In the base directory, no component before the name could be a symbolic link.
      if parent.isBase {
        return try FileSystem.status(path, followsLinks: isBase, withTimes: withTimes)
      }
      return try FileSystem.status(
        name, in: DirectoryHandle(parent), followsLinks: false, withTimes: withTimes)
    } catch  where error.code == .notFound || error.code == .notDirectory {
      return nil  // the path leads through a file
    }
  }

  /// Whether there is an entry at this path. A symbolic link counts, wherever it leads.
  func exists() throws(StorageError) -> Bool {
    guard !parent.isBase, keepsake_path_only != 0 else { return try status() != nil }
    do throws(StorageError) {
      close(try open(keepsake_path_only | O_NOFOLLOW, "stat"))
      return true
    } catch  where error.code == .notFound || error.code == .notDirectory {
      return false
    }
  }

  // MARK: Directories

  /// Opens the directory at this path, and creates it and its parents if they are missing.
  ///
  /// - Parameter durable: Whether the names of the base directory and of its parents must survive
  ///   a power cut if they are new.
  func makeDirectory(
    mode: UInt32, durable: Bool = false
  ) throws(StorageError) -> (DirectoryHandle, isNew: Bool) {
    do throws(StorageError) {
      return (try DirectoryHandle(self), false)
    } catch  where error.code == .notFound {
      if isBase {
        try FileSystem.createDirectory(base, mode: mode, durable: durable)
      } else {
        let directory = try parent.makeDirectory(mode: mode, durable: durable).0
        try FileSystem.makeDirectory(name, in: directory, mode: mode)
      }
      return (try DirectoryHandle(self), true)
    }
  }

  /// Makes the name of the directory at this path, and the names of all its parents up to the base
  /// directory, survive a power cut.
  func synchronizeAncestors() throws(StorageError) {
    var directory = self
    while !directory.isBase {
      directory = directory.parent
      try DirectoryHandle(directory).synchronize()
    }
    try FileSystem.synchronizeParent(of: base)
  }
}
