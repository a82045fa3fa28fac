internal import FoundationEssentials

/// What a look-up does besides finding the entry.
struct LookupOptions: OptionSet {
  let rawValue: UInt8

  /// Reads the payload and compares its checksum, unless this process has done so before.
  static let readPayload = Self(rawValue: 1)
  /// Counts as a use, which postpones the entry's expiry and eviction.
  static let recordUse = Self(rawValue: 2)
  /// Ignores what this process knows, compares the payload's checksum, and accepts a payload whose
  /// time is not the one in the sidecar if that is right. The key must be locked.
  static let revalidate = Self(rawValue: 4)
  /// Finds an entry that has expired and is kept, without counting that as a use.
  static let acceptStale = Self(rawValue: 8)
  /// Reads the details of an entry that has not expired.
  static let details = Self(rawValue: 16)

  var comparesChecksum: Bool { !isDisjoint(with: [.readPayload, .revalidate]) }
}

enum LookupResult {
  case missing
  /// The payload and the sidecar do not belong together: one is newer or damaged, or a writer is
  /// replacing both.
  case mismatch
  case expired
  /// It has expired but is kept. With the payload if that was read, and with the details.
  indirect case stale(VerifiedEntry, Data?, EntryDetails)
  /// With the payload if it was read.
  case found(VerifiedEntry, Data?)
  /// The same with details, if they were wanted and there are any.
  indirect case detailed(VerifiedEntry, Data?, EntryDetails)

  init(_ entry: VerifiedEntry, _ payload: Data?, _ details: EntryDetails?) {
    self = details.map { .detailed(entry, payload, $0) } ?? .found(entry, payload)
  }

  /// The entry if it has not expired, with what was read of it.
  var fresh: (entry: VerifiedEntry, payload: Data?, details: EntryDetails?)? {
    switch self {
    case .found(let entry, let payload): (entry, payload, nil)
    case .detailed(let entry, let payload, let details): (entry, payload, details)
    case .missing, .mismatch, .expired, .stale: nil
    }
  }
}

extension OpenCache {
  /// Looks up an entry, and removes it if it has expired or is damaged.
  func lookUp(_ key: String, _ options: LookupOptions) throws(StorageError) -> LookupResult {
    let name = try EntryName(key: key, rules: rules)
    // A writer replaces the two files within microseconds, after which they match again.
    for _ in 0..<3 {
      let result = try lookUpOnce(name, key, options)
      switch result {
      case .missing, .stale: return result
      case .found(let entry, _), .detailed(let entry, _, _):
        if options.contains(.recordUse), entry.shouldRecordUse(at: entry.lastUsed) {
          recordUse(of: name, entry)
        }
        return result
      case .expired:
        _ = try? resolve(name, key, [])
        return result
      case .mismatch: continue
      }
    }
    return try resolve(name, key, options) ?? .missing
  }

  /// Looks again at an entry that has expired, or whose files did not match each other, and removes
  /// it unless it is valid by now.
  ///
  /// - Returns: nil if the key is locked, or if this process may not write: readers must not wait
  ///   for writers, and the next reader can also clean up.
  private func resolve(
    _ name: EntryName, _ key: String, _ options: LookupOptions
  ) throws(StorageError) -> LookupResult? {
    do throws(StorageError) {
      let entry = try lock(name, timeout: .zero)
      defer { entry.unlock() }
      return try entry.resolve(key, options)
    } catch  where error.code == .accessDenied || error.code == .timedOut {
      return nil
    }
  }

  /// Looks at the two files of an entry once.
  ///
  /// - Parameter key: nil to accept any key whose entry has this name.
  func lookUpOnce(
    _ name: EntryName, _ key: String?, _ options: LookupOptions
  ) throws(StorageError) -> LookupResult {
    let known =
      options.contains(.revalidate)
      ? nil : verifiedEntries.entry(name, isUse: options.contains(.recordUse))
    guard options.comparesChecksum else {
      guard let payload = try FileSystem.status(name.path, in: directory, withTimes: true) else {
        return .missing
      }
      if let known, known.matches(payload, keyID: name.keyID) {
        return try addDetails(to: known, nil, payload, name, key, options)
      }
      return try validate(name, key, payload, options) { _ in nil }
    }
    // A status call costs half as much as an attempt to open a missing file. If the file is
    // replaced between the two calls, it does not match the sidecar.
    var status: FileStatus?
    if known == nil {
      status = try FileSystem.status(name.path, in: directory, withTimes: true)
      if status == nil { return .missing }
    }
    let file = try ScopedFile(ifPresent: name.path, in: directory)
    guard let file else { return .missing }
    let payload: FileStatus
    if let status { payload = status } else { payload = try file.status(withTimes: true) }
    if let known, known.isPayloadVerified, known.matches(payload, keyID: name.keyID) {
      guard let data = try file.data(count: payload.size) else { return .mismatch }
      return try addDetails(to: known, data, payload, name, key, options)
    }
    return try validate(name, key, payload, options) { checksum throws(StorageError) in
      guard options.contains(.readPayload) else {
        // The value may be large.
        var sum = StreamChecksum()
        try file.readInPieces { sum.update($0) }
        return sum.value == checksum ? Data() : nil
      }
      return try file.data(count: payload.size) { StreamChecksum.sum($0) == checksum }
    }
  }

