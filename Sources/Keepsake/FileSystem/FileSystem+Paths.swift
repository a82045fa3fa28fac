internal import CKeepsake
internal import KeepsakeLibc

/// Paths, the links in them, and the file systems they are on.
extension FileSystem {
  @inline(never)
  static func parent(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  static func name(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return path }
    return String(path[path.utf8.index(after: slash)...])
  }

  /// An absolute path and all directories above it.
  static func ancestors(of path: String) -> some Sequence<String> {
    sequence(first: path) { $0 == "/" || !$0.hasPrefix("/") ? nil : parent(of: $0) }
  }

  /// The path itself, or its closest ancestor that exists and can be accessed.
  static func existingPath(_ path: String) throws(StorageError) -> String {
    for path in ancestors(of: path) {
      do throws(StorageError) {
        if try status(path) != nil { return path }
      } catch  where error.code == .notDirectory || error.code == .accessDenied {
        // Some users have /dev/null or another user's directory as their home.
      }
    }
    return "/"
  }

  /// An absolute path without the symbolic links in the part of it that exists.
  static func resolvingExistingPart(of path: String) throws(StorageError) -> String {
    let existing = try existingPath(path)
    if existing == "/" { return path }
    return try realPath(existing) + path.dropFirst(existing.count)
  }

  /// A path that nothing has: `stem` with the time in seconds.
  static func unusedPath(_ stem: String) throws(StorageError) -> String {
    // As many digits as ``copies(_:)`` expects, also if the clock is wrong.
    let stem = "\(stem)-\(max(1_000_000_000, WallClock.now / WallClock.second))"
    var path = stem
    var number = 1
    while try status(path, followsLinks: false) != nil {
      number += 1
      path = "\(stem)-\(number)"
    }
    return path
  }

  /// Removes all but the three newest of the copies that are kept for people, of one kind of item.
  ///
  /// - Parameters:
  ///   - newest: The path of the one that was just made, which stays whatever the clock says.
  ///   - stem: What ``unusedPath(_:)`` has made the paths from.
  ///   - remove: Removes one of them.
  static func removeOldCopies(
    before newest: String, _ stem: String,
    by remove: (String) throws(StorageError) -> Void = { path throws(StorageError) in
      try FileSystem.remove(path)
    }
  ) throws(StorageError) {
    let kind = try status(newest, followsLinks: false)?.kind
    var others: [(changed: Int64, path: String)] = []
    for path in try copies(stem) where path != newest {
      let found = try status(path, followsLinks: false, withTimes: true)
      if let found, found.kind == kind { others.append((found.changed, path)) }
    }
    others.sort { $0.changed < $1.changed }
    for copy in others.dropLast(2) { try remove(copy.path) }
  }

