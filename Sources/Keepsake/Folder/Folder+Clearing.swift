extension Folder {
  /// Deletes all that is in the folder, hidden files too; the folder itself stays.
  ///
  /// What is being saved at that moment may stay.
  ///
  /// - Throws: ``StorageError`` of code `misuse`, before anything is deleted, when settings,
  ///   secrets or a cache lie in the folder, or the user's home does, and for a folder in the
  ///   user's documents that was there before the app.
  public func clear() throws(StorageError) {
    try during("clear", "") { site throws(StorageError) in
      guard let status = try site.status() else { return }
      guard status.isDirectory else {
        throw status.isSymbolicLink ? site.symbolicLinkError : Self.notADirectory(site)
      }
      try requireOwnFilesAlone(in: site, status)
      func isOurs(_ name: String?) -> Bool { name.map(AbandonedFiles.isReserved) ?? false }
      // What writers left that were killed; that of others, who are at work, stays.
      let directory = try DirectoryHandle(site)
      AbandonedFiles.sweep(directory)
      try site.walk(entering: { !isOurs($0) }) { visit throws(StorageError) in
        // One that is gone meanwhile has nothing to sweep.
        if visit.kind == .directory, let directory = try? DirectoryHandle(visit.place) {
          AbandonedFiles.sweep(directory)
        }
      }
      try site.removeContents { !isOurs($0) }
      if isDurable { try directory.synchronize() }
    }
  }

  /// Throws where something else than the app's own files may lie in a folder.
  private func requireOwnFilesAlone(
    in site: ConfinedPath, _ status: FileStatus
  ) throws(StorageError) {
    if isDocuments(status) {
      let mark = ConfinedPath(base: site.base).appending(Self.markOfOwn)
      if try !mark.exists() {
        throw Self.notToBeCleared(site, "it was there before this app, with what is in it")
      }
    }
    for precious in StorageScope.current.finder.protectedDirectories() {
      var path = try FileSystem.realPath(FileSystem.existingPath(precious))
      while true {
        if let above = try FileSystem.status(path), above.isSameFile(as: status) {
          throw Self.notToBeCleared(site, "\(precious) lies in it")
        }
        if path == "/" { break }
        path = FileSystem.parent(of: path)
      }
    }
    try site.walk { visit throws(StorageError) in
      if Self.isMarkOfStore(visit.place.name) {
        throw Self.notToBeCleared(site, "a store lies in it, by \(visit.place.path)")
      }
    }
    // A directory of a vault or of a cache has no mark of its own.
    var path = try FileSystem.realPath(site.path)
    while path != "/" {
      let parent = FileSystem.parent(of: path)
      let name = FileSystem.name(of: path)
      for mark in [path + "/" + StoreDirectory.vaultHeaderName, "\(parent)/.\(name).ledger"] {
        if try FileSystem.status(mark) != nil {
          throw Self.notToBeCleared(site, "it lies in a store, by \(mark)")
        }
      }
      path = parent
    }
  }

  /// Whether it is the documents folder of the app, or in it, by whatever way it was named.
  private func isDocuments(_ status: FileStatus) -> Bool {
    if case .documents = base { return true }
    // Where there is none it is not in danger.
    guard let root = try? StorageScope.current.path(of: .documents),
      let documents = try? FileSystem.status(root)
    else { return false }
    return documents.isSameFile(as: status)
  }

  /// Whether a store's files lie beside a file of this name: the lock files of settings and of
  /// vaults, the books and tags of caches.
  private static func isMarkOfStore(_ name: String) -> Bool {
    name.hasPrefix(".") && (name.hasSuffix(".lock") || name.hasSuffix(".ledger"))
      || name == StoreDirectory.vaultHeaderName || name == CachePaths.tagName
  }

  private static func notToBeCleared(_ site: ConfinedPath, _ reason: String) -> StorageError {
    StorageError(
      .misuse, operation: "clear", path: site.path, reason: reason,
      remedy: "Delete what is to go by its name, or clear a subfolder.")
  }
}
