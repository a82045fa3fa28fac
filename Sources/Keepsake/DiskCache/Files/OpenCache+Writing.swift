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
      try temporary.write(bytes)
      return PayloadSummary(
        kind: payload.kind, size: bytes.count, checksum: StreamChecksum.sum(bytes))
    }
    try publish(&temporary, summary, as: name, key, options, hook: hook)
  }

  /// In the subdirectory of the entry, and not moved to another: a sandbox may not allow that.
  func makeTemporary(for name: EntryName) throws(StorageError) -> TemporaryFile {
    try requireOwn(name.directory)
    let path = temporaryName(in: name.directory)
    do throws(StorageError) {
      return try TemporaryFile.make(at: path, for: name.path, in: directory, mode: fileMode)
    } catch  where error.code == .notFound {
      try makeSubdirectory(name.directory)
      return try TemporaryFile.make(at: path, for: name.path, in: directory, mode: fileMode)
    }
  }

  func makeSubdirectory(_ number: Int) throws(StorageError) {
    try FileSystem.makeDirectory(
      EntryName.directoryName(number), in: directory, mode: directoryMode)
    durableDirectories.withLock { _ = $0.remove(number) }
  }

  /// Makes the payload in a temporary file visible as an entry, under the key's lock.
  func publish(
    _ temporary: inout TemporaryFile, _ summary: PayloadSummary, as name: EntryName,
    _ key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    let created = WallClock.now
    let expires = options.expiry.time(created: created, lastUsed: created)
    let times = PayloadTimes(created: created, expires: expires, random: randomNumber())
    let modified = try set(times, of: temporary.file)
    // The times are synchronized too, because they tell which sidecar belongs to the payload.
    if options.isDurable { try temporary.file.synchronize(withTimes: true) }
    let sidecar = Sidecar(
      kind: summary.kind, expiry: options.expiry, size: summary.size, modified: modified,
      checksum: summary.checksum, created: created, details: options.details)
    try sidecar.withRecord(of: key) { (record) throws(StorageError) in
      let entry = try lock(name, timeout: timeout)
      defer { entry.unlock() }
      try hook { () throws(StorageError) in
        guard options.isStillWanted else { return }
        try entry.publish(
          &temporary, sidecar, record: record, expires: expires, isDurable: options.isDurable)
      }
    }
  }

  /// Sets the times of a new payload file.
  ///
  /// - Returns: The modification time for the sidecar; 0 if the file system does not keep
  ///   nanoseconds.
  private func set(_ times: PayloadTimes, of file: File) throws(StorageError) -> Int64 {
    try file.setTimes(accessed: times.accessed, modified: times.modified)
    if let keepsNanoseconds { return keepsNanoseconds ? times.modified : 0 }
    let isKept = try file.status(withTimes: true).modified == times.modified
    keepsNanoseconds = isKept
    return isKept ? times.modified : 0
  }

  /// Records, in place of the value, that there is none.
  func writeNoValue(
    forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    let name = try EntryName(key: key, rules: rules)
    let created = WallClock.now
    let expires = options.expiry.time(created: created, lastUsed: created)
    let sidecar = Sidecar(
      kind: nil, expiry: options.expiry, size: 0, modified: 0, checksum: 0, created: created,
      details: EntryDetails(version: options.details?.version))
    do throws(StorageError) {
      try sidecar.withRecord(of: key) { (record) throws(StorageError) in
        let entry = try lock(name, timeout: timeout)
        defer { entry.unlock() }
        try hook { () throws(StorageError) in
          guard options.isStillWanted else { return }
          try entry.publishNoValue(record: record, expires: expires)
        }
      }
    } catch  where error.code == .notFound {
      // The caller repeats the call.
      try makeSubdirectory(name.directory)
      throw error
    }
  }

  /// Stores an entry that was found again without its value, which lives on.
  ///
  /// - Returns: Whether the entry is still that one.
  func renew(
    _ stale: CachedEntry, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) -> Bool {
    let name = try EntryName(key: key, rules: rules)
    let created = WallClock.now
    let expires = options.expiry.time(created: created, lastUsed: created)
    let times = PayloadTimes(created: created, expires: expires, random: randomNumber())
    let entry = try lock(name, timeout: timeout)
    defer { entry.unlock() }
    guard let payload = try FileSystem.status(name.path, in: directory, withTimes: true),
      let found = try readSidecar(name, of: payload, key), found.hasKey,
      found.sidecar.fits(payload), found.sidecar.created == stale.created
    else { return false }
    let old = found.sidecar
    let sidecar = Sidecar(
      kind: old.kind, expiry: options.expiry, size: old.size,
      modified: old.modified == 0 ? 0 : times.modified, checksum: old.checksum,
      created: created, details: options.details)
    try sidecar.withRecord(of: key) { (record) throws(StorageError) in
      try hook { () throws(StorageError) in
        guard options.isStillWanted else { return }
        try entry.renew(sidecar, record: record, times: times, expires: expires)
      }
    }
    return true
  }
}

/// The times of a payload file.
///
/// The nanoseconds of its modification time are random, so that no other payload of this name has
/// the same time; they are odd if the entry never expires. They are no multiple of 100, so that a
/// file system that keeps times to 100 ns does not seem to keep them exactly. The time of the last
/// access is the time of expiry, so that a scan need not read the sidecar.
struct PayloadTimes {
  let accessed: Int64
  let modified: Int64

  @inline(__always)
  init(created: Int64, expires: Int64, random: UInt64) {
    let nanoseconds = Int64(random % UInt64(WallClock.second / 4)) * 4 + 2
    let latest = Int64.max - WallClock.second
    let second = min(created, latest) / WallClock.second * WallClock.second
    modified = second + nanoseconds + (expires == .max ? 1 : 0)
    accessed = expires == .max ? created : expires
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
