#if SecureVault
/// The head of an entry file, before its two boxes.
///
/// The format is written down in the article on the vault's format. All integers are little-endian:
///
///     0  "SVE1"      4  version    5  suite             6  flags (2 bytes)
///     8  key id (4)  12  length of the names box (4)    16  length of the value box (8)
struct EntryHeader: Equatable, Sendable {
  var isPresenceRequired: Bool
  /// Which of the vault's keys sealed the two boxes.
  var keyID: UInt32
  var namesLength: Int
  var valueLength: Int

  static let size = 24
  /// Of a whole file, by far more than the names of the longest key and service take.
  static let maxNamesLength = 2 * EntryNames.maxNameSize + 1_024
  private static let signature: [UInt8] = Array("SVE1".utf8)
  private static let presenceFlag: UInt16 = 1

  enum Failure: Error {
    case damaged
    case newerVersion
  }

  var fileLength: Int { Self.size + namesLength + valueLength }

  var bytes: [UInt8] {
    var bytes = Self.signature
    bytes.reserveCapacity(Self.size)
    bytes.append(VaultFormat.version)
    bytes.append(VaultFormat.cipherSuite)
    bytes.append(number: isPresenceRequired ? Self.presenceFlag : 0)
    bytes.append(number: keyID)
    bytes.append(number: UInt32(namesLength))
    bytes.append(number: UInt64(valueLength))
    return bytes
  }

  init(isPresenceRequired: Bool, keyID: UInt32, namesLength: Int, valueLength: Int) {
    self.isPresenceRequired = isPresenceRequired
    self.keyID = keyID
    self.namesLength = namesLength
    self.valueLength = valueLength
  }

  init(_ bytes: UnsafeRawBufferPointer) throws(Failure) {
    var reader = ByteReader(bytes)
    guard let signature = reader.take(4), signature.elementsEqual(Self.signature),
      let version = reader.number(UInt8.self), let suite = reader.number(UInt8.self)
    else { throw .damaged }
    guard version == VaultFormat.version, suite == VaultFormat.cipherSuite else {
      throw version == 0 || suite == 0 ? .damaged : .newerVersion
    }
    guard let flags = reader.number(UInt16.self), flags & ~Self.presenceFlag == 0,
      let keyID = reader.number(UInt32.self), let names = reader.number(UInt32.self),
      let value = reader.number(UInt64.self)
    else { throw .damaged }
    guard (XAES.overhead...Self.maxNamesLength).contains(Int(names)),
      let valueLength = Int(exactly: value), valueLength >= XAES.overhead + PaddedValue.prefixSize,
      valueLength <= AESGCM.maxMessageSize + XAES.overhead
    else { throw .damaged }
    self.init(
      isPresenceRequired: flags & Self.presenceFlag != 0, keyID: keyID, namesLength: Int(names),
      valueLength: valueLength)
  }
}

/// The format version and the cipher suite that the vault's files are written in.
enum VaultFormat {
  static let version: UInt8 = 1
  /// XAES-256-GCM, HMAC-SHA-256, HKDF-SHA-256 and scrypt.
  static let cipherSuite: UInt8 = 1
}

/// What the first box of an entry holds, so that listing needs no value.
struct EntryNames: Equatable, Sendable {
  /// Nanoseconds since 1970.
  var created: Int64
  var modified: Int64
  var service: String
  var key: String

  /// In UTF-8, of a key and of a service.
  static let maxNameSize = 65_536
  private static let granularity = 64

  /// The plaintext, padded so that it tells little of the names' lengths.
  var bytes: [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(24 + service.utf8.count + key.utf8.count + Self.granularity)
    bytes.append(number: created)
    bytes.append(number: modified)
    for name in [service, key] {
      bytes.append(number: UInt32(name.utf8.count))
      bytes.append(contentsOf: name.utf8)
    }
    let rest = bytes.count % Self.granularity
    if rest > 0 { bytes.append(contentsOf: repeatElement(0, count: Self.granularity - rest)) }
    return bytes
  }

  init(created: Int64, modified: Int64, service: String, key: String) {
    self.created = created
    self.modified = modified
    self.service = service
    self.key = key
  }

  init?(_ bytes: UnsafeRawBufferPointer) {
    var reader = ByteReader(bytes)
    func name() -> String? {
      reader.number(UInt32.self).flatMap { reader.take(Int($0)) }
        .flatMap { String(utf8: $0) }
    }
    guard let created = reader.number(Int64.self), let modified = reader.number(Int64.self),
      let service = name(), let key = name()
    else { return nil }
    self.init(created: created, modified: modified, service: service, key: key)
  }
}

/// What the second box of an entry holds: the value, padded so that the file hides its length.
///
///     0  kind    1  zero (7 bytes)    8  length (8 bytes)    16  the value, zeros
enum PaddedValue {
  static let prefixSize = 16
  /// In place of a kind: the value is a box of its own under the presence key.
  static let boxKind: UInt8 = 255

  /// The shortest that values are padded to: tokens and passwords are all of one length.
  private static let shortest = 256

  /// The length to which so many bytes are padded, prefix included.
  ///
  /// Padmé (Nikitin et al., "Reducing Metadata Leakage from Encrypted Files and Communication with
  /// PURBs", 2019): at most an eighth more, and lengths tell O(log log n) bits.
  static func paddedLength(_ count: Int) -> Int {
    let length = max(shortest, count + prefixSize)
    let exponent = Int.bitWidth - 1 - length.leadingZeroBitCount
    let digits = Int.bitWidth - exponent.leadingZeroBitCount
    let mask = (1 << (exponent - digits)) - 1
    return (length + mask) & ~mask
  }

  static func prefix(kind: UInt8, length: Int) -> [UInt8] {
    var bytes = [kind, 0, 0, 0, 0, 0, 0, 0]
    bytes.append(number: UInt64(length))
    return bytes
  }

  /// The kind of a plaintext and where its value is; nil when it is none.
  static func parse(_ bytes: UnsafeRawBufferPointer) -> (kind: UInt8, range: Range<Int>)? {
    var reader = ByteReader(bytes)
    guard let head = reader.number(UInt64.self), head <= 255,
      let length = reader.number(UInt64.self).flatMap({ Int(exactly: $0) }),
      length <= bytes.count - prefixSize
    else { return nil }
    return (UInt8(head), prefixSize..<(prefixSize + length))
  }
}
#endif
