internal import KeepsakeLibc

/// Paths, the links in them, and the file systems they are on.
extension FileSystem {
  static func parent(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  static func name(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return path }
    return String(path[path.utf8.index(after: slash)...])
  }

  /// The path itself, or its closest ancestor that exists and can be accessed.
  static func existingPath(_ path: String) throws(StorageError) -> String {
    var path = path
    while path != "/", try !isAccessible(path) { path = parent(of: path) }
    return path
  }

  private static func isAccessible(_ path: String) throws(StorageError) -> Bool {
    do throws(StorageError) {
      return try status(path) != nil
    } catch  where error.code == .notDirectory || error.code == .accessDenied {
      return false  // some users have /dev/null or another user's directory as their home
    }
  }

  // MARK: Links

  /// The path that a symbolic link at `path` leads to, so that replacing the file keeps the link;
  /// otherwise `path`. The target need not exist.
  static func resolvingLink(_ path: String) throws(StorageError) -> String {
    // A path that cannot be accessed is returned as it is: opening the file reports the error.
    let status = try? status(path, followsLinks: false)
    guard status?.isSymbolicLink == true else { return path }
    return try self.status(path) == nil ? linkTarget(path) : realPath(path)
  }

  /// The path of the same file without symbolic links.
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

  /// The target of a symbolic link, as a path.
  static func linkTarget(_ path: String) throws(StorageError) -> String {
    let target = try linkText(path)
    return target.hasPrefix("/") ? target : parent(of: path) + "/" + target
  }

  /// The target of a symbolic link as the link has it.
  static func linkText(
    _ path: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) -> String {
    let capacity = 4_096  // PATH_MAX
    let fullPath = directory.path(of: path)
    var buffer = [CChar](repeating: 0, count: capacity)
    let count = try systemCall(.resolve, fullPath) {
      readlinkat(directory.descriptor, path, &buffer, capacity)
    }.get(.resolve, fullPath)
    return String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  // MARK: Space

  /// The size of a block on the file system of `path`, and the greatest length of a name there.
  static func limits(at path: String) throws(StorageError) -> (blockSize: Int, nameLength: Int) {
    let raw = try space(at: path)
    let size = Int(clamping: UInt64(raw.f_frsize))
    // Some file systems report 0, and network file systems the size of a transfer.
    let isBlock = (512...65_536).contains(size)
    return (isBlock ? size : 4_096, min(255, max(64, Int(clamping: UInt64(raw.f_namemax)))))
  }

  /// The bytes that an unprivileged user can still write to the file system of `path`; `Int.max`
  /// if the file system does not report it.
  static func freeSpace(at path: String) throws(StorageError) -> Int {
    let raw = try space(at: path)
    if raw.f_blocks == 0 { return .max }
    let (bytes, overflow) = UInt64(raw.f_bavail).multipliedReportingOverflow(
      by: UInt64(raw.f_frsize))
    return overflow ? Int.max : Int(clamping: bytes)
  }

  private static func space(at path: String) throws(StorageError) -> statvfs {
    var raw = statvfs()
    try systemCall(.space, path) { Int(statvfs(path, &raw)) }.get(.space, path)
    return raw
  }
}
