extension String {
  /// The text of bytes in UTF-8; nil if they are invalid.
  ///
  /// `init(validating:as:)` is not specialized: for a token, it takes half as long as decrypting
  /// it.
  init?(utf8 bytes: UnsafeRawBufferPointer) {
    self.init(decoding: bytes, as: UTF8.self)
    // Invalid UTF-8 was repaired with U+FFFD, so the text differs from the bytes.
    let isValid = utf8.span.bytes.withUnsafeBytes { decoded in
      decoded.hasSameBytes(as: bytes)
    }
    if !isValid { return nil }
  }
}

extension UnsafeRawBufferPointer {
  /// Compares eight bytes at a time, which `elementsEqual` does not.
  fileprivate func hasSameBytes(as other: UnsafeRawBufferPointer) -> Bool {
    guard count == other.count else { return false }
    var position = 0
    while position + 8 <= count {
      let word = loadUnaligned(fromByteOffset: position, as: UInt64.self)
      if word != other.loadUnaligned(fromByteOffset: position, as: UInt64.self) { return false }
      position += 8
    }
    while position < count {
      if self[position] != other[position] { return false }
      position += 1
    }
    return true
  }
}
