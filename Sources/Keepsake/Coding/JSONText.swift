/// Writes and reads the JSON of single strings and numbers; what has structure is written by
/// ``JSONRun`` and read by the toolchain's decoder.
enum JSONText {
  private static let quote = UInt8(ascii: "\"")
  private static let backslash = UInt8(ascii: "\\")

  /// Appends `text` as a JSON string (RFC 8259, section 7) without a raw control character.
  static func append(_ text: String, to output: inout [UInt8]) {
    output.append(quote)
    text.utf8.span.withUnsafeBufferPointer { bytes in
      var start = 0
      var position = 0
      let words = UnsafeRawBufferPointer(bytes)
      while position < bytes.count {
        if bytes.count - position >= 8,
          isPlain(words.loadUnaligned(fromByteOffset: position, as: UInt64.self))
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
          output.append(hexadecimal[Int(byte >> 4)])
          output.append(hexadecimal[Int(byte & 15)])
        }
      }
      output.append(contentsOf: UnsafeBufferPointer(rebasing: bytes[start...]))
    }
    output.append(quote)
  }

  /// Whether none of eight bytes has to be escaped.
  @inline(__always)
  private static func isPlain(_ word: UInt64) -> Bool {
    // Taking n from a byte below n sets its highest bit, which such a byte does not have.
    let ones: UInt64 = 0x0101_0101_0101_0101
    let controls = word &- ones &* 0x20
    let quotes = (word ^ ones &* UInt64(quote)) &- ones
    let backslashes = (word ^ ones &* UInt64(backslash)) &- ones
    return (controls | quotes | backslashes) & ~word & (ones &* 0x80) == 0
  }

  /// The digits of an integer without a `String` around them, as most settings are one.
  static func withDigits(of number: Int64, _ body: (UnsafeBufferPointer<UInt8>) -> Void) {
    // All of 64 bits, and a sign.
    withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 20) { digits in
      var place = digits.count
      var rest = number.magnitude
      repeat {
        place -= 1
        let (quotient, digit) = rest.quotientAndRemainder(dividingBy: 10)
        digits[place] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: digit)
        rest = quotient
      } while rest > 0
      if number < 0 {
        place -= 1
        digits[place] = UInt8(ascii: "-")
      }
      body(UnsafeBufferPointer(rebasing: digits[place...]))
    }
  }

  /// The JSON string that starts at `position`, which moves behind it; nil if it is none.
  static func string(in bytes: UnsafeRawBufferPointer, at position: inout Int) -> String? {
    guard position < bytes.count, bytes[position] == quote else { return nil }
    let start = position + 1
    var end = start
    while end < bytes.count, bytes[end] != quote, bytes[end] != backslash { end += 1 }
    guard end < bytes.count else { return nil }
    if bytes[end] == quote {
      position = end + 1
      return String(decoding: UnsafeRawBufferPointer(rebasing: bytes[start..<end]), as: UTF8.self)
    }
    var unescaped = Array(bytes[start..<end])
    while end < bytes.count {
      let byte = bytes[end]
      end += 1
      if byte == quote {
        position = end
        return String(decoding: unescaped, as: UTF8.self)
      }
      guard byte == backslash else {
        unescaped.append(byte)
        continue
      }
      guard end < bytes.count else { return nil }
      let escaped = bytes[end]
      end += 1
      switch escaped {
      case quote, backslash, UInt8(ascii: "/"): unescaped.append(escaped)
      case UInt8(ascii: "n"): unescaped.append(0x0A)
      case UInt8(ascii: "r"): unescaped.append(0x0D)
      case UInt8(ascii: "t"): unescaped.append(0x09)
      case UInt8(ascii: "b"): unescaped.append(0x08)
      case UInt8(ascii: "f"): unescaped.append(0x0C)
      case UInt8(ascii: "u"):
        guard var unit = codeUnit(in: bytes, at: &end) else { return nil }
        if unit & 0xFC00 == 0xD800 {
          // The upper half of a pair: the lower half must follow.
          guard end + 1 < bytes.count, bytes[end] == backslash, bytes[end + 1] == UInt8(ascii: "u")
          else { return nil }
          end += 2
          guard let low = codeUnit(in: bytes, at: &end), low & 0xFC00 == 0xDC00 else { return nil }
          unit = 0x10000 + ((unit & 0x3FF) << 10 | (low & 0x3FF))
        }
        guard let scalar = Unicode.Scalar(unit) else { return nil }
        unescaped.append(contentsOf: String(Character(scalar)).utf8)
      default: return nil
      }
    }
    return nil
  }

  /// Appends a number: a JSON number, or a JSON string where it is not finite.
  static func append(_ number: Double, to output: inout [UInt8]) {
    if number.isFinite {
      output.append(contentsOf: number.description.utf8)
    } else {
      append(nonFinite(number), to: &output)
    }
  }

  static func nonFinite(_ number: Double) -> String {
    number.isNaN ? notANumber : number < 0 ? negativeInfinity : infinity
  }

  /// The number that such a string stands for.
  static func nonFinite(_ text: String) -> Double? {
    switch text {
    case notANumber: .nan
    case infinity: .infinity
    case negativeInfinity: -.infinity
    default: nil
    }
  }

  static let notANumber = "NaN"
  static let infinity = "Infinity"
  static let negativeInfinity = "-Infinity"

  private static let hexadecimal = Array("0123456789abcdef".utf8)

  private static func codeUnit(
    in bytes: UnsafeRawBufferPointer, at position: inout Int
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
