/// Hexadecimal digits as bytes.
enum Hexadecimal {
  /// The value of one digit, in either case; nil for any other byte.
  static func digit(_ byte: UInt8) -> UInt64? {
    switch byte {
    case 0x30...0x39: UInt64(byte - 0x30)
    case 0x41...0x46: UInt64(byte - 0x41 + 10)
    case 0x61...0x66: UInt64(byte - 0x61 + 10)
    default: nil
    }
  }

  /// Fills `buffer` with the least significant digits of `number`, in lowercase.
  static func write(_ number: UInt64, to buffer: Slice<UnsafeMutableBufferPointer<UInt8>>) {
    let buffer = UnsafeMutableBufferPointer(rebasing: buffer)
    var rest = number
    var position = buffer.count
    // Not over `indices`, which are not specialized for a slice and cost a microsecond for 32
    // digits.
    let digits = ("0123456789abcdef" as StaticString).utf8Start
    while position > 0 {
      position -= 1
      buffer[position] = digits[Int(rest & 15)]
      rest >>= 4
    }
  }
}
