internal import KeepsakeLibc

/// A directory on the way to a file that gives another user the means to exchange the file.
package struct UnsafeDirectory {
  package let path: String
  package let reason: String
  package let remedy: String
}

extension FileSystem {
  /// The user that the kernel shows for those who are unknown in a container.
  private static let unknownUser: UInt32 = 65_534

  /// The closest directory, from `path` up to the root, in which users other than root and the
  /// owners may exchange what leads to `path`; nil if there is none.
  ///
  /// In a sticky directory they may not, and a group of one user has no other members.
  static func unsafeDirectory(
    onTheWayTo path: String, isOwner: (UInt32) -> Bool
  ) throws(StorageError) -> UnsafeDirectory? {
    var path = path.hasPrefix("/") ? path : try realPath(path)
    let start = path
    var hasLink = false
    while true {
      if let status = try status(path, followsLinks: false) {
        guard [0, unknownUser].contains(status.owner) || isOwner(status.owner) else {
          return UnsafeDirectory(
            path: path, reason: "\(path) belongs to user \(status.owner)",
            remedy: "Run: chown \(ProcessEnvironment.userID) \(path)")
        }
        let others: UInt32 = isGroupPrivate(status) ? 0o002 : 0o022
        if status.isSymbolicLink {
          hasLink = true
        } else if status.mode & others != 0, status.mode & 0o1000 == 0 {
          return UnsafeDirectory(
            path: path,
            reason: "other users may write to \(path) (mode \(String(status.mode, radix: 8)))",
            remedy: "Run: chmod go-w \(path)")
        }
      }
      if path == "/" { break }
      path = parent(of: path)
    }
    guard hasLink else { return nil }
    let target = try realPath(start)
    return target == start ? nil : try unsafeDirectory(onTheWayTo: target, isOwner: isOwner)
  }

  /// Whether the group is the one that many systems make for each user.
  private static func isGroupPrivate(_ status: FileStatus) -> Bool {
    guard status.mode & 0o020 != 0, status.group == status.owner else { return false }
    var entry = group()
    var found: UnsafeMutablePointer<group>?
    return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 16_384) { buffer in
      guard let start = buffer.baseAddress,
        getgrgid_r(status.group, &entry, start, buffer.count, &found) == 0
      else { return false }
      guard found != nil, var member = entry.gr_mem, let name = entry.gr_name else { return true }
      while let user = member.pointee {
        if strcmp(user, name) != 0 { return false }
        member += 1
      }
      return true
    }
  }
}
