extension UnsafeRawBufferPointer {
  /// The little-endian integer at an offset, which need not be aligned.
  @inline(__always)
  package func number<N: FixedWidthInteger & BitwiseCopyable>(
    at offset: Int, as type: N.Type = N.self
  ) -> N { N(littleEndian: loadUnaligned(fromByteOffset: offset, as: N.self)) }
}

extension [UInt8] {
  /// Appends an integer, little-endian.
  package mutating func append<N: FixedWidthInteger>(number: N) {
    Swift.withUnsafeBytes(of: number.littleEndian) { append(contentsOf: $0) }
  }
}
