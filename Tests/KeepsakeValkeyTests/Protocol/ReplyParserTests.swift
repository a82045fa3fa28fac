import Testing

@testable import KeepsakeValkey

@Suite struct ReplyParserTests {
  private static func bytes(_ text: String) -> Reply { .bytes(Array(text.utf8)) }

  /// What the bytes mean, with a generous limit.
  static let table: [(input: String, replies: [Reply])] = [
    ("+OK\r\n", [.status(Array("OK".utf8))]),
    ("+\r\n", [.status([])]),
    (":0\r\n", [.integer(0)]),
    (":+7\r\n", [.integer(7)]),
    (":-1\r\n", [.integer(-1)]),
    (":9223372036854775807\r\n", [.integer(.max)]),
    (":-9223372036854775808\r\n", [.integer(.min)]),
    ("$0\r\n\r\n", [bytes("")]),
    ("$5\r\nhello\r\n", [bytes("hello")]),
    ("$7\r\na\r\nb\r\nc\r\n", [bytes("a\r\nb\r\nc")]),
    ("$-1\r\n", [.null]),
    ("*-1\r\n", [.null]),
    ("*0\r\n", [.array([])]),
    ("*2\r\n$1\r\na\r\n:3\r\n", [.array([bytes("a"), .integer(3)])]),
    ("*1\r\n*1\r\n*0\r\n", [.array([.array([.array([])])])]),
    ("*3\r\n*1\r\n:1\r\n$-1\r\n+x\r\n", [.array([.array([.integer(1)]), .null, .status([120])])]),
    ("-ERR bad\r\n", [.error(ErrorReply("ERR bad".utf8))]),
    (
      "+a\r\n:1\r\n$1\r\nb\r\n*1\r\n:2\r\n",
      [
        .status([97]), .integer(1), bytes("b"), .array([.integer(2)]),
      ]
    ),
  ]

  /// Parses pieces as they would arrive.
  private func parse(
    _ pieces: [ArraySlice<UInt8>], limit: Int = 1 << 20
  ) throws -> [Reply] {
    var parser = ReplyParser(limit: limit)
    var replies: [Reply] = []
    for piece in pieces {
      try Array(piece).withUnsafeBytes { bytes in
        var rest = bytes
        while !rest.isEmpty {
          let before = rest.count
          if let reply = try parser.next(&rest) { replies.append(reply) }
          if rest.count == before { break }
        }
      }
    }
    return replies
  }

  /// Every reply arrives in two pieces, cut at every position, and byte by byte.
  @Test(arguments: table.indices) func understandsPieces(_ row: Int) throws {
    let (input, replies) = Self.table[row]
    let bytes = Array(input.utf8)
    for cut in 0...bytes.count {
      #expect(try parse([bytes[..<cut], bytes[cut...]]) == replies, "cut at \(cut)")
      // What is incomplete is no reply.
      let count = try parse([bytes[..<cut]]).count
      #expect(cut == bytes.count ? count == replies.count : count < replies.count)
    }
    #expect(try parse(bytes.indices.map { bytes[$0...$0] }) == replies)
  }

  @Test(arguments: [
    "hello\r\n", "\r\n", "\n", "+OK\n", "+OK\rx", "+O\nK\r\n", ":\r\n", ":-\r\n", ":1a\r\n",
    ":9223372036854775808\r\n", ":-9223372036854775809\r\n", ":99999999999999999999999999\r\n",
    "$\r\n", "$-2\r\n", "$1\r\nab\r\n", "$1\r\na\rb", "$+\r\n", "*-2\r\n", "*x\r\n", "*1\r\nx\r\n",
    "%1\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "GET / HTTP/1.1\r\n", "\u{15}\u{3}\u{1}",
    ":00000000000000000000000001\r\n",
  ])
  func refusesWhatIsNoReply(_ input: String) {
    #expect(throws: ReplyParser.Failure.malformed) { try parse([Array(input.utf8)[...]]) }
  }

