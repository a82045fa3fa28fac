import Testing

@testable import Keepsake

@Suite struct HexadecimalTests {
  @Test(arguments: 1...20) func writesTheLeastSignificantDigits(count: Int) {
    var numbers: [UInt64] = [0, 9, 10, 15, 16, 0x1234_5678, 0xFEDC_BA98_7654_3210, .max]
    numbers += (0..<100).map { _ in .random(in: .min ... .max) }
    for number in numbers {
      let digits = [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
        Hexadecimal.write(number, to: buffer[..<count])
        filled = count
      }
      let expected = String(repeating: "0", count: 20) + String(number, radix: 16)
      #expect(String(decoding: digits, as: UTF8.self) == expected.suffix(count))
    }
  }
}
