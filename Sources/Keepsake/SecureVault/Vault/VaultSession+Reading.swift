#if SecureVault
internal import FoundationEssentials

/// The parts of an entry to open.
enum EntryPart { case names, value, all }

/// An entry whose boxes were opened.
///
/// It does not hold the session that opened it: asking the user for presence may take long, and
/// must not keep the keys in memory.
struct OpenedEntry: ~Copyable {
  let path: EntryPath
  /// nil unless the value requires the user's presence.
  let vaultHeader: VaultHeader?
  let header: EntryHeader
  /// nil if they were not asked for.
  let names: EntryNames?
  /// The value's box, decrypted in its place; empty if the value was not asked for.
  fileprivate let box: SecretBytes
  /// What the value is, according to its prefix; 0 if it was not asked for.
  fileprivate(set) var kind: UInt8 = 0
  /// The part of the memory that is the value.
  fileprivate(set) var range = 0..<0
  /// For a box that the caller seals. nil unless only the names were opened, under the primary key.
  var cipher: XAES?

  /// The bytes of the value.
  var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(box.bytes)[part: range] }

  /// nil when the bytes are not valid for their kind.
  var value: StoredValue? { Payload.Kind(rawValue: kind)?.value(of: bytes) }

  /// Turns the value into `Data` without copying it.
  consuming func data() -> Data {
    let range = range
    return box.data(range)
  }

  func withBytes<R, E: Error>(_ body: (RawSpan) throws(E) -> R) throws(E) -> R {
    try body(bytes.bytes)
  }

  /// Finds the value in the plaintext of a box that is at this position in the memory.
  fileprivate mutating func findValue(inBoxAt position: Range<Int>) throws(StorageError) {
    let start = position.lowerBound + XAES.nonceSize
    let plaintext = UnsafeRawBufferPointer(box.bytes)[
      part: start..<(position.upperBound - XAES.tagSize)]
    guard let found = PaddedValue.parse(plaintext) else {
      throw path.unknownKindError
    }
    kind = found.kind
    range = (start + found.range.lowerBound)..<(start + found.range.upperBound)
  }

  /// Opens the box under the presence key that the value is.
  ///
  /// - Parameter associatedData: What the box was sealed with.
  mutating func openValue(
    under key: PresenceKey, authenticating associatedData: [UInt8]
  ) throws(StorageError) {
    guard range.count >= XAES.overhead else { throw path.alteredError }
    let isAuthentic = try XAES.open(
      bytes, key: key.bytes, authenticating: associatedData,
      into: XAES.message(in: box.bytes[part: range]))
    guard isAuthentic else { throw path.alteredError }
    try findValue(inBoxAt: range)
  }
}

/// Reading entries and opening their boxes.
extension VaultSession {
  /// The bytes that are read at first: most secrets fit with their names.
  private static var firstReadSize: Int { 4_096 }

  /// Reads an entry and opens the parts that are asked for; nil if there is none.
  ///
  /// - Throws: An error of code `damaged` if any byte of those parts was altered, if the entry was
  ///   moved here, or if the session does not have its key.
  func readEntry(
    at path: EntryPath, _ part: EntryPart, for purpose: EntryPurpose = .reading
  ) throws(StorageError) -> OpenedEntry? {
    guard let entry = try storage.openEntry(path, for: purpose) else { return nil }
    return try open(entry, at: path, part)
  }

  /// Reads the entry of a key, wherever it is; nil if there is none.
  func findEntry(
    _ service: String, _ key: String, _ part: EntryPart
  ) throws(StorageError) -> OpenedEntry? {
    let path = try entryPath(service: service, key: key)
    if let entry = try readEntry(at: path, part) { return entry }
    for path in try pathsAfterMiss(of: path, service: service, key: key) {
      if let entry = try readEntry(at: path, part) { return entry }
    }
    return nil
  }

