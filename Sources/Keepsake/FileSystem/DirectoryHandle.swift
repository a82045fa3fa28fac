internal import CKeepsake
internal import KeepsakeLibc
internal import Synchronization

/// An open directory.
///
/// Calls relative to it skip the lookup of its path, which is a quarter of the cost of a file's
/// status. It stays the same directory if it is renamed or removed.
final class DirectoryHandle: Sendable {
  let path: String
  let descriptor: Int32
  private let identity = DescriptorIdentity()

  init(_ path: String) throws(StorageError) {
    let result = openDescriptor(.open, path) { Int(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) }
    descriptor = Int32(try result.get(.open, path))
    self.path = path
  }

  /// Opens a directory without following a symbolic link below the path's base.
  init(_ path: ConfinedPath) throws(StorageError) {
    descriptor = try path.open(O_RDONLY | O_DIRECTORY)
    self.path = path.path
  }

  /// Opens a directory in another one, and follows no symbolic link.
  init(_ name: String, in parent: DirectoryHandle) throws(StorageError) {
    let path = parent.path(of: name)
    let result = openDescriptor(.open, path) {
      Int(openat(parent.descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC))
    }
    descriptor = Int32(try result.get(.open, path))
    self.path = path
  }

  deinit {
    if identity.isKept(by: descriptor, ifUnreachable: true) { _ = close(descriptor) }
  }

  /// Keeps other processes from locking the directory while it is open; false if another one does,
  /// or the file system has no such locks.
  func lock() -> Bool { (try? File.tryLock(descriptor, path)) ?? false }

  /// Notes which directory this is, because it stays open between calls.
  func keep() throws(StorageError) -> FileStatus {
    let status = try status()
    identity.note(status, of: descriptor)
    return status
  }

  /// Whether the descriptor still leads to the directory; always true before ``keep()``.
  var isOpen: Bool { identity.isKept(by: descriptor) }

  private let knownOwner = Atomic<Int64>(-1)

  /// Whether ``foreignOwner`` may not be nil. Costs one load after the first use.
  @inline(__always)
  var mayHaveForeignOwner: Bool { knownOwner.load(ordering: .relaxed) != 0 }

  /// The owner of the directory, when it was first needed, if this process runs as root and the
  /// owner is another user; otherwise nil. See ``ForeignDirectory``.
  var foreignOwner: UInt32? {
    var owner = knownOwner.load(ordering: .relaxed)
    // Once it is known to be root, this makes no system call.
    if owner == 0 || ProcessEnvironment.userID != 0 { return nil }
    if owner < 0 {
      owner = 0
      var raw = keepsake_status()
      // Cannot fail on an open descriptor.
      if ProcessEnvironment.mayBeRoot, keepsake_stat(descriptor, nil, true, false, &raw) == 0 {
        owner = Int64(raw.owner)
      }
      knownOwner.store(owner, ordering: .relaxed)
    }
    return owner == 0 || ProcessEnvironment.userID != 0 ? nil : UInt32(owner)
  }

  func setMode(_ mode: UInt32) throws(StorageError) {
    let result = systemCall(.chmod, path, on: descriptor) { Int(fchmod(descriptor, mode_t(mode))) }
    try FileSystem.requireMode(mode, after: result, path, status())
  }

  func isEmpty() throws(StorageError) -> Bool {
    var isEmpty = true
    try FileSystem.scan(in: self) { _ throws(StorageError) in isEmpty = false }
    return isEmpty
  }

  /// Makes the names in the directory survive a power cut.
  func synchronize() throws(StorageError) { try Self.synchronize(descriptor, path) }

  /// - Parameter path: Names the directory in errors.
  static func synchronize(
    _ descriptor: Int32, _ path: @autoclosure () -> String
  ) throws(StorageError) {
    let result = systemCall(.fsync, path(), on: descriptor) { Int(fsync(descriptor)) }
    guard let code = result.errorCode else { return }
    // Not supported by the file system.
    if [EINVAL, ENOTSUP, ENOSYS].contains(code) { return }
    // On a full disk, btrfs may not have the space that it reserves for an fsync, even after a
    // removal. It reserves none to sync the whole file system.
    if code == ENOSPC,
      case .success = systemCall(
        .syncfs, path(), on: descriptor, { Int(keepsake_sync_file_system(descriptor)) })
    {
      return
    }
    try result.get(.fsync, path())
  }

  func status(withTimes: Bool = false) throws(StorageError) -> FileStatus {
    try FileSystem.status(of: descriptor, path, withTimes: withTimes)
  }

  /// The path of `name` in this directory.
  func path(of name: String) -> String {
    if name.hasPrefix("/") { return name }
    return name.isEmpty ? path : path + "/" + name
  }
}

extension DirectoryHandle? {
  /// The first argument of calls such as `openat`; without a directory, paths are relative to the
  /// current one.
  var descriptor: Int32 {
    switch self {
    case .some(let directory): directory.descriptor
    case .none: AT_FDCWD
    }
  }

  /// The path of `name` in this directory.
  func path(of name: String) -> String {
    switch self {
    case .some(let directory): directory.path(of: name)
    case .none: name
    }
  }
}
