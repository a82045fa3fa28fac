import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

@Suite(.singleThreaded) struct JSONScannerTests {
  private func compact(_ document: String) -> String? {
    JSONScanner.value(of: Array(document.utf8)).map { String(decoding: $0.bytes, as: UTF8.self) }
  }

  @Test func removesWhiteSpaceBetweenTokens() {
    #expect(
      compact(" { \"a b\" :\t[ 1 ,\r\n{ } , [ ] ] , \"c\" : null } ")
        == #"{"a b":[1,{},[]],"c":null}"#)
    #expect(compact("\u{FEFF} [true,false]\n") == "[true,false]")
    #expect(compact(#""\" , : {""#) == #""\" , : {""#)
    #expect(compact(" -1.50E-200 ") == "-1.50E-200")
  }

  @Test func listsMembersAndElements() throws {
    let members = try #require(
      JSONScanner.members(of: Array(#" { "a" : [ 1 ] , "\u0061" : { "b" : 2 } } "#.utf8)))
    #expect(members.map(\.name) == ["a", "a"])
    #expect(
      members.map { String(decoding: $0.value.bytes, as: UTF8.self) } == ["[1]", #"{"b":2}"#])
    let elements = try #require(JSONScanner.elements(of: Array(" [ 1 , [ 2 , 3 ] ] ".utf8)))
    #expect(elements.map { String(decoding: $0.bytes, as: UTF8.self) } == ["1", "[2,3]"])
    for (object, array) in [("{}", "[]"), (" { } ", " [ ] ")] {
      #expect(JSONScanner.members(of: Array(object.utf8))?.isEmpty == true)
      #expect(JSONScanner.elements(of: Array(array.utf8))?.isEmpty == true)
      #expect(JSONScanner.members(of: Array(array.utf8)) == nil)
      #expect(JSONScanner.elements(of: Array(object.utf8)) == nil)
    }
  }

  @Test(arguments: [
    "", " ", "nul", "nulll", "True", "tru e", "'a'", "+1", "01", "-01", "-", "1.", ".5", "1e",
    "1e+",
    "1.e5", "0x10", "Infinity", "NaN", "1e400", "-1e400", "1 2", "[1 2]", "[1,]", "[,1]", "[", "]",
    "[1}", "{", "}", "{]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{,}", "{\"a\" 1}", "{a:1}",
    "{1:1}",
    "{\"a\":1 \"b\":2}", "\"", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"",
    "\"\\ud800\\u0041\"", "\"\u{1F}\"", "\"\n\"", "// comment\n1", "1\u{0}", "\u{A0}1",
  ])
  func rejectsInvalidJSON(_ document: String) {
    #expect(compact(document) == nil)
    #expect(compact("[\(document)]") == nil || document.allSatisfy(\.isWhitespace))
    #expect(JSONScanner.members(of: Array("{\"a\":\(document)}".utf8)) == nil)
  }

  @Test func rejectsInvalidUTF8() {
    for bytes in [[0xFF], [0xC3], [0xED, 0xA0, 0x80], [0xC0, 0x80]] as [[UInt8]] {
      #expect(JSONScanner.value(of: [0x22] + bytes + [0x22]) == nil)
    }
    #expect(JSONScanner.value(of: Array("[1]".utf16.flatMap { [UInt8($0), 0] })) == nil)
  }

  @Test func findsDuplicateNames() {
    let documents = [
      #"{"a":1,"a":1}"#, #"{"a":1,"\u0061":1}"#, #"[{"b":{"a":1,"c":2,"a":3}}]"#,
      "{\"\u{E9}\":1,\"e\u{301}\":2}",
    ]
    for document in documents {
      #expect(JSONScanner.value(of: Array(document.utf8))?.hasDuplicateNames == true)
    }
    for document in [#"{"a":{"a":[{"a":1},{"a":1}]}}"#, #"["a","a"]"#, #"{"a":"a","b":"a"}"#] {
      #expect(JSONScanner.value(of: Array(document.utf8))?.hasDuplicateNames == false)
    }
  }

  @Test func acceptsAsManyLevelsAsTheDecoder() throws {
    func nested(_ depth: Int) -> [UInt8] {
      Array((String(repeating: "[", count: depth) + String(repeating: "]", count: depth)).utf8)
    }
    #expect(JSONScanner.value(of: nested(512)) != nil)
    #expect(JSONScanner.elements(of: nested(512)) != nil)
    _ = try Codec.decoder.decode(Defaults.Value.self, from: Data(nested(512)))
    for depth in [513, 1_000_000] {
      #expect(JSONScanner.value(of: nested(depth)) == nil)
      #expect(JSONScanner.elements(of: nested(depth)) == nil)
    }
    #expect(throws: DecodingError.self) {
      try Codec.decoder.decode(Defaults.Value.self, from: Data(nested(513)))
    }
  }

  @Test func positionsOfMembersIncrease() {
    var random = SplitMix64(seed: 12)
    let tokens = [
      "{", "}", "[", "]", ",", ":", "\"a\"", "\"a\":", "\"\\q", "\"", "1", "NaN", "/**/", "//",
      "/*", "\n", "'", "é", "\u{0}",
    ]
    for _ in 0..<5_000 {
      let parts = (0...random.below(12)).map { _ in tokens[random.below(tokens.count)] }
      let document = "{" + parts.joined()
      let positions = JSONScanner.members(ofDamaged: Array(document.utf8)).map(\.position)
      #expect(positions == positions.sorted(), "\(document)")
    }
  }

  /// Foundation's decoder accepts a trailing comma, which is not JSON, and nothing else beyond it.
  @Test func agreesWithTheDecoderOnRandomDocuments() {
    var random = SplitMix64(seed: 11)
    let tokens = [
      "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\"", "\"\\n\"", "\"\\", "\"", "1", "-0", "0.5",
      "1e9",
      "1e308", "1e309", "1e-400", "0", "5", ".", "e", "true", "null", " ", "\n", "é", "\"é\"",
    ]
    let samples = [
      "{\"a\":[1,2,{\"b\":null}],\"c\":\"x\\u00e9\"}", "[[],{},[{\"a\":-1.5e3}]]", "3",
    ]
    var accepted = 0
    for _ in 0..<20_000 {
      var document = ""
      if random.below(2) == 0 {
        document = (0...random.below(6)).map { _ in tokens[random.below(tokens.count)] }.joined()
      } else {
        var characters = Array(samples[random.below(samples.count)])
        for _ in 0...random.below(2) {
          let index = random.below(characters.count)
          characters.replaceSubrange(
            index...index, with: Array(tokens[random.below(tokens.count)]))
        }
        document = String(characters)
      }
      let members = JSONScanner.members(of: Array(document.utf8))
      let tree = try? Codec.decoder.decode(Defaults.Value.self, from: Data(document.utf8))
      let value = JSONScanner.value(of: Array(document.utf8))
      #expect((members != nil) == (value?.bytes.first == UInt8(ascii: "{")), "\(document)")
      if let value {
        accepted += 1
        if let members, case .dictionary(let values) = tree {
          #expect(Set(members.map(\.name)) == Set(values.keys), "\(document)")
        }
        #expect(tree != nil, "\(document)")
        let again = try? Codec.decoder.decode(Defaults.Value.self, from: Data(value.bytes))
        #expect(again == tree, "\(document)")
      } else if tree != nil {
        let hasTrailingComma = document.contains(/,\s*[}\]]/)
        #expect(hasTrailingComma, "\(document)")
      }
    }
    #expect(accepted > 500)
  }
}
