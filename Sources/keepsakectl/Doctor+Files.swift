import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// Permissions, abandoned files and free space.
extension Doctor {
  /// Notes which of the named files other users can access, and whether the directory is writable
  /// for its owner alone.
  mutating func examinePermissions(of folder: Folder, _ names: [String]) throws {
    let directory = try path("", in: folder)
    // A store's own directory may be a link.
    var directoryStatus = stat()
    guard stat(directory, &directoryStatus) == 0 else { return }
    if directoryStatus.st_mode & 0o022 != 0 {
      note(
        directory, "other users can write to this directory",
        "Run: chmod go-w \(Self.quoted(directory))")
    }
    if access(directory, W_OK) != 0 {
      note(
        directory, "the directory is not writable: \(String(cString: strerror(errno)))",
        "Check its owner, its permissions and its file system.")
    }
    for name in names {
      let path = try path(name, in: folder)
      guard let status = Self.status(of: path) else { continue }
      if status.st_uid != directoryStatus.st_uid {
        let command =
          "chown -h --reference=\(Self.quoted(directory)) \(Self.quoted(path))"
        note(path, "its owner differs from its directory's", "Run as root: \(command)")
      } else if status.st_mode & S_IFMT != S_IFLNK, status.st_mode & 0o077 != 0 {
        note(path, "other users have access to it", "Run: chmod go= \(Self.quoted(path))")
      }
    }
    try noteAbandonedFiles(names, in: folder)
  }

  /// Notes temporary files of programs that were killed.
  ///
  /// A file that is less than a day old may still be in use, or is removed by the next sweep.
  mutating func noteAbandonedFiles(_ names: [String], in folder: Folder) throws {
    for name in names where name.hasSuffix(".tmp") || name.hasSuffix(".trash/") {
      let path = try path(name, in: folder)
      guard let status = Self.status(of: path), time(nil) - status.st_mtim.tv_sec > 86_400
      else { continue }
      note(path, "a program that was killed left it behind", "Delete it.")
    }
  }

  /// Notes links in the place of files that are only locked or counted in, which calls refuse.
  mutating func noteLinkedLockFiles(_ names: [String], in folder: Folder) throws {
    for name in names where name.hasSuffix(".lock") || name.hasSuffix(".ledger") {
      let path = try path(name, in: folder)
      guard let status = Self.status(of: path), status.st_mode & S_IFMT == S_IFLNK else { continue }
      note(
        path, "it is a symbolic link, so calls fail", "Delete the link: nothing is stored in it.")
    }
  }

  mutating func examineFreeSpace(minimum: Int) throws {
    var devices: Set<dev_t> = []
    for folder in [settings, vault, caches].compactMap({ $0 }) {
      let directory = try path("", in: folder)
      let free = try folder.freeSpace
      guard free < minimum, let status = Self.status(of: directory) else { continue }
      if !devices.insert(status.st_dev).inserted { continue }
      note(
        directory, "only \(ByteCount(free)) of disk space is left",
        "Free some space, or the next write may fail.")
    }
  }

  func path(_ name: String, in folder: Folder) throws -> String {
    let directory = try folder.url().path(percentEncoded: false)
    let path = name.isEmpty ? directory : directory + "/" + name
    return path.hasSuffix("/") ? String(path.dropLast()) : path
  }

  static func status(of path: String) -> stat? {
    var status = stat()
    return lstat(path, &status) == 0 ? status : nil
  }

  /// The path as one word of a shell command.
  private static func quoted(_ path: String) -> String {
    "'" + path.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''")
      + "'"
  }
}
