/// The paths of a journal and of what is kept beside it, and their modes.
struct JournalPaths: Sendable {
  /// May be a symbolic link, as dot-file managers make, which may be pointed elsewhere at any time.
  let path: String
  private let storeDirectory: StoreDirectory

  init(directory storeDirectory: StoreDirectory, name: String) {
    path = storeDirectory.path + "/" + name + Self.suffix
    self.storeDirectory = storeDirectory
  }

  static let suffix = ".jsonl"

  /// Where the values are kept that another program has replaced.
  func previousPath() throws(StorageError) -> String { try target() + ".previous" }

  /// The path of the file itself, which a new one replaces; a link stays.
  func target() throws(StorageError) -> String { try FileSystem.resolvingLink(path) }

  /// Where a journal is while it is written into the file; see Journal+Rewriting. It has a name of
  /// its own, because one that another user has left may stay there.
  func nextPath(id: UInt64) throws(StorageError) -> String {
    try target() + Self.nextSuffix + String(id, radix: 16)
  }

  private static let nextSuffix = ".next-"

  /// The journal with this id that is to be written into the file, or was.
  ///
  /// - Parameter status: That of the file.
  func nextJournal(id: UInt64, for status: FileStatus) throws(StorageError) -> [UInt8]? {
    let path = try nextPath(id: id)
    // In a directory of other users, it must be of a user who could have written the file itself.
    guard let found = try FileSystem.status(path, followsLinks: false), found.isRegularFile,
      [0, ProcessEnvironment.userID, status.owner].contains(found.owner)
        || status.mode & 0o002 != 0 || status.mode & 0o020 != 0 && found.group == status.group,
      let file = try File.openIfPresent(path)
    else { return nil }
    let bytes = try file.read(from: 0, count: found.size)
    let header = bytes.withUnsafeBytes { JournalFormat.header(of: $0) }
    return header == .valid(id: id, isIntact: true) ? bytes : nil
  }

  /// Removes the journal with this id, and those that killed writers have left. The caller has
  /// locked the file, which is complete.
  func removeNextJournals(id: UInt64) throws(StorageError) {
    try FileSystem.unlink(nextPath(id: id))
    let target = try target()
    let (directory, prefix) = (FileSystem.parent(of: target), FileSystem.name(of: target))
    for name in try FileSystem.list(directory)
    where name.hasPrefix(prefix + Self.nextSuffix)
      && Hexadecimal.number(name.dropFirst((prefix + Self.nextSuffix).count)) != nil
    {
      // One of another user may have to stay.
      try? FileSystem.unlink(directory + "/" + name)
    }
  }

  /// Makes the directory if it is missing; returns the mode for files in it.
  func prepareDirectory() throws(StorageError) -> UInt32 {
    try storeDirectory.createIfNeeded() & 0o666
  }
}
