#if SecureVault
internal import FoundationEssentials

/// The parts of an entry to open.
enum EntryPart { case names, value, all }

/// An entry whose boxes were opened.
struct OpenedEntry: ~Copyable {
  let header: EntryHeader
  /// nil if they were not asked for.
  let names: EntryNames?
  /// The value's plaintext with prefix and padding; empty if it was not asked for.
  let plaintext: SecretBytes
}

enum EntryReadResult: ~Copyable {
  case missing
  /// The entry is sealed under a key that is not in the session's key set.
  case unknownKey(UInt32)
  case opened(OpenedEntry)
}

/// Reading entry files and opening their boxes.
extension VaultSession {
  /// Larger entries are read in chunks; most secrets fit with their names.
  static var smallEntrySize: Int { 4_096 }

  /// Reads an entry and opens the parts that are asked for.
  ///
  /// - Throws: An error of code `damaged` if any byte of those parts was altered, or if the entry
  ///   was moved here.
  func readEntry(
    at path: EntryPath, _ part: EntryPart, for purpose: EntryPurpose = .reading
  ) throws(StorageError) -> EntryReadResult {
    var cipher: XAES?
    var entry: StoredEntry?
    return try readEntry(at: path, part, for: purpose, keeping: &cipher, &entry)
  }

  /// Does the same for a call that stores another entry in its place.
  ///
  /// - Parameters:
  ///   - cipher: For a box that the call seals under the primary key. It stays nil if the entry is
  ///     sealed under another one.
  ///   - entry: The entry, which the write may depend on. A file is closed instead.
  func readEntry(
    at path: EntryPath, _ part: EntryPart, for purpose: EntryPurpose,
    keeping cipher: inout XAES?, _ entry: inout StoredEntry?
  ) throws(StorageError) -> EntryReadResult {
    guard let stored = try revision.openEntry(path, for: purpose) else { return .missing }
    switch stored {
    case .file(let file):
      return try readEntry(in: file, at: path, part, keeping: &cipher)
    case .bytes(let data):
      entry = stored
      return try data.span.bytes.withUnsafeBytes { bytes throws(StorageError) in
        let header = try path.parseHeader(bytes)
        guard ring.hasKey(header.keyID) else { return .unknownKey(header.keyID) }
        guard header.fileLength == bytes.count else { throw path.lengthError }
        return .opened(try open(header, bytes, nil, part, path, keeping: &cipher))
      }
    case .unreadable:
      entry = stored
      throw path.invalidHeaderError
    }
  }

  private func readEntry(
    in file: File, at path: EntryPath, _ part: EntryPart, keeping cipher: inout XAES?
  ) throws(StorageError) -> EntryReadResult {
    // Too large for the stack.
    let buffer = UnsafeMutableRawBufferPointer.allocate(
      byteCount: Self.smallEntrySize, alignment: 8)
    defer { buffer.deallocate() }
    // One call reads a small entry whole.
    var count = try file.readOnce(into: buffer)
    if count < EntryHeader.size { count = try file.read(from: 0, into: buffer) }
    let start = UnsafeRawBufferPointer(buffer)[part: ..<count]
    let header = try path.parseHeader(start)
    guard ring.hasKey(header.keyID) else { return .unknownKey(header.keyID) }
    // If the buffer is full, there may be more in the file.
    if header.fileLength == count, count < Self.smallEntrySize {
      return .opened(try open(header, start, nil, part, path, keeping: &cipher))
    }
    guard try file.status().size == header.fileLength else {
      throw path.lengthError
    }
    let boxStart = EntryHeader.size + header.namesLength
    let bytes = try file.read(from: 0, count: boxStart)
    guard bytes.count == boxStart else { throw path.damageError("it is truncated") }
    return try bytes.withBytes { bytes throws(StorageError) in
      .opened(try open(header, bytes, file, part, path, keeping: &cipher))
    }
  }

