public import FoundationEssentials

/// Keeps each value of a suite as a file of its own in a ``Folder``, for people and programs that
/// want to look at single values or edit them by hand.
///
/// ```swift
/// try StorageSystem.bootstrap(
///   app: "com.example.notes",
///   engines: ["themes": FileEngine(.applicationSupport.subfolder("themes"))])
/// Defaults.set("dark", forKey: "name", suite: "themes")     // themes/name.json holds "dark"
/// ```
///
/// A file is named as its key, with characters that a file name cannot hold escaped as `%XX`, and
/// `.json`; of a long key, the first parts are names of directories. A file that is changed by hand
/// counts from the next read on. Each read is one of a file: where that is too slow stay with the
/// journal, which is in memory.
///
/// Calls may come from any thread and any process. A set survives the end of the process, however
/// it ends, once it returns; a power cut too, in a directory where ``Folder`` says so, and
/// otherwise after `synchronize()`. Other files in the directory are left alone. On a file system
/// that ignores case, so do keys.
public final class FileEngine: StorageEngine {
  private let directory: Folder
  /// The paths of directories that somebody has looked for changes of.
  private let watched = Locked<Set<String>>([])
  private let timeout = Duration.seconds(10)

  /// An engine with its files in a directory, which no other engine must use.
  public init(_ folder: Folder) { self.directory = folder }

  /// The contents of a key's file; nil when there is none.
  public func data(forKey key: String) throws -> Data? {
    try directory.load(Self.path(of: key))
  }

  /// Writes a key's file; nil deletes it.
  public func set(_ data: Data?, forKey key: String) throws {
    try exclusively { () throws(StorageError) in try put(data, key) }
  }

  /// Writes a key's file if what it holds is still `old`; nil stands for no file.
  public func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool {
    try exclusively { () throws(StorageError) in
      let current: Data? = try directory.load(Self.path(of: key))
      guard current == old else { return false }
      try put(new, key)
      return true
    }
  }

  /// The keys of all files that are named as this engine names them.
  public func keys() throws -> [String] { try files().map(\.key) }

  /// Deletes the files of all keys.
  public func removeAll() throws {
    try exclusively { () throws(StorageError) in
      for file in try files() { try directory.delete(file.path) }
    }
  }

  /// Returns when all files survive a power cut.
  public func synchronize() throws {
    let site = try directory.confinedPath("")
    guard let status = try site.status() else { return }
    try site.synchronizeContents(status)
    try site.synchronizeAncestors()
  }

  /// A stream with an element after each change of a file, whoever made it.
  public func changes() throws -> AsyncStream<Void>? {
    let site = try directory.confinedPath("")
    // One that is gone is not brought back by looking: it may be one that is being removed.
    let isFirst = watched.withLock { $0.insert(site.path).inserted }
    if !isFirst, try site.status() == nil { return nil }
    // Files of long keys lie in directories below, and show in the lock file, which is touched for
    // each.
    try exclusively { () throws(StorageError) in }
    let (stream, continuation) = AsyncStream.makeStream(
      of: Void.self, bufferingPolicy: .bufferingNewest(1))
    let notice: FileWatcher.Handler = { event in
      continuation.yield()
      if event == .gone { continuation.finish() }
    }
    let watches = [
      FileWatcher.shared.watch(.names, of: site.path, handler: notice),
      FileWatcher.shared.watch(.contents, of: Self.lock(of: site).path, handler: notice),
    ]
    continuation.onTermination = { _ in withExtendedLifetime(watches) {} }
    return stream
  }

  // MARK: Files

  private func put(_ data: Data?, _ key: String) throws(StorageError) {
    let path = try Self.path(of: key)
    guard let data else {
      try directory.delete(path)
      // Those of the first parts of a long key, as far as no other key has them.
      var site = try directory.confinedPath(path).parent
      let root = try directory.confinedPath("")
      while site.subpath != root.subpath, try site.removeEmptyDirectory() { site = site.parent }
      return
    }
    try directory.write(data, to: directory.targetFilePath(path), durable: directory.isDurable)
  }

  /// Runs `body` while no other thread or process writes.
  private func exclusively<R>(
    _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let site = try directory.confinedPath("")
    _ = try directory.makeDirectory(site)
    let lock = Self.lock(of: site).path
    return try ByteRangeLock.withLock(
      ByteRangeLock.allBytes, of: lock, mode: directory.fileMode(), timeout: timeout
    ) { () throws(StorageError) in
      let result = try body()
      // Tells those who wait for changes; what is done by now has not failed when that does.
      _ = try? FileSystem.touch(lock)
      return result
    }
  }

  private static func lock(of site: ConfinedPath) -> ConfinedPath {
    site.appending(AbandonedFiles.reservedPrefix + "engine.lock")
  }

  /// The files of keys, by their paths as seen from the directory; no other directory is looked
  /// into.
  private func files() throws(StorageError) -> [(path: String, key: String)] {
    let site = try directory.confinedPath("")
    var files: [(String, String)] = []
    func isOurs(_ name: String?) -> Bool {
      guard let name else { return false }
      return name.hasSuffix(Self.suffix) || name.hasSuffix(Self.continued)
    }
    try site.walk(entering: isOurs) { visit throws(StorageError) in
      let path = String(Substring(visit.path.path.utf8.dropFirst(site.path.utf8.count + 1)))
      if visit.kind == .file, let key = Self.key(of: path) { files.append((path, key)) }
    }
    return files
  }

  private static let suffix = ".json"
  /// Where the name of a long key is cut: at the end of a directory's name and at the start of what
  /// is in it. No escaped key has it.
  private static let continued = "+"
  private static let cut = continued + "/" + continued

  /// The file of a key, as seen from the directory.
  private static func path(of key: String) throws(StorageError) -> String {
    var rest = FileName.escape(key)[...]
    guard rest.count <= 3_000 else {
      throw StorageError(
        .misuse, operation: "open", key: key, reason: "the key is too long for the name of a file",
        remedy: "Use a key of at most 1,000 bytes.")
    }
    var path: [UInt8] = []
    while rest.count > FileName.maximumLength {
      path += rest.prefix(FileName.maximumLength) + cut.utf8
      rest = rest.dropFirst(FileName.maximumLength)
    }
    return String(decoding: path + rest, as: UTF8.self) + suffix
  }

  /// The key of a file; nil for one that ``path(of:)`` does not make.
  private static func key(of path: String) -> String? {
    guard path.hasSuffix(suffix),
      let key = FileName.decode(String(path.dropLast(suffix.count).replacing(cut, with: ""))),
      (try? Self.path(of: key)) == path
    else { return nil }
    return key
  }
}
