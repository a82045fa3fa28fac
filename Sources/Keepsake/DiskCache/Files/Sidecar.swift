/// The file beside a payload, which records its type, expiry and key.
///
/// The article on the cache format describes it. All integers are little-endian:
///
///     0  "KSC", version    8  checksum of all else   16  payload size    24  payload modified
///     4  kind, expiry     32  payload checksum       40  created         48  time of the expiry
///     6  zero (2 bytes)   56  key length             60  zero (4 bytes)  64  the key
///
/// A record of version 2 has details after the key. The length at 56 then includes them, and their
/// own length is at 60.
///
/// The record is followed by the previous one, or by room for its header. While an entry is
/// overwritten, its payload belongs to either of the two.
struct Sidecar: Equatable, Sendable {
  /// nil for a record, without a payload, that there is no value.
  var kind: Payload.Kind?
  var expiry: StoredExpiry
  /// The payload's size, modification time and checksum tell which payload the sidecar belongs to.
  var size: Int
  var modified: Int64
  var checksum: UInt64
  var created: Int64
  var details: EntryDetails?

  static let headerSize = 64
  /// The end of a sidecar's path, after the path of its payload.
  static let pathSuffix: StaticString = ".meta"
  static let suffix = pathSuffix.description

  /// The name of the payload beside a sidecar; nil if this is not the name of a sidecar.
  static func payloadName(of fileName: String) -> String? {
    fileName.hasSuffix(suffix) ? String(Substring(fileName.utf8.dropLast(suffix.utf8.count))) : nil
  }

  enum Failure: Error {
    /// The record is incomplete or was changed.
    case damaged
    case newerVersion
  }

  private static let signatureWord: UInt32 = 0x43_534B
  /// What ``kind`` is on disk if there is no value.
  private static let noValue: UInt8 = 255
  private static let plainVersion: UInt8 = 1
  /// The version of records that have details.
  private static let detailedVersion: UInt8 = 2

  /// The size of a sidecar file whose records have no details.
  static func fileSize(keyLength: Int) -> Int { 2 * headerSize + keyLength }

  /// The most that a sidecar file takes.
  static func largestFileSize(keyLength: Int) -> Int {
    2 * (headerSize + keyLength + EntryDetails.largestSize)
  }

  /// Calls `body` with the contents of a sidecar file: the record for a key, and room for the
  /// header of the previous one, which is zero. The record holds the whole key, because some file
  /// names are hashes.
  func withContents<R>(
    of key: String, _ body: (UnsafeMutableRawBufferPointer) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    // Copies, because closures that use `self` would copy all of it.
    let (rule, time) = expiry.stored
    let (size, modified, checksum, created) = (size, modified, checksum, created)
    // An empty array is no allocation.
    let isPlain = details == nil && kind != nil
    let details = isPlain ? [] : (details?.bytes ?? Array(repeating: 0, count: 8))
    let kind = kind?.rawValue ?? Self.noValue
    return try key.utf8.span.bytes.withUnsafeBytes { (key) throws(StorageError) in
      try withUnsafeTemporaryAllocation(
        byteCount: Self.fileSize(keyLength: key.count + details.count), alignment: 8
      ) { (contents) throws(StorageError) in
        let end = Self.headerSize + key.count + details.count
        let record = UnsafeMutableRawBufferPointer(rebasing: contents[..<end])
        func store(_ number: some FixedWidthInteger & BitwiseCopyable, at offset: Int) {
          record.storeBytes(of: number.littleEndian, toByteOffset: offset, as: type(of: number))
        }
        let version = isPlain ? Self.plainVersion : Self.detailedVersion
        store(Self.signatureWord | UInt32(version) << 24, at: 0)
        store(kind, at: 4)
        store(rule, at: 5)
        store(UInt16(0), at: 6)
        store(UInt64(size), at: 16)
        store(modified, at: 24)
        store(checksum, at: 32)
        store(created, at: 40)
        store(time, at: 48)
        store(UInt32(key.count + details.count), at: 56)
        store(UInt32(details.count), at: 60)
        UnsafeMutableRawBufferPointer(rebasing: record[Self.headerSize...]).copyBytes(from: key)
        if !isPlain {
          UnsafeMutableRawBufferPointer(rebasing: record[(Self.headerSize + key.count)...])
            .copyBytes(from: details)
        }
        store(Self.sum(UnsafeRawBufferPointer(record)), at: 8)
        UnsafeMutableRawBufferPointer(rebasing: contents[end...]).initializeMemory(
          as: UInt8.self, repeating: 0)
        return try body(contents)
      }
    }
  }

  /// What the header of a record, which may be damaged, says of the payload.
  struct Claim {
    let size: UInt64
    let modified: Int64

    init(header: UnsafeRawBufferPointer) {
      size = header.number(at: 16)
      modified = header.number(at: 24)
    }

    func fits(_ payload: FileStatus) -> Bool {
      size == payload.size && (modified == payload.modified || modified == 0)
    }
  }

  /// Whether the header of a record, which may be damaged, says that there are details.
  static func isDetailed(header: UnsafeRawBufferPointer) -> Bool {
    header.count >= headerSize && header[3] != plainVersion && hasSignature(header)
  }

  private static func hasSignature(_ header: UnsafeRawBufferPointer) -> Bool {
    header.number(at: 0, as: UInt32.self) & 0xFF_FFFF == signatureWord
  }

  private static func number(_ record: UnsafeRawBufferPointer, at offset: Int) -> Int {
    Int(record.number(at: offset, as: UInt32.self))
  }

  /// The length of the key and the details.
  private static func variableLength(_ record: UnsafeRawBufferPointer) -> Int {
    number(record, at: 56)
  }

