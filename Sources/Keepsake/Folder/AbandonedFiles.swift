/// Files and directories that killed writers left in a ``Folder``.
///
/// A running writer holds the lock of its file, or of the directory that it is copying to.
enum AbandonedFiles {
  /// The prefix of all names that the library reserves in a ``Folder``: calls neither show nor
  /// accept them.
  static let reservedPrefix = ".keepsake-"
  private static let temporarySuffix = ".tmp"

  /// Whether the library reserves a name. It is nil, and not reserved, if it is not UTF-8.
  ///
  /// Compares bytes, like all checks of names: a letter and a combining mark after it form one
  /// `Character`.
  static func isReserved(_ name: String?) -> Bool {
    name?.utf8.starts(with: reservedPrefix.utf8) == true
  }

  /// Whether a name in the path is reserved.
  static func hasReservedName(_ path: String) -> Bool {
    path.utf8.span.bytes.withUnsafeBytes { path in
      var start = path.startIndex
      while start < path.endIndex {
        if path[start...].starts(with: reservedPrefix.utf8) { return true }
        let slash = path[start...].firstIndex(of: UInt8(ascii: "/")) ?? path.endIndex
        start = min(slash + 1, path.endIndex)
      }
      return false
    }
  }

  /// A name for a file that is being adopted. Sweeps never remove it, because there is no other
  /// copy.
  static func makeAdoptedName() -> String { TemporaryFile.makeName() + adoptedSuffix }
  private static let adoptedSuffix = ".taken"

  /// Whether a file of this name may be removed with its directory.
  static func isDisposable(_ name: String) -> Bool {
    isReserved(name) && !name.hasSuffix(adoptedSuffix)
  }

  /// Whether this is a name of ``TemporaryFile/makeName()``.
  static func isTemporary(_ name: String) -> Bool {
    isReserved(name) && name.hasSuffix(temporarySuffix)
  }

  /// Locks a new file or directory until it is closed, so that sweeps skip it.
  static func markInUse(_ descriptor: Int32, _ path: String) {
    // Cannot fail because the lock is held: the file is new. If the file system has no locks,
    // sweeps cannot take one either.
    _ = try? File.tryLock(descriptor, path)
  }

  private static let hour = 3_600 * WallClock.second

  /// When this process swept each directory.
  private static let sweeps = Locked(ByteKeyedDictionary<Int64>())

  /// Sweeps a directory in which this process creates a file, at most once an hour.
  static func sweepIfDue(_ directory: DirectoryHandle) {
    let now = WallClock.now
    let isDue = sweeps.withLock { sweeps in
      if let last = sweeps[directory.path], (0..<hour).contains(now.subtractingSaturated(last)) {
        return false
      }
      if sweeps.count > 10_000 { sweeps = ByteKeyedDictionary() }
      sweeps.set(directory.path, now)
      return true
    }
    if isDue { sweep(directory) }
  }

  /// Removes temporary files and directories whose writer is gone.
  static func sweep(_ directory: DirectoryHandle) {
    do throws(StorageError) {
      try FileSystem.scan(in: directory) { entry throws(StorageError) in
        // Another user's file in a shared directory cannot be removed; the sweep continues.
        if let name = entry.name, isTemporary(name) { try? remove(name, entry, in: directory) }
      }
    } catch {
      // No reason to refuse a write: no call shows the files that are left.
    }
  }

  private static func remove(
    _ name: String, _ entry: FileSystem.DirectoryEntry, in directory: DirectoryHandle
  ) throws(StorageError) {
    // A new file is not locked yet. An hour is ample for that, even if the clock is set.
    guard let status = try entry.status(withTimes: true),
      WallClock.now.subtractingSaturated(status.modified) > hour
    else { return }
    switch status.kind {
    case .file:
      let file: File
      do throws(StorageError) {
        // Network file systems lock only files that are open for writing.
        file = try File(name, in: directory, .readWriteNoFollow)
      } catch  where error.code == .accessDenied {
        file = try File(name, in: directory, .readNoFollow)
      }
      if try file.tryLock() { try entry.unlink() }
    case .directory:
      let path = ConfinedPath(base: directory.path).appending(name)
      let copy = try DirectoryHandle(path)
      if copy.lock() { try path.removeTree() }
    case .symbolicLink, .other: try entry.unlink()
    }
  }
}
