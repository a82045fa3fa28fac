internal import CKeepsake
internal import KeepsakeLibc

/// An open file. The descriptor is closed with the last reference and is never inherited through
/// `exec`.
package final class File: ReadableFile, Sendable {
  struct Access: Equatable {
    fileprivate let flags: Int32

    static var read: Access { Access(flags: O_RDONLY) }
    /// An error if the path is a symbolic link.
    static var readNoFollow: Access { Access(flags: O_RDONLY | O_NOFOLLOW) }
    // What is printed while the file has the number of a closed standard stream goes to its end.
    static var readWrite: Access { Access(flags: O_RDWR | O_APPEND) }
    static var readWriteNoFollow: Access { Access(flags: O_RDWR | O_NOFOLLOW | O_APPEND) }
    /// A new file; an error if there is one already.
    static var create: Access { Access(flags: O_RDWR | O_CREAT | O_EXCL) }
    // Never through a link: in a shared directory another user may have planted it.
    static var createOrOpen: Access { Access(flags: O_RDWR | O_CREAT | O_NOFOLLOW) }
  }

  let descriptor: Int32
  let isWritable: Bool
  private let name: String
  private let suffix: StaticString
  private let directory: DirectoryHandle?
  private let identity = DescriptorIdentity()

  /// - Parameters:
  ///   - suffix: The end of the path. Joining the two would take a twentieth of a cache's set, so
  ///     that is only done for errors.
  ///   - directory: What `path` is relative to, unless `path` is absolute.
  convenience init(
    _ path: String, suffix: StaticString = "", in directory: DirectoryHandle? = nil,
    _ access: Access, mode: UInt32 = 0o600
  ) throws(StorageError) {
    self.init(
      try Self.descriptor(path, suffix: suffix, in: directory, access, mode: mode), path,
      suffix: suffix, in: directory, isWritable: access.flags & O_RDWR != 0)
  }

  private static func descriptor(
    _ path: String, suffix: StaticString, in directory: DirectoryHandle?, _ access: Access,
    mode: UInt32
  ) throws(StorageError) -> Int {
    if access.flags & O_CREAT != 0, ForeignDirectory.isPossible(in: directory),
      let parent = try ForeignDirectory(of: path.followed(by: suffix), in: directory)
    {
      return try parent.openFile(access, mode: mode)
    }
    return try open(path, suffix: suffix, in: directory, access, mode: mode)
      .get(.open, directory.path(of: path.followed(by: suffix)))
  }

  /// Opens a file for reading without following a symbolic link below the path's base.
  convenience init(_ path: ConfinedPath) throws(StorageError) {
    self.init(
      Int(try path.open(O_RDONLY | O_NOFOLLOW)), path.path, in: nil, isWritable: false)
  }

  private init(
    _ descriptor: Int, _ name: String, suffix: StaticString = "", in directory: DirectoryHandle?,
    isWritable: Bool
  ) {
    self.descriptor = Int32(descriptor)
    self.name = name
    self.suffix = suffix
    self.directory = directory
    self.isWritable = isWritable
  }

  var path: String { directory.path(of: name.followed(by: suffix)) }

  /// The same open file under the path that it is about to get.
  func duplicate(as path: String) throws(StorageError) -> File {
    let copy = try systemCall(.open, self.path) { duplicateDescriptor(descriptor) }
      .get(.open, path)
    return File(copy, path, in: nil, isWritable: isWritable)
  }

  /// Creates a file; nil if there is one, or if it may have to be created for another user.
  static func createUnlessPresent(
    _ path: String, suffix: StaticString, in directory: DirectoryHandle, mode: UInt32
  ) throws(StorageError) -> File? {
    if ForeignDirectory.isPossible(in: directory) { return nil }
    let result = open(path, suffix: suffix, in: directory, .create, mode: mode)
    if result.errorCode == EEXIST { return nil }
    let descriptor = try result.get(.open, directory.path(of: path.followed(by: suffix)))
    return File(descriptor, path, suffix: suffix, in: directory, isWritable: true)
  }

  /// Opens a file for reading; nil if there is none. Missing files are common, so no error is
  /// constructed for one.
  static func openIfPresent(
    _ path: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) -> File? {
    try descriptorIfPresent(path, in: directory).map {
      File($0, path, in: directory, isWritable: false)
    }
  }

  @inline(__always)
  static func descriptorIfPresent(
    _ path: String, suffix: StaticString = "", in directory: DirectoryHandle?
  ) throws(StorageError) -> Int? {
    let result = open(path, suffix: suffix, in: directory, .read, mode: 0)
    if result.errorCode == ENOENT { return nil }
    return try result.get(.open, directory.path(of: path.followed(by: suffix)))
  }

  /// Opens a file, and creates it for this process's user if necessary; returns its descriptor.
  @inline(__always)
  static func open(
    _ path: String, suffix: StaticString = "", in directory: DirectoryHandle?, _ access: Access,
    mode: UInt32
  ) -> Result<Int, Errno> {
    let flags = access.flags
    func open() -> Int {
      path.withCString(endingIn: suffix) { path in
        Int(
          platformOpen(
            directory.descriptor, path, flags | O_CLOEXEC | O_NONBLOCK, mode_t(mode)))
      }
    }
    guard flags & O_EXCL != 0 else {
      let result = openDescriptor(.open, directory.path(of: path.followed(by: suffix)), open)
      if case .success(let descriptor) = result, flags & O_APPEND != 0 {
        _ = fcntl(Int32(descriptor), F_SETFL, O_NONBLOCK)
      }
      return result
    }
    return createDescriptor(
      .open, directory.path(of: path.followed(by: suffix)),
      remove: {
        _ = path.withCString(endingIn: suffix) { unlinkat(directory.descriptor, $0, 0) }
      }, open)
  }

  deinit {
    if identity.isKept(by: descriptor, ifUnreachable: true) { _ = close(descriptor) }
  }

  /// Notes which file this is, because it stays open between calls.
  func keep() throws(StorageError) -> FileStatus {
    let status = try status()
    keep(status)
    return status
  }

  func keep(_ status: FileStatus) { identity.note(status, of: descriptor) }

  /// Whether the descriptor still leads to the file; always true before ``keep()``.
  var isOpen: Bool { identity.isKept(by: descriptor) }

  /// Whether a status is that of this file, which was kept.
  func isSame(as status: FileStatus?) -> Bool { status.map { identity.isSame(as: $0) } ?? false }

  /// Throws if the descriptor may be that of another file.
  func requireOpen(_ operation: String) throws(StorageError) {
    if !isOpen { throw .closed(operation, path) }
  }

  /// Writes all of `bytes` at the current position.
  ///
  /// Returns how many bytes reached the file and the error that stopped the rest: after a partial
  /// write the caller must know what is in the file.
  func write(_ bytes: UnsafeRawBufferPointer) -> (written: Int, failure: StorageError?) {
    var written = 0
    while written < bytes.count {
      let rest = acceptedPart(
        of: UnsafeRawBufferPointer(rebasing: bytes[written...]), .write, path, on: descriptor)
      switch systemCall(
        .write, path, on: descriptor, bytes: rest,
        { platformWrite(descriptor, rest.baseAddress, rest.count) })
      {
      case .success(0):  // the disk accepts nothing and gives no reason
        return (written, StorageError(errno: ENOSPC, operation: "write", path: path))
      case .success(let count): written += count
      case .failure(let error):
        return (written, StorageError(errno: error.code, operation: "write", path: path))
      }
    }
    return (written, nil)
  }

  func writeAll(_ bytes: [UInt8]) throws(StorageError) {
    let failure = bytes.withUnsafeBytes { write($0).failure }
    if let failure { throw failure }
  }

  /// Overwrites the bytes at `offset`, with a single call unless the disk accepts only a part.
  func overwrite(
    _ bytes: RawSpan, at offset: Int, as call: SystemCall = .write
  ) throws(StorageError) {
    try bytes.withUnsafeBytes { bytes throws(StorageError) in
      var written = 0
      while written < bytes.count {
        let position = offset + written
        let rest = acceptedPart(
          of: UnsafeRawBufferPointer(rebasing: bytes[written...]), call, path, on: descriptor,
          offset: position)
        let count = try systemCall(call, path, on: descriptor, bytes: rest, offset: position) {
          pwrite(descriptor, rest.baseAddress, rest.count, off_t(position))
        }.get(call, path)
        // The disk accepts nothing and gives no reason.
        if count == 0 { throw StorageError(errno: ENOSPC, operation: call.rawValue, path: path) }
        written += count
      }
    }
  }

  /// Sets both times, in nanoseconds since 1970.
  func setTimes(accessed: Int64, modified: Int64) throws(StorageError) {
    var times = (timespec(nanoseconds: accessed), timespec(nanoseconds: modified))
    let result = withUnsafePointer(to: &times) { pair in
      pair.withMemoryRebound(to: timespec.self, capacity: 2) { times in
        systemCall(.times, path, on: descriptor) { Int(futimens(descriptor, times)) }
      }
    }
    if result.errorCode == EPERM {
      // The file is this user's own.
      throw StorageError.unsupported(EPERM, .accessDenied, "set times", path)
    }
    try result.get(.times, path)
  }

  /// Shares the data of `source` with this empty file; false if the file system cannot.
  func clone(from source: File) -> Bool {
    systemCall(.clone, path, on: descriptor) {
      Int(keepsake_clone(descriptor, source.descriptor))
    }.errorCode == nil
  }

  /// Makes the file's data survive a power cut, and with `withTimes` its times too.
  @inline(never)
  func synchronize(withTimes: Bool = false) throws(StorageError) {
    let call = withTimes ? SystemCall.fsync : .fdatasync
    #if canImport(Darwin)
    // On Apple systems fsync does not flush the drive's cache.
    let result = systemCall(call, path, on: descriptor) { Int(fcntl(descriptor, F_FULLFSYNC)) }
    #else
    let result = systemCall(call, path, on: descriptor) {
      Int(withTimes ? fsync(descriptor) : fdatasync(descriptor))
    }
    #endif
    try result.get(call, path)
  }

  /// Allocates blocks up to `end`, also beyond the end of the file, without changing its size.
  ///
  /// - Returns: Whether the file system can.
  func reserve(from start: Int, to end: Int) throws(StorageError) -> Bool {
    let result = systemCall(.reserve, path, on: descriptor) {
      Int(keepsake_reserve(descriptor, UInt64(start), UInt64(end - start)))
    }
    if [ENOSPC, EDQUOT].contains(result.errorCode) { try result.get(.write, path) }
    return result.errorCode == nil
  }

  /// Lets reserved blocks of a new file be written more than once on a full disk. btrfs would write
  /// each time elsewhere. Other file systems need no such attribute, and have none.
  func overwriteInPlace() {
    _ = systemCall(.reserve, path, on: descriptor) { Int(keepsake_overwrite_in_place(descriptor)) }
  }

  /// Sets the size, and frees the blocks that are reserved beyond it.
  func truncate(to size: Int) throws(StorageError) {
    try systemCall(.truncate, path, on: descriptor) { Int(ftruncate(descriptor, off_t(size))) }
      .get(.truncate, path)
  }

  /// Sets the mode, which the umask restricted when the file was created.
  func setMode(_ mode: UInt32) throws(StorageError) {
    let result = systemCall(.chmod, path, on: descriptor) { Int(fchmod(descriptor, mode_t(mode))) }
    try FileSystem.requireMode(mode, after: result, path, status())
  }
}

