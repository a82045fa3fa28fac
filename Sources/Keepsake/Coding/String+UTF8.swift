internal import KeepsakeLibc

extension String {
  /// The text of bytes in UTF-8; nil if they are invalid.
  ///
  /// `init(validating:as:)` is not specialized: for a token, it takes half as long as decrypting
  /// it.
  init?(utf8 bytes: UnsafeRawBufferPointer) {
    self.init(decoding: bytes, as: UTF8.self)
    // Invalid UTF-8 was repaired with U+FFFD, so the text differs from the bytes.
    let isValid = utf8.span.bytes.withUnsafeBytes { decoded in
      guard decoded.count == bytes.count else { return false }
      guard let start = decoded.baseAddress, let original = bytes.baseAddress else { return true }
      return memcmp(start, original, bytes.count) == 0
    }
    if !isValid { return nil }
  }
}