  /// Opens the parts of an entry that are asked for.
  ///
  /// - Parameter size: How many bytes to read at first.
  func open(
    _ entry: StoredEntry, at path: EntryPath, _ part: EntryPart,
    reading size: Int = VaultSession.firstReadSize
  ) throws(StorageError) -> OpenedEntry {
    // Too large for the stack.
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 8)
    defer { buffer.deallocate() }
    var count = try entry.read(into: buffer)
    let header = try EntryHeader(UnsafeRawBufferPointer(buffer)[part: ..<count], at: path)
    if count < min(size, header.fileLength) { count = try entry.read(from: 0, into: buffer) }
    // If the buffer is full, there may be more.
    guard try header.fileLength == (count < size ? count : entry.size()) else {
      throw path.damageError("its length does not match its header")
    }
    let valueStart = EntryHeader.size + header.namesLength
    guard valueStart <= count else { return try open(entry, at: path, part, reading: valueStart) }
    let start = UnsafeRawBufferPointer(buffer)[part: ..<valueStart]
    guard let cipher = try makeCipher(header.keyID) else {
      throw path.unknownKeyError(header.keyID)
    }
    var names: EntryNames?
    // The names box authenticates the lengths in the header. A large value's length must be
    // authentic before memory is allocated for it.
    if part != .value || header.fileLength > count {
      names = try openNames(start, at: path, with: cipher)
    }
    var opened = OpenedEntry(
      path: path, vaultHeader: header.isPresenceRequired ? self.header : nil, header: header,
      names: names, box: try SecretBytes(count: part == .names ? 0 : header.valueLength))
    if part == .names {
      if header.keyID == ring.primaryID { opened.cipher = consume cipher }
      return opened
    }
    let box = opened.box.bytes
    var sealed = UnsafeRawBufferPointer(buffer)[part: valueStart..<count]
    if header.fileLength > count {
      sealed = UnsafeRawBufferPointer(box)
      guard try entry.read(from: valueStart, into: box) == sealed.count else {
        throw path.damageError("it is truncated")
      }
    }
    try openBox(sealed, .value, of: start, at: path, with: cipher, into: XAES.message(in: box))
    try opened.findValue(inBoxAt: 0..<header.valueLength)
    return opened
  }

  /// - Parameter start: The entry up to the value's box.
  private func openNames(
    _ start: UnsafeRawBufferPointer, at path: EntryPath, with cipher: borrowing XAES
  ) throws(StorageError) -> EntryNames {
    let box = start[part: EntryHeader.size...]
    let plaintext = try SecretBytes(count: box.count - XAES.overhead)
    try openBox(box, .names, of: start, at: path, with: cipher, into: plaintext.bytes)
    guard let names = EntryNames(UnsafeRawBufferPointer(plaintext.bytes)),
      try isPath(path, of: names.service, names.key)
    else { throw path.alteredError }
    return names
  }

  private func openBox(
    _ box: UnsafeRawBufferPointer, _ kind: EntryPath.Box, of start: UnsafeRawBufferPointer,
    at path: EntryPath, with cipher: borrowing XAES, into message: UnsafeMutableRawBufferPointer
  ) throws(StorageError) {
    // On the stack, because an array would take a tenth of a `get`.
    let size = path.associatedDataSize(start, vaultID: header.vaultID)
    let isAuthentic = try withUnsafeTemporaryAllocation(byteCount: size, alignment: 1) {
      memory throws(StorageError) in
      let data = path.writeAssociatedData(of: kind, start, vaultID: header.vaultID, to: memory)
      return try cipher.open(box, authenticating: data, into: message)
    }
    guard isAuthentic else { throw path.alteredError }
  }

  /// A cipher under an entry key; nil if there is no key of this id.
  func makeCipher(_ keyID: UInt32) throws(StorageError) -> XAES? {
    try ring.withEntryKey(keyID) { key throws(StorageError) in try XAES(key: key) }
  }

  /// Whether any entry requires the user's presence.
  ///
  /// Only authenticated headers count. An entry that cannot be opened may require it, provided that
  /// there is a key for that.
  func hasEntryRequiringPresence() throws(StorageError) -> Bool {
    for _ in 0..<passCount {
      for directoryName in try storage.entryDirectories() {
        for path in try storage.entries(in: directoryName) {
          do throws(StorageError) {
            if try readEntry(at: path, .names)?.header.isPresenceRequired == true { return true }
          } catch {
            if error.isDescriptorLimit { throw error }
            if header.presenceSlot != nil { return true }
          }
        }
      }
    }
    return false
  }
}
#endif
