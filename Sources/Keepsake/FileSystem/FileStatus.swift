internal import CKeepsake
internal import KeepsakeLibc

/// What the library needs to know about a file.
struct FileStatus: Sendable, Equatable {
  let device: UInt64
  let inode: UInt64
  let size: Int
  let linkCount: Int
  /// The permission bits, including setuid, setgid and the sticky bit.
  let mode: UInt32
  let owner: UInt32
  let group: UInt32
  let isDirectory: Bool
  let isRegularFile: Bool
  let isSymbolicLink: Bool
  /// Whether another file system or directory is mounted here; false if the system cannot tell.
  let isMountPoint: Bool
  /// Nanoseconds since 1970; 0 unless times were requested.
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
    group = raw.group
    isDirectory = raw.mode & UInt32(S_IFMT) == UInt32(S_IFDIR)
    isRegularFile = raw.mode & UInt32(S_IFMT) == UInt32(S_IFREG)
    isSymbolicLink = raw.mode & UInt32(S_IFMT) == UInt32(S_IFLNK)
    isMountPoint = raw.is_mount
    modified = raw.modified
    accessed = raw.accessed
    changed = raw.changed
  }

  var kind: FileSystem.Kind {
    isRegularFile ? .file : isDirectory ? .directory : isSymbolicLink ? .symbolicLink : .other
  }

  func isSameFile(as other: FileStatus) -> Bool {
    inode == other.inode && device == other.device
  }
}
