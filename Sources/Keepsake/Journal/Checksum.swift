/// A 64-bit keyed checksum: a multiply-fold over little-endian words.
///
/// It finds damage, which is all it is for; it does not withstand an attacker. The formats article
/// writes it down so that other programs can compute it. The folding step is that of wyhash
/// (Wang Yi, public domain).
enum Checksum {
  private static let a: UInt64 = 0xA076_1D64_78BD_642F
  private static let b: UInt64 = 0xE703_7ED1_A0B4_28DB

  @inline(__always)
  private static func fold(_ x: UInt64, _ y: UInt64) -> UInt64 {
    let product = x.multipliedFullWidth(by: y)
    return product.high ^ product.low
  }

  @inline(__always)
  static func sum(_ bytes: UnsafeRawBufferPointer, seed: UInt64) -> UInt64 {
    var state = seed ^ fold(UInt64(truncatingIfNeeded: bytes.count) ^ a, b)
    var position = 0
    let words = bytes.count & ~7
    while position < words {
      let word = bytes.loadUnaligned(fromByteOffset: position, as: UInt64.self)
      state = fold(state ^ UInt64(littleEndian: word), a)
      position += 8
    }
    if position < bytes.count {
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