extension String {
  /// This text and a suffix, without a copy if that is empty.
  @inline(never)
  func followed(by suffix: StaticString) -> String {
    suffix.utf8CodeUnitCount == 0 ? self : self + suffix.description
  }

  /// Calls `body` with the C string of this text and a suffix.
  @inline(__always)
  fileprivate func withCString<R>(
    endingIn suffix: StaticString, _ body: (UnsafePointer<CChar>) -> R
  ) -> R {
    // `withCString` because passing a `String` as a C string copies it.
    if suffix.utf8CodeUnitCount == 0 { return withCString(body) }
    let (count, end) = (utf8.count, utf8.count + suffix.utf8CodeUnitCount)
    return withUnsafeTemporaryAllocation(of: CChar.self, capacity: end + 1) { text in
      let bytes = UnsafeMutableRawBufferPointer(text)
      bytes.copyBytes(from: utf8)
      UnsafeMutableRawBufferPointer(rebasing: bytes[count..<end]).copyMemory(
        from: UnsafeRawBufferPointer(start: suffix.utf8Start, count: end - count))
      bytes[end] = 0
      // The buffer is not empty, so it has an address.
      return body(UnsafePointer(text.baseAddress.unsafelyUnwrapped))
    }
  }
}

// Outside the type, where its methods hide the functions of the same names.
private func platformOpen(
  _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, _ mode: mode_t
) -> Int32 { openat(directory, path, flags, mode) }
private func platformWrite(_ descriptor: Int32, _ base: UnsafeRawPointer?, _ count: Int) -> Int {
  write(descriptor, base, count)
}
