/// The name of an entry's payload file: `<xx>/<base64url(key)><extension>`, where `xx` is one of
/// 256 subdirectories.
///
/// The key is in unpadded Base64 with the alphabet for file names (RFC 4648, section 5). If that
/// would be too long, if the key is empty, or if the file system ignores case, the name is `h.` and
/// 32 hexadecimal digits of a hash instead, and the key is found in the sidecar. The key's
/// extension, such as `.png`, follows, so that other programs know what the file is.
struct EntryName: Sendable {
  static let directoryCount = 256
  static let longestKey = 65_536

  /// How the file system restricts names.
  struct Rules: Sendable {
    /// Whether names that differ only in case are the same.
    let ignoresCase: Bool
    /// The longest name of a payload file, in bytes.
    let longestName: Int
  }

  /// Selects the subdirectory and the byte to lock.
  let hash: UInt64
  /// The payload's path, relative to the cache's directory.
  let path: String
  /// A hash of the name that identifies it in this process; its random seed prevents collisions on
  /// purpose.
  let id: Int
  /// Likewise for the key if the name is a hash, because two keys may then have the same name;
  /// otherwise 0.
  let keyID: Int
  let isHashed: Bool

  var directory: Int { Int(hash >> 56) }

  /// The subdirectory of a key's entry.
  static func directory(of key: String) -> Int {
    Int(key.utf8.span.bytes.withUnsafeBytes { Checksum.sum($0, seed: 0) } >> 56)
  }

  var sidecarPath: String { path + Sidecar.suffix }

  init(key: String, rules: Rules) throws(StorageError) {
    var key = key
    let name = key.withUTF8 { Self.make(UnsafeRawBufferPointer($0), rules) }
    guard let name else { throw Self.tooLong }
    self = name
  }

  static var tooLong: StorageError {
    StorageError(
      .misuse, operation: "open", reason: "the key is longer than \(longestKey) bytes",
      remedy: "Use a shorter key, such as a hash of this one.")
  }

