extension OpenCache {
  /// Opens a cache for reading, and for writing if this process may write; nil if there is none.
  @inline(never)
  static func openIfPresent(
    at paths: CachePaths, timeout: Duration, counts: CacheCounts
  ) throws(StorageError) -> OpenCache? {
    try FileSystem.requireTrustedLinks(paths.directory)
    guard let status = try FileSystem.status(paths.directory) else { return nil }
    let ledger = try CacheLedger.openExisting(paths, timeout: timeout)
    return try open(
      at: paths, ledger, mode: status.mode & 0o2777, timeout: timeout, counts: counts)
  }

  /// Opens a cache for reading and writing; creates what is missing.
  @inline(never)
  static func openOrCreate(
    at paths: CachePaths, timeout: Duration, counts: CacheCounts
  ) throws(StorageError) -> OpenCache {
    try FileSystem.requireTrustedLinks(paths.directory)
    let mode = try paths.parent.createIfNeeded(durable: false)
    let isNew = try FileSystem.status(paths.directory) == nil
    if isNew { try FileSystem.createDirectory(paths.directory, mode: mode, durable: false) }
    let ledger = try CacheLedger.createOrOpen(
      paths, mode: mode & 0o666, timeout: timeout, isEmpty: isNew)
    try paths.writeTagIfMissing(mode: mode & 0o666)
    return try open(at: paths, ledger, mode: mode, timeout: timeout, counts: counts)
  }

  @inline(never)
  private static func open(
    at paths: CachePaths, _ ledger: CacheLedger?, mode: UInt32, timeout: Duration,
    counts: CacheCounts
  ) throws(StorageError) -> OpenCache {
    // Read before the directory is opened, so that a cache that is replaced in the meantime is
    // opened again. This needs no lock, because emptying a cache keeps its directory.
    let epoch = ledger?.epoch
    let directory = try DirectoryHandle(paths.directory)
    let limits = try FileSystem.limits(at: paths.directory)
    let tag = try FileSystem.status(CachePaths.tagName, in: directory)
    let lowercased = try FileSystem.status(CachePaths.tagName.lowercased(), in: directory)
    let rules = EntryName.Rules(
      ignoresCase: tag.flatMap { tag in lowercased.map { $0.isSameFile(as: tag) } } ?? false,
      longestName: limits.nameLength - Sidecar.suffix.utf8.count)
    let token = UInt64.random(in: .min ... .max)
    try ledger?.file.lock(bytes: CacheLedger.Byte.process(token), Wait(timeout: timeout))
    return try OpenCache(
      paths: paths, directory: directory, rules: rules, blockSize: limits.blockSize,
      ledger: ledger, epoch: epoch, token: token, directoryMode: mode, timeout: timeout,
      counts: counts)
  }
}
