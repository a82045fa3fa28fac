extension String {
  /// The text of bytes in UTF-8; nil if they are invalid.
  ///
  /// `init(validating:as:)` is not specialized: for a token, it takes half as long as decrypting
  /// it.
  init?(utf8 bytes: UnsafeRawBufferPointer) {
    self.init(decoding: bytes, as: UTF8.self)
    // Invalid UTF-8 was repaired with U+FFFD, so the text differs from the bytes.
    if !utf8.hasSameBytes(as: bytes) { return nil }
  }
}
