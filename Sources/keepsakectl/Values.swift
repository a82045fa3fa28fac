import FoundationEssentials
import Keepsake

/// The values of a suite as they are written in JSON, to the last digit.
enum Values {
  /// All of them, sorted by key.
  static func all(of suite: Defaults.Store) throws -> [(key: String, json: String)] {
    // A setting a line, between the lines of the brackets.
    let lines = try suite.export(as: .json).split(separator: UInt8(ascii: "\n"))
    return try lines.dropFirst().dropLast().map { line in
      let setting = line.drop { $0 == UInt8(ascii: " ") }
      var end = setting.startIndex + 1
      while setting[end] != UInt8(ascii: "\"") {
        end += setting[end] == UInt8(ascii: "\\") ? 2 : 1
      }
      let key = try JSONDecoder().decode(String.self, from: Data(setting[...end]))
      var value = setting[(end + 1)...].dropFirst(": ".utf8.count)
      if value.last == UInt8(ascii: ",") { value.removeLast() }
      return (key, String(decoding: value, as: UTF8.self))
    }
  }

  /// Keys are told apart by their bytes, as the suite does.
  static func value(of key: String, in suite: Defaults.Store) throws -> String? {
    try all(of: suite).first { $0.key.utf8.elementsEqual(key.utf8) }?.json
  }

  /// A document of one value, which is known to be JSON.
  static func document(key: String, json: String) throws -> Data {
    var document = Data("{".utf8)
    document.append(try JSONEncoder().encode(key))
    document.append(contentsOf: (":" + json + "}").utf8)
    return document
  }

  /// Whether a text is JSON, and not the end of it and something else.
  static func isJSON(_ text: String) -> Bool {
    (try? JSONDecoder().decode(Anything.self, from: Data(text.utf8))) != nil
  }

  static func isNull(_ json: String) -> Bool {
    json.split(whereSeparator: \.isWhitespace) == ["null"]
  }

  private struct Anything: Decodable {
    init(from decoder: any Decoder) {}
  }
}
