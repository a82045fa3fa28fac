#if SecureVault
/// Reads numbers and byte sequences in order. Each read returns nil if the input is too short.
struct ByteReader {
  private let bytes: UnsafeRawBufferPointer
  private(set) var position = 0

  init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

  var isAtEnd: Bool { position == bytes.count }

  /// A little-endian number.
  mutating func number<N: FixedWidthInteger & BitwiseCopyable>(_ type: N.Type = N.self) -> N? {
    take(MemoryLayout<N>.size).map { N(littleEndian: $0.loadUnaligned(as: N.self)) }
  }

  /// The next bytes, without copying them.
  mutating func take(_ count: Int) -> UnsafeRawBufferPointer? {
    guard count >= 0, count <= bytes.count - position else { return nil }
    defer { position += count }
    return bytes[part: position..<(position + count)]
  }

  mutating func array(_ count: Int) -> [UInt8]? { take(count).map { Array($0) } }
}

extension [UInt8] {
  /// Appends a number, little-endian.
  mutating func append<N: FixedWidthInteger>(number: N) {
    Swift.withUnsafeBytes(of: number.littleEndian) { append(contentsOf: $0) }
  }

  /// Calls `body` with the bytes. Unlike `withUnsafeBytes`, it keeps the type of thrown errors.
  func withBytes<R: ~Copyable, E: Error>(
    _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    try span.bytes.withUnsafeBytes(body)
  }
}
#endif
