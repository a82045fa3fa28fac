/// What the file beside a payload says of it.
///
/// The format is written down in the article on the cache's format. All integers are little-endian:
///
///     0  "KSC", version    8  checksum of all else   16  payload size    24  payload modified
///     4  kind, lifespan    32  payload checksum      40  created         48  lifespan's time
///     6  zero (2 bytes)    56  key length            60  zero (4 bytes)  64  the key
struct Sidecar: Equatable, Sendable {
  var kind: Payload.Kind
  var lifespan: Lifespan
  /// The payload's size, modification time and checksum tie the two files together.
  var size: Int
  var modified: Int64
  var checksum: UInt64
  var created: Int64
  /// The whole key, in UTF-8: some file names are hashes.
  var key: [UInt8]

  static let headerSize = 64
  static let suffix = ".meta"

  enum Failure: Error {
    /// Not a whole record, or not its own bytes any more.
    case damaged
    case newerVersion
  }

  private static let signature: [UInt8] = Array("KSC".utf8)
  private static let signatureWord: UInt32 = 0x43_534B
  private static let version: UInt8 = 1

  var bytes: [UInt8] {
    let (rule, time): (UInt8, Int64) =
      switch lifespan {
      case .endless: (0, 0)
      case .lasting(let length): (1, length)
      case .until(let end): (2, end)
      case .idle(let length): (3, length)
      }
    let count = Self.headerSize + key.count
    return [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
      let record = UnsafeMutableRawBufferPointer(
        rebasing: UnsafeMutableRawBufferPointer(buffer)[..<count])
      func store(_ number: some FixedWidthInteger & BitwiseCopyable, at offset: Int) {
        record.storeBytes(of: number.littleEndian, toByteOffset: offset, as: type(of: number))
      }
      record.copyBytes(from: Self.signature)
      store(Self.version, at: 3)
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
      filled = count
    }
  }

  /// Reads a record; bytes after it are of an earlier, longer one.
  init(_ bytes: [UInt8]) throws(Failure) {
    self = try bytes.span.bytes.withUnsafeBytes { (bytes) throws(Failure) in try Sidecar(bytes) }
  }

  /// The size of the payload as any record says it, even a damaged one; nil when there is none.
  static func payloadSize(_ header: [UInt8]) -> Int? {
    guard header.count >= Self.headerSize, header.starts(with: signature) else { return nil }
    return header.withUnsafeBytes {
      Int(exactly: UInt64(littleEndian: $0.loadUnaligned(fromByteOffset: 16, as: UInt64.self)))
    }
  }

  /// The key's length as a record says it for which ``payloadSize(_:)`` is not nil.
  static func keyLength(_ header: [UInt8]) -> Int {
    guard header.count >= Self.headerSize else { return 0 }
    return header.withUnsafeBytes {
      Int(UInt32(littleEndian: $0.loadUnaligned(fromByteOffset: 56, as: UInt32.self)))
    }
  }

  private init(_ bytes: UnsafeRawBufferPointer) throws(Failure) {
    guard bytes.count >= Self.headerSize else { throw .damaged }
    func load<N: FixedWidthInteger>(_ offset: Int, as type: N.Type = N.self) -> N {
      N(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: N.self))
    }
    guard load(0, as: UInt32.self) & 0xFF_FFFF == Self.signatureWord else { throw .damaged }
    let keyCount = Int(load(56, as: UInt32.self))
    guard keyCount <= bytes.count - Self.headerSize else { throw .damaged }
    let record = UnsafeRawBufferPointer(rebasing: bytes[..<(Self.headerSize + keyCount)])
    // The same for all versions to come: a changed byte is damage, whatever it says then.
    guard load(8) == Self.sum(record) else { throw .damaged }
    guard bytes[3] == Self.version else { throw bytes[3] > Self.version ? .newerVersion : .damaged }
    guard let kind = Payload.Kind(rawValue: bytes[4]),
      let size = Int(exactly: load(16, as: UInt64.self))
    else { throw .damaged }
    let time: Int64 = load(48)
    switch (bytes[5], time) {
    case (0, _): lifespan = .endless
    case (1, 1...): lifespan = .lasting(time)
    case (2, _): lifespan = .until(time)
    case (3, 1...): lifespan = .idle(time)
    default: throw .damaged
    }
    self.kind = kind
    self.size = size
    modified = load(24)
    checksum = load(32)
    created = load(40)
    key = Array(record[Self.headerSize...])
  }

  init(
    kind: Payload.Kind, lifespan: Lifespan, size: Int, modified: Int64, checksum: UInt64,
    created: Int64, key: [UInt8]
  ) {
    self.kind = kind
    self.lifespan = lifespan
    self.size = size
    self.modified = modified
    self.checksum = checksum
    self.created = created
    self.key = key
  }

  /// Over all but the checksum's own place.
  private static func sum(_ record: UnsafeRawBufferPointer) -> UInt64 {
    let head = UInt64(littleEndian: record.loadUnaligned(as: UInt64.self))
    return Checksum.sum(UnsafeRawBufferPointer(rebasing: record[16...]), seed: head)
  }

  /// Whether this is the sidecar of a payload with that status.
  func belongs(to payload: FileStatus) -> Bool {
    size == payload.size && modified == payload.modified
  }
}
