#if SecureVault
internal import Synchronization

/// The files of entries.
extension VaultDirectory {
  // MARK: Reading

  func contains(_ path: EntryPath) throws(StorageError) -> Bool {
    try FileSystem.status(path.path) != nil
  }

  func openEntry(_ path: EntryPath, for _: EntryPurpose) throws(StorageError) -> StoredEntry? {
    try File.openIfPresent(path.path).map { .file($0) }
  }

  // MARK: Writing

  func lockEntry(_ path: EntryPath) throws(StorageError) -> HeldLock? {
    try lockEntry(path, Wait(timeout: timeout))
  }

  private func lockEntry(_ path: EntryPath, _ wait: Wait) throws(StorageError) -> HeldLock {
    try lock.lock(path.lockByte, mode: try paths.fileMode(), wait)
  }

  /// Writes a temporary file and moves it into place.
  func store(
    _ entry: UnsafeRawBufferPointer, at path: EntryPath, if condition: EntryCondition,
    isLockHeld: Bool, renewing header: VaultHeader?
  ) throws(StorageError) -> WriteOutcome {
    var attempts = 0
    let wait = Wait(timeout: timeout)
    while true {
      do throws(StorageError) {
        guard let directory = try prepareDirectory(of: path, isLockHeld ? nil : wait) else {
          return .overtaken
        }
        var temporary = try makeTemporaryFile(entry, for: path, in: directory)
        do {
          let lock = isLockHeld ? nil : try lockEntry(path, wait)
          defer { lock?.unlock() }
          guard try isCurrent(), try isInPlace(directory) else {
            directories.withLock { $0 = KnownDirectories() }
            return .overtaken
          }
          switch condition {
          case .isAbsent: if try contains(path) { return .exists }
          case .hasAccess(_, let isPresenceRequired) where !isLockHeld:
            guard try self.isPresenceRequired(at: path) == isPresenceRequired else {
              return .overtaken
            }
          case .none, .hasAccess: break
          }
          try temporary.moveToDestination()
        }
        do throws(StorageError) {
          try FileSystem.synchronizeDirectory(path.directoryName, in: directory)
        } catch  where error.code == .notFound {
          // Who removed the directory has moved the entry durably, or erased it. It is not stored
          // again: another process may have replaced it since.
        }
        return .stored
      } catch  where error.code == .notFound && attempts < 3 {
        // Another process removed the service's directory, or the whole vault.
        attempts += 1
        directories.withLock { _ = $0.durable.remove(path.directoryName) }
        if try !isCurrent() { return .overtaken }
      }
    }
  }

  func replace(
    _ old: StoredEntry, at path: EntryPath, by entry: UnsafeRawBufferPointer,
    movingTo newPath: EntryPath
  ) throws(StorageError) -> Void? {
    let isMove = newPath.subpath != path.subpath
    let opened = isMove ? try prepareDirectory(of: newPath, nil) : try directory()
    guard let directory = opened else { return nil }
    do throws(StorageError) {
      var temporary = try makeTemporaryFile(entry, for: newPath, in: directory)
      try temporary.moveToDestination()
    } catch  where isMove && error.code == .notFound {
      return nil  // Another process removed the service's directory.
    }
    if isMove {
      try FileSystem.synchronizeDirectory(newPath.directoryName, in: directory)
      try FileSystem.unlink(path.path)
    }
    return ()
  }

  /// According to the entry's header. False if it cannot be read, as the entry will be replaced.
  private func isPresenceRequired(at path: EntryPath) throws(StorageError) -> Bool {
    do throws(StorageError) {
      return try openEntry(path, for: .reading)?.header(at: path).isPresenceRequired ?? false
    } catch  where error.code == .damaged {
      return false
    }
  }

  /// A file that has these bytes, also after a power cut.
  private func makeTemporaryFile(
    _ entry: UnsafeRawBufferPointer, for path: EntryPath, in directory: DirectoryHandle
  ) throws(StorageError) -> TemporaryFile {
    // Counting from a random number makes the name unique without a system call.
    let number = temporaryCount.wrappingAdd(1, ordering: .relaxed).newValue
    let temporary = try TemporaryFile.make(
      at: paths.temporaryEntry(number, in: path.directoryName), for: path.subpath, in: directory,
      mode: try paths.fileMode())
    try temporary.write(entry)
    try temporary.file.synchronize()
    return temporary
  }

  // MARK: Directories

  /// The vault's directory, which stays open; nil if it is not the one that the header is in.
  ///
  /// Another process may replace the vault. Callers that write through this handle therefore check
  /// the header under the lock.
  private func directory() throws(StorageError) -> DirectoryHandle? {
    if let known = directories.withLock({ $0.vault }), known.isOpen, try isInPlace(known) {
      return known
    }
    let opened = try DirectoryHandle(paths.directory)
    _ = try opened.keep()
    let status = try FileSystem.status(VaultMarker.fileName, in: opened, withTimes: true)
    guard let status, headerFile?.isSame(as: status) == true else { return nil }
    directories.withLock { $0 = KnownDirectories(vault: opened) }
    return opened
  }

