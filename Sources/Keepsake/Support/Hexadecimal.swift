/// Hexadecimal digits as bytes.
package enum Hexadecimal {
  /// The value of one digit, in either case; nil for any other byte.
  static func digit(_ byte: UInt8) -> UInt64? {
    switch byte {
    case 0x30...0x39: UInt64(byte - 0x30)
    case 0x41...0x46: UInt64(byte - 0x41 + 10)
    case 0x61...0x66: UInt64(byte - 0x61 + 10)
    default: nil
    }
  }

  /// The number in one to sixteen lowercase digits, as ``write(_:to:)`` makes them; nil for any
  /// other text.
  static func number(_ text: Substring) -> UInt64? {
    guard (1...16).contains(text.utf8.count),
      text.utf8.allSatisfy({ digit($0) != nil && !(0x41...0x46).contains($0) })
    else { return nil }
    return UInt64(text, radix: 16)
  }

  /// Fills `buffer` with the least significant digits of `number`, in lowercase.
  @inline(__always)
  static func write(_ number: UInt64, to buffer: Slice<UnsafeMutableBufferPointer<UInt8>>) {
    let buffer = UnsafeMutableRawBufferPointer(UnsafeMutableBufferPointer(rebasing: buffer))
    var rest = number
    var position = buffer.count
    while position >= 8 {
      position -= 8
      buffer.storeBytes(
        of: digits(of: UInt32(truncatingIfNeeded: rest)).bigEndian, toByteOffset: position,
        as: UInt64.self)
      rest >>= 32
    }
    while position > 0 {
      position -= 1
      let digit = UInt8(truncatingIfNeeded: rest & 15)
      buffer[position] = digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") - 10 + digit
      rest >>= 4
    }
  }

  /// Two lowercase digits for each byte.
  package static func text(_ bytes: ArraySlice<UInt8>) -> String {
    String(unsafeUninitializedCapacity: 2 * bytes.count) { digits in
      for (index, byte) in bytes.enumerated() {
        write(UInt64(byte), to: digits[(2 * index)..<(2 * index + 2)])
      }
      return 2 * bytes.count
    }
  }

  /// Eight digits, one in each byte, which takes a quarter of the time of one after the other.
  private static func digits(of number: UInt32) -> UInt64 {
    var digits = UInt64(number)
    digits = (digits | digits << 16) & 0x0000_FFFF_0000_FFFF
    digits = (digits | digits << 8) & 0x00FF_00FF_00FF_00FF
    digits = (digits | digits << 4) & 0x0F0F_0F0F_0F0F_0F0F
    // One for each digit from 10 on, which is a letter.
    let letters = ((digits &+ 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101
    let offset = UInt64(UInt8(ascii: "a") - 10 - UInt8(ascii: "0"))
    return digits &+ 0x3030_3030_3030_3030 &+ letters &* offset
  }
}
