/// Says up to which byte a journal is valid: eight characters in its header, which processes map.
///
/// They are Base64 (RFC 4648, section 4) of 16 bits that tie the word to the journal and the
/// length, and of the length in 32 bits, the most significant first. The holder of the journal's
/// lock replaces them with one store, and a record counts for every process from that moment on.
struct JournalWord: Equatable {
  /// Where the word is in the file.
  static let offset = 16
  static let size = 8
  /// Stands in a journal that is being replaced: what its path leads to counts.
  static let replaced = JournalWord(bytes: [UInt8](repeating: UInt8(ascii: "-"), count: size))

  /// The characters as they are in memory.
  let bits: UInt64

  init(bits: UInt64) { self.bits = bits }

  private init(bytes: [UInt8]) {
    bits = bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
  }

  /// - Parameter end: At most ``largestEnd``.
  @inline(__always)
  init(id: UInt64, end: Int) {
    let guarded = Self.guardBits(id, end) << 32 | UInt64(truncatingIfNeeded: end)
    var bits: UInt64 = 0
    for position in 0..<8 {
      let digit = guarded >> UInt64(42 - 6 * position) & 63
      bits |= UInt64(Self.character(UInt8(truncatingIfNeeded: digit))) << UInt64(8 * position)
    }
    self.bits = UInt64(littleEndian: bits)
  }

  static let largestEnd = Int(UInt32.max)

  var bytes: [UInt8] { withUnsafeBytes(of: bits) { Array($0) } }

  /// Up to which byte the journal with this id is valid; nil if the word is not of that journal.
  func end(of id: UInt64) -> Int? {
    var value: UInt64 = 0
    for byte in bytes {
      guard let digit = Self.digit(byte) else { return nil }
      value = value << 6 | UInt64(digit)
    }
    let end = Int(value & UInt64(UInt32.max))
    return value >> 32 == Self.guardBits(id, end) && end >= JournalFormat.headerSize ? end : nil
  }

  @inline(__always)
  private static func guardBits(_ id: UInt64, _ end: Int) -> UInt64 {
    let end = UInt64(truncatingIfNeeded: end)
    return (id & 0xFFFF) ^ (end & 0xFFFF) ^ (end >> 16 & 0xFFFF)
  }

  /// The character of a Base64 digit.
  @inline(__always)
  private static func character(_ digit: UInt8) -> UInt8 {
    switch digit {
    case 0..<26: digit &+ UInt8(ascii: "A")
    case 26..<52: digit &- 26 &+ UInt8(ascii: "a")
    case 52..<62: digit &- 52 &+ UInt8(ascii: "0")
    case 62: UInt8(ascii: "+")
    default: UInt8(ascii: "/")
    }
  }

  private static func digit(_ character: UInt8) -> UInt8? {
    switch character {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"): character - UInt8(ascii: "A")
    case UInt8(ascii: "a")...UInt8(ascii: "z"): character - UInt8(ascii: "a") + 26
    case UInt8(ascii: "0")...UInt8(ascii: "9"): character - UInt8(ascii: "0") + 52
    case UInt8(ascii: "+"): 62
    case UInt8(ascii: "/"): 63
    default: nil
    }
  }
}
