internal import KeepsakeLibc

/// A directory that is kept open, so that the way to it is not looked up with each call: that is a
/// quarter of what looking at a file costs.
///
/// It stays the same directory when it is renamed or removed.
final class DirectoryHandle: Sendable {
  let path: String
  let descriptor: Int32

  init(_ path: String) throws(StorageError) {
    let result = systemCall(.open, path) { Int(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) }
    descriptor = Int32(try result.get(.open, path))
    self.path = path
  }

  /// The directory at a place that no symbolic link leads to.
  init(_ place: ConfinedPath) throws(StorageError) {
    switch place.open(O_RDONLY | O_DIRECTORY) {
    case .success(let descriptor): self.descriptor = Int32(descriptor)
    case .failure(let error): throw place.failure(error)
    }
    path = place.path
  }

  deinit { _ = close(descriptor) }

  /// Makes the names in it survive a power cut.
  func synchronize() throws(StorageError) {
    switch systemCall(.fsync, path, on: descriptor, { Int(fsync(descriptor)) }) {
    case .success: return
    case .failure(let error) where error.code == EINVAL: return  // a file system without it
    case .failure(let error): throw StorageError(errno: error.code, operation: "fsync", path: path)
    }
  }

  func status(withTimes: Bool = false) throws(StorageError) -> FileStatus {
    try FileSystem.status(of: descriptor, path, withTimes: withTimes)
  }

  /// What the calls ending in `at` take: of no directory, the one that relative paths start from.
  static func descriptor(_ directory: DirectoryHandle?) -> Int32 {
    directory?.descriptor ?? AT_FDCWD
  }

  static func path(_ name: String, in directory: DirectoryHandle?) -> String {
    guard let directory, !name.hasPrefix("/") else { return name }
    return name.isEmpty ? directory.path : directory.path + "/" + name
  }
}
