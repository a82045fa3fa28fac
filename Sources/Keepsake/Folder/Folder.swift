public import FoundationEssentials

/// A folder of the app's own files.
///
/// ```swift
/// try Folder.documents.save(user, as: "users/1.json")
/// let user: User = try Folder.documents.load("users/1.json")
/// ```
///
/// Names are seen from the folder and may have subfolders, which are made as needed. No name leads
/// out of it: one that is absolute or has a `..` in it is an error, as is one with a symbolic link
/// on its way.
///
/// All calls throw a ``StorageError``, which names the path and says what to do, and may be made
/// from any thread. A file is replaced in one step: whoever reads it, or a crash, finds the old
/// contents or the new ones whole. In ``documents``, ``applicationSupport`` and a folder of one's
/// own, what a call has done survives a power cut once it returns; in ``caches`` and ``temporary``
/// it does not wait for the disk.
///
/// Folders and files are for their user alone (0700, 0600); below a folder of one's own their modes
/// follow that folder's.
public struct Folder: Hashable, Sendable {
  enum Base: Hashable, Sendable {
    case documents, applicationSupport, caches, temporary
    case own(path: String)
    /// A URL that is not a file's: every call says so.
    case unusable(url: String)
  }

  let base: Base
  /// The path of this folder relative to its base; empty for the base itself.
  private let subpath: String

  private init(_ base: Base, _ subpath: String = "") {
    self.base = base
    self.subpath = subpath
  }

  /// Documents that the app makes for its user: a folder named as the app, in the user's folder for
  /// documents (`user-dirs.dirs(5)`; `~/Documents` where that says nothing).
  public static let documents = Folder(.documents)

  /// Files that the app needs and its user does not look at: `files` beside the app's secrets, by
  /// default `~/.local/share/<app>/files`.
  public static let applicationSupport = Folder(.applicationSupport)

  /// Files that can be made again, beside the app's caches: by default `~/.cache/<app>/files`.
  public static let caches = Folder(.caches)

  /// Files for a short time: in `$TMPDIR` or `/tmp`, below a folder that no other user can write
  /// to. The system removes them some time.
  public static let temporary = Folder(.temporary)

  /// A folder of one's own, which is made with its first file unless it is there.
  ///
  /// ```swift
  /// let inbox = Folder(URL(filePath: "/srv/notes/inbox"))
  /// ```
  public init(_ url: URL) {
    let path = try? DirectoryFinder.path(of: url, operation: "open")
    self.init(path.map { .own(path: $0) } ?? .unusable(url: url.absoluteString))
  }

  /// A folder below this one, made with its first file.
  ///
  /// ```swift
  /// let exports = Folder.documents.subfolder("exports")
  /// ```
  public func subfolder(_ path: String) -> Folder {
    var path = path
    // As `list` gives them; a slash alone is no name, and stays an error.
    if path.utf8.count > 1, path.utf8.last == UInt8(ascii: "/") {
      path = String(Substring(path.utf8.dropLast()))
    }
    return Folder(base, subpath.isEmpty || path.isEmpty ? subpath + path : subpath + "/" + path)
  }

  /// Where something is, or would be: nothing has to be there.
  ///
  /// For other libraries; what they do there is not kept from following symbolic links.
  ///
  /// - Throws: ``StorageError`` for a name that leads out of the folder, or when there is no place
  ///   for the folder, as without a home.
  public func url(_ path: String = "") throws(StorageError) -> URL {
    try during("url", path) { site throws(StorageError) in URL(filePath: site.path) }
  }

  /// Makes the folder unless it is there, for what wants one to exist.
  ///
  /// ```swift
  /// let database = try Folder.applicationSupport.create().appending(path: "notes.sqlite")
  /// ```
  ///
  /// - Returns: Where it is.
  @discardableResult
  public func create() throws(StorageError) -> URL {
    try during("create", "") { site throws(StorageError) in
      _ = try makeDirectory(site)
      return URL(filePath: site.path)
    }
  }
}

// MARK: - What the calls share

extension Folder {
  /// Whether a call waits until what it has done survives a power cut.
  var isDurable: Bool {
    switch base {
    case .documents, .applicationSupport, .own, .unusable: true
    case .caches, .temporary: false
    }
  }

  /// Runs one call, with errors that say which it was.
  func during<R>(
    _ operation: String, _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    do throws(StorageError) {
      return try body()
    } catch {
      throw error.inContext(of: operation)
    }
  }

