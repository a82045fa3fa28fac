#if SecureVault
extension UnsafeRawBufferPointer {
  var bytePointer: UnsafePointer<UInt8>? { baseAddress?.assumingMemoryBound(to: UInt8.self) }
  /// A part as a buffer of its own.
  subscript(part range: some RangeExpression<Int>) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(rebasing: self[range.relative(to: self)])
  }
}

extension UnsafeMutableRawBufferPointer {
  var bytePointer: UnsafeMutablePointer<UInt8>? {
    baseAddress?.assumingMemoryBound(to: UInt8.self)
  }
  /// A part as a buffer of its own.
  subscript(part range: some RangeExpression<Int>) -> UnsafeMutableRawBufferPointer {
    UnsafeMutableRawBufferPointer(rebasing: self[range.relative(to: self)])
  }
}
#endif
