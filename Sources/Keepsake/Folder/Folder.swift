public import FoundationEssentials

/// A folder of the app's own files.
///
/// ```swift
/// try Folder.documents.save(user, as: "users/1.json")
/// let user: User = try Folder.documents.load("users/1.json")
/// ```
///
/// Paths are relative to the folder and may have subfolders, which are created as needed. No path
/// leads out of the folder: an absolute path, a path with `..` and a path through a symbolic link
/// are errors.
///
/// All calls throw a ``StorageError``, which names the path and says what to do. They can be made
/// from any thread. Files are replaced in one step, so a reader finds either the old or the new
/// contents whole, even after a crash. In ``documents``, ``applicationSupport`` and folders that
/// you choose, the effect of a call survives a power cut once the call returns. In ``caches`` and
/// ``temporary`` calls do not wait for the disk.
///
/// Only the user can access files and folders (0600, 0700). Below a folder that you choose they get
/// the permissions of that folder.
public struct Folder: Hashable, Sendable {
  enum Base: Hashable, Sendable {
    case documents, applicationSupport, caches, temporary
    case own(path: ExactString)
    /// A URL that is not a file URL, which every call reports.
    case unusable(url: String)
  }

  let base: Base
  private let exactSubpath: ExactString
  /// The path of this folder relative to its base; empty for the base itself.
  var subpath: String { exactSubpath.text }

  private init(_ base: Base, _ subpath: String = "") {
    self.base = base
    exactSubpath = ExactString(subpath)
  }

  /// Documents that the app creates for its user: a folder with the app's name in the user's
  /// documents folder (`user-dirs.dirs(5)`; by default `~/Documents`).
  public static let documents = Folder(.documents)

  /// Files that the app needs but its user does not open: the folder `files` beside the app's
  /// secrets, by default `~/.local/share/<app>/files`.
  public static let applicationSupport = Folder(.applicationSupport)

  /// Files that the app can create again: the folder `files` beside the app's caches, by default
  /// `~/.cache/<app>/files`.
  public static let caches = Folder(.caches)

  /// Short-lived files: in `$TMPDIR` or `/tmp`, below a folder that no other user can write to. The
  /// system may delete them.
  public static let temporary = Folder(.temporary)

  /// A folder that you choose. It is created with its first file if it does not exist.
  ///
  /// ```swift
  /// let inbox = Folder(URL(filePath: "/srv/notes/inbox"))
  /// ```
  public init(_ url: URL) {
    let path = try? DirectoryFinder.path(of: url, operation: "open")
    self.init(
      path.map { .own(path: ExactString($0)) } ?? .unusable(url: url.absoluteString))
  }

  /// A folder below this one. It is created with its first file.
  ///
  /// ```swift
  /// let exports = Folder.documents.subfolder("exports")
  /// ```
  public func subfolder(_ path: String) -> Folder {
    var path = path
    // `list` returns folders with a trailing slash. A slash alone is invalid, which calls report.
    if path.utf8.count > 1, path.utf8.last == UInt8(ascii: "/") {
      path = String(Substring(path.utf8.dropLast()))
    }
    return Folder(base, subpath.isEmpty || path.isEmpty ? subpath + path : subpath + "/" + path)
  }

  /// The URL of a file or folder, which need not exist.
  ///
  /// Meant for other libraries. Unlike the calls of `Folder`, they may follow symbolic links.
  ///
  /// - Throws: ``StorageError`` if the path leads out of the folder, or if there is no location for
  ///   the folder, as for a user without a home directory.
  public func url(_ path: String = "") throws(StorageError) -> URL {
    try perform("url", path) { item throws(StorageError) in URL(filePath: item.path) }
  }

  /// Creates the folder if it does not exist, for other libraries that need it to exist.
  ///
  /// ```swift
  /// let database = try Folder.applicationSupport.create().appending(path: "notes.sqlite")
  /// ```
  ///
  /// - Returns: The URL of the folder.
  @discardableResult
  public func create() throws(StorageError) -> URL {
    try perform("create", "") { directory throws(StorageError) in
      _ = try makeDirectory(directory)
      return URL(filePath: directory.path)
    }
  }
}
