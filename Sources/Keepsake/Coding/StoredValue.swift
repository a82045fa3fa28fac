public import FoundationEssentials

/// A value as a store keeps it in memory: what a look-up returns and a journal line says.
///
/// Single values are kept ready for use, everything with structure as its JSON.
@usableFromInline
enum StoredValue: Sendable {
  case bool(Bool)
  case int(Int64)
  case double(Double)
  case string(String)
  case data(Data)
  /// Seconds since the reference date, as `Date` itself holds them.
  case date(Double)
  case json([UInt8])
}

extension StoredValue {
  /// How ``json`` is to be read. The raw values are part of the journal's format.
  enum Kind: UInt8 {
    case json = 0x6A  // j
    case data = 0x64  // d: Base64
    case date = 0x74  // t: seconds since 2001
    case number = 0x6E  // n: a number that JSON cannot express, as a string
  }

  /// How to read ``json``.
  var kind: Kind {
    switch self {
    case .data: .data
    case .date: .date
    case .double(let number) where !number.isFinite: .number
    default: .json
    }
  }

  /// The value as JSON without a raw newline.
  var json: [UInt8] {
    var output: [UInt8] = []
    append(to: &output)
    return output
  }

  /// Appends ``json``.
  func append(to output: inout [UInt8]) {
    switch self {
    case .bool(let bool): output.append(contentsOf: (bool ? "true" : "false").utf8)
    case .int(let number): JSONText.withDigits(of: number) { output.append(contentsOf: $0) }
    case .double(let number), .date(let number): JSONText.append(number, to: &output)
    case .string(let text): JSONText.append(text, to: &output)
    case .data(let data):
      output.append(UInt8(ascii: "\""))
      output.append(contentsOf: data.base64EncodedData())
      output.append(UInt8(ascii: "\""))
    case .json(let bytes): output.append(contentsOf: bytes)
    }
  }

  /// Reads back what ``kind`` and ``json`` wrote; nil when the bytes are not of that kind.
  init?(kind: Kind, json bytes: UnsafeRawBufferPointer) {
    switch kind {
    case .json:
      self.init(json: bytes)
    case .data:
      guard let data = Self.wholeString(bytes).flatMap({ Data(base64Encoded: $0) }) else {
        return nil
      }
      self = .data(data)
    case .date:
      guard let number = Self.number(bytes) else { return nil }
      self = .date(number)
    case .number:
      guard let number = Self.number(bytes) else { return nil }
      self = .double(number)
    }
  }

  /// The value of one JSON text: single values as themselves, but only those that would be written
  /// with the very same bytes, so that no digit is lost.
  init?(json bytes: UnsafeRawBufferPointer) {
    guard let first = bytes.first else { return nil }
    switch first {
    case UInt8(ascii: "\""):
      guard let text = Self.wholeString(bytes) else { return nil }
      self = .string(text)
    case UInt8(ascii: "t"): self = .bool(true)
    case UInt8(ascii: "f"): self = .bool(false)
    case UInt8(ascii: "-"), 0x30...0x39:
      let text = String(decoding: bytes, as: UTF8.self)
      if let number = Int64(text), String(number) == text {
        self = .int(number)
      } else if let number = Double(text), number.description == text {
        self = .double(number)
      } else {
        self = .json(Array(bytes))
      }
    default: self = .json(Array(bytes))
    }
  }

  private static func wholeString(_ bytes: UnsafeRawBufferPointer) -> String? {
    var position = 0
    guard let text = JSONText.string(in: bytes, at: &position), position == bytes.count else {
      return nil
    }
    return text
  }

  private static func number(_ bytes: UnsafeRawBufferPointer) -> Double? {
    if let text = wholeString(bytes) { return JSONText.nonFinite(text) }
    return Double(String(decoding: bytes, as: UTF8.self))
  }
}

extension StoredValue {
  /// What it is, without saying what it says.
  var kindInWords: String {
    switch self {
    case .bool: "a truth value"
    case .int: "an integer"
    case .double: "a number"
    case .string: "text"
    case .data: "bytes"
    case .date: "a date"
    case .json(let bytes):
      switch bytes.first {
      case UInt8(ascii: "{"): "an object"
      case UInt8(ascii: "["): "a list"
      default: "a number"
      }
    }
  }
}

extension StoredValue: Equatable {
  /// Whether both are written with the same bytes; unlike for numbers, NaN equals itself.
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