  private static func detailsLength(_ record: UnsafeRawBufferPointer) -> Int {
    record[3] == detailedVersion ? number(record, at: 60) : 0
  }

  /// The key of a record that ``init(_:)`` has accepted, in UTF-8.
  static func key(in record: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
    let length = variableLength(record) - detailsLength(record)
    return UnsafeRawBufferPointer(rebasing: record[headerSize..<(headerSize + length)])
  }

  /// What follows the first record of a sidecar file; nil if the file is damaged.
  private static func rest(of bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
    guard bytes.count >= headerSize else { return nil }
    let end = headerSize + variableLength(bytes)
    guard bytes.count - end >= headerSize else { return nil }
    return UnsafeRawBufferPointer(rebasing: bytes[end...])
  }

  /// Whether the first bytes of a sidecar file, as many as a file without details has, are not all
  /// that matters.
  static func hasMore(after start: UnsafeRawBufferPointer) -> Bool {
    isDetailed(header: start) || rest(of: start).map { isDetailed(header: $0) } ?? false
  }

  /// The record before the one at the start of a sidecar file; nil if there is none, or if it is
  /// damaged.
  ///
  /// - Parameter bytes: The contents of the file, whose first record ``init(_:)`` has accepted.
  static func previous(in bytes: UnsafeRawBufferPointer) -> Sidecar? {
    guard let rest = rest(of: bytes) else { return nil }
    let key = key(in: bytes)
    if isDetailed(header: rest) {
      guard let previous = try? Sidecar(rest), self.key(in: rest).elementsEqual(key) else {
        return nil
      }
      return previous
    }
    let end = headerSize + key.count
    return withUnsafeTemporaryAllocation(byteCount: end, alignment: 8) { record in
      record.copyMemory(from: UnsafeRawBufferPointer(rebasing: rest[..<headerSize]))
      UnsafeMutableRawBufferPointer(rebasing: record[headerSize...]).copyMemory(from: key)
      // Both have the key of the first.
      guard variableLength(UnsafeRawBufferPointer(record)) == key.count else { return nil }
      return try? Sidecar(UnsafeRawBufferPointer(record))
    }
  }

  /// The bytes that follow a new record in a sidecar file: those of the record, in the file as it
  /// is now, that a payload belongs to. They are zero if there is none.
  static func bytesOfRecord(
    of payload: FileStatus, in bytes: UnsafeRawBufferPointer
  ) -> [UInt8] {
    let empty = [UInt8](repeating: 0, count: headerSize)
    guard let first = try? Sidecar(bytes) else { return empty }
    if first.fits(payload) {
      let end = isDetailed(header: bytes) ? headerSize + variableLength(bytes) : headerSize
      return Array(bytes[..<end])
    }
    guard let previous = previous(in: bytes), previous.fits(payload), let rest = rest(of: bytes)
    else { return empty }
    return Array(
      rest[..<(isDetailed(header: rest) ? headerSize + variableLength(rest) : headerSize)])
  }

  /// Parses a record. Bytes after it belong to an earlier one.
  init(_ bytes: UnsafeRawBufferPointer) throws(Failure) {
    guard bytes.count >= Self.headerSize else { throw .damaged }
    guard Self.hasSignature(bytes) else { throw .damaged }
    let length = Self.variableLength(bytes)
    guard length <= bytes.count - Self.headerSize else { throw .damaged }
    let record = UnsafeRawBufferPointer(rebasing: bytes[..<(Self.headerSize + length)])
    // Checked before the version, which may be damaged; all versions have the checksum here.
    guard bytes.number(at: 8) == Self.sum(record) else { throw .damaged }
    let version = bytes[3]
    guard version == Self.plainVersion || version == Self.detailedVersion else {
      throw version > Self.detailedVersion ? .newerVersion : .damaged
    }
    guard let size = Int(exactly: bytes.number(at: 16, as: UInt64.self)) else { throw .damaged }
    kind = Payload.Kind(rawValue: bytes[4])
    guard let expiry = StoredExpiry(rule: bytes[5], time: bytes.number(at: 48)) else {
      throw .damaged
    }
    self.expiry = expiry
    self.size = size
    modified = bytes.number(at: 24)
    checksum = bytes.number(at: 32)
    created = bytes.number(at: 40)
    if version == Self.plainVersion {
      if kind == nil { throw .damaged }
      return
    }
    let detailsLength = Self.detailsLength(bytes)
    guard detailsLength <= length,
      let details = EntryDetails(UnsafeRawBufferPointer(rebasing: record.suffix(detailsLength))),
      kind != nil || bytes[4] == Self.noValue && size == 0
    else { throw .damaged }
    if !details.isEmpty { self.details = details }
  }

  init(
    kind: Payload.Kind?, expiry: StoredExpiry, size: Int, modified: Int64, checksum: UInt64,
    created: Int64, details: EntryDetails? = nil
  ) {
    self.kind = kind
    self.expiry = expiry
    self.size = size
    self.modified = modified
    self.checksum = checksum
    self.created = created
    self.details = details
  }

  /// The checksum of all other bytes of a record.
  private static func sum(_ record: UnsafeRawBufferPointer) -> UInt64 {
    let head: UInt64 = record.number(at: 0)
    return Checksum.sum(UnsafeRawBufferPointer(rebasing: record[16...]), seed: head)
  }

  /// Whether this is the sidecar of the payload that has this status.
  func belongs(to payload: FileStatus) -> Bool {
    size == payload.size && modified == payload.modified && kind != nil
  }

  /// The same if the file system stores nanoseconds; otherwise only the checksum can tell.
  func fits(_ payload: FileStatus) -> Bool {
    kind != nil && size == payload.size && (modified == payload.modified || modified == 0)
  }
}
