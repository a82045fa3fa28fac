#if SecureVault
/// Reading and replacing the vault header.
extension Vault {
  func readHeader() throws(StorageError) -> (VaultHeader, HeaderIdentity)? {
    guard let file = try File.openIfPresent(paths.header) else { return nil }
    let status = try file.status(withTimes: true)
    guard status.isRegularFile, status.size <= VaultHeader.maxSize else {
      throw StorageError(
        .damaged, operation: "open", path: file.path, reason: "the file is not a vault header",
        remedy: "Restore the right file from a backup; the secrets are untouched.")
    }
    let bytes = try file.read(from: 0, count: status.size)
    return (
      try VaultHeader(bytes, path: paths.header), HeaderIdentity(file: file, status: status)
    )
  }

  /// The header; nil when there is no vault yet.
  ///
  /// - Throws: An error of code `damaged` when there are secrets but no header.
  func headerIfVaultExists() throws(StorageError) -> (VaultHeader, HeaderIdentity)? {
    var attempts = 0
    while true {
      if let found = try readHeader() { return found }
      do throws(StorageError) {
        try requireNoEntries()
        return nil
      } catch {
        // After the header was found missing, another process may have created the vault and stored
        // a secret, and even have erased and created it again.
        attempts += 1
        if attempts == 4 { throw error }
      }
    }
  }

  /// Throws if there are entries. A new header must not hide that the keys to them are missing.
  private func requireNoEntries() throws(StorageError) {
    for directoryName in try paths.entryDirectories() {
      guard let path = try paths.entries(in: directoryName).first else { continue }
      throw StorageError(
        .damaged, operation: "open", path: paths.header,
        reason: "the vault header is missing, but secrets exist, such as \(path.path)",
        remedy: "Restore the header from a backup; the secrets are untouched.")
    }
  }

  /// Writes the first header of a new vault; nil when there is a header already.
  func writeFirstHeader(_ header: VaultHeader) throws(StorageError) -> HeaderIdentity? {
    try withExclusiveLock { mode throws(StorageError) -> HeaderIdentity? in
      if try FileSystem.status(paths.header) != nil { return nil }
      try requireNoEntries()
      return try write(header, mode: mode, isFirst: true)
    }
  }

  /// Writes the header's file. The caller holds the exclusive lock.
  private func write(
    _ header: VaultHeader, mode: UInt32, isFirst: Bool
  ) throws(StorageError) -> HeaderIdentity {
    let path = paths.header
    let bytes = try header.bytes()
    // A header that could not be read again must not replace one that can.
    guard bytes.count <= VaultHeader.maxSize, try VaultHeader(bytes, path: path).bytes() == bytes
    else {
      throw StorageError(
        .misuse, operation: "open", path: path,
        reason: "the vault header has no room for another key",
        remedy: "Remove the damaged secrets: the header keeps old keys for them.")
    }
    try FileSystem.removeStaleTemporaryFiles(for: path)
    let isInPlace = try bytes.withBytes { bytes throws(StorageError) in
      try FileSystem.write(
        bytes, to: path, mode: mode & 0o666, durable: true, replacing: !isFirst)
    }
    guard isInPlace, let file = try File.openIfPresent(path) else {
      throw StorageError(
        .damaged, operation: "open", path: path,
        reason: "another program created or removed this file", remedy: "Try again.")
    }
    return HeaderIdentity(file: file, status: try file.status(withTimes: true))
  }

  /// Runs `body` while no other thread or process writes to the vault.
  ///
  /// - Parameter body: Gets the mode of directories in the vault.
  func withExclusiveLock<R>(
    _ body: (_ mode: UInt32) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let mode = try paths.prepareDirectory()
    return try ByteRangeLock.withLock(
      ByteRangeLock.allBytes, of: paths.lock, mode: mode & 0o666, timeout: timeout
    ) { () throws(StorageError) in try body(mode) }
  }

  /// Replaces the header of `session` by one with these slots and the keys that `makeRing` returns.
  ///
  /// - Parameter makeRing: Called under the exclusive lock. If it returns nil, nothing is done.
  /// - Returns: nil when nothing was done, for example because the header of `session` is out of
  ///   date.
  func replaceHeader(
    of session: VaultSession, slots: [KeySlot], _ makeRing: () throws(StorageError) -> KeyRing?
  ) throws(StorageError) -> Void? {
    let lockCount = state.withLock { $0.lockCount }
    return try withExclusiveLock { mode throws(StorageError) in
      guard try session.isCurrent() else { return nil }
      guard let ring = try makeRing() else { return nil }
      let header = try ring.makeHeader(vaultID: session.header.vaultID, slots: slots)
      let identity = try write(header, mode: mode, isFirst: false)
      // The header is in place, so this succeeds even if the vault was locked in the meantime.
      tryMakeCurrent(makeSession(header, identity, ring), ifNotLockedSince: lockCount)
      return ()
    }
  }

  /// Overwrites the header and removes it, so that the disk keeps no copy if the file system writes
  /// in place.
  ///
  /// A header that has another hard link is only removed: the link may be a backup.
  private func eraseHeader() throws(StorageError) {
    guard let status = try FileSystem.status(paths.header, followsLinks: false) else { return }
    guard status.isRegularFile, status.linkCount == 1 else {
      return try FileSystem.remove(paths.header)
    }
    // Readers find the whole header or none.
    let doomed = paths.directory + "/." + VaultMarker.fileName + ".erased.tmp"
    try FileSystem.rename(paths.header, to: doomed)
    do throws(StorageError) {
      // After a power cut, too.
      try FileSystem.synchronizeDirectory(paths.directory)
      let file = try File(doomed, .readWriteNoFollow)
      let zeros = [UInt8](repeating: 0, count: min(status.size, VaultHeader.maxSize))
      try file.overwrite(zeros.span.bytes, at: 0)
      try file.synchronize()
    } catch {
      report(error.inContext(of: "eraseVault"))
    }
    // Like any temporary file, it does not stay because of a failure that is over by now.
    if (try? FileSystem.remove(doomed)) == nil { try FileSystem.remove(doomed) }
  }

  /// Removes all entries and the header, whether the vault can be opened or not.
  func erase() throws(StorageError) {
    guard try FileSystem.status(paths.directory) != nil else { return }
    let header = (try? readHeader())?.0
    try withExclusiveLock { _ throws(StorageError) in
      for directoryName in try paths.entryDirectories() {
        try FileSystem.remove(paths.directory + "/" + directoryName)
      }
      for path in [paths.entryStem, paths.header] {
        try FileSystem.removeStaleTemporaryFiles(for: path, olderThan: -1)
      }
      // Make the removal of the entries durable before removing the header: an entry that
      // reappeared after a power cut could never be opened.
      try FileSystem.synchronizeDirectory(paths.directory)
      try eraseHeader()
      try FileSystem.synchronizeDirectory(paths.directory)
    }
    state.withLock { $0.reset() }
    if let failure = forgetRemembered(header) { throw failure }
  }
}
#endif
