internal import FoundationEssentials

extension StorageEngines {
  /// An engine that stores each value of a suite in a separate file in a folder, for users and
  /// programs that read single values or edit them by hand.
  ///
  /// ```swift
  /// try StorageSystem.bootstrap(
  ///   app: "com.example.notes",
  ///   engines: ["themes": StorageEngines.files(in: .applicationSupport.subfolder("themes"))])
  /// Defaults.set("dark", forKey: "name", suite: "themes")     // themes/name.json holds "dark"
  /// ```
  ///
  /// The name of a file is its key, with characters that a file name cannot hold escaped as `%XX`,
  /// and `.json`. The first parts of a long key become names of directories. A file that was edited
  /// by hand takes effect with the next read. Each read opens a file; if that is too slow, use the
  /// journal, whose values are in memory.
  ///
  /// Calls may come from any thread and any process. When a set returns, the value survives the end
  /// of the process, however it ends. It also survives a power cut if the ``Folder`` is durable,
  /// and otherwise after `synchronize()`. Other files in the directory are left alone. If the file
  /// system ignores the case of names, keys do too.
  ///
  /// - Parameter folder: The folder for the files. No other engine may use it.
  public static func files(in folder: Folder) -> some Engine { FileEngine(folder) }
}

/// See ``StorageEngines/files(in:)``.
final class FileEngine: StorageEngines.Engine {
  let directory: Folder
  /// The paths of directories in which changes have been watched.
  private let watchedPaths = Locked<Set<String>>([])
  private let timeout = Duration.seconds(10)

  init(_ folder: Folder) { self.directory = folder }

  /// The contents of a key's file; nil if there is none.
  func data(forKey key: String) throws -> Data? {
    try directory.load(Self.path(of: key))
  }

  /// Writes a key's file; nil deletes it.
  func set(_ data: Data?, forKey key: String) throws {
    try exclusively { () throws(StorageError) in try put(data, key) }
  }

  /// Writes a key's file if its current contents are `old`; nil stands for no file.
  func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool {
    try apply(
      [StorageEngines.Entry(key: key, data: new)],
      ifCurrent: [StorageEngines.Entry(key: key, data: old)])
  }

  /// Writes the files of several keys, if every file of `conditions` has the contents that it has
  /// there.
  ///
  /// A reader may see the first files before the others. If the call fails halfway, the first ones
  /// are written. Under conditions, no other thread or process writes in the meantime.
  func apply(
    _ changes: [StorageEngines.Entry], ifCurrent conditions: [StorageEngines.Entry]
  ) throws -> Bool {
    if conditions.isEmpty {
      // Other writers do not wait for all of them.
      for change in changes { try set(change.data, forKey: change.key) }
      return true
    }
    return try exclusively { () throws(StorageError) in
      for condition in conditions {
        let current: Data? = try directory.load(Self.path(of: condition.key))
        guard current == condition.data else { return false }
      }
      for change in changes { try put(change.data, change.key) }
      return true
    }
  }

  /// The keys of all files that have the name of a key. Does not enter directories of other names.
  func keys() throws(StorageError) -> [String] {
    let root = try directory.confinedPath("")
    var keys: [String] = []
    func mayContainKeys(_ name: String?) -> Bool {
      guard let name else { return false }
      return name.hasSuffix(Self.suffix) || name.hasSuffix(Self.continuation)
    }
    try root.walk(entering: mayContainKeys) { visit throws(StorageError) in
      let path = String(Substring(visit.path.path.utf8.dropFirst(root.path.utf8.count + 1)))
      if visit.kind == .file, let key = Self.key(of: path) { keys.append(key) }
    }
    return keys
  }

  /// Deletes the files of all keys. Those that cannot be deleted do not keep the others.
  func removeAll() throws {
    try exclusively { () throws(StorageError) in
      var failure: StorageError?
      for key in try keys() {
        do throws(StorageError) { try put(nil, key) } catch { failure = failure ?? error }
      }
      if let failure { throw failure }
    }
  }

