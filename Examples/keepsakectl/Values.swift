import FoundationEssentials
import Keepsake

/// The values of a suite as they are written in JSON, to the last digit.
enum Values {
  /// All of them, sorted by key.
  static func all(of suite: Defaults.Store) throws -> [(key: String, json: String)] {
    let document = Array(try suite.export(as: .json))
    return try members(of: document).map { member in
      let key = try JSONDecoder().decode(String.self, from: Data(document[member.name]))
      return (key, String(decoding: document[member.value], as: UTF8.self))
    }
  }

  /// Keys are told apart by their bytes, as the suite does.
  static func value(of key: String, in suite: Defaults.Store) throws -> String? {
    try all(of: suite).first { $0.key.utf8.elementsEqual(key.utf8) }?.json
  }

  static func document(key: String, json: String) throws -> Data {
    guard (try? JSONDecoder().decode(Anything.self, from: Data(json.utf8))) != nil else {
      throw Failure(
        message: "the value is not JSON. Quote text as '\"dark\"', or use --string dark.",
        status: 65)
    }
    var document = Data("{".utf8)
    document.append(try JSONEncoder().encode(key))
    document.append(contentsOf: (":" + json + "}").utf8)
    return document
  }

  private struct Anything: Decodable {
    init(from decoder: any Decoder) {}
  }

  /// Where the members of an object stand, which is known to be JSON.
  private static func members(
    of json: [UInt8]
  ) -> [(name: Range<Int>, value: Range<Int>)] {
    var members: [(name: Range<Int>, value: Range<Int>)] = []
    var name: Range<Int>?
    var (start, depth, position) = (0, 0, 0)
    /// What lies before here and is no blank.
    func part() -> Range<Int> {
      var end = position
      while start < end, json[start] <= 0x20 { start += 1 }
      while end > start, json[end - 1] <= 0x20 { end -= 1 }
      return start..<end
    }
    func endMember() {
      if let name { members.append((name, part())) }
      name = nil
      start = position + 1
    }
    while position < json.count {
      switch json[position] {
      case UInt8(ascii: "\""):
        position += 1
        while position < json.count, json[position] != UInt8(ascii: "\"") {
          position += json[position] == UInt8(ascii: "\\") ? 2 : 1
        }
      case UInt8(ascii: "{"), UInt8(ascii: "["):
        depth += 1
        if depth == 1 { start = position + 1 }
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        if depth == 1 { endMember() }
        depth -= 1
      case UInt8(ascii: ":") where depth == 1 && name == nil:
        name = part()
        start = position + 1
      case UInt8(ascii: ",") where depth == 1: endMember()
      default: break
      }
      position += 1
    }
    return members
  }
}
