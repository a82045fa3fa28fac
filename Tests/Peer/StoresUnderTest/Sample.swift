import FoundationEssentials
import Keepsake

/// A value given by its type and a number, so that it is short to print.
enum Sample: Codable, Hashable, Sendable {
  case int(Int)
  case bool(Bool)
  case text(Int)
  /// A text of some hundred bytes with the mark.
  case marked(Int)
  /// A text of several pages, all of which differ.
  case pages(Int)
  case number(Int)
  case bytes(Int)
  case date(Int)
  case list(Int)
  case model(Int)

  enum Kind: String, Codable, CaseIterable, Sendable {
    case bool, text, bytes, date, int, number, list, model
  }

  struct Person: Codable, Equatable, Sendable {
    var name: String
    var age: Int
    var tags: [String]
    var born: Date?

    init(_ number: Int) {
      name = Sample.text(of: number)
      age = number
      tags = (0..<number % 4).map { "\($0)\n" }
      born = number.isMultiple(of: 2) ? nil : Date(timeIntervalSinceReferenceDate: 0.1)
    }
  }

  /// A text that must not appear in an error.
  static let mark = "part-of-no-error"

  private static func markedText(_ number: Int) -> String {
    "\(number)" + String(repeating: ", " + mark, count: 30 + number)
  }

  static func text(of number: Int) -> String {
    let texts = [
      "", "null", "e\u{301}", "a\0b", "\u{2028}\n\r\"\\", "true", "12", "{\"$data\":\"AA==\"}",
    ]
    return texts.indices.contains(number)
      ? texts[number] : "\(number) " + String(repeating: "x", count: number)
  }

  static func number(of number: Int) -> Double {
    let numbers = [Double.nan, .infinity, -.infinity, .leastNonzeroMagnitude, 1.797e308, 0.1]
    return numbers.indices.contains(number) ? numbers[number] : Double(number) + 0.5
  }

  static func bytes(of number: Int) -> Data {
    Data((0..<number).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ number) })
  }

  /// Calls `body` with the value as its own type.
  func open<R>(_ body: (any Codable & Sendable) throws -> R) rethrows -> R {
    switch self {
    case .int(let number): try body(number)
    case .bool(let bool): try body(bool)
    case .text(let number): try body(Self.text(of: number))
    case .marked(let number): try body(Self.markedText(number))
    case .pages(let number):
      try body((10_000..<11_100).map { "\(number) \($0)..." }.joined())
    case .number(let number): try body(Self.number(of: number))
    case .bytes(let number): try body(Self.bytes(of: number))
    case .date(let number): try body(Date(timeIntervalSinceReferenceDate: Double(number) + 0.1))
    case .list(let number): try body(Array(0..<number))
    case .model(let number): try body(Person(number))
    }
  }

  /// A description of the value, the same for every store.
  var summary: String { open { Self.summary(of: $0) } }

  static func summary(of value: (any Codable & Sendable)?) -> String {
    switch value {
    case nil: return "nothing"
    case let bytes as Data: return "bytes \(bytes.count) \(sum(of: bytes))"
    case let text as String: return "text \(text.utf8.count) \(sum(of: text.utf8))"
    case let date as Date: return "date \(date.timeIntervalSinceReferenceDate)"
    case let bool as Bool: return "bool \(bool)"
    case let number as Int: return "int \(number)"
    case let number as Double: return "number \(number)"
    case let list as [Int]: return "list \(list)"
    case let person as Person: return "model \(person.age) \(person == Person(person.age))"
    default: return "another type"
    }
  }

  private static func sum(of bytes: some Sequence<UInt8>) -> UInt64 {
    bytes.reduce(14_695_981_039_346_656_037) { ($0 ^ UInt64($1)) &* 1_099_511_628_211 }
  }
}

/// Values of any type by key.
protocol TypedStore {
  func value<T: Codable & Sendable>(_ key: String, as: T.Type) throws -> T?
}

extension TypedStore {
  func summary(_ key: String, as kind: Sample.Kind) throws -> String {
    switch kind {
    case .bool: Sample.summary(of: try value(key, as: Bool.self))
    case .text: Sample.summary(of: try value(key, as: String.self))
    case .bytes: Sample.summary(of: try value(key, as: Data.self))
    case .date: Sample.summary(of: try value(key, as: Date.self))
    case .int: Sample.summary(of: try value(key, as: Int.self))
    case .number: Sample.summary(of: try value(key, as: Double.self))
    case .list: Sample.summary(of: try value(key, as: [Int].self))
    case .model: Sample.summary(of: try value(key, as: Sample.Person.self))
    }
  }

  /// The summary with the type that the value was stored as; nil for no value.
  func summary(_ key: String) throws -> String? {
    for kind in Sample.Kind.allCases {
      do {
        let summary = try summary(key, as: kind)
        return summary == "nothing" ? nil : summary
      } catch {
        let code = (error as? StorageError)?.code
        guard code == .wrongType || code == .decodingFailed else { throw error }
      }
    }
    throw UnexpectedContents(text: "the value of \(key.debugDescription) is of no known type")
  }
}
