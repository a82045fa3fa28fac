public import FoundationEssentials

extension Defaults {
  /// A document format in which a suite can be exported.
  public enum ExportFormat: Sendable {
    /// One JSON object, sorted by key, with one setting per line.
    ///
    /// A value that JSON cannot express is an object with one member: `{"$data": "<Base64>"}`,
    /// `{"$date": <seconds since 2001>}` or `{"$number": "Infinity"}`. A value that looks like one
    /// of these, or is null, is wrapped as `{"$json": <value>}`.
    case json
    /// An XML property list, as Apple's and Foundation's `UserDefaults` read it.
    case propertyList
  }
}

extension Defaults.Store {
  /// All values of the suite as one document.
  ///
  /// JSON keeps every value exactly. A property list cannot hold infinities, NaN, a `Decimal` with
  /// more digits than a `Double`, dates before the year 1 or after 9999, texts and names that begin
  /// with `$null`, or values nested more than 63 levels deep. It drops fractions of a second from
  /// dates.
  ///
  /// - Throws: ``StorageError`` with the code `encodingFailed` if the format cannot hold a value;
  ///   its ``StorageError/key`` says which.
  public func export(as format: Defaults.ExportFormat) throws(StorageError) -> Data {
    try perform("export") { engine in
      let values = try engine.readValues()
      switch format {
      case .json: return Self.json(values)
      case .propertyList: return try Self.propertyList(values)
      }
    }
  }

  /// The value of a key as in the JSON export; nil if it has none.
  package func json(forKey key: String) throws(StorageError) -> String? {
    try perform("export", key) { engine in
      guard let value = try engine.value(forKey: key) else { return nil }
      var output: [UInt8] = []
      TaggedJSON.append(value, wrapsNull: true, to: &output)
      return String(decoding: output, as: UTF8.self)
    }
  }

  /// Copies the stored bytes of each value, so no digit changes.
  private static func json(_ values: [(key: String, value: StoredValue)]) -> Data {
    var output = Array("{".utf8)
    for (index, (key, value)) in values.sorted(by: { $0.key < $1.key }).enumerated() {
      output.append(contentsOf: (index == 0 ? "\n  " : ",\n  ").utf8)
      JSONString.append(key, to: &output)
      output.append(contentsOf: ": ".utf8)
      TaggedJSON.append(value, wrapsNull: true, to: &output)
    }
    output.append(contentsOf: (values.isEmpty ? "}\n" : "\n}\n").utf8)
    return Data(output)
  }

  private static func propertyList(
    _ values: [(key: String, value: StoredValue)]
  ) throws(StorageError) -> Data {
    var entries: [String: Defaults.Value] = [:]
    for (key, value) in values {
      guard entries.updateValue(try propertyTree(value, key: key), forKey: key) == nil else {
        throw StorageError(
          .encodingFailed, operation: "export", key: key,
          reason: "another key differs only in Unicode normalization", remedy: "Export as JSON.")
      }
    }
    let encoder = PropertyListEncoder()
    encoder.outputFormat = .xml
    do {
      return try encoder.encode(Defaults.Value.dictionary(entries))
    } catch {
      throw StorageError(
        .encodingFailed, operation: "export",
        reason: "a property list cannot hold one of the values",
        remedy: "Export as JSON.")
    }
  }

  private static func propertyTree(
    _ value: StoredValue, key: String
  ) throws(StorageError) -> Defaults.Value {
    let tree: Defaults.Value?
    // Foundation writes any other date, NaN included, as a different one without an error.
    let years1To9999 = -63_114_076_800...252_423_993_599.0
    switch value {
    case .double(let value) where !value.isFinite: tree = nil
    case .date(let value) where !years1To9999.contains(value): tree = nil
    default: tree = Defaults.Value(value)
    }
    guard let tree, tree.fitsPropertyList, !Defaults.Value.isReadAsNull(key) else {
      throw StorageError(
        .encodingFailed, operation: "export", key: key,
        reason: "a property list cannot hold the value", remedy: "Export as JSON.")
    }
    return tree
  }
}

extension Defaults.Value {
  /// Whether a property list can hold this without loss.
  fileprivate var fitsPropertyList: Bool {
    switch self {
    case .null, .decimal: false
    case .string(let text): !Self.isReadAsNull(text)
    case .array(let values): values.allSatisfy(\.fitsPropertyList)
    case .dictionary(let values):
      values.allSatisfy { !Self.isReadAsNull($0) && $1.fitsPropertyList }
    default: true
    }
  }

  /// Foundation writes null as the string `$null`. Of XML, it reads every string and every key that
  /// begins with it as null.
  fileprivate static func isReadAsNull(_ text: String) -> Bool {
    text.utf8.starts(with: "$null".utf8)
  }
}
