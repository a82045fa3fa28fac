internal import KeepsakeLibc

/// Buffers of one size that are used again: a fresh one costs more than reading into it.
final class BufferPool: Sendable {
  let size: Int
  /// The addresses of at most two unused buffers.
  private let unused = Locked<[UInt]>([])

  init(size: Int) { self.size = size }

  deinit {
    unused.withLock { addresses in
      for address in addresses { free(UnsafeMutableRawPointer(bitPattern: address)) }
    }
  }

  /// - Parameter file: The file that will be read into the buffer.
  func take(for file: File) throws(StorageError) -> UnsafeMutableRawBufferPointer {
    let address = unused.withLock { $0.popLast() }
    let start =
      if let address { UnsafeMutableRawPointer(bitPattern: address) } else {
        try file.allocate(size)
      }
    return UnsafeMutableRawBufferPointer(start: start, count: size)
  }

  func give(_ buffer: UnsafeMutableRawBufferPointer) {
    let isKept = unused.withLock { addresses in
      guard addresses.count < 2 else { return false }
      addresses.append(UInt(bitPattern: buffer.baseAddress))
      return true
    }
    if !isKept { free(buffer.baseAddress) }
  }
}
