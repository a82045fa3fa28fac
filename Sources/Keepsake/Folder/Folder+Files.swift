internal import FoundationEssentials

extension Folder {
  /// Saves a value as a file: `Data` as its bytes, a `String` as UTF-8, any other `Codable` value
  /// as indented JSON with sorted keys.
  ///
  /// ```swift
  /// try Folder.documents.save(user, as: "users/1.json")
  /// try Folder.caches.save(png, as: "avatars/ann.png")
  /// ```
  ///
  /// An existing file of that name is replaced.
  ///
  /// - Throws: ``StorageError``. The old file is then intact, or the new one is complete and only
  ///   its last synchronization with the disk failed.
  // An overload, and not a default argument, so that a protocol of the app can require the call.
  public func save<T: Codable>(_ value: T, as path: String) throws(StorageError) {
    try save(value, as: path, replacing: true)
  }

  /// Saves a value as a file, and chooses whether an existing file of that name is replaced.
  ///
  /// ```swift
  /// do {
  ///   try Folder.documents.save(draft, as: "untitled.txt", replacing: false)
  /// } catch StorageError.Code.alreadyExists {
  ///   try Folder.documents.save(draft, as: "untitled 2.txt", replacing: false)
  /// }
  /// ```
  ///
  /// If several threads and processes save a file of one name at the same time without
  /// `replacing`, exactly one succeeds.
  ///
  /// - Parameters:
  ///   - value: The value to save, like ``save(_:as:)``.
  ///   - path: The path of the file.
  ///   - replacing: Whether an existing file is replaced.
  /// - Throws: What ``save(_:as:)`` throws; without `replacing`, a ``StorageError`` of code
  ///   `alreadyExists` if there is a file, a folder or a symbolic link of that name.
  public func save<T: Codable>(
    _ value: T, as path: String, replacing: Bool
  ) throws(StorageError) {
    try perform("save") { () throws(StorageError) in
      let file = try targetFilePath(path)
      let bytes: Data
      do throws(StorageError) {
        bytes = try DocumentCodec.encode(value)
      } catch {
        throw error.inContext(of: "save", path: file.path)
      }
      try write(bytes, to: file, durable: isDurable, replacing: replacing)
    }
  }

  func write(
    _ bytes: Data, to path: ConfinedPath, durable: Bool, replacing: Bool = true
  ) throws(StorageError) {
    if bytes.count >= Self.smallestCheckedSize { try requireFreeSpace(bytes.count) }
    let file = try makeFile(path, replacing: replacing)
    try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in try file.append(bytes) }
    try file.finish(durable: durable)
  }

  /// Loads the value of a file: its bytes as `Data`, its text as a `String`, any other type from
  /// JSON.
  ///
  /// ```swift
  /// let user: User = try Folder.documents.load("users/1.json")
  /// let draft: Draft? = try Folder.documents.load("draft.json")   // nil if there is none
  /// ```
  ///
  /// - Throws: ``StorageError``: `notFound` if there is no file and `T` is not optional,
  ///   `wrongType` or `decodingFailed` if the file does not contain a `T`.
  public func load<T: Codable>(
    _ path: String, type: T.Type = T.self
  ) throws(StorageError) -> T {
    try perform("load", path) { path throws(StorageError) in
      let bytes: Data
      do throws(StorageError) {
        let file = try File(path)
        guard try file.status().isRegularFile else { throw Self.notAFile(path.path) }
        bytes = try file.contents()
      } catch  where error.code == .notFound || error.code == .notDirectory {
        // Not ExpressibleByNilLiteral, to which a type for any JSON value may conform too.
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
        throw error.inContext(of: "load", path: path.path)
      }
    }
  }

  /// Deletes a file, or a folder and everything in it. Does nothing if it does not exist.
  public func delete(_ path: String) throws(StorageError) {
    try perform("delete", path) { item throws(StorageError) in
      guard !item.isBase, !path.isEmpty else {
        throw StorageError(
          .misuse, operation: "delete", path: item.path, reason: "the path names the folder itself",
          remedy: "Call clear to delete everything in it.")
      }
      guard let status = try item.status() else { return }
      let parent = try DirectoryHandle(item.parent)
      if status.isDirectory {
        try item.removeTree()
      } else {
        try FileSystem.unlink(item.name, in: parent)
      }
      if isDurable { try parent.synchronize() }
    }
  }

  /// Whether a file or folder exists. A symbolic link counts, wherever it leads.
  ///
  /// Costs one system call, in ``temporary`` two.
  public func exists(_ path: String) throws(StorageError) -> Bool {
    try perform("exists", path) { item throws(StorageError) in try item.exists() }
  }

  /// The size of a file in bytes.
  ///
  /// - Throws: ``StorageError``: `notFound` if there is no file, `misuse` if it is a folder, whose
  ///   size ``totalSize(_:)`` returns.
  public func size(_ path: String) throws(StorageError) -> Int {
    try perform("size", path) { file throws(StorageError) in
      let status = try Self.existingStatus(file)
      guard status.isRegularFile else { throw Self.notAFile(file.path) }
      return status.size
    }
  }

  static func existingStatus(_ path: ConfinedPath) throws(StorageError) -> FileStatus {
    if let status = try path.status(withTimes: true) { return status }
    throw StorageError(
      .notFound, operation: "stat", path: path.path, reason: "there is no such file or folder",
      remedy: "Check the path, or save the file first.")
  }
}
