internal import FoundationEssentials
internal import Synchronization

extension Defaults.Value {
  /// nil if the value is nested more than ``maximumDepth`` levels deep.
  init?(_ stored: StoredValue) {
    switch stored {
    case .bool(let value): self = .bool(value)
    case .int(let value): self = Int(exactly: value).map { .int($0) } ?? .double(Double(value))
    case .double(let value): self = .double(value)
    case .string(let value): self = .string(value)
    case .data(let value): self = .data(value)
    case .date(let value): self = .date(Date(timeIntervalSinceReferenceDate: value))
    case .json(let bytes):
      guard JSONScanner.value(of: bytes, maximumDepth: Self.maximumDepth - 1) != nil,
        let value = try? Codec.decoder.decode(Self.self, from: Data(bytes))
      else { return nil }
      self = value
    }
  }

  /// The scalar that a store keeps as it is; nil for null and for all else.
  var scalar: StoredValue? {
    switch self {
    case .bool(let value): .bool(value)
    case .int(let value): .int(Int64(value))
    case .double(let value): .double(value)
    case .string(let value): .string(value)
    case .data(let value): .data(value)
    case .date(let value): .date(value.timeIntervalSinceReferenceDate)
    case .null, .uint, .decimal, .array, .dictionary: nil
    }
  }
}

extension Defaults.Value: Codable {
  private struct Key: CodingKey {
    let stringValue: String
    var intValue: Int? { nil }
    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }
  }

  /// Decodes a value of any shape.
  public init(from decoder: any Decoder) throws {
    try decoder.propertyListBudget?.spend(atDepth: decoder.codingPath.count)
    if let container = try? decoder.container(keyedBy: Key.self) {
      var values: [String: Defaults.Value] = [:]
      for key in container.allKeys {
        values[key.stringValue] = try container.decode(Defaults.Value.self, forKey: key)
      }
      self = .dictionary(values)
      return
    }
    if var container = try? decoder.unkeyedContainer() {
      var values: [Defaults.Value] = []
      while !container.isAtEnd { values.append(try container.decode(Defaults.Value.self)) }
      self = .array(values)
      return
    }
    let container = try decoder.singleValueContainer()
    if container.decodeNil() {
      self = .null
    } else if let value = try? container.decode(Bool.self) {
      self = .bool(value)
    } else if let value = try? container.decode(Int.self) {
      self = .int(value)
    } else if let value = try? container.decode(UInt64.self) {
      self = .uint(value)
    } else if let value = try? container.decode(Double.self) {
      // A number with more digits than a Double can hold stays exact as a Decimal.
      if let exact = try? container.decode(Decimal.self), !exact.isNaN,
        Decimal(string: value.description) != exact
      {
        self = .decimal(exact)
      } else {
        self = .double(value)
      }
    } else if decoder.propertyListBudget != nil, let value = try? container.decode(Data.self) {
      self = .data(value)
    } else if decoder.propertyListBudget != nil, let value = try? container.decode(Date.self) {
      self = .date(value)
    } else {
      self = .string(try container.decode(String.self))
    }
  }

  /// Encodes the value as what it is.
  public func encode(to encoder: any Encoder) throws {
    switch self {
    case .dictionary(let values):
      var container = encoder.container(keyedBy: Key.self)
      for (key, value) in values { try container.encode(value, forKey: Key(stringValue: key)) }
    case .array(let values):
      var container = encoder.unkeyedContainer()
      for value in values { try container.encode(value) }
    default:
      var container = encoder.singleValueContainer()
      switch self {
      case .null: try container.encodeNil()
      case .bool(let value): try container.encode(value)
      case .int(let value): try container.encode(value)
      case .uint(let value): try container.encode(value)
      case .double(let value): try container.encode(value)
      case .decimal(let value): try container.encode(value)
      case .string(let value): try container.encode(value)
      case .data(let value): try container.encode(value)
      case .date(let value): try container.encode(value)
      case .array, .dictionary: break
      }
    }
  }

  fileprivate static let budgetKey = CodingUserInfoKey(rawValue: "keepsake.propertyListBudget")

  /// Limits how much decoding a property list can produce.
  ///
  /// In a binary property list a list can contain itself, or the same list many times. Where it
  /// does not, every value takes at least one byte, so there are at most as many values as bytes.
  fileprivate final class Budget: Sendable {
    private let remainingValues: Atomic<Int>

    init(_ count: Int) { remainingValues = Atomic(count) }

    func spend(atDepth depth: Int) throws {
      let rest = remainingValues.subtract(1, ordering: .relaxed).newValue
      guard rest >= 0, depth <= maximumDepth else { throw Unreadable() }
    }
  }

  /// How deeply containers can be nested in a property list.
  ///
  /// Foundation's coders call themselves for each level. This many levels fit into the stack of a
  /// thread that has 128 KiB, as musl's do.
  static let maximumDepth = 64

  private struct Unreadable: Error {}

  /// The members of a property list that is a dictionary: binary, or XML in UTF-8. What cannot be
  /// read costs only the member that it is in.
  static func members(
    ofPropertyList document: Data
  ) throws -> [String: Result<Defaults.Value, any Error>] {
    guard document.starts(with: "bplist".utf8) || Self.isShallowXML(document) else {
      throw Unreadable()
    }
    let decoder = PropertyListDecoder()
    if let key = Self.budgetKey { decoder.userInfo[key] = Budget(document.count) }
    return try decoder.decode(Members.self, from: document).members
  }

  private struct Members: Decodable {
    var members: [String: Result<Defaults.Value, any Error>] = [:]

    init(from decoder: any Decoder) throws {
      try decoder.propertyListBudget?.spend(atDepth: decoder.codingPath.count)
      let container = try decoder.container(keyedBy: Key.self)
      for key in container.allKeys {
        members[key.stringValue] = Result { try container.decode(Defaults.Value.self, forKey: key) }
      }
    }
  }
}

