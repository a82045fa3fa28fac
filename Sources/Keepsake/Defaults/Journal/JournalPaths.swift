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

  /// Where the new contents of a file are while they are written into it; see Journal+Rewriting.
  func nextPath() throws(StorageError) -> String { try target() + ".next" }

  /// The journal with this id that was to be written into the file.
  func nextJournal(id: UInt64) throws(StorageError) -> [UInt8]? {
    guard let file = try File.openIfPresent(nextPath()) else { return nil }
    let bytes = try file.read(from: 0, count: file.status().size)
    let header = bytes.withUnsafeBytes { JournalFormat.header(of: $0) }
    return header == .valid(id: id, isIntact: true) ? bytes : nil
  }

  /// Makes the directory if it is missing; returns the mode for files in it.
  func prepareDirectory() throws(StorageError) -> UInt32 {
    try storeDirectory.createIfNeeded() & 0o666
  }
}
