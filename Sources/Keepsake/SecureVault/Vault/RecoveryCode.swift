#if SecureVault
/// A random code that a user keeps on paper, and that opens a vault if nothing else does.
///
/// 26 random characters and 2 check characters, in groups of 4, with the 32 characters of
/// Crockford's Base32, which leave out I, L, O and U. The secret of the slot is the 28 characters
/// in upper case.
enum RecoveryCode {
  private static let alphabet = Array("0123456789ABCDEFGHJKMNPQRSTVWXYZ".utf8)
  private static let randomCount = 26
  private static let checkCount = 2
  private static let groupSize = 4

  /// A new code, and the text to show to the user.
  static func makeNew() throws(StorageError) -> (secret: SlotSecret, text: String) {
    let random = try SecretBytes(count: randomCount)
    try SystemRandom.fill(random.bytes)
    let characters = try SecretBytes(count: randomCount + checkCount)
    for index in 0..<randomCount {
      characters.bytes[index] = alphabet[Int(random.bytes[index] & 31)]
    }
    try writeCheck(characters.bytes)
    var text = ""
    for (index, character) in characters.bytes.enumerated() {
      if index > 0, index.isMultiple(of: groupSize) { text += "-" }
      text.unicodeScalars.append(UnicodeScalar(character))
    }
    return (SlotSecret(.recoveryCode, characters), text)
  }

  /// Reads a code as a user types it: in any case, with or without dashes and spaces of any kind,
  /// and with O for 0 and I or L for 1. nil if the text is not a code, or has a typing error.
  static func secret(_ text: String) throws(StorageError) -> SlotSecret? {
    let count = randomCount + checkCount
    let characters = try SecretBytes(count: count)
    var position = 0
    for scalar in text.unicodeScalars where !isSeparator(scalar) {
      guard position < count, let character = character(scalar) else { return nil }
      characters.bytes[position] = character
      position += 1
    }
    guard position == count else { return nil }
    let typed = (characters.bytes[count - 2], characters.bytes[count - 1])
    try writeCheck(characters.bytes)
    guard typed == (characters.bytes[count - 2], characters.bytes[count - 1]) else { return nil }
    return SlotSecret(.recoveryCode, characters)
  }

  /// Whether a text that is not a code may have been meant as one: it has the characters of one, up
  /// to two more or less, and at most two others.
  static func isMistyped(_ text: String) -> Bool {
    let count = randomCount + checkCount
    var (length, others) = (0, 0)
    for scalar in text.unicodeScalars where !isSeparator(scalar) {
      length += 1
      if character(scalar) == nil { others += 1 }
      if others > 2 || length > count + 2 { return false }
    }
    return length >= count - 2
  }

  /// Copying a code from paper, a document or a message leaves dashes and spaces of many kinds.
  private static func isSeparator(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .dashPunctuation, .spaceSeparator, .lineSeparator, .paragraphSeparator, .format: true
    default: scalar.properties.isWhitespace || otherDashes.contains(scalar)
    }
  }

  /// The hyphen bullet, and the minus signs.
  private static let otherDashes: [Unicode.Scalar] = [
    "\u{2043}", "\u{207B}", "\u{208B}", "\u{2212}",
  ]

  private static func character(_ scalar: Unicode.Scalar) -> UInt8? {
    guard scalar.isASCII else { return nil }
    let byte = UInt8(truncatingIfNeeded: scalar.value)
    let upper = (0x61...0x7A).contains(byte) ? byte - 32 : byte
    switch upper {
    case UInt8(ascii: "O"): return UInt8(ascii: "0")
    case UInt8(ascii: "I"), UInt8(ascii: "L"): return UInt8(ascii: "1")
    default: return alphabet.contains(upper) ? upper : nil
    }
  }

  /// Writes the first ten bits of the random characters' SHA-256 as the last two characters.
  private static func writeCheck(_ characters: UnsafeMutableRawBufferPointer) throws(StorageError) {
    let sum = try Digest.sha256(UnsafeRawBufferPointer(characters)[part: ..<randomCount])
    let bits = Int(sum[0]) << 2 | Int(sum[1] >> 6)
    characters[randomCount] = alphabet[bits >> 5]
    characters[randomCount + 1] = alphabet[bits & 31]
  }
}
#endif
