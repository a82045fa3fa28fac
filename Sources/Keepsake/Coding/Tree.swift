internal import FoundationEssentials

/// A document of any shape, to carry values between JSON and property lists.
enum Tree: Equatable {
  case null
  case bool(Bool)
  case int(Int64)
  case uint(UInt64)
  case double(Double)
  case decimal(Decimal)
  case string(String)
  case data(Data)
  case date(Date)
  case array([Tree])
  case dictionary([String: Tree])
}

extension Tree {
  /// How many members all objects in it have.
  var memberCount: Int {
    switch self {
    case .array(let values): values.reduce(0) { $0 + $1.memberCount }
    case .dictionary(let values): values.values.reduce(values.count) { $0 + $1.memberCount }
    default: 0
    }
  }
}

extension Tree: Codable {
  private struct Key: CodingKey {
    let stringValue: String
    var intValue: Int? { nil }
    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }
  }

  init(from decoder: any Decoder) throws {
    try decoder.propertyListBudget?.spend(atDepth: decoder.codingPath.count)
    if let container = try? decoder.container(keyedBy: Key.self) {
      var values: [String: Tree] = [:]
      for key in container.allKeys {
        values[key.stringValue] = try container.decode(Tree.self, forKey: key)
      }
      self = .dictionary(values)
      return
    }
    if var container = try? decoder.unkeyedContainer() {
      var values: [Tree] = []
      while !container.isAtEnd { values.append(try container.decode(Tree.self)) }
      self = .array(values)
      return
    }
    let container = try decoder.singleValueContainer()
    if container.decodeNil() {
      self = .null
    } else if let value = try? container.decode(Bool.self) {
      self = .bool(value)
    } else if let value = try? container.decode(Int64.self) {
      self = .int(value)
    } else if let value = try? container.decode(UInt64.self) {
      self = .uint(value)
    } else if let value = try? container.decode(Double.self) {
      // A number with more digits than a Double holds stays exact as a Decimal.
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

  func encode(to encoder: any Encoder) throws {
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

  /// How many values a property list may still have. In a binary one a list can hold itself, or
  /// another one again and again; where none does, each value takes a byte at least.
  fileprivate final class Budget: Sendable {
    private let rest: Locked<Int>
    /// As deep as JSON may be.
    private static let mostLevels = 512

    init(_ count: Int) { rest = Locked(count) }

    func spend(atDepth depth: Int) throws {
      let isLeft = rest.withLock { rest in
        rest -= 1
        return rest >= 0
      }
      guard isLeft, depth <= Self.mostLevels else { throw Exhausted() }
    }

    private struct Exhausted: Error {}
  }

  /// Reads a property list of any kind.
  init(propertyList document: Data) throws {
    let decoder = PropertyListDecoder()
    if let key = Self.budgetKey { decoder.userInfo[key] = Budget(document.count) }
    self = try decoder.decode(Tree.self, from: document)
  }
}

extension Decoder {
  /// nil for JSON, which has no bytes and dates: a string must not be taken for them.
  fileprivate var propertyListBudget: Tree.Budget? {
    Tree.budgetKey.flatMap { userInfo[$0] as? Tree.Budget }
  }
}
