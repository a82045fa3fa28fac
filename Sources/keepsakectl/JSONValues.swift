import FoundationEssentials
import Keepsake

/// The values of a suite as JSON texts, with all digits of their numbers, and dates in ISO 8601.
enum JSONValues {
  /// All values of a suite, sorted by key.
  static func all(of suite: Defaults.Store) throws -> [(key: String, json: String)] {
    try members(of: suite).map { name, json in
      (try JSONDecoder().decode(String.self, from: Data(name.utf8)), json)
    }
  }

  /// All values of a suite as one document, in the form of the library's export.
  static func document(of suite: Defaults.Store) throws -> String {
    let lines = try members(of: suite).map { "  \($0.name): \($0.json)" }
    return lines.isEmpty ? "{}\n" : "{\n\(lines.joined(separator: ",\n"))\n}\n"
  }

  /// The keys and values of a suite, both as JSON.
  private static func members(
    of suite: Defaults.Store
  ) throws -> [(name: String, json: String)] {
    // The export has one setting in each line between the lines of the braces.
    let lines = try suite.export(as: .json).split(separator: UInt8(ascii: "\n"))
    return lines.dropFirst().dropLast().map { line in
      let setting = line.drop { $0 == UInt8(ascii: " ") }
      var end = setting.startIndex + 1
      while setting[end] != UInt8(ascii: "\"") {
        end += setting[end] == UInt8(ascii: "\\") ? 2 : 1
      }
      var value = setting[(end + 1)...].dropFirst(": ".utf8.count)
      if value.last == UInt8(ascii: ",") { value.removeLast() }
      return (
        String(decoding: setting[...end], as: UTF8.self),
        withReadableDate(String(decoding: value, as: UTF8.self))
      )
    }
  }

  /// Import reads the date back to the last bit.
  private static func withReadableDate(_ json: String) -> String {
    let (start, end) = (#"{"$date": "#, "}")
    guard json.hasPrefix(start), json.hasSuffix(end),
      let time = ISO8601Time.text(ofSeconds: json.dropFirst(start.count).dropLast(end.count))
    else { return json }
    return "\(start)\"\(time)\"\(end)"
  }

  /// The value of a key. Keys are compared by their bytes, as in the suite.
  static func value(of key: String, in suite: Defaults.Store) throws -> String? {
    try all(of: suite).first { $0.key.utf8.elementsEqual(key.utf8) }?.json
  }

  /// A document with one setting, whose value is valid JSON.
  static func document(key: String, json: String) throws -> Data {
    var document = Data("{".utf8)
    document.append(try JSONEncoder().encode(key))
    document.append(contentsOf: (":" + json + "}").utf8)
    return document
  }

  /// Whether the whole text is one JSON value.
  static func isValid(_ text: String) -> Bool {
    (try? JSONDecoder().decode(AnyValue.self, from: Data(text.utf8))) != nil
  }

  static func isNull(_ json: String) -> Bool {
    json.split(whereSeparator: \.isWhitespace) == ["null"]
  }

  private struct AnyValue: Decodable {
    init(from decoder: any Decoder) {}
  }
}
