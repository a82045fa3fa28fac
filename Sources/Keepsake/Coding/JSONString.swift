/// JSON strings (RFC 8259, section 7).
enum JSONString {
  private static let quote = UInt8(ascii: "\"")
  private static let backslash = UInt8(ascii: "\\")

  // MARK: Writing

  /// Appends `text` as a JSON string in which every control character is escaped.
  static func append(_ text: String, to output: inout [UInt8]) {
    output.append(quote)
    text.utf8.span.withUnsafeBufferPointer { bytes in
      // The first byte that has not been copied to the output.
      var start = 0
      var position = 0
      let words = UnsafeRawBufferPointer(bytes)
      while position < bytes.count {
        if bytes.count - position >= 8,
          needsNoEscape(words.loadUnaligned(fromByteOffset: position, as: UInt64.self))
        {
          position += 8
          continue
        }
        let byte = bytes[position]
        position += 1
        if byte >= 0x20, byte != quote, byte != backslash { continue }
        output.append(contentsOf: UnsafeBufferPointer(rebasing: bytes[start..<position - 1]))
        start = position
        switch byte {
        case quote, backslash: output.append(contentsOf: [backslash, byte])
        case 0x0A: output.append(contentsOf: [backslash, UInt8(ascii: "n")])
        case 0x0D: output.append(contentsOf: [backslash, UInt8(ascii: "r")])
        case 0x09: output.append(contentsOf: [backslash, UInt8(ascii: "t")])
        default:
          output.append(contentsOf: "\\u00".utf8)
          output.append(hexadecimalDigits[Int(byte >> 4)])
          output.append(hexadecimalDigits[Int(byte & 15)])
        }
      }
      output.append(contentsOf: UnsafeBufferPointer(rebasing: bytes[start...]))
    }
    output.append(quote)
  }

  /// Whether none of the eight bytes is a control character, a quote or a backslash.
  @inline(__always)
  private static func needsNoEscape(_ word: UInt64) -> Bool {
    // Subtracting n from a byte below n sets its highest bit, which no such byte had before.
    let ones: UInt64 = 0x0101_0101_0101_0101
    let controls = word &- ones &* 0x20
    let quotes = (word ^ ones &* UInt64(quote)) &- ones
    let backslashes = (word ^ ones &* UInt64(backslash)) &- ones
    return (controls | quotes | backslashes) & ~word & (ones &* 0x80) == 0
  }

  private static let hexadecimalDigits = Array("0123456789abcdef".utf8)

  // MARK: Reading

  /// The text of the JSON string at `position`, which moves past its closing quote; nil if there is
  /// no valid string.
  ///
  /// Raw control characters are accepted; ``JSONScanner`` rejects them.
  static func parse(_ bytes: UnsafeRawBufferPointer, at position: inout Int) -> String? {
    guard position < bytes.count, bytes[position] == quote else { return nil }
    let start = position + 1
    var end = start
    while end < bytes.count, bytes[end] != quote, bytes[end] != backslash { end += 1 }
    guard end < bytes.count else { return nil }
    if bytes[end] == quote {
      position = end + 1
      return String(decoding: UnsafeRawBufferPointer(rebasing: bytes[start..<end]), as: UTF8.self)
    }
    var text = Array(bytes[start..<end])
    while end < bytes.count {
      let byte = bytes[end]
      end += 1
      if byte == quote {
        position = end
        return String(decoding: text, as: UTF8.self)
      }
      guard byte == backslash else {
        text.append(byte)
        continue
      }
      guard end < bytes.count else { return nil }
      let escaped = bytes[end]
      end += 1
      switch escaped {
      case quote, backslash, UInt8(ascii: "/"): text.append(escaped)
      case UInt8(ascii: "n"): text.append(0x0A)
      case UInt8(ascii: "r"): text.append(0x0D)
      case UInt8(ascii: "t"): text.append(0x09)
      case UInt8(ascii: "b"): text.append(0x08)
      case UInt8(ascii: "f"): text.append(0x0C)
      case UInt8(ascii: "u"):
        guard let scalar = parseScalar(bytes, at: &end) else { return nil }
        text.append(contentsOf: String(Character(scalar)).utf8)
      default: return nil
      }
    }
    return nil
  }

  /// The scalar that begins with the four hexadecimal digits at `position`; nil for half of a
  /// surrogate pair.
  private static func parseScalar(
    _ bytes: UnsafeRawBufferPointer, at position: inout Int
  ) -> Unicode.Scalar? {
    guard let high = parseCodeUnit(bytes, at: &position) else { return nil }
    guard high & 0xFC00 == 0xD800 else { return Unicode.Scalar(high) }
    guard position + 1 < bytes.count, bytes[position] == backslash,
      bytes[position + 1] == UInt8(ascii: "u")
    else { return nil }
    position += 2
    guard let low = parseCodeUnit(bytes, at: &position), low & 0xFC00 == 0xDC00 else { return nil }
    return Unicode.Scalar(0x10000 + ((high & 0x3FF) << 10 | (low & 0x3FF)))
  }

  static func parseCodeUnit(
    _ bytes: UnsafeRawBufferPointer, at position: inout Int
  ) -> UInt32? {
    guard bytes.count - position >= 4 else { return nil }
    var unit: UInt32 = 0
    for byte in bytes[position..<position + 4] {
      guard let digit = Hexadecimal.digit(byte) else { return nil }
      unit = unit << 4 | UInt32(digit)
    }
    position += 4
    return unit
  }
}
