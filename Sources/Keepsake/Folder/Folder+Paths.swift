extension Folder {
  /// Whether calls wait until their effect survives a power cut.
  var isDurable: Bool {
    switch base {
    case .documents, .applicationSupport, .own, .unusable: true
    case .caches, .temporary: false
    }
  }

  /// Runs one call of the folder. Errors name the call.
  func perform<R>(
    _ operation: String, _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    do throws(StorageError) {
      return try body()
    } catch {
      throw error.inContext(of: operation)
    }
  }

  /// Runs one call on the file or directory at `path`; the folder itself if `path` is empty.
  func perform<R>(
    _ operation: String, _ path: String, _ body: (ConfinedPath) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    try perform(operation) { () throws(StorageError) in try body(confinedPath(path)) }
  }

  // MARK: Paths

  /// The path of a file or directory; the folder itself if `path` is empty.
  func confinedPath(_ path: String) throws(StorageError) -> ConfinedPath {
    let base = try basePath()
    let parent = self.subpath
    let subpath = parent.isEmpty ? path : path.isEmpty ? parent : parent + "/" + path
    if subpath.isEmpty { return ConfinedPath(base: base) }
    if AbandonedFiles.hasReservedName(subpath) {
      throw StorageError(
        .misuse, operation: "open", key: path, path: base,
        reason: "names that start with \(AbandonedFiles.reservedPrefix) are reserved",
        remedy: "Use another name.")
    }
    return try ConfinedPath(subpath, in: base)
  }

  /// The path of a file or directory that a call is about to create.
  func targetPath(_ path: String) throws(StorageError) -> ConfinedPath {
    let target = try confinedPath(path)
    guard !path.isEmpty, !target.isBase else {
      throw StorageError(
        .misuse, operation: "open", path: target.path, reason: "the path names the folder itself",
        remedy: "Pass the path of a file or folder in it.")
    }
    return target
  }

  /// The path of a file that a call is about to create.
  func targetFilePath(_ path: String) throws(StorageError) -> ConfinedPath {
    let target = try targetPath(path)
    guard path.utf8.last != UInt8(ascii: "/") else {
      throw StorageError(
        .misuse, operation: "open", path: target.path,
        reason: "a path with a trailing slash names a folder",
        remedy: "Pass the path of a file.")
    }
    return target
  }

  private func basePath() throws(StorageError) -> String {
    if case .own(let path) = base { return path.text }
    let scope = StorageScope.current
    let path = try scope.path(of: base)
    if case .temporary = base { try scope.finder.requirePrivate(FileSystem.parent(of: path)) }
    return path
  }

  // MARK: Modes

  /// The mode for directories; files take it without the execute bits.
  @inline(never)
  func directoryMode() throws(StorageError) -> UInt32 {
    guard case .own(let path) = base else { return 0o700 }
    // In a directory like /tmp, where all users may create files, each user's files are private.
    if let status = try FileSystem.status(path.text), status.mode & 0o1002 == 0o1002 {
      return 0o700
    }
    return try StoreDirectory(path: path.text, isCallerOwned: true).directoryMode()
  }

  func fileMode() throws(StorageError) -> UInt32 { try directoryMode() & 0o666 }

  // MARK: Creating files and directories

  /// Opens a directory, and creates it if it is missing.
  ///
  /// - Parameter durable: Whether the names of the base directory and of its parents must survive
  ///   a power cut if they are new, also in a folder that is not durable.
  func makeDirectory(
    _ path: ConfinedPath, durable: Bool = false
  ) throws(StorageError) -> DirectoryHandle {
    let durable = durable || isDurable
    switch base {
    case .temporary: try StorageScope.current.finder.makeTemporaryDirectory()
    case .documents where try FileSystem.status(path.base) == nil:
      let base = ConfinedPath(base: path.base)
      let (directory, isNew) = try base.makeDirectory(mode: directoryMode(), durable: durable)
      do throws(StorageError) {
        // The user may have a directory of this name already. The marker says that the app created
        // it.
        if isNew { _ = try File(Self.ownershipMarker, in: directory, .createOrOpen) }
      } catch {
        // The next call creates both.
        _ = try? base.removeEmptyDirectory()
        throw error
      }
    default: break
    }
    let (directory, isNew) = try path.makeDirectory(mode: directoryMode(), durable: durable)
    // Another process may have just created it, but not synchronized it yet.
    if isDurable, isNew || Self.synchronizedPaths.withLock({ $0[directory.path] == nil }) {
      try path.synchronizeAncestors()
      Self.synchronizedPaths.withLock { known in
        if known.count > 10_000 { known = ByteKeyedDictionary() }
        known.set(directory.path, ())
      }
    }
    AbandonedFiles.sweepIfDue(directory)
    return directory
  }

  /// The directories whose names are known to survive a power cut.
  private static let synchronizedPaths = Locked(ByteKeyedDictionary<Void>())
  static let ownershipMarker = AbandonedFiles.reservedPrefix + "own"

  func makeFile(
    _ path: ConfinedPath, replacing: Bool = true
  ) throws(StorageError) -> NewFile {
    var attempts = 0
    while true {
      do throws(StorageError) {
        return try NewFile(
          path.name, in: makeDirectory(path.parent), mode: fileMode(), replaces: replacing)
      } catch  where error.code == .notFound && attempts < 10 {
        // Another process removed the directory just now.
        attempts += 1
      }
    }
  }

  // MARK: Errors

  /// Throws if a file may not replace what has this status: a symbolic link, or a socket.
  static func requireReplaceable(
    _ old: FileStatus?, at path: @autoclosure () -> String
  ) throws(StorageError) {
    if old?.isSymbolicLink == true { throw ConfinedPath.symbolicLinkError(at: path()) }
    if old?.kind == .other { throw notAFile(path()) }
  }

  static func notAFile(_ path: String) -> StorageError {
    StorageError(
      .misuse, operation: "open", path: path, reason: "the path does not name a file",
      remedy: "Pass the path of a file.")
  }

  static func notADirectory(_ path: ConfinedPath) -> StorageError {
    StorageError(
      .misuse, operation: "list", path: path.path, reason: "the path does not name a folder",
      remedy: "Pass the path of a folder.")
  }
}
