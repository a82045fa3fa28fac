#if SecureVault
/// Memory for pieces of ciphertext, used again and again.
enum ChunkBuffer {
  private static let size = 64 << 10

  /// Unchecked because it is a pointer, which only the one who took it from the pool uses.
  private struct Buffer: @unchecked Sendable {
    let memory: UnsafeMutableRawBufferPointer
  }

  private static let pool = Locked<[Buffer]>([])
  private static let mostKept = 4

  /// Calls `body` with a buffer for so many bytes, or for as many of them as one piece may have.
  static func with<R>(
    _ count: Int, _ body: (UnsafeMutableRawBufferPointer) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    if count <= 4_096 {
      return try withUnsafeTemporaryAllocation(
        byteCount: max(count, XAES.tagSize), alignment: 8, body)
    }
    let buffer =
      pool.withLock { $0.popLast() } ?? Buffer(memory: .allocate(byteCount: size, alignment: 64))
    defer {
      let isKept = pool.withLock { pool in
        guard pool.count < mostKept else { return false }
        pool.append(buffer)
        return true
      }
      if !isKept { buffer.memory.deallocate() }
    }
    return try body(buffer.memory)
  }
}

/// Gathers pieces in a buffer and writes it out when it is full.
struct ChunkOutput {
  let file: File
  let buffer: UnsafeMutableRawBufferPointer
  var used = 0

  mutating func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    var rest = bytes
    while let (piece, room) = try next(&rest) { room.copyMemory(from: piece) }
  }

  mutating func append(
    _ bytes: UnsafeRawBufferPointer, sealedWith cipher: borrowing AESGCM
  ) throws(StorageError) {
    var rest = bytes
    while let (piece, room) = try next(&rest) { try cipher.update(piece, into: room) }
  }

  /// The next piece of `rest` that the buffer has room for, and that room.
  private mutating func next(
    _ rest: inout UnsafeRawBufferPointer
  ) throws(StorageError) -> (UnsafeRawBufferPointer, UnsafeMutableRawBufferPointer)? {
    if rest.isEmpty { return nil }
    if used == buffer.count { try flush() }
    let count = min(rest.count, buffer.count - used)
    defer {
      used += count
      rest = rest[part: count...]
    }
    return (rest[part: ..<count], buffer[part: used..<(used + count)])
  }

  mutating func appendTag(of cipher: borrowing AESGCM) throws(StorageError) {
    if buffer.count - used < XAES.tagSize { try flush() }
    try cipher.finish(tag: buffer[part: used..<(used + XAES.tagSize)])
    used += XAES.tagSize
  }

  mutating func flush() throws(StorageError) {
    let failure = file.write(UnsafeRawBufferPointer(buffer)[part: ..<used]).failure
    if let failure { throw failure }
    used = 0
  }
}
#endif
