public import FoundationEssentials

extension Defaults {
  /// What a suite can be written as.
  public enum ExportFormat: Sendable {
    /// One object, sorted by key, with each setting on a line of its own. What JSON cannot say
    /// stands in an object of one member: `{"$data": "<Base64>"}`, `{"$date": <seconds since
    /// 2001>}`, `{"$number": "Infinity"}`; a value that looks like one of these is wrapped as
    /// `{"$json": <value>}`.
    case json
    /// An XML property list, as Apple's and Foundation's `UserDefaults` read it.
    case propertyList
  }
}

extension Defaults.Store {
  /// All values as one document.
  ///
  /// JSON keeps every value exactly. A property list cannot hold infinities, NaN, `Decimal`s of
  /// many digits, and dates before the year 1 or after 9999: those are an error. It holds whole
  /// seconds: a date's fraction is lost.
  ///
  /// - Throws: ``StorageError``, of code `encodingFailed` for a value that the format cannot hold.
  public func export(as format: Defaults.ExportFormat) throws(StorageError) -> Data {
    do throws(StorageError) {
      // Not a dictionary: it takes keys that differ only in their bytes (NFC and NFD) for one.
      var values: [(key: String, value: StoredValue)] = []
      for key in try engine.get().keys() {
        if let value = try engine.get().value(forKey: key) { values.append((key, value)) }
      }
      switch format {
      case .json: return Transfer.json(values)
      case .propertyList: return try Transfer.propertyList(values)
      }
    } catch {
      throw error.inContext(of: "export")
    }
  }

  /// Sets all values of a document; keys that it does not have stay as they are.
  ///
  /// Takes a JSON object, as ``export(as:)`` writes it or any other, and a property list, binary or
  /// XML, such as a file of Foundation's `UserDefaults`. Nothing is set unless all of it can be
  /// read; a ``StorageEngine`` that fails in the middle has the first ones.
  ///
  /// ```swift
  /// try Defaults.shared.import(Data(contentsOf: oldSettings))
  /// ```
  ///
  /// - Throws: ``StorageError`` of code `decodingFailed` when it is no such document.
  public func `import`(_ document: Data) throws(StorageError) {
    do throws(StorageError) {
      // RFC 8259, section 8.1: a byte order mark may be ignored.
      let document = document.starts(with: [0xEF, 0xBB, 0xBF]) ? document.dropFirst(3) : document
      guard let first = document.first(where: { !JSONSlices.isSpace($0) }) else {
        throw Transfer.unreadable("the document is empty")
      }
      let values =
        first == UInt8(ascii: "{")
        ? try Transfer.values(fromJSON: document)
        : try Transfer.values(fromPropertyList: document)
      try write(values.map { ValueChange(key: $0.key, value: $0.value) })
    } catch {
      throw error.inContext(of: "import", path: place)
    }
  }

  /// The app's suites that have a file, or an engine of their own.
  func siblings() throws(StorageError) -> [Defaults.Suite] {
    let directory = try scope.finder.directory(.configuration)
    let inFiles = try FileSystem.list(directory).compactMap { name -> String? in
      guard name.hasSuffix(JournalPaths.suffix) else { return nil }
      return FileName.decode(String(name.dropLast(JournalPaths.suffix.count)))
    }
    let onEngines = scope.engines.keys.filter { suite in
      switch suite.location {
      case .standard, .named: true
      case .memory, .inDirectory: false
      }
    }
    return Set(inFiles.map { Defaults.Suite($0) }).union(onEngines).sorted { $0.name < $1.name }
  }
}

private enum Transfer {
  // MARK: JSON

  /// Built from the stored bytes, so that no digit changes.
  static func json(_ values: [(key: String, value: StoredValue)]) -> Data {
    var output = Array("{".utf8)
    for (position, (key, value)) in values.sorted(by: { $0.key < $1.key }).enumerated() {
      output.append(contentsOf: (position == 0 ? "\n  " : ",\n  ").utf8)
      JSONText.append(key, to: &output)
      output.append(contentsOf: ": ".utf8)
      ValueText.append(value, to: &output)
    }
    output.append(contentsOf: (values.isEmpty ? "}\n" : "\n}\n").utf8)
    return Data(output)
  }

