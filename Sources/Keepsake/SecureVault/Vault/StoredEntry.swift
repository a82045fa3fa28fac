#if SecureVault
package import FoundationEssentials

/// An entry as it is stored, with unchecked bytes.
package enum StoredEntry {
  case file(File)
  /// All bytes of the entry; none for something that is no entry.
  case bytes(Data)

  func size() throws(StorageError) -> Int {
    switch self {
    case .file(let file): try file.status().size
    case .bytes(let data): data.count
    }
  }

  /// Reads the start of the entry with one call, which usually returns the whole of one that fits.
  ///
  /// - Returns: The number of bytes, which are the header at least unless the entry is shorter.
  func read(into buffer: UnsafeMutableRawBufferPointer) throws(StorageError) -> Int {
    guard case .file(let file) = self else { return try read(from: 0, into: buffer) }
    let count = try file.readOnce(into: buffer)
    return count < EntryHeader.size ? try file.read(from: 0, into: buffer) : count
  }

  func read(
    from offset: Int, into buffer: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Int {
    switch self {
    case .file(let file): return try file.read(from: offset, into: buffer)
    case .bytes(let data):
      let count = min(buffer.count, data.count - offset)
      return data.span.bytes.withUnsafeBytes { bytes in
        buffer.copyMemory(from: bytes[part: offset..<(offset + count)])
        return count
      }
    }
  }

  /// The entry's header, which nothing authenticates yet.
  func header(at path: EntryPath) throws(StorageError) -> EntryHeader {
    try withUnsafeTemporaryAllocation(byteCount: EntryHeader.size, alignment: 8) {
      buffer throws(StorageError) in
      let count = try read(into: buffer)
      return try EntryHeader(UnsafeRawBufferPointer(buffer)[part: ..<count], at: path)
    }
  }
}

/// What an entry is opened for.
package enum EntryPurpose {
  /// To return it or a part of it, or to store another one in its place.
  case reading
  /// To change or count the keys in use. The entry is the one that is stored now: one that has not
  /// arrived on this machine counts.
  case changingKeys
}

/// The condition under which an entry is replaced by another one.
package enum EntryCondition {
  case none
  /// There is none.
  case isAbsent
  /// It requires the user's presence, or not, like the entry that was read; nil if there was none.
  case hasAccess(of: StoredEntry?, isPresenceRequired: Bool)
}
#endif
