internal import CKeepsake
internal import KeepsakeLibc

/// A directory on the way to a file that gives another user the means to exchange the file.
package struct UnsafeDirectory {
  package let path: String
  package let reason: String
  package let remedy: String
}

extension FileSystem {
  /// The user that the kernel shows for those who are unknown in a container; root elsewhere.
  private static let unknownUser: UInt32 = {
    // As a line, all users: their numbers here and outside, and how many there are.
    let map = try? File("/proc/self/uid_map", .read).read(from: 0, count: 256)
    let words = map?.split { $0 <= UInt8(ascii: " ") }.map { String(decoding: $0, as: UTF8.self) }
    return words.map { $0 == ["0", "0", "4294967295"] } ?? true ? 0 : 65_534
  }()

  /// The closest directory, from `path` up to the root, in which users other than root and the
  /// owners may exchange what leads to `path`; nil if there is none.
  ///
  /// In a sticky directory they may not, and a group of one user has no other members.
  static func unsafeDirectory(
    onTheWayTo path: String, isOwner: (UInt32) -> Bool
  ) throws(StorageError) -> UnsafeDirectory? {
    let start = path.hasPrefix("/") ? path : try realPath(path)
    var hasLink = false
    for path in ancestors(of: start) {
      guard let status = try status(path, followsLinks: false) else { continue }
      guard [0, unknownUser].contains(status.owner) || isOwner(status.owner) else {
        return UnsafeDirectory(
          path: path, reason: "\(path) belongs to user \(status.owner)",
          remedy: "Run: chown \(ProcessEnvironment.userID) \(path)")
      }
      let others: UInt32 = isGroupPrivate(status, path) ? 0o002 : 0o022
      if status.isSymbolicLink {
        hasLink = true
      } else if status.mode & others != 0, !status.isDirectory || status.mode & 0o1000 == 0 {
        return UnsafeDirectory(
          path: path,
          reason: "other users may write to \(path) (mode \(String(status.mode, radix: 8)))",
          remedy: "Run: chmod go-w \(path)")
      }
    }
    guard hasLink else { return nil }
    let target = try realPath(start)
    return target == start ? nil : try unsafeDirectory(onTheWayTo: target, isOwner: isOwner)
  }

  /// Whether the group is the one that many systems make for each user, and its permissions are not
  /// also those of an access-control list.
  private static func isGroupPrivate(_ status: FileStatus, _ path: String) -> Bool {
    guard status.mode & 0o020 != 0, !keepsake_has_access_list(path) else { return false }
    var (user, group) = (passwd(), group())
    var foundUser: UnsafeMutablePointer<passwd>?
    var foundGroup: UnsafeMutablePointer<KeepsakeLibc.group>?
    return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 32_768) { buffer in
      guard let start = buffer.baseAddress else { return false }
      let half = buffer.count / 2
      guard getpwuid_r(status.owner, &user, start, half, &foundUser) == 0,
        getgrgid_r(status.group, &group, start + half, half, &foundGroup) == 0
      else { return false }
      // In a container, neither may have a name.
      guard foundGroup != nil, var member = group.gr_mem, let name = group.gr_name else {
        return status.group == status.owner
      }
      let owner = foundUser == nil ? nil : user.pw_name
      guard status.group == status.owner || owner.map({ strcmp($0, name) == 0 }) == true else {
        return false
      }
      while let user = member.pointee {
        if strcmp(user, owner ?? name) != 0 { return false }
        member += 1
      }
      return true
    }
  }
}
