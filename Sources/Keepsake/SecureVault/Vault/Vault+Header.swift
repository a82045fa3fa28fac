#if SecureVault
/// Reading the header, and replacing it.
extension Vault {
  func readHeader() throws(StorageError) -> (VaultHeader, HeaderIdentity)? {
    guard let file = try File.openIfPresent(location.headerPath) else { return nil }
    let status = try file.status(withTimes: true)
    guard status.isRegularFile, status.size <= VaultHeader.maxSize else {
      throw StorageError(
        .damaged, operation: "open", path: file.path, reason: "this is no vault's header",
        remedy: "Put a copy of the right file back, from a backup; the secrets are untouched.")
    }
    let bytes = try file.read(from: 0, count: status.size)
    return (
      try VaultHeader(bytes, path: location.headerPath), HeaderIdentity(file: file, status: status)
    )
  }

  /// The header; nil when there is no vault yet, and no secret whose header is gone.
  func headerOfVault() throws(StorageError) -> (VaultHeader, HeaderIdentity)? {
    var attempts = 0
    while true {
      if let found = try readHeader() { return found }
      do throws(StorageError) {
        try requireNoEntries()
        return nil
      } catch {
        // Between the two looks others may have made the vault and stored a secret, even twice if
        // they erased it meanwhile.
        attempts += 1
        if attempts == 4 { throw error }
      }
    }
  }

  /// Entries whose header is gone are not given a new one: their keys would never be found again.
  func requireNoEntries() throws(StorageError) {
    for directory in try location.entryDirectories() {
      guard let place = try location.places(in: directory).first else { continue }
      throw StorageError(
        .damaged, operation: "open", path: location.headerPath,
        reason: "the vault's header is missing, but its secrets are there, such as \(place.path)",
        remedy: "Put the header back, from a backup; the secrets are untouched.")
    }
  }

  /// Puts a header in place; the caller holds all bytes' lock.
  func write(
    _ header: VaultHeader, mode: UInt32, isFirst: Bool
  ) throws(StorageError) -> HeaderIdentity {
    let path = location.headerPath
    let bytes = try header.bytes()
    // What cannot be read again must not take the place of what can.
    guard bytes.count <= VaultHeader.maxSize, try VaultHeader(bytes, path: path) == header else {
      throw StorageError(
        .misuse, operation: "open", path: path, reason: "the vault's header grows too large",
        remedy: "Remove damaged secrets, which keep old keys in it.")
    }
    try FileSystem.removeStaleTemporaryFiles(for: path)
    let isDone = try bytes.withBytes { bytes throws(StorageError) in
      try FileSystem.write(
        bytes, to: path, mode: mode & 0o666, durable: true, replacing: !isFirst)
    }
    guard isDone, let file = try File.openIfPresent(path) else {
      throw StorageError(
        .damaged, operation: "open", path: path, reason: "something else made or removed this file",
        remedy: "Try again.")
    }
    return HeaderIdentity(file: file, status: try file.status(withTimes: true))
  }

  /// Holds off everything that others do to the vault, while `body` runs.
  func exclusively<R>(
    _ body: (_ mode: UInt32) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let mode = try location.prepare()
    return try ByteRangeLock.withLock(
      ByteRangeLock.allBytes, of: location.lockPath, mode: mode & 0o666, timeout: timeout
    ) { () throws(StorageError) in try body(mode) }
  }

  /// Replaces the header of `session` by one with those slots and the keys that `ring` returns,
  /// while nobody else writes; or does nothing if that is nil.
  ///
  /// - Returns: nil when nothing was done, as when that of `session` is not the header any more.
  func replaceHeader(
    of session: VaultSession, slots: [KeySlot], _ ring: () throws(StorageError) -> KeyRing?
  ) throws(StorageError) -> Void? {
    let epoch = state.withLock { $0.epoch }
    return try exclusively { mode throws(StorageError) in
      guard try isCurrent(session) else { return nil }
      guard let ring = try ring() else { return nil }
      let header = try ring.header(vaultID: session.header.vaultID, slots: slots)
      let identity = try write(header, mode: mode, isFirst: false)
      // It is the header now, also if somebody has locked the vault meanwhile.
      keep(
        VaultSession(
          header: header, identity: identity, ring: ring, lockPath: location.lockPath), since: epoch
      )
      return ()
    }
  }

  /// The vault is empty and without keys after this, whether it could be opened or not.
  func eraseVault() throws(StorageError) {
    guard try FileSystem.status(location.directory) != nil else { return }
    try exclusively { _ throws(StorageError) in
      for directory in try location.entryDirectories() {
        try FileSystem.remove(location.directory + "/" + directory)
      }
      for path in [location.entryStem, location.headerPath] {
        try FileSystem.removeStaleTemporaryFiles(for: path, olderThan: -1)
      }
      // Without the header, entries that a power cut brought back would be an error for good.
      try FileSystem.synchronizeDirectory(location.directory)
      try FileSystem.remove(location.headerPath)
      try FileSystem.synchronizeDirectory(location.directory)
    }
    state.withLock { state in
      state.session = nil
      state.isLocked = false
    }
  }
}
#endif
