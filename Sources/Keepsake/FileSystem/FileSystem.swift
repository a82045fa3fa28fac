internal import CKeepsake
internal import KeepsakeLibc

/// Operations on paths. With ``File``, ``LockFile`` and ``FileWatcher`` the only code that calls
/// into libc.
enum FileSystem {
  /// The status of what `path` leads to, nil when nothing is there.
  ///
  /// - Parameters:
  ///   - directory: The one that `path` is seen from, here and below, where that is no absolute
  ///     path.
  ///   - followsLinks: Whether a symbolic link's is that of what it leads to.
  static func status(
    _ path: String, in directory: DirectoryHandle? = nil, followsLinks: Bool = true,
    withTimes: Bool = false
  ) throws(StorageError) -> FileStatus? {
    var raw = keepsake_status()
    // With a closure, because passing a `String` for a C string copies it, and each write comes
    // here.
    let result = systemCall(.stat, DirectoryHandle.path(path, in: directory)) {
      path.withCString {
        Int(keepsake_stat(DirectoryHandle.descriptor(directory), $0, followsLinks, withTimes, &raw))
      }
    }
    switch result {
    case .success: return FileStatus(raw)
    case .failure(let error) where error.code == ENOENT: return nil
    case .failure(let error):
      throw StorageError(
        errno: error.code, operation: "stat", path: DirectoryHandle.path(path, in: directory))
    }
  }

  /// The status of what bears a name in an open directory, of a symbolic link its own; nil when
  /// nothing does.
  static func status(
    _ name: UnsafePointer<CChar>, in directory: Int32, withTimes: Bool,
    _ path: @autoclosure () -> String
  ) throws(StorageError) -> FileStatus? {
    var raw = keepsake_status()
    let result = systemCall(.stat, path()) {
      Int(keepsake_stat(directory, name, false, withTimes, &raw))
    }
    if case .failure(let error) = result, error.code == ENOENT { return nil }
    try result.get(.stat, path())
    return FileStatus(raw)
  }

  /// The status of an open file, with its path for errors.
  static func status(
    of descriptor: Int32, _ path: @autoclosure () -> String, withTimes: Bool = false
  ) throws(StorageError) -> FileStatus {
    var raw = keepsake_status()
    try systemCall(.stat, path()) { Int(keepsake_stat(descriptor, nil, true, withTimes, &raw)) }
      .get(.stat, path())
    return FileStatus(raw)
  }

  /// Creates `path` and the directories above it that are missing, for the user alone unless `mode`
  /// says otherwise; with `durable` for good: the names of new directories survive a power cut.
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

  /// Creates one directory; false when something is there already.
  @discardableResult
  static func makeDirectory(
    _ path: String, in directory: DirectoryHandle? = nil, mode: UInt32
  ) throws(StorageError) -> Bool {
    let descriptor = DirectoryHandle.descriptor(directory)
    let result = systemCall(.mkdir, DirectoryHandle.path(path, in: directory)) {
      Int(mkdirat(descriptor, path, mode_t(mode)))
    }
    switch result {
    case .success: break
    case .failure(let error) where error.code == EEXIST: return false
    case .failure(let error):
      throw StorageError(
        errno: error.code, operation: "mkdir", path: DirectoryHandle.path(path, in: directory))
    }
    // No umask takes from the user, but many do from others.
    if mode & 0o077 != 0 {
      try systemCall(.chmod, DirectoryHandle.path(path, in: directory)) {
        Int(fchmodat(descriptor, path, mode_t(mode), 0))
      }.get(.chmod, DirectoryHandle.path(path, in: directory))
    }
    return true
  }

  /// Gives the file at `source` the name `target`, in place of a file that has it.
  static func rename(
    _ source: String, to target: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) {
    try systemCall(.rename, paths(source, target, in: directory)) {
      let descriptor = DirectoryHandle.descriptor(directory)
      return source.withCString { source in
        target.withCString { Int(renameat(descriptor, source, descriptor, $0)) }
      }
    }.get(.rename, DirectoryHandle.path(target, in: directory))
  }

