internal import FoundationEssentials

/// The properties of a payload that its sidecar records.
struct PayloadSummary {
  let kind: Payload.Kind
  let size: Int
  let checksum: UInt64
}

extension OpenCache {
  @inline(__always)
  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    let name = try EntryName(key: key, rules: rules)
    var temporary = try makeTemporary(for: name)
    let summary = try payload.bytes.span.bytes.withUnsafeBytes {
      (bytes) throws(StorageError) -> PayloadSummary in
      if let failure = temporary.file.write(bytes).failure { throw failure }
      return PayloadSummary(
        kind: payload.kind, size: bytes.count, checksum: StreamChecksum.sum(bytes))
    }
    try publish(&temporary, summary, as: name, key, options, hook: hook)
  }

  private func makeTemporary(for name: EntryName) throws(StorageError) -> TemporaryFile {
    let path = temporaryName(in: name.directory)
    do throws(StorageError) {
      return try TemporaryFile.make(at: path, for: name.path, in: directory, mode: fileMode)
    } catch  where error.code == .notFound {
      try makeSubdirectory(of: name)
      return try TemporaryFile.make(at: path, for: name.path, in: directory, mode: fileMode)
    }
  }

  /// Makes the subdirectory of an entry.
  ///
  /// It is made in the directory that is open even if the cache is being emptied at the same time:
  /// the entry is then removed with the others, as if it had been stored a moment earlier.
  func makeSubdirectory(of name: EntryName) throws(StorageError) {
    try FileSystem.makeDirectory(
      EntryName.directoryName(name.directory), in: directory, mode: directoryMode)
    durableDirectories.withLock { _ = $0.remove(name.directory) }
  }

  /// Makes the payload in a temporary file visible as an entry, under the key's lock.
  func publish(
    _ temporary: inout TemporaryFile, _ summary: PayloadSummary, as name: EntryName,
    _ key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    let created = WallClock.now
    let expires = options.expiry.time(created: created, lastUsed: created)
    let modified = try setTimes(of: temporary.file, created: created, expires: expires)
    // The times are synchronized too, because they tell which sidecar belongs to the payload.
    if options.isDurable { try temporary.file.synchronize(withTimes: true) }
    let sidecar = Sidecar(
      kind: summary.kind, expiry: options.expiry, size: summary.size, modified: modified,
      checksum: summary.checksum, created: created)
    // Recorded again once the entry is visible.
    try ledger?.recordExpiry(expires, in: name.directory)
    try sidecar.withContents(of: key) { (contents) throws(StorageError) in
      _ = try withKeyLock(name, timeout: timeout) { entry throws(StorageError) in
        try hook { () throws(StorageError) in
          try entry.publish(
            &temporary, size: summary.size, sidecar: contents, expires: expires,
            isDurable: options.isDurable)
        }
      }
    }
  }

  /// Sets the times of a payload file.
  ///
  /// The nanoseconds of its modification time are random, so that no other payload of this name has
  /// the same time; they are odd if the entry never expires. The time of the last access is the
  /// time of expiry, so that a scan need not read the sidecar.
  ///
  /// - Returns: The modification time for the sidecar; 0 if the file system does not keep
  ///   nanoseconds.
  private func setTimes(
    of file: File, created: Int64, expires: Int64
  ) throws(StorageError) -> Int64 {
    let random = Int64(randomNumber() % UInt64(WallClock.second / 2)) * 2
    let latest = Int64.max - WallClock.second
    let second = min(created, latest) / WallClock.second * WallClock.second
    let modified = second + random + (expires == .max ? 1 : 0)
    try file.setTimes(accessed: expires == .max ? created : expires, modified: modified)
    if let keepsNanoseconds { return keepsNanoseconds ? modified : 0 }
    let isKept = try file.status(withTimes: true).modified == modified
    keepsNanoseconds = isKept
    return isKept ? modified : 0
  }
}

extension FileStatus {
  /// Whether a payload file with these times belongs to an entry that can expire.
  var canExpire: Bool { modified % 2 == 0 }

  /// The time of expiry, or an earlier one; nil if the sidecar has to be read.
  func expiryHint(now: Int64) -> Int64? {
    accessed > now && modified <= now.addingSaturated(60 * WallClock.second) ? accessed : nil
  }
}
