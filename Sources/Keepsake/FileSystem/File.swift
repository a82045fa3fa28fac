internal import CKeepsake
internal import FoundationEssentials
internal import KeepsakeLibc

/// An open file; the descriptor is closed with the last reference and never crosses `exec`.
final class File: ReadableFile, Sendable {
  enum Access {
    case read
    case readNoFollow  // an error where the path is a symbolic link
    case append  // reads, and writes at the end
    case readWrite
    case readWriteNoFollow  // likewise
    case create  // a new file, which must not exist
    case createAndAppend
    case createOrOpen
  }

  let descriptor: Int32
  let isWritable: Bool
  private let name: String
  private let directory: DirectoryHandle?

  /// - Parameter directory: The one that `path` is seen from, where that is no absolute path.
  convenience init(
    _ path: String, in directory: DirectoryHandle? = nil, _ access: Access, mode: UInt32 = 0o600
  ) throws(StorageError) {
    let descriptor = try Self.open(path, in: directory, access, mode: mode)
      .get(.open, DirectoryHandle.path(path, in: directory))
    self.init(
      descriptor, path, in: directory, isWritable: access != .read && access != .readNoFollow)
  }

  /// For reading, at a place that no symbolic link leads to.
  convenience init(_ place: ConfinedPath) throws(StorageError) {
    switch place.open(O_RDONLY | O_NOFOLLOW) {
    case .success(let descriptor):
      self.init(descriptor, place.path, in: nil, isWritable: false)
    case .failure(let error): throw place.failure(error)
    }
  }

  private init(_ descriptor: Int, _ name: String, in directory: DirectoryHandle?, isWritable: Bool)
  {
    self.descriptor = Int32(descriptor)
    self.name = name
    self.directory = directory
    self.isWritable = isWritable
  }

  var path: String { DirectoryHandle.path(name, in: directory) }

  /// The same open file, under the path that it is going to have.
  func duplicate(as path: String) throws(StorageError) -> File {
    let copy = try systemCall(.open, self.path) { Int(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) }
      .get(.open, path)
    return File(copy, path, in: nil, isWritable: isWritable)
  }

  /// For reading; nil when nothing is there, for which no error is made up: a miss is no rarity.
  static func openIfPresent(
    _ path: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) -> File? {
    try descriptorIfPresent(path, in: directory).map {
      File($0, path, in: directory, isWritable: false)
    }
  }

  fileprivate static func descriptorIfPresent(
    _ path: String, in directory: DirectoryHandle?
  ) throws(StorageError) -> Int? {
    switch open(path, in: directory, .read, mode: 0) {
    case .success(let descriptor): return descriptor
    case .failure(let error) where error.code == ENOENT: return nil
    case .failure(let error):
      throw StorageError(
        errno: error.code, operation: "open", path: DirectoryHandle.path(path, in: directory))
    }
  }

  private static func open(
    _ path: String, in directory: DirectoryHandle?, _ access: Access, mode: UInt32
  ) -> Result<Int, Errno> {
    let flags: Int32 =
      switch access {
      case .read: O_RDONLY
      case .readNoFollow: O_RDONLY | O_NOFOLLOW
      case .append: O_RDWR | O_APPEND
      case .readWrite: O_RDWR
      case .readWriteNoFollow: O_RDWR | O_NOFOLLOW
      // Without O_APPEND, which a file that is to share another one's data must not have.
      case .create: O_RDWR | O_CREAT | O_EXCL
      case .createAndAppend: O_RDWR | O_CREAT | O_EXCL | O_APPEND
      // Never through a link: in a directory that users share, another one may have laid it.
      case .createOrOpen: O_RDWR | O_CREAT | O_NOFOLLOW
      }
    // With a closure, because passing a `String` for a C string copies it.
    return systemCall(.open, DirectoryHandle.path(path, in: directory)) {
      path.withCString { path in
        Int(
          platformOpen(
            DirectoryHandle.descriptor(directory), path, flags | O_CLOEXEC | O_NONBLOCK,
            mode_t(mode)))
      }
    }
  }

  /// For appending where that is allowed, otherwise for reading alone.
  static func openForAppending(_ path: String) throws(StorageError) -> File {
    do throws(StorageError) {
      return try File(path, .append)
    } catch  where error.code == .accessDenied {
      return try File(path, .read)
    }
  }

  deinit { _ = close(descriptor) }

  /// Below it copying is cheaper than the page faults of whoever looks at the bytes.
  static let mappingThreshold = 4 << 20

