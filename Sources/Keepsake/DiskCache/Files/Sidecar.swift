/// The file beside a payload, which records its type, expiry and key.
///
/// The article on the cache format describes it. All integers are little-endian:
///
///     0  "KSE", version    8  checksum of all else   16  payload size    24  payload modified
///     4  kind, expiry     32  payload checksum       40  created         48  time of the expiry
///     6  zero (2 bytes)   56  length of key + details  60  length of details  64  the key, details
///
/// Once an entry has been overwritten, the record of the one before follows: while that happens,
/// the payload belongs to either of the two.
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

  private static let signatureWord: UInt32 = 0x45_534B
  private static let version: UInt8 = 1
  /// What ``kind`` is on disk if there is no value.
  private static let noValue: UInt8 = 255

  /// Few sidecar files are larger: details rarely take more than 64 bytes.
  static func usualFileSize(keyLength: Int) -> Int { 2 * (headerSize + keyLength + 64) }

  /// The most that a sidecar file takes.
  static func largestFileSize(keyLength: Int) -> Int {
    2 * (headerSize + keyLength + EntryDetails.largestSize)
  }

  /// Calls `body` with the record for a key. It holds the whole key, because some file names are
  /// hashes.
  func withRecord<R>(
    of key: String, _ body: (UnsafeRawBufferPointer) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    // Copies, because closures that use `self` would copy all of it.
    let (rule, time) = expiry.stored
    let (size, modified, checksum, created) = (size, modified, checksum, created)
    let kind = kind?.rawValue ?? Self.noValue
    // An empty array is no allocation.
    let details = details?.bytes ?? []
    return try key.utf8.span.bytes.withUnsafeBytes { (key) throws(StorageError) in
      try withUnsafeTemporaryAllocation(
        byteCount: Self.headerSize + key.count + details.count, alignment: 8
      ) { (record) throws(StorageError) in
        func store(_ number: some FixedWidthInteger & BitwiseCopyable, at offset: Int) {
          record.storeBytes(of: number.littleEndian, toByteOffset: offset, as: type(of: number))
        }
        store(Self.signatureWord | UInt32(Self.version) << 24, at: 0)
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
        let rest = UnsafeMutableRawBufferPointer(rebasing: record[Self.headerSize...])
        rest.copyBytes(from: key)
        UnsafeMutableRawBufferPointer(rebasing: rest[key.count...]).copyBytes(from: details)
        store(Self.sum(UnsafeRawBufferPointer(record)), at: 8)
        return try body(UnsafeRawBufferPointer(record))
      }
    }
  }

  /// The checksum of all other bytes of a record.
  private static func sum(_ record: UnsafeRawBufferPointer) -> UInt64 {
    let head: UInt64 = record.number(at: 0)
    return Checksum.sum(UnsafeRawBufferPointer(rebasing: record[16...]), seed: head)
  }

  /// Whether this is the sidecar of the payload that has this status. If the file system does not
  /// store nanoseconds, only the checksum can tell.
  func fits(_ payload: FileStatus) -> Bool {
    kind != nil && size == payload.size && (modified == payload.modified || modified == 0)
  }
}

extension Sidecar {
  /// Parses a record without its key.
  ///
  /// - Parameter record: All bytes of the record.
  fileprivate init(_ record: UnsafeRawBufferPointer) throws(Failure) {
    guard record.number(at: 0, as: UInt32.self) & 0xFF_FFFF == Self.signatureWord,
      // Checked before the version, which may be damaged; all versions have the checksum here.
      record.number(at: 8) == Self.sum(record), record[3] >= Self.version
    else { throw .damaged }
    if record[3] > Self.version { throw .newerVersion }
    kind = Payload.Kind(rawValue: record[4])
    guard let size = Int(exactly: record.number(at: 16, as: UInt64.self)),
      kind != nil || record[4] == Self.noValue && size == 0,
      let expiry = StoredExpiry(rule: record[5], time: record.number(at: 48))
    else { throw .damaged }
    self.expiry = expiry
    self.size = size
    modified = record.number(at: 24)
    checksum = record.number(at: 32)
    created = record.number(at: 40)
    let detailsLength = Int(record.number(at: 60, as: UInt32.self))
    if detailsLength == 0 { return }
    guard detailsLength <= record.count - Self.headerSize,
      let details = EntryDetails(UnsafeRawBufferPointer(rebasing: record.suffix(detailsLength)))
    else { throw .damaged }
    if !details.isEmpty { self.details = details }
  }
}

/// A record in the contents of a sidecar file.
struct SidecarRecord {
  let sidecar: Sidecar
  let bytes: UnsafeRawBufferPointer

  /// Parses the first record. Bytes after it belong to an earlier one.
  init(_ contents: UnsafeRawBufferPointer) throws(Sidecar.Failure) {
    guard contents.count >= Sidecar.headerSize else { throw .damaged }
    let length = Int(contents.number(at: 56, as: UInt32.self))
    guard length <= contents.count - Sidecar.headerSize else { throw .damaged }
    bytes = UnsafeRawBufferPointer(rebasing: contents[..<(Sidecar.headerSize + length)])
    sidecar = try Sidecar(bytes)
  }

  /// The record that a payload belongs to; the first one if neither does, or if there is none.
  static func find(
    for payload: FileStatus?, in contents: UnsafeRawBufferPointer
  ) throws(Sidecar.Failure) -> SidecarRecord {
    let first = try SidecarRecord(contents)
    guard let payload, !first.sidecar.fits(payload) else { return first }
    // The writer of the first record has not published its payload, and may never do so.
    let rest = UnsafeRawBufferPointer(rebasing: contents[first.bytes.count...])
    guard let previous = try? SidecarRecord(rest), previous.sidecar.fits(payload) else {
      return first
    }
    return previous
  }

  /// In UTF-8.
  var key: UnsafeRawBufferPointer {
    let end = bytes.count - Int(bytes.number(at: 60, as: UInt32.self))
    return UnsafeRawBufferPointer(rebasing: bytes[Sidecar.headerSize..<end])
  }
}
