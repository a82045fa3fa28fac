/// Where a cache's files are: a folder of its own in the one that holds all, its lock file beside it.
struct CacheLocation: Sendable {
  let host: HostFolder
  let name: String

  var root: String { host.path + "/" + name }
  var lockPath: String { host.lockPath(of: name) }

  private static let tag = "CACHEDIR.TAG"
  /// The first 43 bytes make it a tag (Cache Directory Tagging Specification 0.6).
  private static let tagText = """
    Signature: 8a477f597d28d172789f06886806bc55
    # This file is a cache directory tag created by Keepsake.
    # Backups may leave this folder out: all of it can be made again.
    # See https://bford.info/cachedir/

    """

  /// nil when there is no cache yet.
  func openForReading(timeout: Duration) throws(StorageError) -> CacheSession? {
    guard let status = try FileSystem.status(root) else { return nil }
    let file = try LockFile.openExisting(lockPath, wordCount: CacheLedger.wordCount)
    return try open(file, mode: status.mode & 0o2777, timeout: timeout)
  }

  func openForWriting(timeout: Duration) throws(StorageError) -> CacheSession {
    let mode = try host.prepare(durable: false)
    let isNew = try FileSystem.status(root) == nil
    if isNew { try FileSystem.createFolder(root, mode: mode, durable: false) }
    let file = try LockFile.createOrOpen(
      lockPath, mode: mode & 0o666, timeout: timeout, wordCount: CacheLedger.wordCount
    ) {
      CacheLedger.initial(isEmpty: isNew)
    }
    let tag = root + "/" + Self.tag
    if try FileSystem.status(tag)?.size ?? 0 < Self.tagText.utf8.count {
      try FileSystem.replace(
        tag, with: Array(Self.tagText.utf8), mode: mode & 0o666, durable: false)
    }
    let session = try open(file, mode: mode, timeout: timeout)
    if let ledger = session.ledger {
      // Somebody removed the folder and not the file beside it.
      if isNew, ledger.total > 0 || !ledger.isCounted { try ledger.distrust() }
      try ledger.checkClock()
    }
    return session
  }

  private func open(
    _ file: LockFile?, mode: UInt32, timeout: Duration
  ) throws(StorageError) -> CacheSession {
    let limits = try FileSystem.limits(at: root)
    let tag = try FileSystem.status(root + "/" + Self.tag)
    let lowercased = try FileSystem.status(root + "/" + Self.tag.lowercased())
    let rules = EntryName.Rules(
      root: root + "/",
      ignoresCase: tag.flatMap { tag in lowercased.map { $0.isSameFile(as: tag) } } ?? false,
      longestName: limits.nameLength - Sidecar.suffix.utf8.count)
    let token = UInt64.random(in: .min ... .max)
    try file?.lock(byte: CacheLedger.Byte.process(token), timeout: timeout)
    return CacheSession(
      rules: rules, blockSize: limits.blockSize,
      ledger: file.map { CacheLedger(file: $0, timeout: timeout) }, token: token, folderMode: mode)
  }

  // MARK: What lies about beside the cache

  func trashPath() -> String {
    "\(host.path)/.\(name).\(String(UInt64.random(in: .min ... .max), radix: 16))\(Self.trashSuffix)"
  }

  /// The path of a temporary file that emptying the cache does not take away.
  func temporaryPath(_ name: String) -> String { "\(host.path)/.\(self.name)\(name)" }

  /// Emptied folders and temporary files that nobody uses any more.
  func leftOvers(_ session: CacheSession) throws(StorageError) -> [String] {
    var known: [UInt64: Bool] = [:]
    var found: [String] = []
    for name in try FileSystem.list(host.path) where name.hasPrefix(".\(self.name).") {
      let isLeftOver =
        name.hasSuffix(Self.trashSuffix) ? true : try session.isAbandoned(name, &known)
      if isLeftOver { found.append(host.path + "/" + name) }
    }
    return found
  }

  /// Removes what a program left behind that was killed while it made the tag.
  func sweepTag() throws(StorageError) {
    try FileSystem.sweepTemporaries(beside: root + "/" + Self.tag)
  }

  private static let trashSuffix = ".trash"
}
