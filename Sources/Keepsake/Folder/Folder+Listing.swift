extension Folder {
  /// Lists the names in the folder, or in one below it, sorted. Names of folders have a trailing
  /// slash.
  ///
  /// ```swift
  /// for name in try Folder.documents.list("users") { print(name) }   // 1.json, old/
  /// ```
  ///
  /// - Parameters:
  ///   - path: A folder below this one.
  ///   - recursively: Whether to include the contents of subfolders, as `old/2.json`.
  ///   - includingHidden: Whether to include names that start with a dot.
  /// - Returns: Paths relative to `path`; none if this folder has not been created yet.
  /// - Throws: ``StorageError`` of code `notFound` if there is no folder at `path`.
  public func list(
    _ path: String = "", recursively: Bool = false, includingHidden: Bool = false
  ) throws(StorageError) -> [String] {
    try perform("list", path) { directory throws(StorageError) in
      guard try isDirectory(directory, path) else { return [] }
      func isShown(_ name: String) -> Bool {
        !AbandonedFiles.isReserved(name)
          && (includingHidden || name.utf8.first != UInt8(ascii: "."))
      }
      var names: [String] = []
      if recursively {
        try directory.walk(entering: { $0.map(isShown) ?? false }) { visit throws(StorageError) in
          names.append(visit.path.subpath(below: directory) + (visit.kind == .directory ? "/" : ""))
        }
      } else {
        try FileSystem.scan(in: DirectoryHandle(directory)) { entry throws(StorageError) in
          guard let name = entry.name, isShown(name) else { return }
          names.append(try entry.kind() == .directory ? name + "/" : name)
        }
      }
      return names.sorted()
    }
  }

  /// The total size in bytes of all files in a folder and its subfolders, including hidden ones. If
  /// `path` names a file, the size of that file.
  ///
  /// - Throws: ``StorageError`` of code `notFound` if nothing is at `path`.
  public func totalSize(_ path: String = "") throws(StorageError) -> Int {
    try perform("totalSize", path) { item throws(StorageError) in
      if let status = try item.status(), status.isRegularFile { return status.size }
      guard try isDirectory(item, path) else { return 0 }
      var total = 0
      try item.walk { visit throws(StorageError) in
        guard visit.kind == .file, let status = try visit.entry.status() else { return }
        // Sparse files may have any size.
        total = total.addingSaturated(status.size)
      }
      return total
    }
  }

  /// The number of bytes that can still be written to the folder's file system. `save` checks that
  /// before it writes a large value.
  public var freeSpace: Int {
    get throws(StorageError) {
      try perform("freeSpace", "") { directory throws(StorageError) in
        try FileSystem.freeSpace(at: FileSystem.existingPath(directory.path))
      }
    }
  }

  /// Throws if a large value cannot be written. Below 1 MiB nothing is checked, because the write
  /// itself fails as quickly.
  func requireFreeSpace(_ bytes: Int) throws(StorageError) {
    try Self.requireFreeSpace(bytes, at: FileSystem.existingPath(confinedPath("").path))
  }

  /// The size from which a write is checked in advance.
  static let smallestCheckedSize = 1 << 20

  static func requireFreeSpace(_ bytes: Int, at path: String) throws(StorageError) {
    guard bytes >= smallestCheckedSize else { return }
    let free = try FileSystem.freeSpace(at: path)
    guard bytes > free else { return }
    throw StorageError(
      .diskFull, operation: "requireFreeSpace", path: path,
      reason: "\(ByteCount(bytes)) is needed, but only \(ByteCount(free)) is free",
      remedy: "Free some space or raise the quota, then try again.")
  }

  /// Whether there is a directory; false if the folder itself has not been created yet.
  private func isDirectory(_ item: ConfinedPath, _ path: String) throws(StorageError) -> Bool {
    guard let status = try item.status() else {
      if path.isEmpty { return false }
      throw StorageError(
        .notFound, operation: "list", path: item.path, reason: "there is no such folder",
        remedy: "Check the path.")
    }
    if status.isDirectory { return true }
    if status.isSymbolicLink { throw item.symbolicLinkError }
    throw Self.notADirectory(item)
  }
}
