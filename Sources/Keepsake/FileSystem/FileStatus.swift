internal import CKeepsake
internal import KeepsakeLibc

/// What the library needs to know about a file.
struct FileStatus: Sendable, Equatable {
  private let raw: keepsake_status

  init(_ raw: keepsake_status) { self.raw = raw }

  var device: UInt64 { raw.device }
  var inode: UInt64 { raw.inode }
  var size: Int { Int(clamping: raw.size) }
  var linkCount: Int { Int(raw.links) }
  /// The permission bits, including setuid, setgid and the sticky bit.
  var mode: UInt32 { raw.mode & 0o7777 }
  var owner: UInt32 { raw.owner }
  var group: UInt32 { raw.group }
  var isDirectory: Bool { kind == .directory }
  var isRegularFile: Bool { kind == .file }
  var isSymbolicLink: Bool { kind == .symbolicLink }
  /// Whether another file system or directory is mounted here; false if the system cannot tell.
  var isMountPoint: Bool { raw.is_mount }
  /// Nanoseconds since 1970; 0 unless times were requested.
  var modified: Int64 { raw.modified }
  var accessed: Int64 { raw.accessed }
  var changed: Int64 { raw.changed }

  var kind: FileSystem.Kind {
    switch mode_t(raw.mode) & S_IFMT {
    case S_IFREG: .file
    case S_IFDIR: .directory
    case S_IFLNK: .symbolicLink
    default: .other
    }
  }

  /// Whether nothing has changed, and if times were requested, the file was not even read.
  static func == (a: Self, b: Self) -> Bool {
    a.isSameFile(as: b) && (a.size, a.mode, a.owner, a.group) == (b.size, b.mode, b.owner, b.group)
      && (a.modified, a.accessed, a.changed) == (b.modified, b.accessed, b.changed)
  }

  func isSameFile(as other: FileStatus) -> Bool {
    inode == other.inode && device == other.device
  }
}
