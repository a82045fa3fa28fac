/// The file beside a payload, which records its type, expiry and key.
///
/// The article on the cache format describes it. All integers are little-endian:
///
///     0  "KSC", version    8  checksum of all else   16  payload size    24  payload modified
///     4  kind, expiry     32  payload checksum       40  created         48  time of the expiry
///     6  zero (2 bytes)   56  key length             60  zero (4 bytes)  64  the key
///
/// After the key there is room for the header of the previous record. While an entry is
/// overwritten, its payload belongs to either of the two.
struct Sidecar: Equatable, Sendable {
  var kind: Payload.Kind
  var expiry: StoredExpiry
  /// The payload's size, modification time and checksum tell which payload the sidecar belongs to.
  var size: Int
  var modified: Int64
  var checksum: UInt64
  var created: Int64

  static let headerSize = 64
  static let suffix = ".meta"

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
  private static let version: UInt8 = 1

  /// The size of a sidecar file.
  static func fileSize(keyLength: Int) -> Int { 2 * headerSize + keyLength }

  /// Calls `body` with the contents of a sidecar file: the record for a key, and room for the
  /// header of the previous one, which is zero. The record holds the whole key, because some file
  /// names are hashes.
  func withContents<R>(
    of key: String, _ body: (UnsafeMutableRawBufferPointer) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let (rule, time): (UInt8, Int64) =
      switch expiry {
      case .never: (0, 0)
      case .after(let length): (1, length)
      case .at(let time): (2, time)
      case .idle(let length): (3, length)
      }
    return try key.utf8.span.bytes.withUnsafeBytes { (key) throws(StorageError) in
      try withUnsafeTemporaryAllocation(
        byteCount: Self.fileSize(keyLength: key.count), alignment: 8
      ) { (contents) throws(StorageError) in
        let end = Self.headerSize + key.count
        let record = UnsafeMutableRawBufferPointer(rebasing: contents[..<end])
        func store(_ number: some FixedWidthInteger & BitwiseCopyable, at offset: Int) {
          record.storeBytes(of: number.littleEndian, toByteOffset: offset, as: type(of: number))
        }
        store(Self.signatureWord | UInt32(Self.version) << 24, at: 0)
        store(kind.rawValue, at: 4)
        store(rule, at: 5)
        store(UInt16(0), at: 6)
        store(UInt64(size), at: 16)
        store(modified, at: 24)
        store(checksum, at: 32)
        store(created, at: 40)
        store(time, at: 48)
        store(UInt32(key.count), at: 56)
        store(UInt32(0), at: 60)
        UnsafeMutableRawBufferPointer(rebasing: record[Self.headerSize...]).copyBytes(from: key)
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
      size = UInt64(littleEndian: header.loadUnaligned(fromByteOffset: 16, as: UInt64.self))
      modified = Int64(littleEndian: header.loadUnaligned(fromByteOffset: 24, as: Int64.self))
    }

    func fits(_ payload: FileStatus) -> Bool {
      size == payload.size && (modified == payload.modified || modified == 0)
    }
  }

  private static func keyLength(_ record: UnsafeRawBufferPointer) -> Int {
    Int(UInt32(littleEndian: record.loadUnaligned(fromByteOffset: 56, as: UInt32.self)))
  }

  /// The key of a record that ``init(_:)`` has accepted, in UTF-8.
  static func key(in record: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(rebasing: record[headerSize..<(headerSize + keyLength(record))])
  }

  /// The record before the one at the start of a sidecar file; nil if there is none, or if it is
  /// damaged.
  ///
  /// - Parameter bytes: The contents of the file, whose first record ``init(_:)`` has accepted.
  static func previous(in bytes: UnsafeRawBufferPointer) -> Sidecar? {
    let end = headerSize + keyLength(bytes)
    guard bytes.count - end >= headerSize else { return nil }
    return withUnsafeTemporaryAllocation(byteCount: end, alignment: 8) { record in
      record.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[..<end]))
      record.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[end..<end + headerSize]))
      // Both have the key of the first.
      guard headerSize + keyLength(UnsafeRawBufferPointer(record)) == end else { return nil }
      return try? Sidecar(UnsafeRawBufferPointer(record))
    }
  }

  /// Parses a record. Bytes after it belong to an earlier one.
  init(_ bytes: UnsafeRawBufferPointer) throws(Failure) {
    guard bytes.count >= Self.headerSize else { throw .damaged }
    func load<N: FixedWidthInteger>(_ offset: Int, as type: N.Type = N.self) -> N {
      N(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: N.self))
    }
    guard load(0, as: UInt32.self) & 0xFF_FFFF == Self.signatureWord else { throw .damaged }
    let keyCount = Self.keyLength(bytes)
    guard keyCount <= bytes.count - Self.headerSize else { throw .damaged }
    let record = UnsafeRawBufferPointer(rebasing: bytes[..<(Self.headerSize + keyCount)])
    // Checked before the version, which may be damaged; all versions have the checksum here.
    guard load(8) == Self.sum(record) else { throw .damaged }
    guard bytes[3] == Self.version else { throw bytes[3] > Self.version ? .newerVersion : .damaged }
    guard let kind = Payload.Kind(rawValue: bytes[4]),
      let size = Int(exactly: load(16, as: UInt64.self))
    else { throw .damaged }
    let time: Int64 = load(48)
    switch (bytes[5], time) {
    case (0, _): expiry = .never
    case (1, 1...): expiry = .after(time)
    case (2, _): expiry = .at(time)
    case (3, 1...): expiry = .idle(time)
    default: throw .damaged
    }
    self.kind = kind
    self.size = size
    modified = load(24)
    checksum = load(32)
    created = load(40)
  }

  init(
    kind: Payload.Kind, expiry: StoredExpiry, size: Int, modified: Int64, checksum: UInt64,
    created: Int64
  ) {
    self.kind = kind
    self.expiry = expiry
    self.size = size
    self.modified = modified
    self.checksum = checksum
    self.created = created
  }

  /// The checksum of all other bytes of a record.
  private static func sum(_ record: UnsafeRawBufferPointer) -> UInt64 {
    let head = UInt64(littleEndian: record.loadUnaligned(as: UInt64.self))
    return Checksum.sum(UnsafeRawBufferPointer(rebasing: record[16...]), seed: head)
  }

  /// Whether this is the sidecar of the payload that has this status.
  func belongs(to payload: FileStatus) -> Bool {
    size == payload.size && modified == payload.modified
  }

  /// The same if the file system stores nanoseconds; otherwise only the checksum can tell.
  func fits(_ payload: FileStatus) -> Bool {
    size == payload.size && (modified == payload.modified || modified == 0)
  }
}