  /// Writes all of `bytes` at the end of a file opened for appending, or at the current position.
  ///
  /// Returns how many bytes reached the file and the error that stopped the rest, if any: after a
  /// partial write the caller must know what is there.
  func write(_ bytes: UnsafeRawBufferPointer) -> (written: Int, failure: StorageError?) {
    var written = 0
    while written < bytes.count {
      let rest = portion(
        of: UnsafeRawBufferPointer(rebasing: bytes[written...]), .write, path, on: descriptor)
      switch systemCall(
        .write, path, on: descriptor, bytes: rest,
        { platformWrite(descriptor, rest.baseAddress, rest.count) })
      {
      case .success(0):  // a disk that takes nothing and does not say why
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

  /// Overwrites what is at `offset`; with one write, but for a disk that takes only a part.
  func overwrite(
    _ bytes: RawSpan, at offset: Int, as call: SystemCall = .write
  ) throws(StorageError) {
    try bytes.withUnsafeBytes { bytes throws(StorageError) in
      var written = 0
      while written < bytes.count {
        let position = offset + written
        let rest = portion(
          of: UnsafeRawBufferPointer(rebasing: bytes[written...]), call, path, on: descriptor,
          offset: position)
        let count = try systemCall(call, path, on: descriptor, bytes: rest, offset: position) {
          pwrite(descriptor, rest.baseAddress, rest.count, off_t(position))
        }.get(call, path)
        // A disk that takes nothing and does not say why.
        if count == 0 { throw StorageError(errno: ENOSPC, operation: call.rawValue, path: path) }
        written += count
      }
    }
  }

  /// Sets both times, in nanoseconds since 1970.
  func setTimes(accessed: Int64, modified: Int64) throws(StorageError) {
    var times = (timespec(nanoseconds: accessed), timespec(nanoseconds: modified))
    try withUnsafePointer(to: &times) { pair in
      pair.withMemoryRebound(to: timespec.self, capacity: 2) { times in
        systemCall(.times, path, on: descriptor) { Int(futimens(descriptor, times)) }
      }
    }.get(.times, path)
  }

  /// Shares the data of `source` with this empty file; false where the file system cannot.
  func clone(from source: File) -> Bool {
    guard
      case .success = systemCall(
        .clone, path, on: descriptor, { Int(keepsake_clone(descriptor, source.descriptor)) })
    else { return false }
    return true
  }

  /// Makes the file's data survive a power cut, and its times where they matter.
  func synchronize(withTimes: Bool = false) throws(StorageError) {
    let call = withTimes ? SystemCall.fsync : .fdatasync
    #if canImport(Darwin)
    // fsync on Apple systems stops at the drive's cache.
    let result = systemCall(call, path, on: descriptor) { Int(fcntl(descriptor, F_FULLFSYNC)) }
    #else
    let result = systemCall(call, path, on: descriptor) {
      Int(withTimes ? fsync(descriptor) : fdatasync(descriptor))
    }
    #endif
    try result.get(call, path)
  }

  /// Sets the mode whatever the umask was when the file was made.
  func setMode(_ mode: UInt32) throws(StorageError) {
    try systemCall(.chmod, path, on: descriptor) { Int(fchmod(descriptor, mode_t(mode))) }.get(
      .chmod, path)
  }
}

/// A file for reading that one call opens and closes: without an object for it.
struct ScopedFile: ReadableFile, ~Copyable {
  let descriptor: Int32
  private let name: String
  private let directory: DirectoryHandle

  /// nil when nothing is there, for which no error is made up.
  init?(ifPresent path: String, in directory: DirectoryHandle) throws(StorageError) {
    guard let descriptor = try File.descriptorIfPresent(path, in: directory) else { return nil }
    self.descriptor = Int32(descriptor)
    name = path
    self.directory = directory
  }

  deinit { _ = close(descriptor) }

  var path: String { DirectoryHandle.path(name, in: directory) }
}

protocol ReadableFile: ~Copyable {
  var descriptor: Int32 { get }
  /// For errors.
  var path: String { get }
}

extension ReadableFile where Self: ~Copyable {
  func status(withTimes: Bool = false) throws(StorageError) -> FileStatus {
    try FileSystem.status(of: descriptor, path, withTimes: withTimes)
  }

  /// The bytes from `offset` on, `count` of them or as many as there are.
  func read(from offset: Int, count: Int) throws(StorageError) -> [UInt8] {
    // All empty arrays are one, which the initializer would write to.
    guard count > 0 else { return [] }
    var failure: StorageError?
    let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
      do throws(StorageError) {
        filled = try read(from: offset, into: UnsafeMutableRawBufferPointer(buffer))
      } catch {
        failure = error
      }
    }
    if let failure { throw failure }
    return bytes
  }

  /// Fills `buffer` from the file's start with one call, which of a file that fits gets all.
  func readOnce(into buffer: UnsafeMutableRawBufferPointer) throws(StorageError) -> Int {
    try systemCall(.read, path) { pread(descriptor, buffer.baseAddress, buffer.count, 0) }
      .get(.read, path)
  }

  /// Fills `buffer` with the bytes from `offset` on; returns how many there were.
  func read(
    from offset: Int, into buffer: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Int {
    var filled = 0
    while filled < buffer.count {
      let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[filled...])
      let position = offset + filled
      let result = systemCall(.read, path) {
        pread(descriptor, rest.baseAddress, rest.count, off_t(position))
      }
      let got = try result.get(.read, path)
      if got == 0 { break }
      filled += got
    }
    return filled
  }

  /// The first `count` bytes of a file that nobody writes to any more; nil when it has fewer, or
  /// when these are not right.
  ///
  /// From ``File/mappingThreshold`` on they are mapped and not read.
  func data(
    count: Int, where isRight: (UnsafeRawBufferPointer) -> Bool = { _ in true }
  ) throws(StorageError) -> Data? {
    if count >= File.mappingThreshold { return try mapped(count: count, where: isRight) }
    guard count > 0 else {
      return isRight(UnsafeRawBufferPointer(start: nil, count: 0)) ? Data() : nil
    }
    guard let memory = malloc(count) else {
      throw StorageError(errno: ENOMEM, operation: "read", path: path)
    }
    let buffer = UnsafeMutableRawBufferPointer(start: memory, count: count)
    do throws(StorageError) {
      guard try read(from: 0, into: buffer) == count, isRight(UnsafeRawBufferPointer(buffer)) else {
        free(memory)
        return nil
      }
    } catch {
      free(memory)
      throw error
    }
    return Data(bytesNoCopy: memory, count: count, deallocator: .free)
  }

  /// All bytes up to the end, wherever that is by now: of a file that others may change.
  func contents() throws(StorageError) -> Data {
    // One more, so that the end shows with the first read.
    let capacity = try status().size.addingReportingOverflow(1).partialValue
    guard capacity > 0, let memory = malloc(capacity) else {
      throw StorageError(errno: ENOMEM, operation: "read", path: path)
    }
    let count: Int
    do throws(StorageError) {
      count = try read(
        from: 0, into: UnsafeMutableRawBufferPointer(start: memory, count: capacity))
    } catch {
      free(memory)
      throw error
    }
    var bytes = Data(bytesNoCopy: memory, count: count, deallocator: .free)
    var isAtEnd = count < capacity
    while !isAtEnd {
      let more = try read(from: bytes.count, count: 1 << 16)
      bytes.append(contentsOf: more)
      isAtEnd = more.isEmpty
    }
    return bytes
  }

  private func mapped(
    count: Int, where isRight: (UnsafeRawBufferPointer) -> Bool
  ) throws(StorageError) -> Data? {
    // A page beyond the end of a file cannot be read.
    guard try status().size >= count else { return nil }
    var address: UnsafeMutableRawPointer?
    try systemCall(.map, path) {
      address = mmap(nil, count, PROT_READ, MAP_PRIVATE, descriptor, 0)
      return address == MAP_FAILED ? -1 : 0
    }.get(.map, path)
    guard let address else { return nil }
    guard isRight(UnsafeRawBufferPointer(start: address, count: count)) else {
      munmap(address, count)
      return nil
    }
    return Data(
      bytesNoCopy: address, count: count,
      deallocator: .custom { start, count in munmap(start, count) })
  }
}

/// C's `struct stat`, whose name the function of that name hides.
typealias SystemStatus = stat

private func platformOpen(
  _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, _ mode: mode_t
) -> Int32 { openat(directory, path, flags, mode) }
private func platformWrite(_ descriptor: Int32, _ base: UnsafeRawPointer?, _ count: Int) -> Int {
  write(descriptor, base, count)
}

/// What the library asks about a file.
struct FileStatus: Sendable, Equatable {
  let device: UInt64
  let inode: UInt64
  let size: Int
  let linkCount: Int
  let mode: UInt32
  let owner: UInt32
  let isDirectory: Bool
  let isRegularFile: Bool
  let isSymbolicLink: Bool
  /// Whether another file system, or another directory, is mounted there, as far as the system says
  /// so.
  let isMountPoint: Bool
  /// Nanoseconds since 1970; 0 unless times were asked for.
  let modified: Int64
  let accessed: Int64
  let changed: Int64

  init(_ raw: keepsake_status) {
    device = raw.device
    inode = raw.inode
    size = Int(clamping: raw.size)
    linkCount = Int(raw.links)
    mode = raw.mode & 0o7777
    owner = raw.owner
    isDirectory = raw.mode & UInt32(S_IFMT) == UInt32(S_IFDIR)
    isRegularFile = raw.mode & UInt32(S_IFMT) == UInt32(S_IFREG)
    isSymbolicLink = raw.mode & UInt32(S_IFMT) == UInt32(S_IFLNK)
    isMountPoint = raw.is_mount
    modified = raw.modified
    accessed = raw.accessed
    changed = raw.changed
  }

  var kind: FileSystem.Kind {
    isRegularFile ? .file : isDirectory ? .directory : isSymbolicLink ? .link : .other
  }

  func isSameFile(as other: FileStatus) -> Bool {
    inode == other.inode && device == other.device
  }
}