  /// Reads the details of an entry that this process has verified, if they are wanted.
  @inline(__always)
  private func addDetails(
    to entry: VerifiedEntry, _ data: Data?, _ payload: FileStatus, _ name: EntryName,
    _ key: String?, _ options: LookupOptions
  ) throws(StorageError) -> LookupResult {
    guard options.contains(.details), entry.hasDetails else { return .found(entry, data) }
    guard let sidecar = try readSidecar(of: entry, payload, name, key) else { return .mismatch }
    return LookupResult(entry, data, sidecar.details)
  }

  /// Validates an entry that this process has not verified.
  ///
  /// - Parameters:
  ///   - payload: The status of the payload file.
  ///   - read: Returns the payload if it is to be read, and nil if it has another checksum.
  @inline(__always)
  private func validate(
    _ name: EntryName, _ key: String?, _ payload: FileStatus, _ options: LookupOptions,
    _ read: (_ checksum: UInt64) throws(StorageError) -> Data?
  ) throws(StorageError) -> LookupResult {
    if payload.isDirectory { return .mismatch }
    let now = WallClock.now
    guard let record = try readSidecar(name, of: payload, key) else { return .mismatch }
    let sidecar = record.sidecar
    if !record.hasKey { return name.isHashed ? .missing : .mismatch }
    guard let kind = sidecar.kind else { return .mismatch }
    let belongs = sidecar.fits(payload) && sidecar.modified != 0
    let isChecksumSufficient = options.contains(.revalidate) || sidecar.modified == 0
    guard belongs || sidecar.size == payload.size && isChecksumSufficient else {
      return .mismatch
    }
    var entry = VerifiedEntry(
      inode: payload.inode, size: payload.size, modified: payload.modified,
      changed: payload.changed, keyID: name.keyID, created: sidecar.created,
      lastUsed: record.lastUsed, lastRecordedUse: record.lastUsed, expiry: sidecar.expiry,
      kind: kind, hasDetails: sidecar.details != nil, isPayloadVerified: false)
    if entry.hasExpired(at: now) {
      guard let details = sidecar.details, entry.isKept(for: details.kept, at: now) else {
        return .expired
      }
      guard options.contains(.acceptStale), options.contains(.readPayload) else {
        return .stale(entry, nil, details)
      }
      let data = try read(sidecar.checksum)
      return data.map { .stale(entry, $0, details) } ?? .mismatch
    }
    if options.contains(.recordUse) { entry.lastUsed = now }
    var data: Data?
    if options.comparesChecksum {
      data = try read(sidecar.checksum)
      if data == nil { return .mismatch }
      entry.isPayloadVerified = true
    }
    // Without a time of its own, a payload cannot be told from the one that replaces it.
    if belongs {
      if key != nil { verifiedEntries.insert(entry, for: name) }
    } else if data != nil, sidecar.modified != 0 {
      restoreTimes(of: name, sidecar)
    }
    return LookupResult(entry, data, options.contains(.details) ? sidecar.details : nil)
  }

  /// Gives a payload the times that it was published with: it was copied without them, and would be
  /// read as a whole by each call. The key must be locked.
  @inline(never)
  private func restoreTimes(of name: EntryName, _ sidecar: Sidecar) {
    let expires = sidecar.expiry.time(created: sidecar.created, lastUsed: sidecar.created)
    let times = PayloadTimes(created: sidecar.created, expires: expires, random: 0)
    // Only the owner may do that.
    try? File(name.path, in: directory, .readNoFollow)
      .setTimes(accessed: times.accessed, modified: sidecar.modified)
  }

  /// Reads the sidecar of an entry; nil if it is missing or damaged.
  ///
  /// - Parameters:
  ///   - payload: Selects the record if there are two; nil for the latest.
  ///   - key: nil to accept any key whose entry has this name.
  func readSidecar(
    _ name: EntryName, of payload: FileStatus?, _ key: String?
  ) throws(StorageError) -> FoundSidecar? {
    guard
      let file = try ScopedFile(ifPresent: name.path, suffix: Sidecar.pathSuffix, in: directory)
    else { return nil }
    var found: FoundSidecar?
    do throws(StorageError) {
      found = try file.withSidecar(keyLength: key?.utf8.count) { contents throws(StorageError) in
        try FoundSidecar(contents, of: payload, key, path: file.path)
      }
    } catch  where error.code == .isDirectory {}
    if case .idle = found?.sidecar.expiry {
      found?.lastUsed = try file.status(withTimes: true).modified
    }
    return found
  }