  private init(hash: UInt64, path: String, keyID: Int, isHashed: Bool) {
    self.hash = hash
    self.path = path
    self.keyID = keyID
    self.isHashed = isHashed
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

  /// The entry whose payload file has this name; nil if it is not the name of a payload file.
  init?(fileName: String) {
    let hash: UInt64
    let key = Self.key(fileName: fileName)
    if let key {
      hash = key.withUnsafeBytes { Checksum.sum($0, seed: 0) }
    } else if let number = Self.hash(fileName: fileName) {
      hash = number
    } else {
      return nil
    }
    let path = fileName.utf8.span.bytes.withUnsafeBytes { bytes in
      Self.path(hash, nameLength: bytes.count) {
        UnsafeMutableRawBufferPointer($0).copyBytes(from: bytes)
      }
    }
    self.init(hash: hash, path: path, keyID: 0, isHashed: key == nil)
  }

  /// The key; nil if the name is a hash, or not the name of a payload file.
  static func key(fileName: String) -> [UInt8]? {
    fileName.utf8.span.bytes.withUnsafeBytes { name in
      let encodedLength = name.firstIndex(of: UInt8(ascii: ".")) ?? name.count
      guard let key = Base64.decode(UnsafeRawBufferPointer(rebasing: name[..<encodedLength]))
      else { return nil }
      // Only the name that the key gives, so that each key has one.
      let fileExtension = key.suffix(key.withUnsafeBytes { extensionLength($0) })
      return name[encodedLength...].elementsEqual(fileExtension) ? key : nil
    }
  }

  /// The hash of the key in a name that is a hash; nil for any other name.
  private static func hash(fileName: String) -> UInt64? {
    let length = fileName.utf8.span.bytes.withUnsafeBytes { extensionLength($0) }
    guard fileName.hasPrefix("h."), fileName.utf8.count == hashedLength + length else {
      return nil
    }
    let digits = fileName.dropFirst(2).dropLast(length)
    guard Hexadecimal.number(digits.suffix(16)) != nil else { return nil }
    return Hexadecimal.number(digits.prefix(16))
  }

  /// The length of a key's extension: a dot, and one to eight letters and digits in ASCII after
  /// something else. 0 without one, or if it could be taken for one of the cache's own.
  @inline(__always)
  private static func extensionLength(_ key: UnsafeRawBufferPointer) -> Int {
    var length = 1
    while length <= 9, length < key.count {
      switch key[key.count - length] {
      case UInt8(ascii: "."):
        return length == 1 || isReserved(key[(key.count - length)...]) ? 0 : length
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: length += 1
      default: return 0
      }
    }
    return 0
  }

  private static func isReserved(_ fileExtension: Slice<UnsafeRawBufferPointer>) -> Bool {
    let own: StaticString
    switch fileExtension.count {
    case 4: own = ".tmp"
    case 5: own = ".meta"
    case 6: own = ".trash"
    default: return false
    }
    return own.withUTF8Buffer { own in
      zip(fileExtension, own).allSatisfy { lowercased($0) == $1 }
    }
  }

  /// The lowercase form of a letter; digits and the dot stay as they are.
  private static func lowercased(_ byte: UInt8) -> UInt8 { byte | 0x20 }

  static func directoryName(_ number: Int) -> String {
    let digits = String(number, radix: 16)
    return number < 16 ? "0" + digits : digits
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

  /// Returns nil if the key is too long.
  private static func make(_ key: UnsafeRawBufferPointer, _ rules: Rules) -> EntryName? {
    guard key.count <= longestKey else { return nil }
    let hash = Checksum.sum(key, seed: 0)
    let encodedLength = Base64.length(key.count)
    let extensionLength = extensionLength(key)
    let isHashed =
      rules.ignoresCase || key.isEmpty || encodedLength + extensionLength > rules.longestName
    let stemLength = isHashed ? hashedLength : encodedLength
    let path = path(hash, nameLength: stemLength + extensionLength) { name in
      if isHashed {
        (name[0], name[1]) = (UInt8(ascii: "h"), UInt8(ascii: "."))
        let second = Checksum.sum(key, seed: ~0)
        Hexadecimal.write(hash, to: name[2..<18])
        Hexadecimal.write(second, to: name[18..<34])
      } else {
        Base64.encode(key, to: name)
      }
      for position in 0..<extensionLength {
        let byte = key[key.count - extensionLength + position]
        name[stemLength + position] = rules.ignoresCase ? lowercased(byte) : byte
      }
    }
    return EntryName(
      hash: hash, path: path, keyID: isHashed ? keyID(key) : 0, isHashed: isHashed)
  }
}

/// Unpadded Base64 with the alphabet for file names.
///
/// Foundation's encoder has the standard alphabet and needs two more copies, which take a tenth of
/// the time of a read.
private enum Base64 {
  private static let alphabet: StaticString =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

  static func length(_ count: Int) -> Int { (count * 4 + 2) / 3 }

  static func encode(
    _ bytes: UnsafeRawBufferPointer, to output: UnsafeMutableBufferPointer<UInt8>
  ) {
    let letters = alphabet.utf8Start
    var position = 0
    var count = 0
    while position + 2 < bytes.count {
      let (a, b, c) = (bytes[position], bytes[position + 1], bytes[position + 2])
      output[count] = letters[Int(a >> 2)]
      output[count + 1] = letters[Int(a << 4 & 0x30 | b >> 4)]
      output[count + 2] = letters[Int(b << 2 & 0x3C | c >> 6)]
      output[count + 3] = letters[Int(c & 0x3F)]
      position += 3
      count += 4
    }
    guard position < bytes.count else { return }
    let a = bytes[position]
    let b = position + 1 < bytes.count ? bytes[position + 1] : 0
    output[count] = letters[Int(a >> 2)]
    output[count + 1] = letters[Int(a << 4 & 0x30 | b >> 4)]
    if position + 1 < bytes.count { output[count + 2] = letters[Int(b << 2 & 0x3C)] }
  }

  /// Returns nil for a text that ``encode(_:to:)`` does not produce.
  static func decode(_ text: UnsafeRawBufferPointer) -> [UInt8]? {
    guard text.count % 4 != 1, !text.isEmpty else { return nil }
    var isValid = false
    let bytes = [UInt8](unsafeUninitializedCapacity: text.count * 3 / 4) { bytes, count in
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
      isValid = group == 0
    }
    return isValid ? bytes : nil
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
