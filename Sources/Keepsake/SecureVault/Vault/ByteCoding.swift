#if SecureVault
/// Reads numbers and byte sequences in order. Each read returns nil if the input is too short.
struct ByteReader {
  private let bytes: UnsafeRawBufferPointer
  private(set) var position = 0

  init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

  var isAtEnd: Bool { position == bytes.count }

  /// A little-endian number.
  mutating func number<N: FixedWidthInteger & BitwiseCopyable>(_ type: N.Type = N.self) -> N? {
    take(MemoryLayout<N>.size).map { $0.number(at: 0) }
  }

  /// The next bytes, without copying them.
  mutating func take(_ count: Int) -> UnsafeRawBufferPointer? {
    guard count >= 0, count <= bytes.count - position else { return nil }
    defer { position += count }
    return bytes[part: position..<(position + count)]
  }

  mutating func array(_ count: Int) -> [UInt8]? { take(count).map { Array($0) } }
}

/// Writes numbers and byte sequences in order to memory that has room for all of them.
struct ByteWriter {
  private let memory: UnsafeMutableRawBufferPointer
  private(set) var count = 0

  init(_ memory: UnsafeMutableRawBufferPointer) { self.memory = memory }

  /// Appends a number, little-endian.
  mutating func append<N: FixedWidthInteger & BitwiseCopyable>(_ number: N) {
    let size = MemoryLayout<N>.size
    memory[part: count..<(count + size)].storeBytes(of: number.littleEndian, as: N.self)
    count += size
  }

  mutating func append(_ bytes: UnsafeRawBufferPointer) {
    memory[part: count..<(count + bytes.count)].copyMemory(from: bytes)
    count += bytes.count
  }

  /// Appends a text in UTF-8.
  mutating func append(_ text: String) {
    text.utf8.span.bytes.withUnsafeBytes { append($0) }
  }

  mutating func append(_ bytes: [UInt8]) { bytes.withUnsafeBytes { append($0) } }

  /// Leaves bytes as they are.
  mutating func skip(_ skippedCount: Int) { count += skippedCount }

  mutating func appendZeros(_ zeroCount: Int) {
    memory[part: count..<(count + zeroCount)].initializeMemory(as: UInt8.self, repeating: 0)
    count += zeroCount
  }
}

extension [UInt8] {
  /// The bytes that `body` writes.
  init(count: Int, _ body: (inout ByteWriter) -> Void) {
    self.init(unsafeUninitializedCapacity: count) { memory, initializedCount in
      var writer = ByteWriter(
        UnsafeMutableRawBufferPointer(start: memory.baseAddress, count: count))
      body(&writer)
      initializedCount = writer.count
    }
  }

  /// Calls `body` with the bytes. Unlike `withUnsafeBytes`, it keeps the type of thrown errors.
  func withBytes<R: ~Copyable, E: Error>(
    _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    try span.bytes.withUnsafeBytes(body)
  }
}
#endif
