extension OpenCache {
  /// Opens a cache for reading, and for writing if this process may write; nil if there is none.
  @inline(never)
  static func openIfPresent(
    at paths: CachePaths, timeout: Duration, counts: CacheCounts
  ) throws(StorageError) -> OpenCache? {
    try FileSystem.requireTrustedLinks(paths.directory)
    guard let status = try FileSystem.status(paths.directory) else { return nil }
    let ledger = try CacheLedger.openExisting(paths, timeout: timeout)
    return try OpenCache(
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
    if isNew {
      try FileSystem.createDirectory(paths.directory, mode: mode, durable: false)
      // Not `notFound`, which would be tried again.
      if try FileSystem.status(paths.directory) == nil,
        try FileSystem.status(paths.directory, followsLinks: false)?.isSymbolicLink == true
      {
        throw StorageError(
          .symbolicLink, operation: "open", path: paths.directory,
          reason: "the symbolic link leads to nothing",
          remedy: "Mount the disk that it leads to, or remove the link.")
      }
    }
    let ledger = try CacheLedger.createOrOpen(
      paths, mode: mode & 0o666, timeout: timeout, isEmpty: isNew)
    try paths.writeTagIfMissing(mode: mode & 0o666)
    return try OpenCache(at: paths, ledger, mode: mode, timeout: timeout, counts: counts)
  }
}