extension Defaults.Value {
  /// Whether a document looks like XML whose elements are not nested too deeply, by its tags alone.
  private static func isShallowXML(_ document: Data) -> Bool {
    let mark = JSONScanner.byteOrderMark
    var rest = document.starts(with: mark) ? document.dropFirst(mark.count) : document
    rest = rest.drop(while: JSONScanner.isWhitespace)
    guard rest.first == UInt8(ascii: "<") else { return false }
    // The root element and a value are elements besides the containers.
    let maximumElementDepth = maximumDepth + 2
    return Array(rest).withUnsafeBytes { bytes in
      var rest = bytes[...]
      /// Moves past the next `end`; to the end if there is none.
      func skip(past end: StaticString) {
        let end = UnsafeRawBufferPointer(start: end.utf8Start, count: end.utf8CodeUnitCount)
        while !rest.isEmpty, !rest.starts(with: end) { rest = rest.dropFirst() }
        rest = rest.dropFirst(end.count)
      }
      var depth = 0
      while let tag = rest.firstIndex(of: UInt8(ascii: "<")) {
        rest = rest[tag...].dropFirst()
        if rest.starts(with: "!--".utf8) {
          rest = rest.dropFirst(3)
          skip(past: "-->")
        } else if rest.starts(with: "![CDATA[".utf8) {
          skip(past: "]]>")
        } else if rest.starts(with: "?".utf8) {
          skip(past: "?>")
        } else if rest.starts(with: "!".utf8) {
          skip(past: ">")
        } else {
          let isEnd = rest.starts(with: "/".utf8)
          skip(past: ">")
          let isEmptyElement =
            !isEnd && bytes[..<rest.startIndex].dropLast().last == UInt8(ascii: "/")
          if !isEmptyElement { depth += isEnd ? -1 : 1 }
          guard depth <= maximumElementDepth else { return false }
        }
      }
      return true
    }
  }
}

extension Decoder {
  /// nil for JSON, which has neither bytes nor dates: its strings must not be decoded as such.
  fileprivate var propertyListBudget: Defaults.Value.Budget? {
    Defaults.Value.budgetKey.flatMap { userInfo[$0] as? Defaults.Value.Budget }
  }
}
