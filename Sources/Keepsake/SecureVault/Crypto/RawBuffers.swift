#if SecureVault
extension UnsafeRawBufferPointer {
  var bytePointer: UnsafePointer<UInt8>? { baseAddress?.assumingMemoryBound(to: UInt8.self) }
  /// Part of the memory, with indices that start at 0.
  subscript(part range: some RangeExpression<Int>) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(rebasing: self[range.relative(to: self)])
  }
}

extension UnsafeMutableRawBufferPointer {
  var bytePointer: UnsafeMutablePointer<UInt8>? {
    baseAddress?.assumingMemoryBound(to: UInt8.self)
  }
  /// Part of the memory, with indices that start at 0.
  subscript(part range: some RangeExpression<Int>) -> UnsafeMutableRawBufferPointer {
    UnsafeMutableRawBufferPointer(rebasing: self[range.relative(to: self)])
  }
}
#endif
