extension UnsafeRawBufferPointer {
  @inline(__always)
  func hasSameBytes(as other: UnsafeRawBufferPointer) -> Bool {
    count == other.count && isPrefix(of: other)
  }

  /// Whether `other`, which must not be shorter, begins with these bytes. Compares eight at a time,
  /// which `elementsEqual` does not.
  @inline(__always)
  func isPrefix(of other: UnsafeRawBufferPointer) -> Bool {
    var position = 0
    while position &+ 8 <= count {
      let word = loadUnaligned(fromByteOffset: position, as: UInt64.self)
      if word != other.loadUnaligned(fromByteOffset: position, as: UInt64.self) { return false }
      position &+= 8
    }
    while position < count {
      if self[position] != other[position] { return false }
      position &+= 1
    }
    return true
  }
}

extension String.UTF8View {
  /// Whether these are the same bytes, which differ between texts that `String` takes for equal.
  @inline(__always)
  func hasSameBytes(as other: UnsafeRawBufferPointer) -> Bool {
    span.bytes.withUnsafeBytes { $0.hasSameBytes(as: other) }
  }
}
