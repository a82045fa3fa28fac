/// A 64-bit keyed checksum: a multiply-fold over little-endian words.
///
/// It detects damage, not tampering. The articles on file formats specify it, so that other
/// programs can compute it. The folding step is from wyhash (Wang Yi, public domain).
package enum Checksum {
  private static let a: UInt64 = 0xA076_1D64_78BD_642F
  private static let b: UInt64 = 0xE703_7ED1_A0B4_28DB

  @inline(__always)
  private static func fold(_ x: UInt64, _ y: UInt64) -> UInt64 {
    let product = x.multipliedFullWidth(by: y)
    return product.high ^ product.low
  }

  /// Adds one word to a sum.
  @inline(__always)
  static func step(_ state: UInt64, _ word: UInt64) -> UInt64 { fold(state ^ word, a) }

  /// Adds two words to a sum with one multiplication.
  @inline(__always)
  static func step(_ state: UInt64, _ first: UInt64, _ second: UInt64) -> UInt64 {
    fold(state ^ first, b ^ second)
  }

  @inline(__always)
  package static func sum(_ bytes: UnsafeRawBufferPointer, seed: UInt64) -> UInt64 {
    var state = seed ^ fold(UInt64(truncatingIfNeeded: bytes.count) ^ a, b)
    var position = 0
    let words = bytes.count & ~7
    while position < words {
      let word = bytes.loadUnaligned(fromByteOffset: position, as: UInt64.self)
      state = step(state, UInt64(littleEndian: word))
      position += 8
    }
    if position < bytes.count, words > 0 {
      // The last word, without the bytes that are summed already.
      let end = bytes.loadUnaligned(fromByteOffset: bytes.count - 8, as: UInt64.self)
      let tail = UInt64(littleEndian: end) >> UInt64(64 - 8 * (bytes.count - words))
      state = fold(state ^ tail, b)
    } else if position < bytes.count {
      var tail: UInt64 = 0
      var shift: UInt64 = 0
      while position < bytes.count {
        tail |= UInt64(bytes[position]) << shift
        shift += 8
        position += 1
      }
      state = fold(state ^ tail, b)
    }
    return fold(state ^ a, b)
  }
}

/// A checksum of data that arrives in pieces of any size.
///
/// Four parallel sums keep the processor's multipliers busy (more than 20 GB/s). In each block of
/// 64 bytes, lane `i` adds the two words at offset `16 i`. ``Checksum`` sums the remaining bytes
/// and the total count, seeded with the lanes.
package struct StreamChecksum: Sendable {
  private var lanes: (UInt64, UInt64, UInt64, UInt64) = (1, 2, 3, 4)
  private var rest: [UInt8] = []
  private var count: UInt64 = 0

  private static let block = 64

  package static func sum(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
    var sum = StreamChecksum()
    let whole = bytes.count & ~(block - 1)
    sum.updateBlocks(UnsafeRawBufferPointer(rebasing: bytes[..<whole]))
    sum.count = UInt64(bytes.count)
    return sum.value(rest: UnsafeRawBufferPointer(rebasing: bytes[whole...]))
  }

  mutating func update(_ bytes: UnsafeRawBufferPointer) {
    count &+= UInt64(bytes.count)
    var bytes = bytes
    if !rest.isEmpty {
      let missing = min(Self.block - rest.count, bytes.count)
      rest += bytes[..<missing]
      bytes = UnsafeRawBufferPointer(rebasing: bytes[missing...])
      guard rest.count == Self.block else { return }
      rest.withUnsafeBytes { updateBlocks($0) }
      rest = []
    }
    let whole = bytes.count & ~(Self.block - 1)
    updateBlocks(UnsafeRawBufferPointer(rebasing: bytes[..<whole]))
    if whole < bytes.count { rest = Array(bytes[whole...]) }
  }

  /// Lanes b and d are one block behind the others. In step, the compiler would keep all four in
  /// vectors and move them to the multiplier and back, which takes three times as long.
  private mutating func updateBlocks(_ blocks: UnsafeRawBufferPointer) {
    if blocks.isEmpty { return }
    var (a, b, c, d) = lanes
    a = Self.step(a, blocks, 0)
    c = Self.step(c, blocks, 32)
    var position = Self.block
    while position < blocks.count {
      a = Self.step(a, blocks, position)
      b = Self.step(b, blocks, position - 48)
      c = Self.step(c, blocks, position + 32)
      d = Self.step(d, blocks, position - 16)
      position += Self.block
    }
    b = Self.step(b, blocks, position - 48)
    d = Self.step(d, blocks, position - 16)
    lanes = (a, b, c, d)
  }

  @inline(__always)
  private static func step(
    _ lane: UInt64, _ bytes: UnsafeRawBufferPointer, _ position: Int
  ) -> UInt64 {
    let first = bytes.loadUnaligned(fromByteOffset: position, as: UInt64.self)
    let second = bytes.loadUnaligned(fromByteOffset: position + 8, as: UInt64.self)
    return Checksum.step(lane, UInt64(littleEndian: first), UInt64(littleEndian: second))
  }

  var value: UInt64 { rest.withUnsafeBytes { value(rest: $0) } }

  private func value(rest: UnsafeRawBufferPointer) -> UInt64 {
    var seed = Checksum.step(count, lanes.0)
    seed = Checksum.step(seed, lanes.1)
    seed = Checksum.step(seed, lanes.2)
    seed = Checksum.step(seed, lanes.3)
    return Checksum.sum(rest, seed: seed)
  }
}
