import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite(.singleThreaded) struct UTF8Tests {
  @Test func acceptsWhatTheStandardLibraryAccepts() {
    // The replacement character takes as many bytes as some of the sequences that it replaces.
    var samples: [[UInt8]] = [
      [], [0], [0x41, 0, 0x42], Array("\u{FFFD}".utf8), [0xF0, 0x9F, 0x98], [0xED, 0xA0, 0x80],
      [0xC0, 0x80], [0xFF], Array(repeating: 0x41, count: 100_000) + [0xC3],
    ]
    // Random sequences, of which many are valid and many nearly so.
    let parts: [[UInt8]] = [
      [0x41], Array("é".utf8), Array("€".utf8), Array("😀".utf8), [0x80], [0xE2, 0x82], [0xF4],
    ]
    for _ in 0..<5_000 {
      samples.append((0..<Int.random(in: 1...12)).flatMap { _ in parts.randomElement() ?? [] })
    }
    for bytes in samples {
      let text = bytes.withBytes { String(utf8: $0) }
      let expected = String(validating: bytes, as: UTF8.self)
      #expect(text.map { Array($0.utf8) } == expected.map { Array($0.utf8) }, "\(bytes.prefix(40))")
    }
  }
}