  /// - Parameters:
  ///   - bytes: The file from its start: all of it, or up to the value's box.
  ///   - file: The file to read the value's box from, if the box is not among the bytes.
  private func open(
    _ header: EntryHeader, _ bytes: UnsafeRawBufferPointer, _ file: File?, _ part: EntryPart,
    _ path: EntryPath, keeping keptCipher: inout XAES?
  ) throws(StorageError) -> OpenedEntry {
    let headerBytes = bytes[part: ..<EntryHeader.size]
    let valueStart = EntryHeader.size + header.namesLength
    let namesBox = bytes[part: EntryHeader.size..<valueStart]
    let opened = try ring.withEntryKey(header.keyID) { key throws(StorageError) -> OpenedEntry in
      let cipher = try XAES(key: key)
      var names: EntryNames?
      // The names box authenticates the lengths in the header. A large value's length has to be
      // authentic before memory is allocated for it.
      if part != .value || file != nil {
        let plaintext = try SecretBytes(count: header.namesLength - XAES.overhead)
        let isAuthentic = try path.withAssociatedData(
          of: .names, header: headerBytes, vaultID: self.header.vaultID
        ) { associatedData throws(StorageError) in
          try cipher.open(namesBox, authenticating: associatedData, into: plaintext.bytes)
        }
        guard isAuthentic, let found = EntryNames(UnsafeRawBufferPointer(plaintext.bytes)),
          try isPath(path, of: found.service, found.key)
        else { throw path.alteredError }
        names = found
      }
      guard part != .names else {
        if header.keyID == ring.primaryID { keptCipher = consume cipher }
        return OpenedEntry(header: header, names: names, plaintext: try SecretBytes(count: 0))
      }
      let plaintext = try SecretBytes(count: header.valueLength - XAES.overhead)
      let isAuthentic = try path.withAssociatedData(
        of: .value, header: headerBytes, vaultID: self.header.vaultID, namesBox: namesBox
      ) { associatedData throws(StorageError) in
        if let file {
          try Self.openValue(in: file, at: valueStart, cipher, associatedData, plaintext.bytes)
        } else {
          try cipher.open(
            bytes[part: valueStart...], authenticating: associatedData, into: plaintext.bytes)
        }
      }
      guard isAuthentic else { throw path.alteredError }
      return OpenedEntry(header: header, names: names, plaintext: plaintext)
    }
    if let opened { return opened }
    throw path.unknownKeyError(header.keyID)
  }

  /// Opens a box chunk by chunk; false if it is not authentic.
  private static func openValue(
    in file: File, at start: Int, _ cipher: borrowing XAES,
    _ associatedData: UnsafeRawBufferPointer, _ plaintext: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Bool {
    let messageStart = start + XAES.nonceSize
    let end = messageStart + plaintext.count
    let nonce = try file.read(from: start, count: XAES.nonceSize)
    guard nonce.count == XAES.nonceSize else { return false }
    try nonce.withBytes { nonce throws(StorageError) in try cipher.begin(.opening, nonce: nonce) }
    try cipher.gcm.authenticate(associatedData)
    try ChunkBuffer.with(plaintext.count) { buffer throws(StorageError) in
      var position = messageStart
      while position < end {
        let chunk = buffer[part: ..<min(buffer.count, end - position)]
        guard try file.read(from: position, into: chunk) == chunk.count else { return }
        let offset = position - messageStart
        try cipher.gcm.update(
          UnsafeRawBufferPointer(chunk), into: plaintext[part: offset..<(offset + chunk.count)])
        position += chunk.count
      }
    }
    let tag = try file.read(from: end, count: XAES.tagSize)
    return try tag.withBytes { tag throws(StorageError) in try cipher.gcm.verify(tag: tag) }
  }

  /// Whether any entry requires the user's presence.
  ///
  /// Only authenticated headers count. An entry that cannot be opened may require it, provided that
  /// there is a key for that.
  func hasEntryRequiringPresence() throws(StorageError) -> Bool {
    for _ in 0..<passCount {
      for directoryName in try storage.entryDirectories() {
        for path in try storage.entries(in: directoryName) where try mayRequirePresence(path) {
          return true
        }
      }
    }
    return false
  }

  private func mayRequirePresence(_ path: EntryPath) throws(StorageError) -> Bool {
    do throws(StorageError) {
      switch try readEntry(at: path, .names) {
      case .missing: return false
      case .opened(let entry): return entry.header.isPresenceRequired
      case .unknownKey: return header.presenceSlot != nil
      }
    } catch {
      if error.isDescriptorLimit { throw error }
      return header.presenceSlot != nil
    }
  }
}
#endif
