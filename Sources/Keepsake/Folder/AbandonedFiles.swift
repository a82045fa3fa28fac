/// What writers leave in a ``Folder`` when they are killed.
///
/// A living writer holds the lock of its file, or of the folder that it copies to.
enum AbandonedFiles {
  /// All names of the library's own in a ``Folder`` start with it: no call shows or takes one.
  static let reservedPrefix = ".keepsake-"
  private static let suffix = ".tmp"

  /// By bytes, as all names are looked at: a letter with a mark after it is another character.
  static func isReserved(_ name: String) -> Bool { name.utf8.starts(with: reservedPrefix.utf8) }

  static func newName() -> String {
    reservedPrefix + String(UInt64.random(in: .min ... .max), radix: 16) + suffix
  }

  /// For a file of somebody's that is being taken in: no sweep removes it, for there is no other
  /// copy.
  static func nameOfTaken() -> String { newName() + takenSuffix }
  private static let takenSuffix = ".taken"

  /// Whether it can go with the folder that it is in.
  static func isDisposable(_ name: String) -> Bool {
    isReserved(name) && !name.hasSuffix(takenSuffix)
  }

  static func isName(_ name: String) -> Bool {
    isReserved(name) && name.hasSuffix(suffix)
  }

  /// Says to all sweeps that its writer lives.
  static func mark(_ descriptor: Int32, _ path: String) {
    // New, so nobody else has it; where the file system has no locks sweeps find that none can be
    // had.
    _ = try? LockFile.tryLock(descriptor, path)
  }

  private static let swept = Locked<Set<String>>([])

  /// Looks a folder through when this process puts its first file into it.
  static func sweepOnce(_ directory: DirectoryHandle) {
    let isFirst = swept.withLock { swept in
      if swept.count > 10_000 { swept = [] }
      return swept.insert(directory.path).inserted
    }
    if isFirst { sweep(directory) }
  }

  /// Removes what has such a name and no writer any more.
  static func sweep(_ directory: DirectoryHandle) {
    do throws(StorageError) {
      try FileSystem.scan(in: directory) { entry throws(StorageError) in
        // Another user's, in a shared directory, may not go: others still may.
        if let name = entry.name, isName(name) { try? remove(name, entry, in: directory) }
      }
    } catch {
      // No reason to refuse a write: nobody sees what is left.
    }
  }

  private static func remove(
    _ name: String, _ entry: FileSystem.DirectoryEntry, in directory: DirectoryHandle
  ) throws(StorageError) {
    // Between making one and locking it a writer needs no hour, even where the clock is set.
    guard let status = try entry.status(withTimes: true),
      WallClock.now.subtractingSaturated(status.modified) > 3_600 * WallClock.second
    else { return }
    switch status.kind {
    case .file:
      let file = try File(name, in: directory, .readWrite)
      if try LockFile.tryLock(file.descriptor, file.path) { try entry.unlink() }
    case .directory:
      let place = ConfinedPath(base: directory.path).appending(name)
      let copy = try DirectoryHandle(place)
      if try LockFile.tryLock(copy.descriptor, copy.path) { try place.removeTree() }
    case .link, .other: try entry.unlink()
    }
  }
}