  static func values(
    fromJSON document: Data
  ) throws(StorageError) -> [(key: String, value: StoredValue)] {
    guard String(validating: document, as: UTF8.self) != nil else { throw unreadable("not UTF-8") }
    // Says whether it is JSON at all, down to the last escape; the slices keep the digits.
    let tree = try tree(document)
    guard case .dictionary = tree else { throw unreadable("not an object of settings") }
    let members = try slices(Array(document))
    // The decoder does not look at a member that is there twice, of which the slices keep both.
    // Names that are one to it can be two settings; in a value they cannot be two members.
    if members.reduce(members.count, { $0 + JSONSlices.memberCount(in: $1.1) }) != tree.memberCount
    {
      for (key, slice) in members {
        let count = try self.tree(Data(slice)).memberCount
        if count != JSONSlices.memberCount(in: slice) {
          throw unreadable("a name stands twice in one object", key: key)
        }
      }
    }
    var values: [(key: String, value: StoredValue)] = []
    // `null` stands for nothing to set.
    for (key, slice) in members where !slice.elementsEqual("null".utf8) {
      values.append((key, try value(slice, key: key)))
    }
    return values
  }

  private static func tree(_ json: Data) throws(StorageError) -> Tree {
    do { return try Codec.decoder.decode(Tree.self, from: json) } catch {
      throw unreadable("not JSON")
    }
  }

  private static func slices(_ json: [UInt8]) throws(StorageError) -> [(String, [UInt8])] {
    guard let json = JSONSlices.compact(json), let members = JSONSlices.members(of: json) else {
      throw unreadable("not JSON")
    }
    return members
  }

  private static func value(_ json: [UInt8], key: String) throws(StorageError) -> StoredValue {
    if let value = ValueText.value(json) { return value }
    throw unreadable("a wrapped value cannot be read", key: key)
  }

  // MARK: Property lists

  static func propertyList(
    _ values: [(key: String, value: StoredValue)]
  ) throws(StorageError) -> Data {
    var tree: [String: Tree] = [:]
    for (key, value) in values {
      guard tree.updateValue(try Self.tree(value, key: key), forKey: key) == nil else {
        throw StorageError(
          .encodingFailed, operation: "export", key: key,
          reason: "two keys differ only in how they are encoded", remedy: "Export as JSON.")
      }
    }
    let encoder = PropertyListEncoder()
    encoder.outputFormat = .xml
    do {
      return try encoder.encode(Tree.dictionary(tree))
    } catch {
      throw StorageError(
        .encodingFailed, operation: "export", reason: "a value does not fit a property list",
        remedy: "Export as JSON.")
    }
  }

  private static func tree(_ value: StoredValue, key: String) throws(StorageError) -> Tree {
    let tree: Tree?
    switch value {
    case .bool(let value): tree = .bool(value)
    case .int(let value): tree = .int(value)
    case .double(let value): tree = value.isFinite ? .double(value) : nil
    case .string(let value): tree = .string(value)
    case .data(let value): tree = .data(value)
    case .date(let value):
      // Others, NaN among them, would be written as another date: -4712 or 506713.
      let years1To9999 = -63_114_076_800...252_423_993_599.0
      tree =
        years1To9999.contains(value)
        ? .date(Date(timeIntervalSinceReferenceDate: value)) : nil
    case .json(let bytes):
      tree = try? Codec.decoder.decode(Tree.self, from: Data(bytes))
    }
    guard let tree, tree.fitsPropertyList else {
      throw StorageError(
        .encodingFailed, operation: "export", key: key,
        reason: "the value does not fit a property list", remedy: "Export as JSON.")
    }
    return tree
  }

