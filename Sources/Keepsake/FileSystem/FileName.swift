/// Encodes any name as a file name, and decodes it.
///
/// Letters, digits, `-`, `_` and dots after the first byte stay as they are. Other bytes become
/// `%XX` (RFC 3986, section 2.1).
enum FileName {
  /// nil if the result would be too long for a file system.
  static func encode(_ name: String) -> String? {
    let encoded = escape(name)
    return encoded.count <= maximumLength ? String(decoding: encoded, as: UTF8.self) : nil
  }

  /// Leaves room for a suffix.
  static let maximumLength = 200

  /// The encoded name without a limit on its length.
  static func escape(_ name: String) -> [UInt8] {
    var encoded: [UInt8] = []
    for (position, byte) in name.utf8.enumerated() {
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "-"), UInt8(ascii: "_"):
        encoded.append(byte)
      case UInt8(ascii: ".") where position > 0: encoded.append(byte)
      default:
        let digits = String(byte, radix: 16, uppercase: true)
        encoded.append(contentsOf: (byte < 16 ? "%0" : "%").utf8)
        encoded.append(contentsOf: digits.utf8)
      }
    }
    // An empty name needs a file name too; no other name is encoded as a single %.
    return encoded.isEmpty ? [UInt8(ascii: "%")] : encoded
  }

  /// nil for a file name that ``encode(_:)`` does not produce.
  static func decode(_ fileName: String) -> String? {
    if fileName == "%" { return "" }
    let bytes = Array(fileName.utf8)
    var decoded: [UInt8] = []
    var position = 0
    while position < bytes.count {
      if bytes[position] != UInt8(ascii: "%") {
        decoded.append(bytes[position])
        position += 1
        continue
      }
      guard position + 2 < bytes.count, let high = Hexadecimal.digit(bytes[position + 1]),
        let low = Hexadecimal.digit(bytes[position + 2])
      else { return nil }
      decoded.append(UInt8(high << 4 | low))
      position += 3
    }
    guard let name = String(validating: decoded, as: UTF8.self), escape(name) == bytes else {
      return nil
    }
    return name
  }
}
