import Testing

@testable import Keepsake

@Suite struct FolderByteCountTests {
  @Test(arguments: [
    (0, "0 bytes"), (1, "1 byte"), (-1, "-1 byte"), (2, "2 bytes"), (999, "999 bytes"),
    (-999, "-999 bytes"), (1_000, "1 kB"), (1_004, "1 kB"), (1_005, "1.01 kB"), (1_010, "1.01 kB"),
    (1_234, "1.23 kB"), (1_235, "1.24 kB"), (1_500, "1.5 kB"), (-1_500, "-1.5 kB"),
    (9_994, "9.99 kB"), (9_995, "10 kB"), (9_999, "10 kB"), (10_049, "10 kB"),
    (10_050, "10.1 kB"), (12_345, "12.3 kB"), (99_949, "99.9 kB"), (99_950, "100 kB"),
    (123_456, "123 kB"), (999_499, "999 kB"), (999_500, "1 MB"), (999_999, "1 MB"),
    (1_000_000, "1 MB"), (1_234_567, "1.23 MB"), (999_499_999, "999 MB"), (999_500_000, "1 GB"),
    (1_000_000_000, "1 GB"), (999_999_999_999, "1 TB"), (1_500_000_000_000, "1.5 TB"),
    (999_500_000_000_000, "1 PB"), (999_499_999_999_999_999, "999 PB"),
    (999_500_000_000_000_000, "1 EB"), (.max, "9.22 EB"), (.min, "-9.22 EB"),
  ])
  func describesBytesInDecimalUnits(_ bytes: Int, _ text: String) {
    #expect(ByteCount(bytes).description == text)
  }

  @Test func isRoundedToItsLastDigit() {
    for _ in 0..<5_000 {
      let bytes = Int.random(in: 1_000 ... .max) >> Int.random(in: 0..<50)
      guard bytes >= 1_000 else { continue }
      let words = ByteCount(bytes).description.split(separator: " ")
      let unit = ["kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "EB": 1e18]
      let shown = (Double(words[0]) ?? 0) * (unit[String(words[1])] ?? 0)
      #expect(abs(shown - Double(bytes)) <= Double(bytes) * 0.005_01, "\(bytes) \(words)")
      #expect(words[0].filter(\.isNumber).count <= 3, "\(bytes) \(words)")
    }
  }
}
