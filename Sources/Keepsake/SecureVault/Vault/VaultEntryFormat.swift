#if SecureVault
/// The format version and the cipher suite that the vault's files are written in.
enum VaultFormat {
  static let version: UInt8 = 1
  /// XAES-256-GCM, HMAC-SHA-256, HKDF-SHA-256 and scrypt.
  static let cipherSuite: UInt8 = 1
}

/// The header of an entry's file, before the names box and the value box.
///
/// The article on the vault format describes it. All integers are little-endian:
///
///     0  "KVE1"      4  version   5  cipher suite       6  flags (2 bytes)
///     8  key id (4)  12  length of the names box (4)    16  length of the value box (8)
package struct EntryHeader: Equatable, Sendable {
  var isPresenceRequired: Bool
  /// The entry key that both boxes are sealed under.
  package var keyID: UInt32
  var namesLength: Int
  var valueLength: Int

  static let size = 24
  /// More than the names box of the longest key and service takes.
  static let maxNamesLength = 2 * EntryNames.maxNameSize + 1_024
  /// `KVE1` in ASCII.
  private static let signature: UInt32 = 0x3145_564B
  private static let presenceFlag: UInt16 = 1

  var fileLength: Int { Self.size + namesLength + valueLength }

  func write(to writer: inout ByteWriter) {
    writer.append(Self.signature)
    writer.append(VaultFormat.version)
    writer.append(VaultFormat.cipherSuite)
    writer.append(isPresenceRequired ? Self.presenceFlag : 0)
    writer.append(keyID)
    writer.append(UInt32(namesLength))
    writer.append(UInt64(valueLength))
  }

  init(isPresenceRequired: Bool, keyID: UInt32, namesLength: Int, valueLength: Int) {
    self.isPresenceRequired = isPresenceRequired
    self.keyID = keyID
    self.namesLength = namesLength
    self.valueLength = valueLength
  }

  /// Reads the start of an entry.
  ///
  /// - Parameter path: The entry's, for errors.
  init(_ bytes: UnsafeRawBufferPointer, at path: EntryPath) throws(StorageError) {
    var reader = ByteReader(bytes)
    guard reader.number() == Self.signature, let version = reader.number(UInt8.self),
      let cipherSuite = reader.number(UInt8.self), version > 0, cipherSuite > 0
    else { throw path.invalidHeaderError }
    guard version == VaultFormat.version, cipherSuite == VaultFormat.cipherSuite else {
      throw StorageError(
        .unsupportedVersion, operation: "open", path: path.path,
        reason: "a newer version of Keepsake wrote this secret",
        remedy: "Update Keepsake; nothing was changed.")
    }
    guard let flags = reader.number(UInt16.self), flags & ~Self.presenceFlag == 0,
      let keyID = reader.number(UInt32.self), let names = reader.number(UInt32.self),
      let value = reader.number(UInt64.self),
      (XAES.overhead...Self.maxNamesLength).contains(Int(names)),
      let valueLength = Int(exactly: value),
      valueLength >= XAES.overhead + PaddedValue.prefixSize,
      valueLength <= PaddedValue.maxPaddedLength + XAES.overhead
    else { throw path.invalidHeaderError }
    self.init(
      isPresenceRequired: flags & Self.presenceFlag != 0, keyID: keyID, namesLength: Int(names),
      valueLength: valueLength)
  }
}

/// The plaintext of an entry's names box, which is apart from the value so that listing opens no
/// value.
struct EntryNames: Equatable, Sendable {
  /// When the secret was first stored, in nanoseconds since 1970.
  var created: Int64
  /// When its value was last stored, in nanoseconds since 1970.
  var modified: Int64
  var service: String
  var key: String

  /// The most bytes that a key or a service may have in UTF-8.
  static let maxNameSize = 65_536
  private static let granularity = 64

  /// Padded, so that the length reveals little about the names.
  var length: Int {
    let count = 24 + service.utf8.count + key.utf8.count
    return (count + Self.granularity - 1) / Self.granularity * Self.granularity
  }

  /// Writes as many bytes as ``length`` says.
  func write(to writer: inout ByteWriter) {
    let end = writer.count + length
    writer.append(created)
    writer.append(modified)
    writer.append(UInt32(service.utf8.count))
    writer.append(service)
    writer.append(UInt32(key.utf8.count))
    writer.append(key)
    writer.appendZeros(end - writer.count)
  }

  init(created: Int64, modified: Int64, service: String, key: String) {
    self.created = created
    self.modified = modified
    self.service = service
    self.key = key
  }

  init?(_ bytes: UnsafeRawBufferPointer) {
    func name(_ reader: inout ByteReader) -> String? {
      guard let length = reader.number(UInt32.self), let name = reader.take(Int(length))
      else { return nil }
      return String(utf8: name)
    }
    var reader = ByteReader(bytes)
    guard let created = reader.number(Int64.self), let modified = reader.number(Int64.self),
      let service = name(&reader), let key = name(&reader)
    else { return nil }
    self.init(created: created, modified: modified, service: service, key: key)
  }
}

/// The plaintext of an entry's value box: the value with its kind and length, padded so that the
/// file's size hides the length.
///
///     0  kind    1  zero (7 bytes)    8  length (8 bytes)    16  the value, then zeros
enum PaddedValue {
  static let prefixSize = 16
  /// In place of a kind: the value is a box under the presence key.
  static let boxKind: UInt8 = 255

  /// The most bytes that a value may have: it is held in memory whole.
  static let maxValueSize = 1 << 30

  /// The length of the greatest value, in a separate box that is padded again.
  static let maxPaddedLength = paddedLength(paddedLength(maxValueSize) + XAES.overhead)

  /// Tokens and passwords all get this length.
  private static let minLength = 256

  /// The length to which a value of `count` bytes is padded, including the prefix.
  ///
  /// Padmé (Nikitin et al., "Reducing Metadata Leakage from Encrypted Files and Communication with
  /// PURBs", 2019) adds at most an eighth, and lengths reveal O(log log n) bits.
  static func paddedLength(_ count: Int) -> Int {
    let length = max(minLength, count + prefixSize)
    let exponent = Int.bitWidth - 1 - length.leadingZeroBitCount
    let digits = Int.bitWidth - exponent.leadingZeroBitCount
    let mask = (1 << (exponent - digits)) - 1
    return (length + mask) & ~mask
  }

  /// Writes a value with its prefix and its padding to memory of its padded length.
  ///
  /// - Parameter isCopied: Whether to write the value itself. Otherwise its place is left as it is.
  static func write(
    _ kind: UInt8, _ value: UnsafeRawBufferPointer, isCopied: Bool = true,
    to memory: UnsafeMutableRawBufferPointer
  ) {
    var writer = ByteWriter(memory)
    writer.append(UInt64(kind))
    writer.append(UInt64(value.count))
    if isCopied { writer.append(value) } else { writer.skip(value.count) }
    writer.appendZeros(memory.count - writer.count)
  }

  /// The value's kind, and its range in the plaintext; nil when the plaintext is not valid.
  static func parse(_ bytes: UnsafeRawBufferPointer) -> (kind: UInt8, range: Range<Int>)? {
    var reader = ByteReader(bytes)
    guard let kind = reader.number(UInt64.self), kind <= 255,
      let length = reader.number(UInt64.self).flatMap({ Int(exactly: $0) }),
      length <= bytes.count - prefixSize
    else { return nil }
    return (UInt8(kind), prefixSize..<(prefixSize + length))
  }
}
#endif
