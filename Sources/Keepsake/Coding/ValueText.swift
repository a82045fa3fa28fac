/// A value as JSON that says by itself what it is: for exports, and for engines, which keep bytes.
///
/// What JSON cannot say stands in an object of one member: `{"$data": "<Base64>"}`,
/// `{"$date": <seconds since 2001>}`, `{"$number": "Infinity"}`. A value that looks like one of
/// these is wrapped as `{"$json": <value>}`.
enum ValueText {
  private static let data = "$data"
  private static let date = "$date"
  private static let number = "$number"
  private static let json = "$json"
  private static let start = Array(#"{"$"#.utf8)

  /// Built from the stored bytes, so that no digit changes.
  static func append(_ value: StoredValue, to output: inout [UInt8]) {
    let wrapper: String? =
      switch value {
      case .data: data
      case .date: date
      case .double(let number) where !number.isFinite: Self.number
      case .json(let bytes) where bytes.starts(with: start): json
      default: nil
      }
    if let wrapper { output.append(contentsOf: "{\"\(wrapper)\": ".utf8) }
    value.append(to: &output)
    if wrapper != nil { output.append(UInt8(ascii: "}")) }
  }

  /// The value of JSON without white space that a decoder has accepted; nil when its wrapper does
  /// not fit what is in it.
  static func value(_ json: [UInt8]) -> StoredValue? {
    var kind = StoredValue.Kind.json
    var inner = json
    if json.starts(with: start), let members = JSONSlices.members(of: json), members.count == 1 {
      let (name, content) = members[0]
      switch name {
      case data: (kind, inner) = (.data, content)
      case date: (kind, inner) = (.date, content)
      case number: (kind, inner) = (.number, content)
      case Self.json: inner = content
      default: break
      }
    }
    return inner.withUnsafeBytes { StoredValue(kind: kind, json: $0) }
  }
}
