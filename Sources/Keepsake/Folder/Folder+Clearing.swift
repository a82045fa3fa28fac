extension Folder {
  /// Deletes everything in the folder, including hidden files. The folder itself stays.
  ///
  /// Files that are being saved at that moment may stay.
  ///
  /// - Throws: ``StorageError`` of code `misuse`, before anything is deleted, if the folder
  ///   contains settings, secrets, a cache or the user's home, or if it is in the user's documents
  ///   and existed before the app.
  public func clear() throws(StorageError) {
    try perform("clear", "") { folder throws(StorageError) in
      guard let status = try folder.status() else { return }
      guard status.isDirectory else {
        throw status.isSymbolicLink ? folder.symbolicLinkError : Self.notADirectory(folder)
      }
      try requireClearable(folder, status)
      // Removes the files of killed writers. Files of running writers stay.
      let directory = try DirectoryHandle(folder)
      AbandonedFiles.sweep(directory)
      try folder.walk(entering: { !AbandonedFiles.isReserved($0) }) { visit throws(StorageError) in
        // A directory that was removed in the meantime needs no sweep.
        if visit.kind == .directory, let directory = try? DirectoryHandle(visit.path) {
          AbandonedFiles.sweep(directory)
        }
      }
      try folder.removeContents { !AbandonedFiles.isReserved($0) }
      if isDurable { try directory.synchronize() }
    }
  }

  /// Throws if the folder may contain anything but the app's own files.
  private func requireClearable(
    _ folder: ConfinedPath, _ status: FileStatus
  ) throws(StorageError) {
    if isDocuments(status) {
      let marker = ConfinedPath(base: folder.base).appending(Self.ownershipMarker)
      if try !marker.exists() {
        throw Self.notClearable(folder, "it existed before this app")
      }
    }
    for protected in StorageScope.current.finder.protectedDirectories() {
      var path = try FileSystem.realPath(FileSystem.existingPath(protected))
      while true {
        if let ancestor = try FileSystem.status(path), ancestor.isSameFile(as: status) {
          throw Self.notClearable(folder, "it contains \(protected)")
        }
        if path == "/" { break }
        path = FileSystem.parent(of: path)
      }
    }
    try folder.walk { visit throws(StorageError) in
      if try Self.marksStore(visit.path) {
        throw Self.notClearable(folder, "it contains a store, as \(visit.path.path) shows")
      }
    }
    // The folder may also be a subdirectory of a vault or a cache, which has no marker itself.
    var path = try FileSystem.realPath(folder.path)
    while path != "/" {
      let parent = FileSystem.parent(of: path)
      let name = FileSystem.name(of: path)
      for marker in [path + "/" + VaultMarker.fileName, "\(parent)/.\(name).ledger"] {
        if try FileSystem.status(marker) != nil {
          throw Self.notClearable(folder, "it is inside a store, as \(marker) shows")
        }
      }
      path = parent
    }
  }

  /// Whether it is the app's documents folder or below it, whatever path it was reached by.
  private func isDocuments(_ status: FileStatus) -> Bool {
    if case .documents = base { return true }
    guard let path = try? StorageScope.current.path(of: .documents),
      let documents = try? FileSystem.status(path)
    else { return false }
    return documents.isSameFile(as: status)
  }

  /// Whether the file shows that a store is here: settings, the lock file of a vault, the ledger or
  /// the tag of a cache.
  private static func marksStore(_ path: ConfinedPath) throws(StorageError) -> Bool {
    let name = path.name
    if name.hasSuffix(JournalPaths.suffix), try path.status()?.isRegularFile == true {
      return try JournalFormat.isJournal(File(path))
    }
    return name.hasPrefix(".") && (name.hasSuffix(".lock") || name.hasSuffix(".ledger"))
      || name == VaultMarker.fileName || name == CachePaths.tagName
  }

  private static func notClearable(_ folder: ConfinedPath, _ reason: String) -> StorageError {
    StorageError(
      .misuse, operation: "clear", path: folder.path,
      reason: "the folder is not safe to clear: \(reason)",
      remedy: "Delete files by name, or clear a subfolder.")
  }
}
