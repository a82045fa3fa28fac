#if SecureVault
/// Reused memory for chunks of ciphertext. It never holds plaintext.
enum ChunkBuffer {
  private static let size = 64 << 10

  /// Unchecked because it holds a pointer, which only the call that took it from the pool uses.
  private struct Buffer: @unchecked Sendable {
    let memory: UnsafeMutableRawBufferPointer
  }

  private static let pool = Locked<[Buffer]>([])
  private static let maxPooled = 4

  /// Calls `body` with a buffer for `count` bytes, or for one chunk if that is less.
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
      let isPooled = pool.withLock { pool in
        guard pool.count < maxPooled else { return false }
        pool.append(buffer)
        return true
      }
      if !isPooled { buffer.memory.deallocate() }
    }
    return try body(buffer.memory)
  }
}

/// Collects bytes in a buffer, and writes the buffer to a file whenever it is full.
struct ChunkOutput {
  /// nil if the buffer has room for everything.
  let file: File?
  let buffer: UnsafeMutableRawBufferPointer
  var used = 0

  mutating func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    var rest = bytes
    while let (piece, target) = try nextPiece(&rest) { target.copyMemory(from: piece) }
  }

  mutating func append(
    _ bytes: UnsafeRawBufferPointer, sealedWith cipher: borrowing AESGCM
  ) throws(StorageError) {
    var rest = bytes
    while let (piece, target) = try nextPiece(&rest) { try cipher.update(piece, into: target) }
  }

  /// Removes the next piece that fits into the buffer from `rest`.
  ///
  /// - Returns: The piece, and the part of the buffer to put it in.
  private mutating func nextPiece(
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
    guard let file else { return }
    let failure = file.write(UnsafeRawBufferPointer(buffer)[part: ..<used]).failure
    if let failure { throw failure }
    used = 0
  }
}
#endif