  /// Whether the vault's directory is at its path. A copy with hard links has the same header.
  private func isInPlace(_ directory: DirectoryHandle) throws(StorageError) -> Bool {
    let known = try directory.status()
    return try FileSystem.status(paths.directory).map(known.isSameFile) ?? false
  }

  /// Creates a service's directory if it is missing, and makes its name survive a power cut.
  ///
  /// - Parameter wait: For the lock on the entry; nil if the caller holds it.
  /// - Returns: The vault's directory; nil if it is not the one that the header is in.
  private func prepareDirectory(
    of path: EntryPath, _ wait: Wait?
  ) throws(StorageError) -> DirectoryHandle? {
    let known = directories.withLock { known in
      known.durable[path.directoryName] == nil ? nil : known.vault
    }
    if let known, known.isOpen, try isDirectory(path.directoryName, in: known) { return known }
    let mode = try paths.prepareDirectory()
    guard let directory = try directory() else { return nil }
    do {
      let lock = if let wait { try lockEntry(path, wait) } else { HeldLock?.none }
      defer { lock?.unlock() }
      // Only while the header is this one: under another one, the name may be an old one.
      guard try isCurrent() else { return nil }
      if try !isDirectory(path.directoryName) {
        try FileSystem.makeDirectory(path.directoryName, in: directory, mode: mode)
      }
    }
    // The process that made that directory or the header may have been killed before it
    // synchronized them.
    try paths.synchronize()
    try paths.removeTemporaryEntries(in: path.directoryName)
    directories.withLock { _ = $0.durable.set(path.directoryName, ()) }
    return directory
  }

  // MARK: Removing

  func removeEntry(at entryPaths: [EntryPath]) throws(StorageError) -> Void? {
    guard let primary = entryPaths.last, try hasDirectory(entryPaths.map(\.directoryName)) else {
      return try isCurrent() ? () : nil
    }
    do {
      let lock = try lockEntry(primary, Wait(timeout: timeout))
      defer { lock.unlock() }
      guard try isCurrent() else { return nil }
      for path in entryPaths {
        try FileSystem.unlink(path.path)
        // Before the next removal: a power cut must not undo the removal of the older one alone.
        if path !== primary { try synchronize(path.directoryName) }
      }
    }
    return try synchronize(primary.directoryName)
  }

  /// Locks out all writers, so that they find the entries or none.
  func removeEntries(in directoryNames: [String]) throws(StorageError) -> Void? {
    guard try hasDirectory(directoryNames) else { return try isCurrent() ? () : nil }
    let lock = try lockExclusively().lock
    defer { lock.unlock() }
    guard try isCurrent() else { return nil }
    return try unlinkEntries(in: directoryNames)
  }

  /// Removes the entries in these directories such that they stay removed after a power cut, so far
  /// as they can be. The caller holds the exclusive lock.
  func unlinkEntries(in directoryNames: [String]) throws(StorageError) {
    var failure: StorageError?
    for name in directoryNames {
      do throws(StorageError) {
        guard try isDirectory(name) else { continue }
        for path in try entries(in: name) {
          do throws(StorageError) { try FileSystem.unlink(path.path) } catch { failure = error }
        }
        try synchronize(name)
      } catch {
        failure = error
      }
    }
    if let failure { throw failure }
  }

  /// Whether there is any of these directories.
  private func hasDirectory(_ names: [String]) throws(StorageError) -> Bool {
    for name in names where try isDirectory(name) { return true }
    return false
  }

  /// - Throws: An error for a link or a mount, behind which nothing is written or removed.
  func isDirectory(
    _ name: String, in directory: DirectoryHandle? = nil
  ) throws(StorageError) -> Bool {
    // For errors: building it would cost a set more than the look.
    func path() -> String { paths.directory + "/" + name }
    let status = try FileSystem.status(
      directory == nil ? path() : name, in: directory, followsLinks: false)
    guard let status else { return false }
    if status.isSymbolicLink { throw .linkInTheWay(path()) }
    if status.isDirectory, status.isMountPoint { throw .mountInTheWay(path(), "remove") }
    return status.isDirectory
  }

  /// Makes removals survive a power cut, including removals by an earlier call that could not do
  /// this.
  func synchronize(_ directoryName: String) throws(StorageError) {
    do throws(StorageError) {
      try FileSystem.synchronizeDirectory(paths.directory + "/" + directoryName)
    } catch  where error.code == .notFound || error.code == .notDirectory {}
  }
}
#endif
