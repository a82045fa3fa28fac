import Testing

@testable import Keepsake

@Suite struct ChecksumTests {
  /// The sum as the article on the cache's format defines it.
  private func reference(_ bytes: [UInt8]) -> UInt64 {
    func fold(_ x: UInt64, _ y: UInt64) -> UInt64 {
      let product = x.multipliedFullWidth(by: y)
      return product.high ^ product.low
    }
    func word(_ bytes: ArraySlice<UInt8>) -> UInt64 {
      bytes.reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }
    let (a, b): (UInt64, UInt64) = (0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db)
    var lanes: [UInt64] = [1, 2, 3, 4]
    var rest = bytes[...]
    while rest.count >= 64 {
      for lane in 0..<4 {
        let (v, w) = (word(rest.prefix(8)), word(rest.dropFirst(8).prefix(8)))
        lanes[lane] = fold(lanes[lane] ^ v, b ^ w)
        rest = rest.dropFirst(16)
      }
    }
    var seed = UInt64(bytes.count)
    for lane in lanes { seed = fold(seed ^ lane, a) }
    var sum = seed ^ fold(UInt64(rest.count) ^ a, b)
    while rest.count >= 8 {
      sum = fold(sum ^ word(rest.prefix(8)), a)
      rest = rest.dropFirst(8)
    }
    if !rest.isEmpty { sum = fold(sum ^ word(rest), b) }
    return fold(sum ^ a, b)
  }

  @Test func anySplitHasTheDocumentedSum() {
    let bytes = (0..<400).map { UInt8(truncatingIfNeeded: $0 &* 151 &+ 7) }
    for length in 0...bytes.count {
      let expected = reference(Array(bytes[..<length]))
      for split in [0, 1, 63, 64, 65, length / 2, length] where split <= length {
        var sum = StreamChecksum()
        bytes[..<split].withUnsafeBytes { sum.update($0) }
        bytes[split..<length].withUnsafeBytes { sum.update($0) }
        #expect(sum.value == expected, "\(length) bytes, split at \(split)")
      }
    }
  }

  @Test func changingABitChangesTheSum() {
    let bytes = [UInt8](repeating: 0, count: 200)
    let sum = bytes.withUnsafeBytes { StreamChecksum.sum($0) }
    for bit in 0..<(bytes.count * 8) {
      var changed = bytes
      changed[bit / 8] ^= 1 << (bit % 8)
      #expect(changed.withUnsafeBytes { StreamChecksum.sum($0) } != sum)
    }
    #expect(bytes.dropLast().withUnsafeBytes { StreamChecksum.sum($0) } != sum)
  }

  /// These values must never change.
  @Test func knownSums() {
    let text = "The quick brown fox jumps over the lazy dog, and over the next one as well."
    #expect([UInt8]().withUnsafeBytes { StreamChecksum.sum($0) } == 15_874_983_989_891_001_678)
    let sum = Array(text.utf8).withUnsafeBytes { StreamChecksum.sum($0) }
    #expect(sum == 17_431_023_344_889_394_057)
  }
}
