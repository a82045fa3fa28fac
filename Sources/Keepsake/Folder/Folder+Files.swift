internal import FoundationEssentials
internal import KeepsakeLibc

extension Folder {
  /// Saves a value as a file: `Data` as its bytes, text as UTF-8, any other `Codable` value as
  /// indented JSON with sorted keys.
  ///
  /// ```swift
  /// try Folder.documents.save(user, as: "users/1.json")
  /// try Folder.caches.save(png, as: "avatars/ann.png")
  /// ```
  ///
  /// A file of that name is replaced.
  ///
  /// - Throws: ``StorageError``; the old file is intact then, or the new one is whole and only its
  ///   last sync failed.
  public func save<T: Codable>(_ value: T, as path: String) throws(StorageError) {
    try during("save") { () throws(StorageError) in
      let site = try fileTarget(path)
      let bytes: Data
      do throws(StorageError) {
        bytes = try DocumentCodec.encode(value)
      } catch {
        throw error.inContext(of: "save", path: site.path)
      }
      try write(bytes, to: site, durable: isDurable)
    }
  }

  func write(_ bytes: Data, to site: ConfinedPath, durable: Bool) throws(StorageError) {
    try requireFreeSpace(bytes.count)
    let file = try newFile(site)
    try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in try file.append(bytes) }
    try file.finish(durable: durable)
  }

  /// The value that a file holds: its bytes as `Data`, its text as a `String`, any other type from
  /// JSON.
  ///
  /// ```swift
  /// let user: User = try Folder.documents.load("users/1.json")
  /// let draft: Draft? = try Folder.documents.load("draft.json")   // nil when there is none
  /// ```
  ///
  /// - Throws: ``StorageError`` of code `notFound` when there is no file, unless `T` is optional,
  ///   and of `wrongType` or `decodingFailed` when it does not hold a `T`.
  public func load<T: Codable>(
    _ path: String, type: T.Type = T.self
  ) throws(StorageError) -> T {
    try during("load", path) { site throws(StorageError) in
      let bytes: Data
      do throws(StorageError) {
        let file = try File(site)
        guard try file.status().isRegularFile else { throw Self.notAFile(site) }
        bytes = try file.contents()
      } catch  where error.code == .notFound || error.code.systemError == ENOTDIR {
        // Other types can be made of nil too, such as one for any JSON.
        if let type = T.self as? any AnyOptional.Type,
          let none = type.init(nilLiteral: ()) as? T
        {
          return none
        }
        throw error
      }
      do throws(StorageError) {
        return try DocumentCodec.decode(bytes)
      } catch {
        throw error.inContext(of: "load", path: site.path)
      }
    }
  }

  /// Deletes a file, or a folder with all that is in it; nothing happens when nothing is there.
  public func delete(_ path: String) throws(StorageError) {
    try during("delete", path) { site throws(StorageError) in
      guard !site.isBase, !path.isEmpty else {
        throw StorageError(
          .misuse, operation: "delete", path: site.path, reason: "it is the directory itself",
          remedy: "Use clear to delete all that is in it.")
      }
      guard let status = try site.status() else { return }
      let parent = try DirectoryHandle(site.parent)
      if status.isDirectory {
        try site.removeTree()
      } else {
        try FileSystem.unlink(site.name, in: parent)
      }
      if isDurable { try parent.synchronize() }
    }
  }

  /// Whether a file or a folder is there.
  ///
  /// Costs one look-up, in ``temporary`` two. A symbolic link is there itself, wherever it leads.
  public func exists(_ path: String) throws(StorageError) -> Bool {
    try during("exists", path) { site throws(StorageError) in try site.exists() }
  }

  /// How many bytes a file holds.
  ///
  /// - Throws: ``StorageError`` of code `notFound` when there is none, of `misuse` when it is no
  ///   file: see ``totalSize(_:)``.
  public func size(_ path: String) throws(StorageError) -> Int {
    try during("size", path) { site throws(StorageError) in
      let status = try Self.statusOfSomething(site)
      guard status.isRegularFile else { throw Self.notAFile(site) }
      return status.size
    }
  }

  static func statusOfSomething(_ site: ConfinedPath) throws(StorageError) -> FileStatus {
    if let status = try site.status(withTimes: true) { return status }
    throw StorageError(
      .notFound, operation: "stat", path: site.path, remedy: "Check the name, or save it first.")
  }

  static func notAFile(_ site: ConfinedPath) -> StorageError {
    StorageError(
      .misuse, operation: "open", path: site.path,
      reason: "a directory or another thing that is no file stands there",
      remedy: "Name a file.")
  }
}