  /// Returns when all files survive a power cut.
  func synchronize() throws {
    let root = try directory.confinedPath("")
    guard let status = try root.status() else { return }
    try root.synchronizeContents(status)
    try root.synchronizeAncestors()
  }

  /// A stream with an element after each change of a file, made by any process.
  func changes() throws -> AsyncStream<Void>? {
    let root = try directory.confinedPath("")
    // Do not bring back a directory that was watched before: it may be being removed.
    let isFirst = watchedPaths.withLock { $0.insert(root.path).inserted }
    if !isFirst, try root.status() == nil { return nil }
    // Makes the lock file. It is touched after each change, because the files of long keys are in
    // subdirectories, which are not watched.
    try exclusively { () throws(StorageError) in }
    let (stream, continuation) = AsyncStream.makeStream(
      of: Void.self, bufferingPolicy: .bufferingNewest(1))
    let handler: FileWatcher.Handler = { event in
      continuation.yield()
      if event == .gone { continuation.finish() }
    }
    let watches = [
      FileWatcher.shared.watch(.names, of: root.path, handler: handler),
      FileWatcher.shared.watch(.contents, of: Self.lock(of: root).path, handler: handler),
    ]
    continuation.onTermination = { _ in withExtendedLifetime(watches) {} }
    return stream
  }

  // MARK: Files

  private func put(_ data: Data?, _ key: String) throws(StorageError) {
    let path = try Self.path(of: key)
    guard let data else {
      try directory.delete(path)
      // Remove the directories of a long key if no other key uses them.
      var parent = try directory.confinedPath(path).parent
      let root = try directory.confinedPath("")
      while parent.subpath != root.subpath, try parent.removeEmptyDirectory() {
        parent = parent.parent
      }
      return
    }
    try directory.write(data, to: directory.targetFilePath(path), durable: directory.isDurable)
  }

  /// Runs `body` while no other thread or process writes.
  private func exclusively<R>(
    _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let root = try directory.confinedPath("")
    _ = try directory.makeDirectory(root)
    let lock = Self.lock(of: root).path
    let held = try ByteRangeLock(lock).lock(
      ByteRangeLock.allBytes, mode: directory.fileMode(), Wait(timeout: timeout))
    defer {
      // Signals the changes, even if only some of them were made. If that fails, they have still
      // succeeded.
      try? FileSystem.touch(lock)
      held.unlock()
    }
    return try body()
  }

  private static func lock(of root: ConfinedPath) -> ConfinedPath {
    root.appending(AbandonedFiles.reservedPrefix + "engine.lock")
  }

  private static let suffix = ".json"
  /// Marks the parts of a long key, at the end of a directory's name and at the start of a name in
  /// it. No escaped key contains it.
  private static let continuation = "+"
  private static let separator = continuation + "/" + continuation

  /// The subpath of a key's file.
  private static func path(of key: String) throws(StorageError) -> String {
    var rest = FileName.escape(key)[...]
    guard rest.count <= 3_000 else {
      throw StorageError(
        .misuse, operation: "open", key: key, reason: "the key is too long for a file name",
        remedy: "Use a key of at most 1,000 bytes.")
    }
    var path: [UInt8] = []
    while rest.count > FileName.maximumLength {
      path += rest.prefix(FileName.maximumLength) + separator.utf8
      rest = rest.dropFirst(FileName.maximumLength)
    }
    return String(decoding: path + rest, as: UTF8.self) + suffix
  }

  /// The key of a file; nil if ``path(of:)`` returns this path for no key.
  private static func key(of path: String) -> String? {
    guard path.hasSuffix(suffix),
      let key = FileName.decode(String(path.dropLast(suffix.count).replacing(separator, with: ""))),
      (try? Self.path(of: key)) == path
    else { return nil }
    return key
  }
}
