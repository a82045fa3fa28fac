internal import Synchronization

/// An entry whose key is locked: no other thread or process writes it at the same time.
struct LockedEntry {
  let cache: OpenCache
  let name: EntryName

  /// Adds to the size of the entry's subdirectory; nil if the difference is unknown.
  private func addSize(_ bytes: Int?) throws(StorageError) {
    try cache.ledger?.add(bytes, to: name.directory, since: cache.epoch)
  }

  // MARK: Removing

  /// Removes both files.
  func remove() throws(StorageError) {
    let sidecarPath = name.sidecarPath
    var sizes: Sidecar.Sizes?
    if let file = try ScopedFile(ifPresent: sidecarPath, in: cache.directory) {
      sizes = try file.sidecarHead().sizes
    }
    let payload = try FileSystem.status(name.path, in: cache.directory)
    cache.verifiedEntries.remove(name)
    // The payload goes first, because a sidecar without one counts as missing.
    try FileSystem.remove(name.path, in: cache.directory)
    try FileSystem.remove(sidecarPath, in: cache.directory)
    if let payload, payload.size != sizes?.payload {
      // A program was killed between writing the two, so it is unknown which of them was counted.
      try addSize(nil)
    } else if let sizes {
      try addSize(-cache.footprint(size: sizes.payload, keyLength: sizes.key))
    }
  }

  /// Removes the entry if it has expired; it may have been replaced since it was looked up.
  func removeIfExpired(key: String?) throws(StorageError) {
    if case .expired = try cache.lookUpOnce(name, key, .revalidate) { try remove() }
  }

  /// Looks up files that did not match each other while they were not locked, and removes them
  /// unless they are a valid entry.
  func resolveMismatch(key: String?) throws(StorageError) -> LookupResult {
    let result = try cache.lookUpOnce(name, key, [.readPayload, .revalidate])
    switch result {
    case .found, .missing: return result
    case .expired: break
    case .mismatch: cache.counts.damaged.add(1, ordering: .relaxed)
    }
    try remove()
    return result
  }

  // MARK: Publishing

  /// Makes the payload in a temporary file, and the record of its sidecar, visible as the entry.
  func publish(
    _ payload: inout TemporaryFile, size: Int, sidecar record: UnsafeRawBufferPointer,
    isDurable: Bool
  ) throws(StorageError) {
    let sidecarPath = name.sidecarPath
    let sidecar = try openSidecar(sidecarPath)
    let old = try sidecar.sidecarHead()
    if old.isEmpty, cache.fileMode & 0o077 != 0 { try sidecar.setMode(cache.fileMode) }
    do throws(StorageError) {
      // A sidecar alone counts as missing: the payload's name completes a new entry in one step.
      if old.isEmpty { try sidecar.overwrite(record.bytes, at: 0) }
      try move(&payload, isNew: old.isEmpty)
    } catch {
      if old.isEmpty { try FileSystem.unlink(sidecarPath, in: cache.directory) }
      throw error
    }
    do throws(StorageError) {
      if !old.isEmpty { try sidecar.overwrite(record.bytes, at: 0) }
      if isDurable { try synchronize(sidecar) }
    } catch {
      // The payload does not match the old sidecar: a miss costs readers less than a mismatch.
      try remove()
      throw error
    }
    var growth = cache.footprint(size: size, keyLength: record.count - Sidecar.headerSize)
    if let sizes = old.sizes {
      growth -= cache.footprint(size: sizes.payload, keyLength: sizes.key)
    }
    try addSize(growth)
  }

  private func openSidecar(_ path: String) throws(StorageError) -> File {
    do throws(StorageError) {
      return try File(path, in: cache.directory, .createOrOpen, mode: cache.fileMode)
    } catch  where error.code == .isDirectory || error.code == .symbolicLink {
      // The cache makes no directories or links of this name.
      try FileSystem.remove(path, in: cache.directory)
      return try File(path, in: cache.directory, .createOrOpen, mode: cache.fileMode)
    }
  }

  private func move(_ payload: inout TemporaryFile, isNew: Bool) throws(StorageError) {
    do throws(StorageError) {
      if isNew { try payload.moveToDestination() } else { try payload.exchangeWithDestination() }
    } catch  where error.code == .isDirectory {
      // The cache makes no directories of this name.
      try FileSystem.remove(name.path, in: cache.directory)
      try payload.moveToDestination()
    }
  }

  /// Makes the entry survive a power cut: its sidecar, the names of its files, and those of the
  /// directories above, which may be new.
  private func synchronize(_ sidecar: File) throws(StorageError) {
    try sidecar.synchronize()
    try FileSystem.synchronizeDirectory(cache.path(ofSubdirectory: name.directory))
    let durable = cache.durableDirectories.withLock { $0 }
    if durable.contains(name.directory) { return }
    try FileSystem.synchronizeDirectory(cache.directory.path)
    if durable.isEmpty {
      // Each of the directories above may also be new.
      var path = cache.directory.path
      while path != "/", path.hasPrefix("/") {
        try FileSystem.synchronizeParent(of: path)
        path = FileSystem.parent(of: path)
      }
    }
    cache.durableDirectories.withLock { _ = $0.insert(name.directory) }
  }
}

/// The header of a file that should be a sidecar.
private struct SidecarHead {
  var isEmpty = true
  var sizes: Sidecar.Sizes?
}

extension ReadableFile where Self: ~Copyable {
  fileprivate func sidecarHead() throws(StorageError) -> SidecarHead {
    do throws(StorageError) {
      return try withUnsafeTemporaryAllocation(byteCount: Sidecar.headerSize, alignment: 8) {
        (buffer) throws(StorageError) -> SidecarHead in
        let count = try read(from: 0, into: buffer)
        let header = UnsafeRawBufferPointer(rebasing: buffer[..<count])
        return SidecarHead(isEmpty: header.isEmpty, sizes: Sidecar.sizes(header))
      }
    } catch  where error.code == .isDirectory {
      return SidecarHead()
    }
  }
}
