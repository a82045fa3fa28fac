/// Where a journal and its lock file are, and who may read them.
struct JournalPaths: Sendable {
  let path: String
  let lockPath: String
  private let host: StoreDirectory

  init(directory host: StoreDirectory, name: String) throws(StorageError) {
    // A linked file (dot-file managers do that) stays a link: its target is replaced.
    path = try FileSystem.resolvingLink(host.path + "/" + name + Self.suffix)
    lockPath = host.lockPath(for: name)
    self.host = host
  }

  static let suffix = ".jsonl"

  var directory: String { FileSystem.parent(of: path) }

  /// Makes the directory where it is missing; returns the mode for files in it.
  func prepareDirectory() throws(StorageError) -> UInt32 { try host.createIfNeeded() & 0o666 }

  func fileMode() throws(StorageError) -> UInt32 { try host.directoryMode() & 0o666 }
}