  /// The paths that ``unusedPath(_:)`` has made from `stem`.
  static func copies(_ stem: String) throws(StorageError) -> [String] {
    let prefix = name(of: stem) + "-"
    return try list(parent(of: stem)).filter { name in
      guard name.hasPrefix(prefix) else { return false }
      let numbers = name.dropFirst(prefix.count).utf8.split(
        separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
      let areDigits = numbers.allSatisfy { number in
        !number.isEmpty
          && number.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
      }
      // A date is shorter than the seconds since 1970.
      return areDigits && numbers.count < 3 && numbers[0].count >= 10
    }.map { parent(of: stem) + "/" + $0 }
  }

  // MARK: Links

  /// The path that a symbolic link at `path` leads to, so that replacing the file keeps the link;
  /// otherwise `path`. The target need not exist.
  static func resolvingLink(_ path: String) throws(StorageError) -> String {
    // A path that cannot be accessed is returned as it is: opening the file reports the error.
    let status = try? status(path, followsLinks: false)
    guard status?.isSymbolicLink == true else { return path }
    try requireTrustedLinks(path)
    return try self.status(path) == nil ? linkTarget(path) : realPath(path)
  }

  /// Throws if a link at `path` belongs to another user than the file that it leads to: that user
  /// would choose where this process reads and writes.
  static func requireTrustedLinks(_ path: String) throws(StorageError) {
    var path = path
    // As many as the kernel follows.
    for _ in 0..<40 {
      // With a slash at its end, the path would be that of the link's target.
      while path.hasSuffix("/") { path.removeLast() }
      guard let link = try status(path, followsLinks: false), link.isSymbolicLink else { return }
      let owner = try status(path)?.owner
      guard [0, ProcessEnvironment.userID, owner].contains(link.owner) else {
        throw StorageError(
          .accessDenied, operation: "open", path: path,
          reason: "user \(link.owner) has made this link to something of another user",
          remedy: "Remove the link, or make it yourself.")
      }
      // Opening a path that is not UTF-8 says what is wrong.
      guard let target = try? linkTarget(path) else { return }
      path = target
    }
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
    if let text = String(validatingCString: resolved) { return text }
    throw StorageError.targetNotUTF8(path)
  }

  /// The target of a symbolic link, as a path.
  static func linkTarget(_ path: String) throws(StorageError) -> String {
    guard let target = String(validating: try linkText(path), as: UTF8.self) else {
      throw StorageError.targetNotUTF8(path)
    }
    return target.hasPrefix("/") ? target : parent(of: path) + "/" + target
  }

  /// The bytes of a symbolic link.
  static func linkText(
    _ path: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) -> [UInt8] {
    let capacity = 4_096  // PATH_MAX
    let fullPath = directory.path(of: path)
    var buffer = [CChar](repeating: 0, count: capacity)
    let count = try systemCall(.resolve, fullPath) {
      readlinkat(directory.descriptor, path, &buffer, capacity)
    }.get(.resolve, fullPath)
    return buffer[..<count].map { UInt8(bitPattern: $0) }
  }

  // MARK: Home

  /// Why nothing can be stored below a home directory, such as the `/nonexistent` of some system
  /// users; nil if nothing is known against it.
  static func problem(ofHome path: String) -> String? {
    var status = stat()
    if stat(path, &status) == 0 {
      return status.st_mode & S_IFMT == S_IFDIR ? nil : "is not a directory"
    }
    guard errno == ENOENT else { return nil }
    return access(parent(of: path), W_OK) == 0 ? nil : "does not exist"
  }

  // MARK: File systems

  /// Names the type of the file system of `path` for errors, such as "the file system vfat".
  static func typeName(at path: String) -> String {
    let names: [UInt64: String] = [
      0x0102_1997: "9p", 0x9123_683E: "btrfs", 0xFF53_4D42: "cifs", 0x2011_BAB0: "exfat",
      0xEF53: "ext4", 0x6573_5546: "fuse", 0x6969: "nfs", 0x7366_746E: "ntfs3",
      0x794C_7630: "overlay", 0xFE53_4D42: "smb2", 0x0102_1994: "tmpfs", 0x4D44: "vfat",
      0x786F_4256: "vboxsf", 0x5846_5342: "xfs",
    ]
    // The file itself may be missing.
    for path in ancestors(of: path) where path.hasPrefix("/") {
      // On some systems the type is a signed 32-bit number.
      let type = keepsake_file_system_type(path) & 0xFFFF_FFFF
      if type != 0 { return "the file system " + (names[type] ?? "0x" + String(type, radix: 16)) }
    }
    return "the system"
  }

  // MARK: Space

  /// Whether no more files fit on the file system of `path`, however much space there is.
  static func hasNoInodes(at path: String) -> Bool {
    var raw = statvfs()
    // The file itself may be missing.
    guard ancestors(of: path).contains(where: { statvfs($0, &raw) == 0 || errno != ENOENT })
    else { return false }
    // Some file systems have as many as there is space for, and report 0 of 0.
    return raw.f_files > 0 && raw.f_favail == 0 && raw.f_bavail > 0
  }

  /// The size of a block on the file system of `path`, and the greatest length of a name there.
  static func limits(at path: String) throws(StorageError) -> (blockSize: Int, nameLength: Int) {
    let raw = try space(at: path)
    let size = Int(clamping: UInt64(raw.f_frsize))
    // Some file systems report 0, and network file systems the size of a transfer.
    let isBlock = (512...65_536).contains(size)
    let length = raw.f_namemax == 0 ? 255 : Int(clamping: UInt64(raw.f_namemax))
    return (isBlock ? size : 4_096, min(255, max(64, length)))
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

  /// All zeros if the file system does not support the call.
  private static func space(at path: String) throws(StorageError) -> statvfs {
    var raw = statvfs()
    let result = systemCall(.space, path) { Int(statvfs(path, &raw)) }
    if [ENOSYS, ENOTSUP].contains(result.errorCode) { return statvfs() }
    try result.get(.space, path)
    return raw
  }
}
