internal import CKeepsake
internal import KeepsakeLibc

/// A path below a base directory that cannot lead out of it: not through its text, and not through
/// a symbolic link.
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
    // Compare bytes: a slash and a combining mark after it form one `Character`.
    let subpath =
      text.utf8.last == UInt8(ascii: "/") ? Substring(text.utf8.dropLast()) : text[...]
    let isInside = subpath.utf8.split(
      separator: UInt8(ascii: "/"), omittingEmptySubsequences: false
    ).allSatisfy { name in
      !name.isEmpty && !name.elementsEqual(".".utf8) && !name.elementsEqual("..".utf8)
        && !name.contains(0)
    }
    guard isInside else {
      throw StorageError(
        .misuse, operation: "open", key: text, path: base,
        reason: "the name does not lead to a place in the directory",
        remedy:
          "Use a name as seen from the directory, such as users/1.json, with no dots for a directory."
      )
    }
    self.init(base: base, validated: String(subpath))
  }

  /// Whether this is the base directory itself.
  var isBase: Bool { subpath.isEmpty }
  var path: String { isBase ? base : base + "/" + subpath }
  var name: String { FileSystem.name(of: subpath) }

  /// The directory that it stands in; of the base, the base itself.
  var parent: ConfinedPath {
    guard let slash = subpath.utf8.lastIndex(of: UInt8(ascii: "/")) else {
      return ConfinedPath(base: base)
    }
    return ConfinedPath(base: base, validated: String(subpath[..<slash]))
  }

  /// What has this name in the directory at this place.
  func appending(_ name: String) -> ConfinedPath {
    ConfinedPath(base: base, validated: isBase ? name : subpath + "/" + name)
  }

  // MARK: Opening

  /// A descriptor of what is here, opened as `flags` say.
  func open(_ flags: Int32) -> Result<Int, Errno> {
    let flags = flags | O_CLOEXEC | O_NONBLOCK
    if isBase { return plainly(base, from: AT_FDCWD, flags) }
    // All at once. It fails as well where a link leads to the root, or where the system cannot.
    let direct = systemCall(.openUnlinked, path) {
      // It refuses what open(2) passes over.
      let isForPath = flags & keepsake_path_only != 0
      let flags = isForPath ? flags & ~O_NONBLOCK : flags
      return path.withCString { Int(keepsake_open_unlinked(AT_FDCWD, $0, flags)) }
    }
    guard case .failure(let error) = direct,
      [ELOOP, ENOSYS, EPERM, EINVAL].contains(error.code)
    else { return direct }
    return stepByStep(flags)
  }

  private func plainly(_ name: String, from directory: Int32, _ flags: Int32) -> Result<Int, Errno>
  {
    systemCall(.open, path) { name.withCString { Int(openat(directory, $0, flags)) } }
  }

  private func stepByStep(_ flags: Int32) -> Result<Int, Errno> {
    // As all at once: what one way takes and the other does not would be there and not there.
    guard path.utf8.count < 4_096 else { return .failure(Errno(code: ENAMETOOLONG)) }  // PATH_MAX
    let directoryFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC
    var found = plainly(base, from: AT_FDCWD, directoryFlags)
    // By bytes: a slash with a combining mark after it is another character.
    let names = subpath.utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }
    for (position, name) in names.enumerated() {
      guard case .success(let directory) = found else { return found }
      defer { close(Int32(directory)) }
      let isLast = position == names.count - 1
      found = plainly(name, from: Int32(directory), (isLast ? flags : directoryFlags) | O_NOFOLLOW)
      // Asked for a directory, the system says of a link that it is none.
      if case .failure(let error) = found, error.code == ENOTDIR {
        var raw = keepsake_status()
        let isSymbolicLink =
          name.withCString { keepsake_stat(Int32(directory), $0, false, false, &raw) } == 0
          && FileStatus(raw).isSymbolicLink
        if isSymbolicLink { found = .failure(Errno(code: ELOOP)) }
      }
    }
    return found
  }

  /// Why it could not be opened.
  func failure(_ error: Errno, _ operation: String = "open") -> StorageError {
    if error.code == ELOOP, !isBase { return symbolicLinkError }
    return StorageError(errno: error.code, operation: operation, path: path)
  }

  var symbolicLinkError: StorageError {
    StorageError(
      .accessDenied, operation: "open", path: path,
      reason: "a symbolic link stands in the way, and could lead out of the directory",
      remedy: "Remove the link, or put the file itself there.")
  }

  // MARK: Looking

  /// The status of what is here, of a link its own; nil when nothing is.
  func status(withTimes: Bool = false) throws(StorageError) -> FileStatus? {
    if isBase {
      return try Self.ifThere { () throws(StorageError) in
        try FileSystem.status(base, withTimes: withTimes)
      }
    }
    let parent = parent
    guard !parent.isBase else {
      // Nothing stands between the root and the name that could be a link.
      return try Self.ifThere { () throws(StorageError) in
        try FileSystem.status(path, followsLinks: false, withTimes: withTimes)
      }
    }
    return try Self.ifThere { () throws(StorageError) in
      try FileSystem.status(
        name, in: DirectoryHandle(parent), followsLinks: false, withTimes: withTimes)
    }
  }

  /// Whether anything is here, a link itself too.
  func exists() throws(StorageError) -> Bool {
    guard !parent.isBase, keepsake_path_only != 0 else { return try status() != nil }
    switch open(keepsake_path_only | O_NOFOLLOW) {
    case .success(let descriptor):
      close(Int32(descriptor))
      return true
    case .failure(let error) where error.code == ENOENT || error.code == ENOTDIR: return false
    case .failure(let error): throw failure(error, "stat")
    }
  }

  /// nil where nothing is at the place, or a file where a directory would have to be.
  private static func ifThere(
    _ look: () throws(StorageError) -> FileStatus?
  ) throws(StorageError) -> FileStatus? {
    do throws(StorageError) {
      return try look()
    } catch  where error.code == .notFound || error.code.systemError == ENOTDIR {
      return nil
    }
  }

  // MARK: Folders

  /// The directory at this place, made with those above it where it is missing.
  ///
  /// - Parameter durable: Whether the names of the root, and of those above it, are to survive a
  ///   power cut.
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

  /// Makes the names of the directory at this place and of all above it survive a power cut.
  func synchronizeAncestors() throws(StorageError) {
    var place = self
    while !place.isBase {
      place = place.parent
      try DirectoryHandle(place).synchronize()
    }
    try FileSystem.synchronizeParent(of: base)
  }
}
