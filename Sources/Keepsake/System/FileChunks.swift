public import FoundationEssentials

/// The bytes of a file in pieces, which are read when they are asked for.
///
/// ```swift
/// for try await piece in try Folder.documents.chunks(of: "film.mp4") { try await send(piece) }
/// ```
///
/// The file stays open while the sequence or one of its iterators exists, so it can be read to its
/// end even if it is replaced or removed meanwhile. Pieces are read on threads of the library. At
/// any time, one piece is in memory, and those that you keep.
public struct FileChunks: AsyncSequence, Sendable {
  /// The number of bytes in all pieces together.
  public let count: Int
  private let source: ChunkSource
  private let range: Range<Int>
  private let size: Int

  /// - Parameters:
  ///   - range: nil for all bytes. What is outside the source is left out.
  ///   - size: The size of a piece.
  init(_ source: ChunkSource, _ range: Range<Int>?, size: Int) {
    let range = (range ?? 0..<source.size).clamped(to: 0..<source.size)
    self.source = source
    self.range = range
    self.size = Swift.max(1, size)
    count = range.count
  }

  /// Begins a new pass over all pieces.
  public func makeAsyncIterator() -> AsyncIterator {
    AsyncIterator(source: source, range: range, size: size)
  }

  /// One pass over the pieces.
  public struct AsyncIterator: AsyncIteratorProtocol {
    private let reader: ChunkReader
    private let range: Range<Int>
    private let size: Int
    private var position: Int

    fileprivate init(source: ChunkSource, range: Range<Int>, size: Int) {
      reader = ChunkReader(source, isWhole: range == 0..<source.size, size: size)
      self.range = range
      self.size = size
      position = range.lowerBound
    }

    /// The next piece; nil after the last one.
    ///
    /// - Throws: `CancellationError`, or a ``StorageError`` of code `damaged` if the file was
    ///   changed, which for a cache entry is known before the last piece is returned.
    public mutating func next() async throws -> Data? {
      guard position < range.upperBound else { return nil }
      let count = Swift.min(size, range.upperBound - position)
      let (reader, start) = (reader, position)
      let isLast = start + count == range.upperBound
      let piece = try await BlockingWork.run { () throws -> Data in
        do throws(StorageError) {
          return try reader.read(from: start, count: count, isLast: isLast)
        } catch {
          throw error.inContext(of: "chunks")
        }
      }
      position += count
      return piece
    }
  }
}

/// Reads the pieces of one pass.
private final class ChunkReader: Sendable {
  private let source: ChunkSource
  private let buffers: BufferPool
  /// Whether the pass includes all bytes, so that they can be summed as they are read.
  private let isWhole: Bool
  private let checksum = Locked(StreamChecksum())
  private let isVerified: Locked<Bool>

  init(_ source: ChunkSource, isWhole: Bool, size: Int) {
    self.source = source
    self.isWhole = isWhole
    buffers = BufferPool(size: Swift.min(size, Swift.max(1, source.size)))
    isVerified = Locked(source.verify == nil)
  }

  func read(from position: Int, count: Int, isLast: Bool) throws(StorageError) -> Data {
    let file: File
    switch source.contents {
    case .data(let data):
      let start = data.startIndex + position
      return data[start..<start + count]
    case .file(let opened): file = opened
    }
    if !isWhole { try verifyAll(file) }
    let buffer = buffers.take()
    var isTaken = false
    defer { if !isTaken { buffers.give(buffer) } }
    let bytes = UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: count)
    guard try file.read(from: position, into: bytes) == count else {
      throw Self.truncated(file)
    }
    if isWhole, let verify = source.verify {
      let sum = checksum.withLock { checksum -> UInt64? in
        checksum.update(UnsafeRawBufferPointer(bytes))
        return isLast ? checksum.value : nil
      }
      if let sum { try verify(sum) }
    }
    guard let start = buffer.baseAddress else { return Data() }
    isTaken = true
    let buffers = buffers
    return Data(
      bytesNoCopy: start, count: count,
      deallocator: .custom { address, _ in
        buffers.give(UnsafeMutableRawBufferPointer(start: address, count: buffers.size))
      })
  }

  /// Reads all bytes once before a part of them is returned.
  private func verifyAll(_ file: File) throws(StorageError) {
    try isVerified.withLock { isVerified throws(StorageError) in
      guard !isVerified, let verify = source.verify else { return }
      let buffer = buffers.take()
      defer { buffers.give(buffer) }
      var sum = StreamChecksum()
      var position = 0
      while position < source.size {
        let count = Swift.min(buffer.count, source.size - position)
        let bytes = UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: count)
        guard try file.read(from: position, into: bytes) == count else {
          throw Self.truncated(file)
        }
        sum.update(UnsafeRawBufferPointer(bytes))
        position += count
      }
      try verify(sum.value)
      isVerified = true
    }
  }

  private static func truncated(_ file: File) -> StorageError {
    StorageError(
      .damaged, operation: "chunks", path: file.path,
      reason: "the file became shorter while it was read",
      remedy: "Find the program that changes it in place.")
  }
}

/// Buffers of one size that are used again: a fresh one costs more than reading into it.
private final class BufferPool: Sendable {
  let size: Int
  /// The addresses of at most two unused buffers.
  private let unused = Locked<[UInt]>([])

  init(size: Int) { self.size = size }

  deinit {
    unused.withLock { addresses in
      for address in addresses { UnsafeMutableRawPointer(bitPattern: address)?.deallocate() }
    }
  }

  func take() -> UnsafeMutableRawBufferPointer {
    let address = unused.withLock { $0.popLast() }
    if let address {
      return UnsafeMutableRawBufferPointer(
        start: UnsafeMutableRawPointer(bitPattern: address), count: size)
    }
    return .allocate(byteCount: size, alignment: 64)
  }

  func give(_ buffer: UnsafeMutableRawBufferPointer) {
    let isKept = unused.withLock { addresses in
      guard addresses.count < 2 else { return false }
      addresses.append(UInt(bitPattern: buffer.baseAddress))
      return true
    }
    if !isKept { buffer.deallocate() }
  }
}
