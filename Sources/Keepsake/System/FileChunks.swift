public import FoundationEssentials

/// The bytes of a file in pieces, which are read when they are asked for.
///
/// ```swift
/// for try await piece in try Folder.documents.chunks(of: "film.mp4") { try await send(piece) }
/// ```
///
/// The file stays open while the sequence or one of its iterators exists, so it can be read to its
/// end even if it is replaced or removed in the meantime. Pieces are read on threads of the
/// library, one ahead of the loop. At any time, at most two pieces are in memory, and those that
/// you keep.
public struct FileChunks: AsyncSequence, Sendable {
  /// The number of bytes in all pieces together.
  public let count: Int
  fileprivate let source: ChunkSource
  fileprivate let range: Range<Int>
  fileprivate let size: Int

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
  ///
  /// Its `next` throws `CancellationError`, or a ``StorageError`` of code `damaged` if the file was
  /// changed, which for a cache entry is known before the last piece is returned.
  public func makeAsyncIterator() -> some AsyncIteratorProtocol<Data, any Error> {
    PieceQueue(ChunkReader(self))
  }
}

/// Reads the pieces of one pass.
final class ChunkReader: Sendable {
  private struct Progress {
    var position: Int
    var checksum = StreamChecksum()
    var isVerified: Bool
  }

  private let chunks: FileChunks
  private let buffers: BufferPool
  private let progress: Locked<Progress>

  init(_ chunks: FileChunks) {
    self.chunks = chunks
    buffers = BufferPool(size: Swift.min(chunks.size, Swift.max(1, chunks.source.size)))
    progress = Locked(
      Progress(position: chunks.range.lowerBound, isVerified: chunks.source.verify == nil))
  }

  private var source: ChunkSource { chunks.source }
  private var range: Range<Int> { chunks.range }

  /// How many pieces there are.
  var pieceCount: Int { range.count / chunks.size + (range.count % chunks.size > 0 ? 1 : 0) }

  /// Whether the pass includes all bytes, so that they can be summed as they are read.
  private var isWhole: Bool { range == 0..<source.size }

  /// Called by one thread at a time, and not again once it has thrown.
  func next() throws(StorageError) -> Data {
    do throws(StorageError) {
      return try progress.withLock { progress throws(StorageError) in
        let count = Swift.min(chunks.size, range.upperBound - progress.position)
        defer { progress.position += count }
        return try read(count, &progress)
      }
    } catch {
      throw error.inContext(of: "chunks")
    }
  }

  private func read(_ count: Int, _ progress: inout Progress) throws(StorageError) -> Data {
    let file: File
    let position = progress.position
    switch source.contents {
    case .data(let data):
      let start = data.startIndex + position
      return data[start..<start + count].copied
    case .file(let opened): file = opened
    }
    if !isWhole { try verifyAll(file, &progress) }
    let buffer = try buffers.take(for: file)
    var isTaken = false
    defer { if !isTaken { buffers.give(buffer) } }
    let bytes = UnsafeMutableRawBufferPointer(start: buffer.baseAddress, count: count)
    guard file.isOpen, try file.read(from: position, into: bytes) == count else {
      throw Self.truncated(file)
    }
    if isWhole, let verify = source.verify {
      progress.checksum.update(UnsafeRawBufferPointer(bytes))
      if position + count == range.upperBound { try verify(progress.checksum.value) }
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
  private func verifyAll(_ file: File, _ progress: inout Progress) throws(StorageError) {
    guard !progress.isVerified, let verify = source.verify else { return }
    let buffer = try buffers.take(for: file)
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
    progress.isVerified = true
  }

  private static func truncated(_ file: File) -> StorageError {
    if !file.isOpen { return StorageError.closed("chunks", file.path) }
    return StorageError(
      .damaged, operation: "chunks", path: file.path,
      reason: "the file became shorter while it was read",
      remedy: "Find the program that changes it in place.")
  }
}