  /// Gives what is at `source` the name `target` in another directory, in place of a file that has
  /// it; false when that is on another file system.
  static func move(
    _ source: String, in directory: DirectoryHandle?, to target: String,
    in newDirectory: DirectoryHandle
  ) throws(StorageError) -> Bool {
    let shownPath = DirectoryHandle.path(target, in: newDirectory)
    let result = systemCall(
      .rename, DirectoryHandle.path(source, in: directory) + "\u{0}" + shownPath
    ) {
      source.withCString { source in
        target.withCString {
          Int(renameat(DirectoryHandle.descriptor(directory), source, newDirectory.descriptor, $0))
        }
      }
    }
    if case .failure(let error) = result {
      if error.code == EXDEV { return false }
      // Of the two it is what is missing.
      if error.code == ENOENT {
        throw StorageError(
          errno: ENOENT, operation: "rename", path: DirectoryHandle.path(source, in: directory))
      }
    }
    try result.get(.rename, shownPath)
    return true
  }

  /// Makes another symbolic link that says the same.
  ///
  /// In place of a file that has the name, by way of another one.
  static func copyLink(
    _ link: ConfinedPath, to name: String, by temporary: String, in directory: DirectoryHandle
  ) throws(StorageError) {
    let target = try linkText(link.name, in: DirectoryHandle(link.parent))
    let shownPath = DirectoryHandle.path(temporary, in: directory)
    try systemCall(.link, shownPath) {
      target.withCString { target in
        temporary.withCString { Int(symlinkat(target, directory.descriptor, $0)) }
      }
    }.get(.link, shownPath)
    do throws(StorageError) {
      try rename(temporary, to: name, in: directory)
    } catch {
      // The failure says more than that its remains could not be removed; a sweep finds them.
      try? unlink(temporary, in: directory)
      throw error
    }
  }

  /// Lets the files at two paths trade names in one step; false where nothing is at `target`, or
  /// the file system cannot.
  static func exchange(
    _ source: String, with target: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) -> Bool {
    let result = systemCall(.exchange, paths(source, target, in: directory)) {
      source.withCString { source in
        target.withCString {
          Int(keepsake_exchange(DirectoryHandle.descriptor(directory), source, $0))
        }
      }
    }
    switch result {
    case .success: return true
    case .failure(let error) where [ENOENT, EINVAL, ENOSYS, ENOTSUP].contains(error.code):
      return false
    case .failure(let error):
      throw StorageError(
        errno: error.code, operation: "rename", path: DirectoryHandle.path(target, in: directory))
    }
  }

  /// Both paths of a call, as recordings have them.
  fileprivate static func paths(_ source: String, _ target: String, in directory: DirectoryHandle?)
    -> String
  {
    DirectoryHandle.path(source, in: directory) + "\u{0}"
      + DirectoryHandle.path(target, in: directory)
  }

  /// Sets the times of the file at `path` to now; false when nothing is there.
  static func touch(_ path: String, in directory: DirectoryHandle? = nil) throws(StorageError)
    -> Bool
  {
    let result = systemCall(.times, DirectoryHandle.path(path, in: directory)) {
      Int(utimensat(DirectoryHandle.descriptor(directory), path, nil, AT_SYMLINK_NOFOLLOW))
    }
    switch result {
    case .success: return true
    case .failure(let error) where error.code == ENOENT: return false
    case .failure(let error):
      throw StorageError(
        errno: error.code, operation: "touch", path: DirectoryHandle.path(path, in: directory))
    }
  }

  /// Removes a file; one that is gone already is no failure.
  static func unlink(_ path: String, in directory: DirectoryHandle? = nil) throws(StorageError) {
    let result = systemCall(.unlink, DirectoryHandle.path(path, in: directory)) {
      path.withCString { Int(unlinkat(DirectoryHandle.descriptor(directory), $0, 0)) }
    }
    switch result {
    case .success: return
    case .failure(let error) where error.code == ENOENT: return
    case .failure(let error):
      throw StorageError(
        errno: error.code, operation: "unlink", path: DirectoryHandle.path(path, in: directory))
    }
  }

  /// Removes whatever is at `path`, a directory with all that is in it.
  static func remove(_ path: String, in directory: DirectoryHandle? = nil) throws(StorageError) {
    do throws(StorageError) {
      try unlink(path, in: directory)
    } catch  where error.code.systemError == EISDIR || error.code == .accessDenied {
      // What unlink(2) says of directories, here and on other systems.
      // A link that may not go is not followed either.
      guard let status = try status(path, in: directory, followsLinks: false) else { return }
      guard status.isDirectory else { throw error }
      try removeTree(DirectoryHandle.path(path, in: directory))
    }
  }

  /// Makes the names in a directory survive a power cut.
  static func synchronizeDirectory(_ path: String) throws(StorageError) {
    try DirectoryHandle(path).synchronize()
  }

