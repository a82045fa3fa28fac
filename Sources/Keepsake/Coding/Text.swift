internal import KeepsakeLibc

extension String {
  /// Text in UTF-8; nil when the bytes are none.
  ///
  /// `init(validating:as:)` is not specialized, and takes half as long for a token as the cipher.
  init?(utf8 bytes: UnsafeRawBufferPointer) {
    self.init(decoding: bytes, as: UTF8.self)
    // What is no UTF-8 was replaced by what is.
    let isSame = utf8.span.bytes.withUnsafeBytes { decoded in
      guard decoded.count == bytes.count else { return false }
      guard let start = decoded.baseAddress, let other = bytes.baseAddress else { return true }
      return memcmp(start, other, bytes.count) == 0
    }
    if !isSame { return nil }
  }
}
