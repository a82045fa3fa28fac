internal import CKeepsake
internal import KeepsakeLibc

/// A file that takes the place of another one is accessible to the same users, or to fewer.
extension File {
  /// Gives the file the owner, group, mode and access-control list of the one that it will replace,
  /// as far as this process may.
  ///
  /// If it may not set the group or the list, the group has no access, and all others only have
  /// what the group had too.
  ///
  /// - Parameters:
  ///   - old: The status of the other file.
  ///   - path: The absolute path of the other file.
  ///   - keepsOwner: Whether the owner and the group stay as they are.
  func takePermissions(
    of old: FileStatus, at path: String, keepsOwner: Bool = false
  ) throws(StorageError) {
    let new = try status()
    // Without setuid and setgid: the owner may be another user now.
    var mode = old.mode & 0o777
    // Only root may give a file away. Others may set the group to one of theirs.
    let keepsGroup =
      (new.owner, new.group) == (old.owner, old.group)
      || !keepsOwner && setOwner(old.owner, old.group)
      || new.group == old.group || !keepsOwner && setOwner(.max, old.group)
    // A list that grants anything shows in the group's bits, which are its mask.
    if !keepsGroup || mode & 0o070 != 0 && !copyAccessList(from: path) {
      mode = mode & 0o700 | mode & (mode >> 3) & 0o007
    }
    if mode != new.mode { try setMode(mode) }
  }

  /// Whether the file has that owner and group now. An owner of `.max` stays as it is.
  func setOwner(_ owner: UInt32, _ group: UInt32) -> Bool {
    systemCall(.chown, path, on: descriptor) { Int(fchown(descriptor, owner, group)) }
      .errorCode == nil
  }

  /// Whether the file has the access-control list of the one at the path, which may have none.
  private func copyAccessList(from path: String) -> Bool {
    systemCall(.accessList, path, on: descriptor) {
      Int(keepsake_copy_access_list(path, descriptor))
    }.errorCode == nil
  }
}

extension FileStatus {
  /// The mode that the file at `path` needs so that it gives no user more access than the one at
  /// `otherPath` does; nil if it has it.
  func mode(at path: String, notWiderThan other: FileStatus, at otherPath: String) -> UInt32? {
    guard isRegularFile else { return nil }
    var narrower = mode & other.mode & 0o777
    // Members of the other file's group, or users in its list, may be any users of this one.
    if group != other.group || !keepsake_has_same_access_list(path, otherPath) {
      narrower &= 0o700 | other.mode >> 3 & 0o007
    }
    return narrower == mode & 0o777 ? nil : narrower
  }
}
