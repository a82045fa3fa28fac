/// Where a journal and its lock file are, and who may read them.
struct JournalLocation: Sendable {
  let path: String
  let lockPath: String
  /// The caller's folder must exist, and the files' modes follow its mode: that is how programs
  /// share. Any other is made, for the user alone.
  private let isCallersFolder: Bool

  init(folder: String, name: String, isCallersFolder: Bool) throws(StorageError) {
    // A linked file (dot-file managers do that) stays a link: its target is replaced.
    path = try FileSystem.resolvingLink(folder + "/" + name + Self.suffix)
    lockPath = folder + "/." + name + ".lock"
    self.isCallersFolder = isCallersFolder
  }

  static let suffix = ".jsonl"

  var folder: String { FileSystem.parent(of: path) }

  /// Makes the folder where it is missing; returns the mode for files in it.
  func prepareFolder() throws(StorageError) -> UInt32 {
    let folder = FileSystem.parent(of: lockPath)
    if !isCallersFolder {
      try FileSystem.createFolder(folder)
      return 0o600
    }
    guard let status = try FileSystem.status(folder) else {
      throw StorageError(
        .notFound, operation: "open", path: folder, reason: "the suite's own folder is missing",
        remedy: "Create the folder with the owner and mode that all its users need.")
    }
    return fileMode(in: status)
  }

  func fileMode() throws(StorageError) -> UInt32 {
    guard isCallersFolder, let status = try FileSystem.status(FileSystem.parent(of: lockPath))
    else {
      return 0o600
    }
    return fileMode(in: status)
  }

  private func fileMode(in status: FileStatus) -> UInt32 { status.mode & 0o666 | 0o600 }
}
