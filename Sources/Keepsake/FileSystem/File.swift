internal import CKeepsake

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// An open file; the descriptor is closed with the last reference and never crosses `exec`.
final class File: Sendable {
  enum Access {
    case read
    case append  // reads, and writes at the end
    case readWrite
    case create  // a new file, which must not exist
    case createOrOpen
  }

  let descriptor: Int32
  let path: String
  let isWritable: Bool

  init(_ path: String, _ access: Access, mode: UInt32 = 0o600) throws(StorageError) {
    let flags: Int32 =
      switch access {
      case .read: O_RDONLY
      case .append: O_RDWR | O_APPEND
      case .readWrite: O_RDWR
      case .create: O_RDWR | O_CREAT | O_EXCL | O_APPEND
      case .createOrOpen: O_RDWR | O_CREAT
      }
    let result = systemCall(.open, path) {
      Int(open(path, flags | O_CLOEXEC | O_NONBLOCK, mode_t(mode)))
    }
    self.descriptor = Int32(try result.get(.open, path))
    self.path = path
    self.isWritable = access != .read
  }

  /// For appending where that is allowed, otherwise for reading alone.
  static func forAppending(_ path: String) throws(StorageError) -> File {
    do throws(StorageError) {
      return try File(path, .append)
    } catch  where error.code == .accessDenied {
      return try File(path, .read)
    }
  }

  deinit { _ = close(descriptor) }

  func status() throws(StorageError) -> FileStatus {
    var raw = keepsake_status()
    try systemCall(.stat, path) { Int(keepsake_stat(descriptor, nil, false, &raw)) }.get(
      .stat, path)
    return FileStatus(raw)
  }

  /// The bytes from `offset` on, `count` of them or as many as there are.
  func read(from offset: Int, count: Int) throws(StorageError) -> [UInt8] {
    var failure: StorageError?
    let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
      do throws(StorageError) {
        while filled < count {
          let rest = UnsafeMutableRawBufferPointer(
            rebasing: UnsafeMutableRawBufferPointer(buffer)[filled...])
          let position = offset + filled
          let result = systemCall(.read, path) {
            pread(descriptor, rest.baseAddress, rest.count, off_t(position))
          }
          let got = try result.get(.read, path)
          if got == 0 { break }
          filled += got
        }
      } catch {
        failure = error
      }
    }
    if let failure { throw failure }
    return bytes
  }

  /// Writes all of `bytes` at the end of a file opened for appending, or at the current position.
  ///
  /// Returns how many bytes reached the file and the error that stopped the rest, if any: after a
  /// partial write the caller must know what is there.
  func write(_ bytes: UnsafeRawBufferPointer) -> (written: Int, failure: StorageError?) {
    var written = 0
    while written < bytes.count {
      var rest = UnsafeRawBufferPointer(rebasing: bytes[written...])
      #if DEBUG
        if let plan = FaultPlan.current,
          let count = plan.shorten(.init(call: .write, path: path, offset: 0, bytes: rest))
        {
          rest = UnsafeRawBufferPointer(rebasing: rest[..<min(count, rest.count)])
        }
      #endif
      switch systemCall(
        .write, path, bytes: rest, { platformWrite(descriptor, rest.baseAddress, rest.count) })
      {
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

  /// Overwrites the eight bytes at `offset`.
  func publish(_ word: UInt64, at offset: Int) throws(StorageError) {
    var word = word
    try withUnsafeBytes(of: &word) { bytes in
      systemCall(.publish, path, bytes: bytes, offset: offset) {
        pwrite(descriptor, bytes.baseAddress, bytes.count, off_t(offset))
      }
    }.get(.publish, path)
  }

  /// Makes the file's data survive a power cut.
  func synchronize() throws(StorageError) {
    #if canImport(Darwin)
      // fsync on Apple systems stops at the drive's cache.
      let result = systemCall(.fdatasync, path) { Int(fcntl(descriptor, F_FULLFSYNC)) }
    #else
      let result = systemCall(.fdatasync, path) { Int(fdatasync(descriptor)) }
    #endif
    try result.get(.fdatasync, path)
  }

  /// Sets the mode whatever the umask was when the file was made.
  func setMode(_ mode: UInt32) throws(StorageError) {
    try systemCall(.chmod, path) { Int(fchmod(descriptor, mode_t(mode))) }.get(.chmod, path)
  }
}

/// C's `struct stat`, whose name the function of that name hides.
typealias SystemStatus = stat

private func platformWrite(_ descriptor: Int32, _ base: UnsafeRawPointer?, _ count: Int) -> Int {
  write(descriptor, base, count)
}

/// What the library asks about a file.
struct FileStatus: Sendable, Equatable {
  let device: UInt64
  let inode: UInt64
  let size: Int
  let links: Int
  let mode: UInt32
  let owner: UInt32
  let isFolder: Bool
  /// Seconds since 1970; 0 unless times were asked for.
  let modified: Int

  init(_ raw: keepsake_status) {
    device = raw.device
    inode = raw.inode
    size = Int(clamping: raw.size)
    links = Int(raw.links)
    mode = raw.mode & 0o7777
    owner = raw.owner
    isFolder = raw.mode & UInt32(S_IFMT) == UInt32(S_IFDIR)
    modified = Int(clamping: raw.modified)
  }

  func isSameFile(as other: FileStatus) -> Bool {
    inode == other.inode && device == other.device
  }
}
