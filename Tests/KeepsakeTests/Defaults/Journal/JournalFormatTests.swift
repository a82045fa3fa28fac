import FoundationEssentials
import Testing

@testable import Keepsake

/// The format of a journal, and which records damage loses.
@Suite struct JournalFormatTests {
  static let id: UInt64 = 0x0123_4567_89AB_CDEF

  /// A journal with one record of each kind; the keys are k0 to k6.
  static let sample: [UInt8] = {
    var bytes: [UInt8] = []
    let changes: [(String, StoredValue?)] = [
      ("k0", .int(42)), ("k1", .string("line\nbreak \"q\" é")), ("k2", .data(.init([1, 2, 3]))),
      ("k3", .date(0.1)), ("k4", .double(.infinity)), ("k0", nil),
      ("k5", .json(Array(#"{"a":[1,2]}"#.utf8))), ("k6", .bool(true)),
    ]
    for (key, value) in changes { JournalFormat.append(value, key: key, seed: id, to: &bytes) }
    return journal(bytes)
  }()

  /// A journal with these records.
  static func journal(_ records: [UInt8]) -> [UInt8] {
    JournalFormat.header(
      id: id, JournalWord(id: id, end: JournalFormat.headerSize + records.count)) + records
  }

  typealias Line = (kind: JournalFormat.Kind, key: String, value: [UInt8])

  static func parse(_ bytes: [UInt8]) -> (lines: [Line], damage: Int)? {
    bytes.withUnsafeBytes { buffer in
      guard case .valid(let id, _) = JournalFormat.header(of: buffer) else { return nil }
      let (records, damage) = JournalFormat.records(
        in: buffer, from: JournalFormat.headerSize, seed: id)
      return (records.map { ($0.kind, $0.key, Array(buffer[$0.value])) }, damage)
    }
  }

  static func isSame(_ a: Line, _ b: Line) -> Bool {
    a.kind == b.kind && a.key == b.key && a.value == b.value
  }

  @Test func eachLineIsJSON() throws {
    for line in String(decoding: Self.sample, as: UTF8.self).split(separator: "\n") {
      let tree = try Codec.decoder.decode(Defaults.Value.self, from: .init(line.utf8))
      guard case .array(let parts) = tree else {
        Issue.record("not an array: \(line)")
        continue
      }
      #expect((1...5).contains(parts.count))
    }
  }

  /// Otherwise each of many damaged records would be summed up to the end of a large file.
  @Test func afterDamageARecordDoesNotContinueOnTheNextLine() throws {
    let lines = Array(("[" + String(repeating: "1,\n", count: 2_000) + "1]").utf8)
    var bytes = Array("damage\n".utf8)
    JournalFormat.append(.json(lines), key: "k", seed: Self.id, to: &bytes)
    JournalFormat.append(.int(1), key: "next", seed: Self.id, to: &bytes)
    let parsed = try #require(Self.parse(Self.journal(bytes)))
    #expect(parsed.lines.map(\.key) == ["next"] && parsed.damage > 0)
  }

  @Test func flippedByteLosesAtMostItsRecord() throws {
    let (lines, _) = try #require(Self.parse(Self.sample))
    #expect(lines.count == 8)
    for position in Self.sample.indices {
      for mask: UInt8 in [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF] {
        var bytes = Self.sample
        bytes[position] ^= mask
        let (left, damage) = try #require(Self.parse(bytes), "byte \(position)")
        // The remaining lines are in order, and at most one is missing.
        var rest = lines[...]
        for line in left {
          let match = try #require(rest.firstIndex { Self.isSame($0, line) }, "byte \(position)")
          rest = rest[(match + 1)...]
        }
        #expect(left.count >= lines.count - 1, "byte \(position) mask \(mask)")
        if position >= JournalFormat.headerSize {
          #expect(damage > 0, "byte \(position) mask \(mask)")
          continue
        }
        let (header, word) = bytes.withUnsafeBytes {
          (JournalFormat.header(of: $0), JournalFormat.word(of: $0))
        }
        let isOfWord = Self.wordRange.contains(position)
        #expect(header == .valid(id: Self.id, isIntact: isOfWord), "byte \(position)")
        #expect((word.end(of: Self.id) == nil) == isOfWord, "byte \(position)")
      }
    }
  }

  private static let wordRange = JournalWord.offset..<JournalWord.offset + JournalWord.size

  @Test func truncationKeepsAllWholeRecords() throws {
    let (lines, _) = try #require(Self.parse(Self.sample))
    #expect(lines.count == 8)
    for count in 0..<Self.sample.count {
      let bytes = Array(Self.sample.prefix(count))
      guard count >= JournalFormat.headerSize else {
        #expect(bytes.withUnsafeBytes { JournalFormat.header(of: $0) } == .incomplete)
        continue
      }
      let (left, damage) = try #require(Self.parse(bytes))
      #expect(zip(left, lines).allSatisfy(Self.isSame))
      let isWhole = count == JournalFormat.headerSize || bytes.last == UInt8(ascii: "\n")
      #expect((damage == 0) == isWhole, "\(count) bytes")
    }
  }

  @Test func aWordIsOfOneJournalAndOneLength() {
    for end in [JournalFormat.headerSize, 65_535, 65_536, 1 << 20, JournalWord.largestEnd] {
      let word = JournalWord(id: Self.id, end: end)
      #expect(word.end(of: Self.id) == end)
      #expect(word.end(of: Self.id ^ 1) == nil)
      #expect(JournalWord(id: Self.id, end: end - 1) != word)
    }
    #expect(JournalWord(id: Self.id, end: JournalFormat.headerSize - 1).end(of: Self.id) == nil)
    #expect(JournalWord.replaced.end(of: Self.id) == nil)
    #expect(JournalWord.replaced.bytes == Array("--------".utf8))
  }

  @Test func headerTellsForeignFilesFromNewerOnes() {
    func header(_ text: String) -> JournalFormat.Header {
      Array(text.utf8).withUnsafeBytes { JournalFormat.header(of: $0) }
    }
    #expect(header("") == .incomplete)
    #expect(header(String(repeating: "\0", count: 5000)) == .incomplete)
    #expect(header("[\"keepsake.v") == .incomplete && header("[\"keepsake.x") == .foreign)
    #expect(header("hello") == .foreign)
    #expect(header(String(repeating: "{\"a\": 1}\n", count: 100)) == .foreign)
    let newer = #"["keepsake.v1","--------","2:0123456789abcdef","2:0123456789abcdef","#
    #expect(header(newer + "\"2:0123456789abcdef\"]\n") == .unsupported)
  }

  @Test func hostileLengthsDoNotTrap() {
    for length in ["", "0", "9", "99999999999999999999999999", "18446744073709551615", "-1"] {
      let line = "[\"0123456789abcdefj\(length)\",\"a\",1]\n"
      let bytes = Self.journal(Array(line.utf8))
      #expect(Self.parse(bytes)?.lines.count == 0)
      #expect(Self.parse(bytes)?.damage == 1)
    }
  }
}
