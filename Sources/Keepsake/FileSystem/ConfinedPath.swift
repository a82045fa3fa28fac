internal import CKeepsake
internal import KeepsakeLibc

/// A place below a root directory, which neither its text nor a symbolic link leads out of.
///
/// Links on the way to the root are the user's affair and followed; below it none is.
struct ConfinedPath: Sendable {
  let root: String
  /// The way from the root; empty for the root itself.
  let relative: String

  init(root: String) { self.init(root: root, verified: "") }

  private init(root: String, verified relative: String) {
    self.root = root
    self.relative = relative
  }

  /// The place that `text` names as seen from the root; one slash at its end does no harm.
  init(root: String, _ text: String) throws(StorageError) {
    // By bytes: what stands before a slash can be one character with it.
    let relative =
      text.utf8.last == UInt8(ascii: "/") ? Substring(text.utf8.dropLast()) : text[...]
    let isInside = relative.utf8.split(
      separator: UInt8(ascii: "/"), omittingEmptySubsequences: false
    ).allSatisfy { name in
      // By bytes: a dot with a combining mark is one character, and another name.
      !name.isEmpty && !name.elementsEqual(".".utf8) && !name.elementsEqual("..".utf8)
        && !name.contains(0)
    }
    guard isInside else {
      throw StorageError(
        .misuse, operation: "open", key: text, path: root,
        reason: "the name does not lead to a place in the directory",
        remedy:
          "Use a name as seen from the directory, such as users/1.json, with no dots for a directory."
      )
    }
    self.init(root: root, verified: String(relative))
  }

  var isRoot: Bool { relative.isEmpty }
  var path: String { isRoot ? root : root + "/" + relative }
  var name: String { FileSystem.name(of: relative) }

  /// The directory that it stands in; of the root, the root itself.
  var parent: ConfinedPath {
    guard let slash = relative.utf8.lastIndex(of: UInt8(ascii: "/")) else {
      return ConfinedPath(root: root)
    }
    return ConfinedPath(root: root, verified: String(relative[..<slash]))
  }

  /// What has this name in the directory at this place.
  func appending(_ name: String) -> ConfinedPath {
    ConfinedPath(root: root, verified: isRoot ? name : relative + "/" + name)
  }

  // MARK: Opening

  /// A descriptor of what is here, opened as `flags` say.
  func open(_ flags: Int32) -> Result<Int, Errno> {
    let flags = flags | O_CLOEXEC | O_NONBLOCK
    if isRoot { return plainly(root, from: AT_FDCWD, flags) }
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
    var found = plainly(root, from: AT_FDCWD, directoryFlags)
    // By bytes: a slash with a combining mark after it is another character.
    let names = relative.utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }
    for (position, name) in names.enumerated() {
      guard case .success(let directory) = found else { return found }
      defer { close(Int32(directory)) }
      let isLast = position == names.count - 1
      found = plainly(name, from: Int32(directory), (isLast ? flags : directoryFlags) | O_NOFOLLOW)
      // Asked for a directory, the system says of a link that it is none.
      if case .failure(let error) = found, error.code == ENOTDIR {
        var raw = keepsake_status()
        let isLink =
          name.withCString { keepsake_stat(Int32(directory), $0, false, false, &raw) } == 0
          && FileStatus(raw).isLink
        if isLink { found = .failure(Errno(code: ELOOP)) }
      }
    }
    return found
  }

  /// Why it could not be opened.
  func failure(_ error: Errno, _ operation: String = "open") -> StorageError {
    if error.code == ELOOP, !isRoot { return linkFailure }
    return StorageError(errno: error.code, operation: operation, path: path)
  }

  var linkFailure: StorageError {
    StorageError(
      .accessDenied, operation: "open", path: path,
      reason: "a symbolic link stands in the way, and could lead out of the directory",
      remedy: "Remove the link, or put the file itself there.")
  }

  // MARK: Looking

  /// The status of what is here, of a link its own; nil when nothing is.
  func status(withTimes: Bool = false) throws(StorageError) -> FileStatus? {
    if isRoot {
      return try Self.ifThere { () throws(StorageError) in
        try FileSystem.status(root, withTimes: withTimes)
      }
    }
    let parent = parent
    guard !parent.isRoot else {
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
    guard !parent.isRoot, keepsake_path_only != 0 else { return try status() != nil }
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
      if isRoot {
        try FileSystem.createDirectory(root, mode: mode, durable: durable)
      } else {
        let directory = try parent.makeDirectory(mode: mode, durable: durable).0
        try FileSystem.makeDirectory(name, in: directory, mode: mode)
      }
      return (try DirectoryHandle(self), true)
    }
  }

  /// Makes the names of the directory at this place and of all above it survive a power cut.
  func synchronizeNames() throws(StorageError) {
    var place = self
    while !place.isRoot {
      place = place.parent
      try DirectoryHandle(place).synchronize()
    }
    try FileSystem.synchronizeName(of: root)
  }
}
