import Foundation
import Testing

@testable import KeepsakeValkey

@Suite struct CommandTests {
  @Test func encodesAnArrayOfBulkStrings() {
    var command = Command("SET", "k")
    command.append([0, 13, 10])
    command.append([255])
    command.append(-42)
    command.append("")
    var output: [UInt8] = Array("before".utf8)
    command.encode(into: &output)
    let expected: [UInt8] =
      Array("before*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n".utf8) + [0, 13, 10]
      + Array("\r\n$1\r\n".utf8) + [255] + Array("\r\n$3\r\n-42\r\n$0\r\n\r\n".utf8)
    #expect(output == expected)
    #expect(command.byteCount >= output.count - 6)
  }

  /// The parser reads what the encoder writes: commands have the form of replies.
  @Test func isReadBack() throws {
    let words = (0..<300).map { String(repeating: "x", count: $0 * 7) }
    var command = Command("MSET")
    for word in words { command.append(word) }
    var output: [UInt8] = []
    command.encode(into: &output)
    var parser = ReplyParser(limit: 1 << 24)
    let reply = try output.withUnsafeBytes { bytes in
      var rest = bytes
      return try parser.next(&rest)
    }
    #expect(reply == .array((["MSET"] + words).map { .bytes(Array($0.utf8)) }))
  }
}