  /// Makes the name of a directory survive a power cut, as far as the one that it stands in may be
  /// opened: in one that may not, others make the names.
  static func synchronizeParent(of directory: String) throws(StorageError) {
    do throws(StorageError) {
      try synchronizeDirectory(parent(of: directory))
    } catch  where error.code == .accessDenied {}
  }

  /// Gives `path` new contents such that a reader, or a crash, finds the old or the new ones whole.
  ///
  /// With `durable` the new ones survive a power cut once this returns.
  static func replace(
    _ path: String, with bytes: [UInt8], mode: UInt32, durable: Bool
  ) throws(StorageError) {
    _ = try bytes.span.bytes.withUnsafeBytes { bytes throws(StorageError) in
      try write(bytes, to: path, mode: mode, durable: durable, replacing: true)
    }
  }

  /// The same; unless it is `replacing`, false where something is at the path already.
  static func write(
    _ bytes: UnsafeRawBufferPointer, to path: String, mode: UInt32, durable: Bool, replacing: Bool
  ) throws(StorageError) -> Bool {
    var temporary = try TemporaryFile.make(beside: path, mode: mode)
    if let failure = temporary.file.write(bytes).failure { throw failure }
    if durable { try temporary.file.synchronize() }
    if replacing {
      try temporary.moveToDestination()
    } else {
      guard try temporary.moveToDestinationIfAbsent() else { return false }
    }
    if durable { try synchronizeDirectory(parent(of: path)) }
    return true
  }

  /// Removes the temporary files of replacements that were killed so many seconds ago.
  static func removeStaleTemporaryFiles(
    for destination: String, olderThan age: Int64 = 600
  ) throws(StorageError) {
    let directory = parent(of: destination)
    let prefix = ".\(name(of: destination))."
    let now = WallClock.now
    for name in try list(directory) where name.hasPrefix(prefix) && name.hasSuffix(".tmp") {
      let path = directory + "/" + name
      guard let status = try status(path, withTimes: true) else { continue }
      // Another user's, in a shared directory, may not go: no reason to refuse a write.
      if now.subtractingSaturated(status.modified) > age * WallClock.second { try? unlink(path) }
    }
  }

  /// The size in which the file system of `path` gives out space, and how long its names may be.
  static func limits(at path: String) throws(StorageError) -> (blockSize: Int, nameLength: Int) {
    let raw = try space(at: path)
    let size = Int(clamping: UInt64(raw.f_frsize))
    // Some say 0, and network file systems the size of a transfer.
    let isBlock = (512...65_536).contains(size)
    return (isBlock ? size : 4_096, min(255, max(64, Int(clamping: UInt64(raw.f_namemax)))))
  }

  private static func space(at path: String) throws(StorageError) -> statvfs {
    var raw = statvfs()
    try systemCall(.space, path) { Int(statvfs(path, &raw)) }.get(.space, path)
    return raw
  }

  /// The bytes that an unprivileged user can still write to the file system of `path`.
  ///
  /// As many as there can be where the file system does not say it.
  static func freeSpace(at path: String) throws(StorageError) -> Int {
    let raw = try space(at: path)
    if raw.f_blocks == 0 { return .max }
    let (bytes, overflow) = UInt64(raw.f_bavail).multipliedReportingOverflow(
      by: UInt64(raw.f_frsize))
    return overflow ? Int.max : Int(clamping: bytes)
  }

  /// Where `path` leads when it is a symbolic link, so that replacing a file keeps the link. What
  /// it leads to need not exist yet.
  static func resolvingLink(_ path: String) throws(StorageError) -> String {
    var raw = SystemStatus()
    guard case .success = systemCall(.stat, path, { Int(lstat(path, &raw)) }),
      raw.st_mode & S_IFMT == S_IFLNK
    else { return path }
    return try status(path) == nil ? linkTarget(path) : realPath(path)
  }

  /// The path of what is at `path`, without any symbolic link.
  static func realPath(_ path: String) throws(StorageError) -> String {
    var resolved: UnsafeMutablePointer<CChar>?
    try systemCall(.resolve, path) {
      resolved = realpath(path, nil)
      return resolved == nil ? -1 : 0
    }.get(.resolve, path)
    guard let resolved else { return path }
    defer { free(resolved) }
    return String(cString: resolved)
  }

  /// The path itself, or the first one above it at which there is something that can be looked at.
  static func existingPath(_ path: String) throws(StorageError) -> String {
    var path = path
    while path != "/", try !isThere(path) { path = parent(of: path) }
    return path
  }

