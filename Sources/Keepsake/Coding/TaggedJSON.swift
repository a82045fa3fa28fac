/// JSON that includes the value's ``StoredValue/Kind``: for exports, and for engines, which keep
/// nothing but the bytes.
///
/// A value that JSON cannot express is an object with one member: `{"$data": "<Base64>"}`,
/// `{"$date": <seconds since 2001>}` or `{"$number": "Infinity"}`. A value that looks like one of
/// these is wrapped as `{"$json": <value>}`. A date is also read from `{"$date": "<ISO 8601>"}`.
enum TaggedJSON {
  private static let data = "$data"
  private static let date = "$date"
  private static let number = "$number"
  private static let json = "$json"
  private static let prefix = Array(#"{"$"#.utf8)

  /// Appends a value. The bytes of its JSON are copied, so no digit changes.
  ///
  /// - Parameter wrapsNull: Whether to wrap null too, for documents, in which null is no value.
  static func append(
    _ value: StoredValue, wrapsNull: Bool = false, to output: inout [UInt8]
  ) {
    let name: String? =
      switch value.kind {
      case .data: data
      case .date: date
      case .number: number
      case .json:
        if case .json(let bytes) = value,
          bytes.starts(with: prefix) || wrapsNull && bytes.elementsEqual("null".utf8)
        {
          json
        } else {
          nil
        }
      }
    if let name { output.append(contentsOf: "{\"\(name)\": ".utf8) }
    value.append(to: &output)
    if name != nil { output.append(UInt8(ascii: "}")) }
  }

  /// The value of valid JSON without white space; nil if it is wrapped but not as ``append(_:to:)``
  /// wraps it.
  static func value(_ json: [UInt8]) -> StoredValue? {
    var kind = StoredValue.Kind.json
    var content = json
    if json.starts(with: prefix), let members = JSONScanner.members(of: json), members.count == 1 {
      let (name, value) = members[0]
      switch name {
      case data: (kind, content) = (.data, value.bytes)
      case date: (kind, content) = (.date, secondsOfISODate(value.bytes) ?? value.bytes)
      case number: (kind, content) = (.number, value.bytes)
      case Self.json: content = value.bytes
      default: break
      }
    }
    return content.withUnsafeBytes { StoredValue(kind: kind, json: $0) }
  }

  /// The form that a value with this tag has.
  static func form(of json: [UInt8]) -> String {
    switch JSONScanner.members(of: json)?.first?.name {
    case data: #"{"$data": "<Base64>"}"#
    case date: #"{"$date": "2026-11-22T00:13:28Z"}"#
    case number: #"{"$number": "Infinity"}"#
    default: #"{"$json": <JSON>}"#
    }
  }

  /// The seconds since 2001 of a JSON string such as `"2026-11-22T00:13:28Z"`, as JSON.
  private static func secondsOfISODate(_ json: [UInt8]) -> [UInt8]? {
    let quote = UInt8(ascii: "\"")
    guard json.count > 2, json.first == quote, json.last == quote,
      let seconds = ISO8601Time.seconds(
        of: String(decoding: json[1..<(json.count - 1)], as: UTF8.self))
    else { return nil }
    return Array(seconds.description.utf8)
  }
}
