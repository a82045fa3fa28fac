extension Folder {
  /// The names of what is in the folder, or in one below it, sorted; those of folders end in a
  /// slash.
  ///
  /// ```swift
  /// for name in try Folder.documents.list("users") { print(name) }   // 1.json, old/
  /// ```
  ///
  /// - Parameters:
  ///   - path: A folder below this one.
  ///   - recursively: Whether to list what is in the folders below as well, as `old/2.json`.
  ///   - includingHidden: Whether to list names that start with a dot, too.
  /// - Returns: Names as seen from `path`; none when this folder has not been made yet.
  /// - Throws: ``StorageError`` of code `notFound` when there is no folder at `path`.
  public func list(
    _ path: String = "", recursively: Bool = false, includingHidden: Bool = false
  ) throws(StorageError) -> [String] {
    try during("list", path) { site throws(StorageError) in
      guard try isDirectory(site, path) else { return [] }
      func isShown(_ name: String) -> Bool {
        !AbandonedFiles.isReserved(name)
          && (includingHidden || name.utf8.first != UInt8(ascii: "."))
      }
      var names: [String] = []
      if recursively {
        let start = site.isBase ? 0 : site.subpath.utf8.count + 1
        try site.walk(entering: { $0.map(isShown) ?? false }) { visit throws(StorageError) in
          let name = visit.place.subpath.utf8.dropFirst(start)
          names.append(String(Substring(name)) + (visit.kind == .directory ? "/" : ""))
        }
      } else {
        try FileSystem.scan(in: DirectoryHandle(site)) { found throws(StorageError) in
          guard let name = found.name, isShown(name) else { return }
          names.append(try found.kind() == .directory ? name + "/" : name)
        }
      }
      return names.sorted()
    }
  }

  /// How many bytes all files hold together that are in the folder or below it, hidden ones too; of
  /// a file, those that it holds.
  ///
  /// - Throws: ``StorageError`` of code `notFound` when nothing is at `path`.
  public func totalSize(_ path: String = "") throws(StorageError) -> Int {
    try during("totalSize", path) { site throws(StorageError) in
      if let status = try site.status(), status.isRegularFile { return status.size }
      guard try isDirectory(site, path) else { return 0 }
      var total = 0
      try site.walk { visit throws(StorageError) in
        guard visit.kind == .file, let status = try visit.entry.status() else { return }
        // Sparse files may claim any size.
        let (sum, overflow) = total.addingReportingOverflow(status.size)
        total = overflow ? .max : sum
      }
      return total
    }
  }

  /// The bytes that can still be written on the folder's file system.
  public var freeSpace: Int {
    get throws(StorageError) {
      try during("freeSpace", "") { site throws(StorageError) in
        try FileSystem.freeSpace(at: FileSystem.existingPath(site.path))
      }
    }
  }

  /// Throws unless so many bytes can be written, to find out before a large write. Below 1 MiB it
  /// does not look: the write itself finds out as quickly.
  ///
  /// ``save(_:as:)`` of a large value and ``save(chunks:as:total:isolation:progress:)`` do it by
  /// themselves.
  ///
  /// - Throws: ``StorageError`` of code `diskFull` with how much is missing.
  public func requireFreeSpace(_ bytes: Int) throws(StorageError) {
    try during("requireFreeSpace", "") { site throws(StorageError) in
      try Self.requireFreeSpace(bytes, at: FileSystem.existingPath(site.path))
    }
  }

  static func requireFreeSpace(_ bytes: Int, at path: String) throws(StorageError) {
    // Of a smaller one the write itself finds out as quickly.
    guard bytes >= 1 << 20 else { return }
    let free = try FileSystem.freeSpace(at: path)
    guard bytes > free else { return }
    throw StorageError(
      .diskFull, operation: "requireFreeSpace", path: path,
      reason: "\(ByteCount(bytes)) are needed, \(ByteCount(free)) are free",
      remedy: "Free some space or raise the quota, then try again.")
  }

  /// Whether there is a folder; false where this one has not been made yet.
  private func isDirectory(_ site: ConfinedPath, _ path: String) throws(StorageError) -> Bool {
    guard let status = try site.status() else {
      if path.isEmpty { return false }
      throw StorageError(
        .notFound, operation: "list", path: site.path, remedy: "Check the directory's name.")
    }
    if status.isDirectory { return true }
    if status.isSymbolicLink { throw site.symbolicLinkError }
    throw Self.notADirectory(site)
  }

  static func notADirectory(_ site: ConfinedPath) -> StorageError {
    StorageError(
      .misuse, operation: "list", path: site.path, reason: "a file stands there, and no directory",
      remedy: "Name a directory.")
  }
}
