/// Where a cache's files are: a directory of its own in the one that holds all, its lock file
/// beside it.
struct CachePaths: Sendable {
  let host: StoreDirectory
  let name: String

  var root: String { host.path + "/" + name }
  var lockPath: String { host.lockPath(for: name, suffix: ".ledger") }

  static let tagName = "CACHEDIR.TAG"
  /// The first 43 bytes make it a tag (Cache Directory Tagging Specification 0.6).
  private static let tagText = """
    Signature: 8a477f597d28d172789f06886806bc55
    # This file is a cache directory tag created by Keepsake.
    # Backups may leave this directory out: all of it can be made again.
    # See https://bford.info/cachedir/

    """

  /// nil when there is no cache yet.
  func openForReading(timeout: Duration) throws(StorageError) -> CacheSession? {
    guard let status = try FileSystem.status(root) else { return nil }
    let file = try LockFile.openExisting(lockPath, wordCount: CacheLedger.wordCount)
    let ledger = file.map { CacheLedger(file: $0, timeout: timeout) }
    return try open(ledger, mode: status.mode & 0o2777, waits: false, timeout: timeout)
  }

  func openForWriting(timeout: Duration) throws(StorageError) -> CacheSession {
    let mode = try host.createIfNeeded(durable: false)
    let isNew = try FileSystem.status(root) == nil
    if isNew { try FileSystem.createDirectory(root, mode: mode, durable: false) }
    let file = try LockFile.createOrOpen(
      lockPath, mode: mode & 0o666, timeout: timeout, wordCount: CacheLedger.wordCount
    ) {
      CacheLedger.initial(isEmpty: isNew)
    }
    let ledger = CacheLedger(file: file, timeout: timeout)
    // Somebody removed the directory and not the file beside it.
    if isNew, ledger.total > 0 || !ledger.isCounted { try ledger.distrust() }
    try ledger.checkClock()
    let tag = root + "/" + Self.tagName
    if try FileSystem.status(tag)?.size ?? 0 < Self.tagText.utf8.count {
      try FileSystem.replace(
        tag, with: Array(Self.tagText.utf8), mode: mode & 0o666, durable: false)
    }
    return try open(ledger, mode: mode, waits: true, timeout: timeout)
  }

  private func open(
    _ ledger: CacheLedger?, mode: UInt32, waits: Bool, timeout: Duration
  ) throws(StorageError) -> CacheSession {
    let (epoch, directory) = try openDirectory(ledger, waits: waits, timeout)
    let limits = try FileSystem.limits(at: root)
    let tag = try FileSystem.status(Self.tagName, in: directory)
    let lowercased = try FileSystem.status(Self.tagName.lowercased(), in: directory)
    let rules = EntryName.Rules(
      ignoresCase: tag.flatMap { tag in lowercased.map { $0.isSameFile(as: tag) } } ?? false,
      longestName: limits.nameLength - Sidecar.suffix.utf8.count)
    let token = UInt64.random(in: .min ... .max)
    try ledger?.file.lock(bytes: CacheLedger.Byte.process(token), timeout: timeout)
    return try CacheSession(
      directory: directory, rules: rules, blockSize: limits.blockSize, ledger: ledger, epoch: epoch,
      token: token, directoryMode: mode)
  }

  private func openDirectory(
    _ ledger: CacheLedger?, waits: Bool, _ timeout: Duration
  ) throws(StorageError) -> (epoch: UInt64?, DirectoryHandle) {
    guard let ledger else { return (nil, try DirectoryHandle(root)) }
    do throws(StorageError) {
      return try ledger.withEpoch(timeout: waits ? timeout : .milliseconds(20)) {
        epoch throws(StorageError) in (epoch, try DirectoryHandle(root))
      }
    } catch  where error.code == .timedOut && !waits {
      // A reader goes on beside a process that was stopped with the lock, and opens all anew each
      // time.
      return (nil, try DirectoryHandle(root))
    }
  }

  // MARK: What lies about beside the cache

  func trashPath() -> String {
    "\(host.path)/.\(name).\(String(UInt64.random(in: .min ... .max), radix: 16))\(Self.trashSuffix)"
  }

  /// The path of a temporary file that emptying the cache does not take away.
  func temporaryPath(_ name: String) -> String { "\(host.path)/.\(self.name)\(name)" }

  /// The names of emptied directories and temporary files, which somebody may still use.
  func leftOvers() throws(StorageError) -> [String] {
    let prefix = ".\(name)."
    return try FileSystem.list(host.path).filter { found in
      // With another dot it is of a cache whose name goes on there, and whose ledger knows more.
      found.hasPrefix(prefix) && found.dropFirst(prefix.count).count { $0 == "." } == 1
        && (found.hasSuffix(Self.trashSuffix) || found.hasSuffix(Self.temporarySuffix))
    }
  }

  /// Removes emptied directories and temporary files that nobody uses any more.
  func removeLeftOvers(_ session: CacheSession) throws(StorageError) {
    var known: [UInt64: Bool] = [:]
    for name in try leftOvers() {
      let path = host.path + "/" + name
      let isTrash = name.hasSuffix(Self.trashSuffix)
      let isAbandoned = try session.isAbandoned(name, &known)
      if isTrash || isAbandoned { try FileSystem.remove(path) }
    }
  }

  /// Removes what a program left behind that was killed while it made the tag.
  func sweepTag() throws(StorageError) {
    // Who is making it at this moment, and misses its file, begins again.
    try FileSystem.removeStaleTemporaryFiles(for: root + "/" + Self.tagName, olderThan: 0)
  }

  private static let trashSuffix = ".trash"
  private static let temporarySuffix = ".tmp"
}
