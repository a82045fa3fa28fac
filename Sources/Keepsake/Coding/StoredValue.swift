public import FoundationEssentials

/// A value in the form in which stores keep it in memory.
///
/// Scalars are decoded already; anything with structure is kept as JSON.
@usableFromInline
enum StoredValue: Sendable {
  case bool(Bool)
  case int(Int64)
  case double(Double)
  case string(String)
  case data(Data)
  /// Seconds since the reference date, exactly as `Date` holds them.
  case date(Double)
  case json([UInt8])
}

extension StoredValue {
  /// The value with bytes of its own. The caller's may be a part of a large buffer, or memory that
  /// is used again or freed by code of the app.
  var copied: StoredValue {
    if case .data(let data) = self { .data(data.copied) } else { self }
  }
}

extension Data {
  /// The same bytes in memory of their own, with indices from 0.
  var copied: Data { withUnsafeBytes { Data($0) } }
}

// MARK: - JSON

extension StoredValue {
  /// Tells values apart whose JSON looks the same. The raw values are part of the journal's format.
  enum Kind: UInt8 {
    /// The JSON is the value.
    case json = 0x6A  // j
    /// A Base64 string that represents bytes.
    case data = 0x64  // d
    /// A number that represents a date, in seconds since 2001, or its name if it is not finite.
    case date = 0x74  // t
    /// The name of a number that is not finite.
    case number = 0x6E  // n
  }

  /// The kind without which ``json`` would be read as another value.
  var kind: Kind {
    switch self {
    case .data: .data
    case .date: .date
    case .double(let number) where !number.isFinite: .number
    default: .json
    }
  }

  /// The value as JSON without raw newlines.
  var json: [UInt8] {
    var output: [UInt8] = []
    append(to: &output)
    return output
  }

  /// Appends ``json``.
  func append(to output: inout [UInt8]) {
    switch self {
    case .bool(let bool): output.append(contentsOf: (bool ? "true" : "false").utf8)
    case .int(let number): JSONNumber.withDigits(of: number) { output.append(contentsOf: $0) }
    case .double(let number), .date(let number): JSONNumber.append(number, to: &output)
    case .string(let text): JSONString.append(text, to: &output)
    case .data(let data):
      output.append(UInt8(ascii: "\""))
      output.append(contentsOf: data.base64EncodedData())
      output.append(UInt8(ascii: "\""))
    case .json(let bytes): output.append(contentsOf: bytes)
    }
  }

  /// The value with this ``kind`` and ``json``; nil if they do not fit each other.
  init?(kind: Kind, json bytes: UnsafeRawBufferPointer) {
    switch kind {
    case .json:
      self.init(json: bytes)
    case .data:
      guard let data = Self.string(bytes).flatMap({ Data(base64Encoded: $0) }) else { return nil }
      self = .data(data)
    case .date:
      guard let number = Self.number(bytes) else { return nil }
      self = .date(number)
    case .number:
      guard let number = Self.number(bytes) else { return nil }
      self = .double(number)
    }
  }

  /// The value of JSON of the kind `json`.
  ///
  /// A number becomes an `int` or a `double` only if that would be written with the same bytes, so
  /// no digit is lost.
  init?(json bytes: UnsafeRawBufferPointer) {
    guard let first = bytes.first else { return nil }
    switch first {
    case UInt8(ascii: "\""):
      guard let text = Self.string(bytes) else { return nil }
      self = .string(text)
    case UInt8(ascii: "t"): self = .bool(true)
    case UInt8(ascii: "f"): self = .bool(false)
    case UInt8(ascii: "-"), 0x30...0x39:
      let text = String(decoding: bytes, as: UTF8.self)
      if let number = Int64(text), String(number) == text {
        self = .int(number)
      } else if let number = Double(text), number.isFinite, number.description == text {
        self = .double(number)
      } else {
        self = .json(Array(bytes))
      }
    default: self = .json(Array(bytes))
    }
  }

  /// The text of a JSON string; nil if the bytes are anything else.
  private static func string(_ bytes: UnsafeRawBufferPointer) -> String? {
    var position = 0
    guard let text = JSONString.parse(bytes, at: &position), position == bytes.count else {
      return nil
    }
    return text
  }

  private static func number(_ bytes: UnsafeRawBufferPointer) -> Double? {
    if let name = string(bytes) { return JSONNumber.nonFinite(named: name) }
    // `Double` alone also accepts "0x10", "-nan" and whatever follows a zero byte.
    return JSONScanner.isNumber(bytes) ? Double(String(decoding: bytes, as: UTF8.self)) : nil
  }
}

// MARK: - Descriptions and comparisons

extension StoredValue {
  /// The type in words, for errors, which never quote a value.
  var typeDescription: String {
    switch self {
    case .bool: "a Boolean"
    case .int: "an integer"
    case .double: "a number"
    case .string: "text"
    case .data: "bytes"
    case .date: "a date"
    case .json(let bytes):
      switch bytes.first {
      case UInt8(ascii: "{"): "an object"
      case UInt8(ascii: "["): "a list"
      case UInt8(ascii: "n"): "null"
      default: "a number"
      }
    }
  }
}

extension StoredValue? {
  /// Whether both are the same value, in whatever order the members of their objects are: that of a
  /// dictionary differs between processes.
  func isEquivalent(to other: StoredValue?) -> Bool {
    if self == other { return true }
    guard case .json(let a) = self, case .json(let b) = other, a.count == b.count else {
      return false
    }
    return Self.sorted(a) == Self.sorted(b)
  }

  /// JSON with the members of all objects sorted. Calls itself for each level, so members that are
  /// nested too deeply for a small stack keep their order.
  private static func sorted(_ json: [UInt8], depth: Int = 1) -> [UInt8] {
    func join(_ parts: [[UInt8]]) -> [UInt8] {
      json.prefix(1) + parts.joined(separator: [.comma]) + json.suffix(1)
    }
    if depth > Defaults.Value.maximumDepth { return json }
    if json.first == .openingBrace, let members = JSONScanner.members(of: json) {
      let parts = members.map { name, value in
        var part: [UInt8] = []
        JSONString.append(name, to: &part)
        return part + [.colon] + sorted(value.bytes, depth: depth + 1)
      }
      return join(parts.sorted { $0.lexicographicallyPrecedes($1) })
    }
    if json.first == .openingBracket, let elements = JSONScanner.elements(of: json) {
      return join(elements.map { sorted($0.bytes, depth: depth + 1) })
    }
    return json
  }
}

extension StoredValue: Equatable {
  /// Whether both values are written with the same bytes: unlike numbers, a NaN equals itself.
  @usableFromInline
  static func == (a: StoredValue, b: StoredValue) -> Bool {
    switch (a, b) {
    case (.bool(let a), .bool(let b)): a == b
    case (.int(let a), .int(let b)): a == b
    case (.double(let a), .double(let b)), (.date(let a), .date(let b)):
      a.bitPattern == b.bitPattern
    case (.string(let a), .string(let b)): a.utf8.elementsEqual(b.utf8)
    case (.data(let a), .data(let b)): a == b
    case (.json(let a), .json(let b)): a == b
    default: false
    }
  }
}
