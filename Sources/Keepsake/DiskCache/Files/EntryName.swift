/// The name under which an entry's files lie: `<xx>/<base64url(key)>`, where `xx` spreads the
/// entries over subdirectories.
///
/// Base64 with the alphabet for file names, unpadded (RFC 4648, section 5). Where that would be too
/// long, for the empty key, and for all keys where the file system takes `a` for `A`, the name is
/// `h.` and 32 hexadecimal digits of a hash; the sidecar holds the key.
struct EntryName: Sendable {
  static let directoryCount = 256
  static let longestKey = 65_536

  /// What the file system lets a name be.
  struct Rules: Sendable {
    /// Whether names that differ in case only are one.
    let ignoresCase: Bool
    /// In bytes, of a payload's name.
    let longestName: Int
  }

  /// Picks the subfolder and the byte to lock.
  let hash: UInt64
  /// Of the payload, seen from the cache's directory.
  let path: String
  /// Stands for the name in this process, with a seed that nobody outside can know.
  let id: Int
  /// The same of the key, where the name is a hash and another key might have it too.
  let keyID: Int

  var directory: Int { Int(hash >> 56) }
  var sidecarPath: String { path + Sidecar.suffix }

  init(key: String, rules: Rules) throws(StorageError) {
    var key = key
    let made = key.withUTF8 { Self.make(UnsafeRawBufferPointer($0), rules) }
    guard let made else {
      throw StorageError(
        .misuse, operation: "open", reason: "the key is longer than \(Self.longestKey) bytes",
        remedy: "Use a shorter key, such as a hash of this one.")
    }
    self = made
  }

  private init(hash: UInt64, path: String, keyID: Int) {
    self.hash = hash
    self.path = path
    self.keyID = keyID
    id = path.utf8.span.bytes.withUnsafeBytes { Self.id($0) }
  }

  private static let seed = UInt64.random(in: .min ... .max)

  private static func id(_ bytes: UnsafeRawBufferPointer) -> Int {
    Int(truncatingIfNeeded: Checksum.sum(bytes, seed: seed))
  }

  private static func keyID(_ key: UnsafeRawBufferPointer) -> Int {
    var hasher = Hasher()
    hasher.combine(bytes: key)
    return hasher.finalize()
  }

  /// The entry whose payload has this name; nil for any other file.
  init?(fileName: String) {
    let hash: UInt64
    if Self.isHashed(fileName.utf8), fileName.utf8.count == Self.hashedLength,
      let number = UInt64(fileName.dropFirst(2).prefix(16), radix: 16)
    {
      hash = number
    } else if let key = Base64.decode(fileName.utf8) {
      hash = key.withUnsafeBytes { Checksum.sum($0, seed: 0) }
    } else {
      return nil
    }
    let path = fileName.utf8.span.bytes.withUnsafeBytes { bytes in
      Self.path(hash, nameLength: bytes.count) {
        UnsafeMutableRawBufferPointer($0).copyBytes(from: bytes)
      }
    }
    self.init(hash: hash, path: path, keyID: 0)
  }

  /// The key, where the name says it.
  static func key(fileName: String) -> [UInt8]? {
    isHashed(fileName.utf8) ? nil : Base64.decode(fileName.utf8)
  }

  /// The length of the key of an entry, where the name says it.
  static func keyLength(fileName: String) -> Int? {
    isHashed(fileName.utf8) ? nil : fileName.utf8.count * 3 / 4
  }

  static func directoryName(_ number: Int) -> String {
    let digits = String(number, radix: 16)
    return number < 16 ? "0" + digits : digits
  }

  var isHashed: Bool { Self.isHashed(path.utf8.dropFirst(3)) }

  private static func isHashed(_ fileName: some Sequence<UInt8>) -> Bool {
    fileName.starts(with: "h.".utf8)
  }

  private static let hashedLength = 34