  /// The record that there is no value; nil if there is none.
  func recordOfNoValue(
    _ name: EntryName, key: String?
  ) throws(StorageError) -> FoundSidecar? {
    do throws(StorageError) {
      let found = try readSidecar(name, of: nil, key)
      return found?.hasKey == true && found?.sidecar.kind == nil ? found : nil
    } catch  where error.code == .unsupportedVersion {
      return nil
    }
  }

  /// The sidecar of an entry that was found; nil if this is not its payload, or if it was replaced
  /// since.
  private func readSidecar(
    of entry: VerifiedEntry, _ payload: FileStatus, _ name: EntryName, _ key: String?
  ) throws(StorageError) -> Sidecar? {
    guard entry.matches(payload, keyID: name.keyID),
      let sidecar = try readSidecar(name, of: payload, key)?.sidecar,
      sidecar.created == entry.created
    else { return nil }
    return sidecar
  }

  /// Opens the payload of an entry, to be read in pieces; nil if there is no entry.
  func openChunks(_ key: String) throws(StorageError) -> ChunkSource? {
    let name = try EntryName(key: key, rules: rules)
    // Repeated if the entry is replaced before its payload is open.
    for _ in 0..<3 {
      guard case .found(let entry, _) = try lookUp(key, .recordUse) else { return nil }
      guard let file = try File.openIfPresent(name.path, in: directory) else { continue }
      let payload = try file.status(withTimes: true)
      file.keep(payload)
      var source = ChunkSource(contents: .file(file), size: payload.size)
      if entry.isPayloadVerified, entry.matches(payload, keyID: name.keyID) { return source }
      guard let sidecar = try readSidecar(of: entry, payload, name, key) else { continue }
      source.verify = { [self] sum throws(StorageError) in
        if sum == sidecar.checksum { return verifiedEntries.notePayloadVerified(entry, of: name) }
        // As for any reader, the next one can also clean up.
        if let locked = try? lock(name, timeout: .zero) {
          defer { locked.unlock() }
          locked.removeDamaged(entry)
        }
        throw StorageError(
          .damaged, operation: "chunks", path: file.path,
          reason: "the bytes are not those that were stored", remedy: "Store the value again.")
      }
      return source
    }
    return nil
  }

  private func recordUse(of name: EntryName, _ entry: VerifiedEntry) {
    // Fails if this process may only read; the uses of other processes then decide.
    do throws(StorageError) {
      try requireOwn(name.directory)
      try FileSystem.touch(name.sidecarPath, in: directory)
    } catch {}
    verifiedEntries.setLastRecordedUse(entry.lastUsed, of: name)
  }
}

/// What was read from a sidecar file.
struct FoundSidecar {
  let sidecar: Sidecar
  /// Whether it has the key that was asked for.
  let hasKey: Bool
  /// The entry's last recorded use, only for an idle expiry; otherwise its creation.
  fileprivate(set) var lastUsed: Int64

  /// When the entry expires; `Int64.min` if it has expired.
  var expires: Int64 {
    let (expiry, created) = (sidecar.expiry, sidecar.created)
    if expiry.hasPassed(created: created, lastUsed: lastUsed, now: WallClock.now) { return .min }
    return expiry.time(created: created, lastUsed: lastUsed)
  }

  /// nil if the file is damaged.
  @inline(__always)
  fileprivate init?(
    _ contents: UnsafeRawBufferPointer, of payload: FileStatus?, _ key: String?,
    path: @autoclosure () -> String
  ) throws(StorageError) {
    let record: SidecarRecord
    do throws(Sidecar.Failure) {
      record = try SidecarRecord.find(for: payload, in: contents)
    } catch .newerVersion {
      throw StorageError(
        .unsupportedVersion, operation: "open", path: path(),
        reason: "a newer version of Keepsake wrote this entry",
        remedy: "Update Keepsake, or remove the entry.")
    } catch {
      return nil
    }
    sidecar = record.sidecar
    hasKey = key.map { $0.utf8.hasSameBytes(as: record.key) } ?? true
    lastUsed = sidecar.created
  }
}

extension ReadableFile where Self: ~Copyable {
  /// Calls `body` with the contents of this sidecar file.
  ///
  /// - Parameter keyLength: nil if the key is not known.
  @inline(__always)
  func withSidecar<R>(
    keyLength: Int?, _ body: (UnsafeRawBufferPointer) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    // A longer file fills the buffer.
    let size = Sidecar.usualFileSize(keyLength: keyLength ?? 255) + 1
    let result = try withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) {
      (buffer) throws(StorageError) -> R? in
      let count = try readOnce(into: buffer)
      // A failing disk can look like an empty file.
      let isWhole = try count > 0 ? count < size : status().size == 0
      return isWhole ? try body(UnsafeRawBufferPointer(rebasing: buffer[..<count])) : nil
    }
    if let result { return result }
    let length = keyLength ?? EntryName.longestKey
    let bytes = try read(from: 0, count: Sidecar.largestFileSize(keyLength: length))
    return try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in
      try body(bytes)
    }
  }
}
