import FoundationEssentials
import Keepsake

/// The values of a suite as JSON texts, with all digits of their numbers, and dates in ISO 8601.
enum JSONValues {
  /// All values of a suite, sorted by key. Reports those that cannot be read.
  static func all(of suite: Defaults.Store) throws -> [(key: String, json: String)] {
    try suite.keys().sorted().compactMap { key in
      let json = Diagnostics.attempt { try value(of: key, in: suite) } ?? nil
      return json.map { (key, $0) }
    }
  }

  /// All values of a suite as one document, in the form of the library's export.
  static func document(of suite: Defaults.Store) throws -> String {
    let lines = try all(of: suite).map { "  \(try name($0.key)): \($0.json)" }
    return lines.isEmpty ? "{}\n" : "{\n\(lines.joined(separator: ",\n"))\n}\n"
  }

  /// Import reads the date back to the last bit.
  private static func withReadableDate(_ json: String) -> String {
    let (start, end) = (#"{"$date": "#, "}")
    guard json.hasPrefix(start), json.hasSuffix(end),
      let time = ISO8601Time.text(ofSeconds: json.dropFirst(start.count).dropLast(end.count))
    else { return json }
    return "\(start)\"\(time)\"\(end)"
  }

  static func value(of key: String, in suite: Defaults.Store) throws -> String? {
    try suite.json(forKey: key).map(withReadableDate)
  }

  /// A document with one setting, whose value is valid JSON.
  static func document(key: String, json: String) throws -> Data {
    Data("{\(try name(key)):\(json)}".utf8)
  }

  /// A key as JSON.
  private static func name(_ key: String) throws -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = .withoutEscapingSlashes
    return String(decoding: try encoder.encode(key), as: UTF8.self)
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