  static func values(
    fromPropertyList document: Data
  ) throws(StorageError) -> [(key: String, value: StoredValue)] {
    guard let tree = try? Tree(propertyList: document), case .dictionary(let members) = tree
    else { throw unreadable("neither a JSON object nor a property list of settings") }
    var values: [String: StoredValue] = [:]
    for (key, member) in members {
      switch member {
      // As in JSON, it stands for nothing to set.
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

  static func unreadable(_ reason: String, key: String? = nil) -> StorageError {
    StorageError(
      .decodingFailed, operation: "import", key: key, reason: reason,
      remedy: "Give it a JSON object or a property list with one entry for each setting.")
  }
}

extension Tree {
  /// Whether a property list can say this without loss.
  fileprivate var fitsPropertyList: Bool {
    switch self {
    case .null, .decimal: false
    // What stands for null there.
    case .string(let text): text != "$null"
    case .array(let values): values.allSatisfy(\.fitsPropertyList)
    case .dictionary(let values): values.values.allSatisfy(\.fitsPropertyList)
    default: true
    }
  }
}

/// Cuts valid JSON into the texts of its members. Only for text that a JSON decoder has accepted.
enum JSONSlices {
  static func isSpace(_ byte: UInt8) -> Bool {
    byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09
  }

  /// The same text without white space between its parts; nil where a comma stands before a closing
  /// bracket, which the decoder takes and JSON does not have.
  static func compact(_ json: [UInt8]) -> [UInt8]? {
    var output: [UInt8] = []
    output.reserveCapacity(json.count)
    var isJSON = true
    forEachByte(of: json) { byte, isInString in
      if !isInString {
        if isSpace(byte) { return }
        let isEnd = byte == UInt8(ascii: "}") || byte == UInt8(ascii: "]")
        if isEnd, output.last == UInt8(ascii: ",") { isJSON = false }
      }
      output.append(byte)
    }
    return isJSON ? output : nil
  }

  /// How many members all objects in it have.
  static func memberCount(in json: [UInt8]) -> Int {
    var count = 0
    forEachByte(of: json) { byte, isInString in
      if !isInString, byte == UInt8(ascii: ":") { count += 1 }
    }
    return count
  }

  /// Calls `body` with each byte, and whether a string has begun before it.
  private static func forEachByte(of json: [UInt8], _ body: (UInt8, Bool) -> Void) {
    var isInString = false
    var isEscaped = false
    for byte in json {
      body(byte, isInString)
      if isEscaped {
        isEscaped = false
      } else if isInString, byte == UInt8(ascii: "\\") {
        isEscaped = true
      } else if byte == UInt8(ascii: "\"") {
        isInString.toggle()
      }
    }
  }

  /// The members of an object without white space; nil if it is none.
  static func members(of json: [UInt8]) -> [(String, [UInt8])]? {
    json.withUnsafeBytes { bytes in
      guard bytes.count >= 2, bytes[0] == UInt8(ascii: "{") else { return nil }
      var members: [(String, [UInt8])] = []
      var position = 1
      while position < bytes.count, bytes[position] != UInt8(ascii: "}") {
        if bytes[position] == UInt8(ascii: ",") { position += 1 }
        guard let name = JSONText.string(in: bytes, at: &position), position < bytes.count,
          bytes[position] == UInt8(ascii: ":")
        else { return nil }
        let start = position + 1
        guard let end = endOfValue(in: bytes, from: start) else { return nil }
        members.append((name, Array(bytes[start..<end])))
        position = end
      }
      return members
    }
  }

  /// The elements of an array without white space; nil if it is none.
  static func elements(of json: [UInt8]) -> [[UInt8]]? {
    json.withUnsafeBytes { bytes in
      guard bytes.count >= 2, bytes[0] == UInt8(ascii: "[") else { return nil }
      var elements: [[UInt8]] = []
      var position = 1
      while position < bytes.count, bytes[position] != UInt8(ascii: "]") {
        if bytes[position] == UInt8(ascii: ",") { position += 1 }
        guard let end = endOfValue(in: bytes, from: position) else { return nil }
        elements.append(Array(bytes[position..<end]))
        position = end
      }
      return elements
    }
  }

  private static func endOfValue(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
    var depth = 0
    var position = start
    while position < bytes.count {
      switch bytes[position] {
      case UInt8(ascii: "\""):
        guard JSONText.string(in: bytes, at: &position) != nil else { return nil }
        if depth == 0 { return position }
        continue
      case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        if depth == 0 { return position }
        depth -= 1
        if depth == 0 { return position + 1 }
      case UInt8(ascii: ",") where depth == 0: return position
      default: break
      }
      position += 1
    }
    return nil
  }
}
