#if SecureVault
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