  private static func isThere(_ path: String) throws(StorageError) -> Bool {
    do throws(StorageError) {
      return try status(path) != nil
    } catch  where error.code.systemError == ENOTDIR || error.code == .accessDenied {
      return false  // some users' home is /dev/null, or another one's
    }
  }

  /// What a symbolic link says, as a path.
  static func linkTarget(_ path: String) throws(StorageError) -> String {
    let target = try linkText(path)
    return target.hasPrefix("/") ? target : parent(of: path) + "/" + target
  }

  private static func linkText(
    _ path: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) -> String {
    let capacity = 4_096  // PATH_MAX
    let shownPath = DirectoryHandle.path(path, in: directory)
    var buffer = [CChar](repeating: 0, count: capacity)
    let count = try systemCall(.resolve, shownPath) {
      readlinkat(DirectoryHandle.descriptor(directory), path, &buffer, capacity)
    }.get(.resolve, shownPath)
    return String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  static func parent(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  static func name(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return path }
    return String(path[path.utf8.index(after: slash)...])
  }

  /// Writes one line to standard error; there is nobody to tell when that fails.
  static func complain(_ line: String) {
    var text = line + "\n"
    text.withUTF8 { _ = platformWrite(STDERR_FILENO, $0.baseAddress, $0.count) }
  }
}

/// A file beside its destination that is removed unless it is moved there.
struct TemporaryFile: ~Copyable {
  let file: File
  private let path: String
  private let destination: String
  /// The one that both paths are seen from, where they are not absolute.
  private let directory: DirectoryHandle?
  private var isInPlace = false

  private init(
    _ file: File, at path: String, for destination: String, in directory: DirectoryHandle?
  ) {
    self.file = file
    self.path = path
    self.destination = destination
    self.directory = directory
  }

  /// - Parameter destination: Where it is going to be moved, if that is not what it lies beside.
  static func make(
    beside neighbour: String, for destination: String? = nil, _ access: File.Access = .create,
    mode: UInt32
  ) throws(StorageError) -> TemporaryFile {
    let token = String(UInt64.random(in: .min ... .max), radix: 16)
    let path =
      "\(FileSystem.parent(of: neighbour))/.\(FileSystem.name(of: neighbour)).\(token).tmp"
    return try make(at: path, for: destination ?? neighbour, access, mode: mode)
  }

  static func make(
    at path: String, for destination: String, in directory: DirectoryHandle? = nil,
    _ access: File.Access = .create, mode: UInt32
  ) throws(StorageError) -> TemporaryFile {
    let file = try File(path, in: directory, access, mode: mode)
    let temporary = TemporaryFile(file, at: path, for: destination, in: directory)
    // No umask takes from the user, but many do from others.
    if mode & 0o077 != 0 { try temporary.file.setMode(mode) }
    return temporary
  }

  mutating func moveToDestination() throws(StorageError) {
    try FileSystem.rename(path, to: destination, in: directory)
    isInPlace = true
  }

  /// Gives the file its name unless another one has it: false then.
  mutating func moveToDestinationIfAbsent() throws(StorageError) -> Bool {
    let result = systemCall(.link, FileSystem.paths(path, destination, in: directory)) {
      let descriptor = DirectoryHandle.descriptor(directory)
      return path.withCString { path in
        destination.withCString { Int(linkat(descriptor, path, descriptor, $0, 0)) }
      }
    }
    if case .failure(let error) = result, error.code == EEXIST { return false }
    try result.get(.link, DirectoryHandle.path(destination, in: directory))
    try FileSystem.unlink(path, in: directory)
    isInPlace = true
    return true
  }

  /// Takes the place of a file that is there.
  ///
  /// By trading names, as a rename over a file makes ext4 write the new one out at once; the
  /// temporary file's path is the old file's then.
  mutating func exchangeWithDestination() throws(StorageError) {
    if try FileSystem.exchange(path, with: destination, in: directory) { return }
    // Nothing is there, or the file system cannot do it.
    try moveToDestination()
  }

  /// Removes the file before its time, unless it was moved.
  mutating func discard() {
    // Nothing more can be done about a temporary file that will not go; sweeps find it.
    if !isInPlace { try? FileSystem.remove(path, in: directory) }
    isInPlace = true
  }

  deinit {
    if !isInPlace { try? FileSystem.remove(path, in: directory) }
  }
}

private func platformWrite(_ descriptor: Int32, _ base: UnsafeRawPointer?, _ count: Int) -> Int {
  write(descriptor, base, count)
}