  @inline(__always)
  private static func path(
    _ hash: UInt64, nameLength: Int, _ write: (_ name: UnsafeMutableBufferPointer<UInt8>) -> Void
  ) -> String {
    String(unsafeUninitializedCapacity: 3 + nameLength) { buffer in
      Hexadecimal.write(hash >> 56, to: buffer[..<2])
      buffer[2] = UInt8(ascii: "/")
      write(UnsafeMutableBufferPointer(rebasing: buffer[3..<3 + nameLength]))
      return 3 + nameLength
    }
  }

  /// nil for a key that is too long.
  private static func make(_ key: UnsafeRawBufferPointer, _ rules: Rules) -> EntryName? {
    guard key.count <= longestKey else { return nil }
    let hash = Checksum.sum(key, seed: 0)
    let encodedLength = Base64.length(key.count)
    let isHashed = rules.ignoresCase || key.isEmpty || encodedLength > rules.longestName
    let nameLength = isHashed ? hashedLength : encodedLength
    let path = path(hash, nameLength: nameLength) { name in
      if isHashed {
        (name[0], name[1]) = (UInt8(ascii: "h"), UInt8(ascii: "."))
        let second = Checksum.sum(key, seed: ~0)
        Hexadecimal.write(hash, to: name[2..<18])
        Hexadecimal.write(second, to: name[18..<34])
      } else {
        Base64.encode(key, to: name)
      }
    }
    return EntryName(hash: hash, path: path, keyID: isHashed ? keyID(key) : 0)
  }
}

/// Base64 with `-` and `_`, unpadded, from and to buffers: Foundation's has the other alphabet and
/// makes two more copies, which would be a tenth of a read.
private enum Base64 {
  private static let alphabet: StaticString =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

  static func length(_ count: Int) -> Int { (count * 4 + 2) / 3 }

  static func encode(
    _ bytes: UnsafeRawBufferPointer, to output: UnsafeMutableBufferPointer<UInt8>
  ) {
    let letters = alphabet.utf8Start
    var position = 0
    var place = 0
    while position + 2 < bytes.count {
      let (a, b, c) = (bytes[position], bytes[position + 1], bytes[position + 2])
      output[place] = letters[Int(a >> 2)]
      output[place + 1] = letters[Int(a << 4 & 0x30 | b >> 4)]
      output[place + 2] = letters[Int(b << 2 & 0x3C | c >> 6)]
      output[place + 3] = letters[Int(c & 0x3F)]
      position += 3
      place += 4
    }
    guard position < bytes.count else { return }
    let a = bytes[position]
    let b = position + 1 < bytes.count ? bytes[position + 1] : 0
    output[place] = letters[Int(a >> 2)]
    output[place + 1] = letters[Int(a << 4 & 0x30 | b >> 4)]
    if position + 1 < bytes.count { output[place + 2] = letters[Int(b << 2 & 0x3C)] }
  }

  /// nil for what ``encode(_:to:)`` does not make.
  static func decode(_ text: String.UTF8View) -> [UInt8]? {
    guard text.count % 4 != 1, !text.isEmpty else { return nil }
    var isRight = false
    let bytes = text.span.bytes.withUnsafeBytes { text in
      [UInt8](unsafeUninitializedCapacity: text.count * 3 / 4) { bytes, count in
        var group: UInt32 = 0
        var bits: UInt32 = 0
        for letter in text {
          guard let value = value(letter) else { return }
          group = group << 6 | value
          bits += 6
          if bits >= 8 {
            bits -= 8
            bytes[count] = UInt8(truncatingIfNeeded: group >> bits)
            count += 1
            group &= (1 << bits) - 1
          }
        }
        isRight = group == 0
      }
    }
    return isRight ? bytes : nil
  }

  @inline(__always)
  private static func value(_ letter: UInt8) -> UInt32? {
    switch letter {
    case 0x41...0x5A: UInt32(letter) - 0x41
    case 0x61...0x7A: UInt32(letter) - 0x61 + 26
    case 0x30...0x39: UInt32(letter) - 0x30 + 52
    case UInt8(ascii: "-"): 62
    case UInt8(ascii: "_"): 63
    default: nil
    }
  }
}
