public import FoundationEssentials

extension Defaults.Store {
  /// Sets all values of a document; keys that are not in it keep their values.
  ///
  /// The document is either a JSON object, such as ``export(as:)`` or any other program writes, or
  /// a property list, binary or XML, such as the file of Foundation's `UserDefaults`. A member that
  /// is null is skipped. A date is a member `$date`, with the seconds since 2001 or a text such as
  /// `"2026-11-22T00:13:28Z"`. JSON can be nested 512 levels deep, and a property list 64 levels.
  ///
  /// Nothing is set unless the whole document can be read. If a ``StorageEngine`` that cannot make
  /// several changes in one step fails halfway, the values before that are set.
  ///
  /// ```swift
  /// try Defaults.shared.import(Data(contentsOf: oldSettings))
  /// ```
  ///
  /// - Throws: ``StorageError`` with the code `decodingFailed` if the document is neither, or if an
  ///   object within a value has two members of the same name.
  public func `import`(_ document: Data) throws(StorageError) {
    try perform("import") { engine in
      let changes = try Self.values(of: document).map { ValueChange(key: $0.key, value: $0.value) }
      try RunningUpdate.requireNone(of: self)
      try observation.notifyingObservers(of: changes.map(\.key)) { try engine.apply(changes) }
    }
  }

  private static func values(
    of document: Data
  ) throws(StorageError) -> [(key: String, value: StoredValue)] {
    let mark = JSONScanner.byteOrderMark
    let text = document.starts(with: mark) ? document.dropFirst(mark.count) : document
    guard let first = text.first(where: { !JSONScanner.isWhitespace($0) }) else {
      throw unreadable("the document is empty")
    }
    return first == UInt8(ascii: "{")
      ? try values(ofJSON: Array(text)) : try values(ofPropertyList: text)
  }

  private static func values(
    ofJSON document: [UInt8]
  ) throws(StorageError) -> [(key: String, value: StoredValue)] {
    guard let members = JSONScanner.members(of: document) else {
      throw unreadable("the document is not valid JSON")
    }
    var values: [(key: String, value: StoredValue)] = []
    for (key, json) in members {
      if json.hasDuplicateNames {
        throw unreadable("an object has two members of the same name", key: key)
      }
      if json.bytes.elementsEqual("null".utf8) { continue }
      guard let value = TaggedJSON.value(json.bytes) else {
        throw unreadable("the value of a $data, $date, $number or $json entry is invalid", key: key)
      }
      values.append((key, value))
    }
    return values
  }

  private static func values(
    ofPropertyList document: Data
  ) throws(StorageError) -> [(key: String, value: StoredValue)] {
    guard let tree = try? PropertyTree(propertyList: document), case .dictionary(let members) = tree
    else { throw unreadable("the document is neither a JSON object nor a property list") }
    var values: [String: StoredValue] = [:]
    for (key, member) in members {
      switch member {
      case .null: continue
      case .data(let data): values[key] = .data(data)
      case .date(let date): values[key] = .date(date.timeIntervalSinceReferenceDate)
      case .double(let number): values[key] = .double(number)
      default:
        guard let stored = try Codec.encode(member) else { continue }
        values[key] = stored
      }
    }
    return values.sorted { $0.key < $1.key }
  }

  private static func unreadable(_ reason: String, key: String? = nil) -> StorageError {
    StorageError(
      .decodingFailed, operation: "import", key: key, reason: reason,
      remedy: "Import a JSON object or property list with one entry per setting.")
  }
}