  /// Headers that announce more than the limit.
  @Test(arguments: [
    "*2147483647\r\n", "*9223372036854775807\r\n", "*65537\r\n", "$1048577\r\n", "$536870913\r\n",
    "$9223372036854775807\r\n", "*2\r\n*60000\r\n:1\r\n:1\r\n*1000000\r\n",
  ])
  func refusesWhatIsTooLarge(_ input: String) {
    #expect(throws: ReplyParser.Failure.tooLarge) { try parse([Array(input.utf8)[...]]) }
  }

  @Test func addsUpWhatElementsTake() {
    let element = "$600000\r\n" + String(repeating: "a", count: 600_000) + "\r\n"
    #expect(throws: ReplyParser.Failure.tooLarge) {
      try parse([Array(("*2\r\n" + element + element).utf8)[...]])
    }
  }

  @Test func countsElementsTowardsTheLimit() throws {
    // Each of 100 elements takes its overhead.
    let input = Array(("*100\r\n" + String(repeating: "$-1\r\n", count: 100)).utf8)
    let size = 101 * ReplyParser.overhead
    #expect(try parse([input[...]], limit: size).count == 1)
    #expect(throws: ReplyParser.Failure.tooLarge) { try parse([input[...]], limit: size - 1) }
    // The next reply has the whole limit again.
    #expect(try parse([input[...], input[...], input[...]], limit: size).count == 3)
  }

  @Test func boundsTheDepth() throws {
    func nested(_ depth: Int) -> [UInt8] {
      Array((String(repeating: "*1\r\n", count: depth) + ":1\r\n").utf8)
    }
    #expect(try parse([nested(ReplyParser.maximumDepth)[...]]).count == 1)
    #expect(throws: ReplyParser.Failure.tooLarge) {
      try parse([nested(ReplyParser.maximumDepth + 1)[...]])
    }
    #expect(throws: ReplyParser.Failure.tooLarge) { try parse([nested(1_000_000)[...]]) }
  }

  @Test func boundsLines() throws {
    let line = Array(("+" + String(repeating: "a", count: 100_000)).utf8)
    #expect(throws: ReplyParser.Failure.tooLarge) { try parse([line[...]]) }
    #expect(throws: ReplyParser.Failure.tooLarge) {
      try parse([line[..<20], line[20..<200]], limit: 100)
    }
  }

  @Test func staysFailed() throws {
    var parser = ReplyParser(limit: 1_000)
    for input in ["x", "+OK\r\n", ":1\r\n"] {
      #expect(throws: ReplyParser.Failure.malformed) {
        try Array(input.utf8).withUnsafeBytes { bytes in
          var rest = bytes
          _ = try parser.next(&rest)
        }
      }
    }
  }

  /// An announced length takes no memory: a thousand parsers wait for half a gigabyte each.
  @Test func allocatesOnlyWhatArrives() throws {
    var parsers = [ReplyParser](repeating: ReplyParser(limit: .max), count: 1_000)
    for index in parsers.indices {
      for piece in ["*2147483647\r\n", "*9223372036854775\r\n", "$536870912\r\n", "some bytes"] {
        let (reply, count) = try Array(piece.utf8).withUnsafeBytes { bytes in
          var rest = bytes
          return (try parsers[index].next(&rest), rest.count)
        }
        #expect(reply == nil && count == 0)
      }
    }
  }

  @Test(arguments: [
    ("NOSCRIPT No matching script.", "NOSCRIPT"), ("ERR", "ERR"), ("", "ERR"), ("secret", "ERR"),
    ("Err x", "ERR"), ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "ERR"), ("WRONGPASS a b", "WRONGPASS"),
  ])
  func errorHasOnlyItsCode(_ text: String, _ code: String) {
    let error = ErrorReply(text.utf8)
    #expect(error.code == code)
    #expect(String(describing: error) == code)
  }

  /// Before Redis 7, scripts quote the error of a command.
  @Test func errorOfAScriptHasTheCodeOfItsCommand() {
    let text = "ERR Error running script (call to f_0a): @user_script:1: @user_script: 1: -OOM no"
    #expect(ErrorReply(text.utf8).effectiveCode == "OOM")
    #expect(ErrorReply("ERR value is: -OOM x".utf8).effectiveCode == "ERR")
    #expect(ErrorReply("ERR Error running script: a: b".utf8).effectiveCode == "ERR")
  }
}