  /// The same for a call on what `path` names.
  func during<R>(
    _ operation: String, _ path: String, _ body: (ConfinedPath) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    try during(operation) { () throws(StorageError) in try body(confinedPath(path)) }
  }

  /// The place that `path` names; the folder itself where it is empty.
  func confinedPath(_ path: String) throws(StorageError) -> ConfinedPath {
    let root = try root()
    let subpath = [subpath, path].filter { !$0.isEmpty }.joined(separator: "/")
    if subpath.isEmpty { return ConfinedPath(base: root) }
    guard
      !subpath.utf8.split(separator: UInt8(ascii: "/"))
        .contains(where: { AbandonedFiles.isReserved(String(Substring($0))) })
    else {
      throw StorageError(
        .misuse, operation: "open", key: path, path: root,
        reason: "names that start with \(AbandonedFiles.reservedPrefix) are the library's own",
        remedy: "Use another name.")
    }
    return try ConfinedPath(subpath, in: root)
  }

  /// The place of something that is going to be there.
  func target(_ path: String) throws(StorageError) -> ConfinedPath {
    let site = try confinedPath(path)
    guard !path.isEmpty, !site.isBase else {
      throw StorageError(
        .misuse, operation: "open", path: site.path, reason: "it is the directory itself",
        remedy: "Name a place in it.")
    }
    return site
  }

  private func root() throws(StorageError) -> String {
    if case .own(let path) = base { return path }
    let scope = StorageScope.current
    let root = try scope.path(of: base)
    if case .temporary = base { try scope.finder.requirePrivate(FileSystem.parent(of: root)) }
    return root
  }

  /// The mode of folders; without its execute bits that of files.
  func directoryMode() throws(StorageError) -> UInt32 {
    guard case .own(let path) = base else { return 0o700 }
    // Where everybody may put files, as in /tmp, nobody's are everybody's.
    if let status = try FileSystem.status(path), status.mode & 0o1002 == 0o1002 { return 0o700 }
    return try StoreDirectory(path: path, isCallerOwned: true).directoryMode()
  }

  func fileMode() throws(StorageError) -> UInt32 { try directoryMode() & 0o666 }

  /// The folder at a place, made where it is missing.
  func makeDirectory(_ site: ConfinedPath) throws(StorageError) -> DirectoryHandle {
    switch base {
    case .temporary: try StorageScope.current.finder.makeTemporaryDirectory()
    case .documents where try FileSystem.status(site.base) == nil:
      let (directory, isNew) = try ConfinedPath(base: site.base)
        .makeDirectory(mode: directoryMode(), durable: isDurable)
      // Says that nothing but the app's own files is in it: a user may have a directory of that
      // name.
      if isNew { _ = try File(Self.markOfOwn, in: directory, .createOrOpen) }
    default: break
    }
    let (directory, isNew) = try site.makeDirectory(mode: directoryMode(), durable: isDurable)
    // Another process may have made it just now, and not come to this yet.
    if isDurable, isNew || Self.synchronized.withLock({ !$0.contains(site.path) }) {
      try site.synchronizeAncestors()
      Self.synchronized.withLock { known in
        if known.count > 10_000 { known = [] }
        known.insert(site.path)
      }
    }
    AbandonedFiles.sweepOnce(directory)
    return directory
  }

  /// Those whose names are known to survive a power cut.
  private static let synchronized = Locked<Set<String>>([])
  static let markOfOwn = AbandonedFiles.reservedPrefix + "own"

  /// A file that is going to be at a place.
  func newFile(_ site: ConfinedPath) throws(StorageError) -> NewFile {
    var attempts = 0
    while true {
      do throws(StorageError) {
        return try NewFile(site.name, in: makeDirectory(site.parent), mode: fileMode())
      } catch  where error.code == .notFound && attempts < 10 {
        // Somebody removed the directory just now.
        attempts += 1
      }
    }
  }

  /// The place of a file that is going to be there.
  func fileTarget(_ path: String) throws(StorageError) -> ConfinedPath {
    let site = try target(path)
    guard path.utf8.last != UInt8(ascii: "/") else {
      throw StorageError(
        .misuse, operation: "open", path: site.path,
        reason: "the name ends in a slash, as a directory's",
        remedy: "Name a file.")
    }
    return site
  }
}
