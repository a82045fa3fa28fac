/// The paths of a journal and its lock file, and their modes.
struct JournalPaths: Sendable {
  let path: String
  let lockPath: String
  private let storeDirectory: StoreDirectory

  init(directory storeDirectory: StoreDirectory, name: String) throws(StorageError) {
    // A symbolic link, as dot-file managers make, stays a link. Its target is replaced.
    path = try FileSystem.resolvingLink(storeDirectory.path + "/" + name + Self.suffix)
    lockPath = storeDirectory.lockPath(for: name)
    self.storeDirectory = storeDirectory
  }

  static let suffix = ".jsonl"

  var directory: String { FileSystem.parent(of: path) }

  /// Makes the directory if it is missing; returns the mode for files in it.
  func prepareDirectory() throws(StorageError) -> UInt32 {
    try storeDirectory.createIfNeeded() & 0o666
  }

  func fileMode() throws(StorageError) -> UInt32 { try storeDirectory.directoryMode() & 0o666 }
}
