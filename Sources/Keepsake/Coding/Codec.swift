public import FoundationEssentials

/// Turns values into ``StoredValue`` and back: the only place that encodes.
///
/// The branches on `T.self` fold away where the caller's type is known. They stand here and not in
/// overloads, so that `Data` stays raw bytes and a `String` text also inside generic code.
@usableFromInline
enum Codec {
  // MARK: Encoding

  /// The stored form of `value`; nil for a nil of any depth, which stands for removal.
  @inlinable
  static func encode<T: Codable>(_ value: T) throws(StorageError) -> StoredValue? {
    if let value = same(value, as: Int.self) { return .int(Int64(value)) }
    if let value = same(value, as: Bool.self) { return .bool(value) }
    if let value = same(value, as: String.self) { return .string(value) }
    if let value = same(value, as: Double.self) { return .double(value) }
    if let value = same(value, as: Data.self) { return .data(value) }
    return try encodeAny(value)
  }

  /// By identity of types as far as that goes: a cast takes longer than writing a small value.
  @usableFromInline
  static func encodeAny<T: Codable>(_ value: T) throws(StorageError) -> StoredValue? {
    if let value = same(value, as: Int.self) { return .int(Int64(value)) }
    if let value = same(value, as: Bool.self) { return .bool(value) }
    if let value = same(value, as: String.self) { return .string(value) }
    if let value = same(value, as: Double.self) { return .double(value) }
    if let value = same(value, as: Data.self) { return .data(value) }
    if let value = same(value, as: Date.self) {
      return .date(value.timeIntervalSinceReferenceDate)
    }
    if let value = same(value, as: Float.self) {
      // The shortest decimal that reads back as this Float: what a person expects to see.
      return .double(Double(value.description) ?? Double(value))
    }
    if let value = same(value, as: String?.self) { return value.map { .string($0) } }
    if let value = same(value, as: Int?.self) { return value.map { .int(Int64($0)) } }
    if let value = same(value, as: Bool?.self) { return value.map { .bool($0) } }
    if let value = same(value, as: Double?.self) { return value.map { .double($0) } }
    if let value = same(value, as: Data?.self) { return value.map { .data($0) } }
    if let value = same(value, as: URL.self), value.baseURL != nil {
      return try encodeModel(RelativeURL(value), as: T.self)
    }
    if let value = same(value, as: Decimal.self), value.isNaN {
      throw StorageError(
        .encodingFailed, operation: "encode", reason: "a Decimal that is not a number",
        remedy: "Store nil instead.")
    }
    if T.self is any OptionalValue.Type {
      guard let wrapped = (value as? any OptionalValue)?.wrappedCodable else { return nil }
      return try encodeOpened(wrapped)
    }
    if T.self is any FixedWidthInteger.Type, let value = value as? any FixedWidthInteger {
      return integer(value)
    }
    return try encodeModel(value, as: T.self)
  }

  private static func encodeOpened(_ value: any Codable) throws(StorageError) -> StoredValue? {
    try encode(value)
  }

  private static func integer(_ value: any FixedWidthInteger) -> StoredValue {
    Int64(exactly: value).map { .int($0) } ?? .json(Array(value.description.utf8))
  }

  private static func encodeModel<T: Encodable>(
    _ value: T, as type: any Any.Type
  ) throws(StorageError) -> StoredValue? {
    let json: [UInt8]
    do {
      json = try JSONRun.bytes(of: value)
    } catch {
      throw CodingFailure.error(.encodingFailed, "encode", type, error)
    }
    switch json.first {
    case UInt8(ascii: "{"), UInt8(ascii: "["): return .json(json)
    default: if let stored = json.withUnsafeBytes({ StoredValue(json: $0) }) { return stored }
    }
    throw StorageError(
      .encodingFailed, operation: "encode", reason: "\(type) encoded to nothing",
      remedy: "Let its encode(to:) write a value.")
  }

  static func encode<T: Encodable>(
    _ value: T, with encoder: JSONEncoder, as type: any Any.Type = T.self
  ) throws(StorageError) -> Data {
    do {
      return try encoder.encode(value)
    } catch {
      throw CodingFailure.error(.encodingFailed, "encode", type, error)
    }
  }

  // MARK: Decoding

  /// The value as a `T`.
  ///
  /// Numbers convert only where nothing is lost; nothing else converts at all.
  @inlinable
  static func decode<T: Codable>(
    _ stored: StoredValue, as type: T.Type = T.self
  ) throws(StorageError) -> T {
    if T.self == Int.self, case .int(let value) = stored, let value = Int(exactly: value),
      let value = same(value, as: T.self)
    {
      return value
    }
    if case .bool(let value) = stored, let value = same(value, as: T.self) { return value }
    if case .string(let value) = stored, let value = same(value, as: T.self) { return value }
    if T.self == Double.self, case .double(let value) = stored, let value = same(value, as: T.self)
    {
      return value
    }
    return try decodeAny(stored)
  }

  /// Whether a stored value of the type is ready for use as it is.
  @inlinable
  static func isSingle(_ type: (some Codable).Type) -> Bool {
    type == Int.self || type == Bool.self || type == String.self || type == Double.self
      || type == Data.self
  }

  /// By identity of types as far as that goes, as in ``encodeAny(_:)``.
  @usableFromInline
  static func decodeAny<T: Codable>(_ stored: StoredValue) throws(StorageError) -> T {
    if T.self == String?.self { return cast(Optional(try decode(stored, as: String.self))) }
    if T.self == Int?.self { return cast(Optional(try decode(stored, as: Int.self))) }
    if T.self == Bool?.self { return cast(Optional(try decode(stored, as: Bool.self))) }
    if T.self == Double?.self { return cast(Optional(try decode(stored, as: Double.self))) }
    if T.self == Data?.self { return cast(Optional(try decode(stored, as: Data.self))) }
    if T.self == Date?.self { return cast(Optional(try decode(stored, as: Date.self))) }
    if isSingle(T.self) || T.self == Date.self || T.self == Float.self {
      return try decodeSingle(stored)
    }
    if T.self is any OptionalValue.Type || T.self is any FixedWidthInteger.Type
      || T.self == URL.self
    {
      return try decodeOpened(stored)
    }
    return try decodeModel(stored, as: T.self)
  }

  private static func decodeSingle<T: Codable>(_ stored: StoredValue) throws(StorageError) -> T {
    switch stored {
    case .bool(let value): if T.self == Bool.self { return cast(value) }
    case .string(let value): if T.self == String.self { return cast(value) }
    case .data(let value): if T.self == Data.self { return cast(value) }
    case .date(let value):
      if T.self == Date.self { return cast(Date(timeIntervalSinceReferenceDate: value)) }
    case .int, .double, .json:
      let number = Number(stored)
      if T.self == Int.self, let value = number?.integer(Int.self) { return cast(value) }
      if T.self == Double.self, let value = number?.double { return cast(value) }
      if T.self == Float.self, let value = number?.float { return cast(value) }
    }
    throw CodingFailure.mismatch(T.self, stored)
  }

  /// For the types that only a cast tells.
  private static func decodeOpened<T: Codable>(_ stored: StoredValue) throws(StorageError) -> T {
    let found: Any?
    switch T.self {
    case let type as any OptionalValue.Type: found = try type.decodeWrapped(stored)
    case let type as any FixedWidthInteger.Type: found = number(stored, asInteger: type)
    default:
      if case .json = stored {
        let relative: RelativeURL = try decodeModel(stored, as: T.self)
        found = relative.url
      } else {
        found = try decodeModel(stored, as: T.self) as URL
      }
    }
    guard let value = found as? T else { throw CodingFailure.mismatch(T.self, stored) }
    return value
  }

  /// `value`, whose type is known to be a `T`.
  @inline(__always)
  private static func cast<T, Found>(_ value: Found) -> T { unsafeBitCast(value, to: T.self) }

  private static func number<I: FixedWidthInteger>(
    _ stored: StoredValue, asInteger: I.Type
  ) -> Any? {
    Number(stored)?.integer(I.self)
  }

  private static func decodeModel<T: Decodable>(
    _ stored: StoredValue, as type: any Any.Type
  ) throws(StorageError) -> T {
    switch stored {
    // A type that happens to decode from a string or a number must not take these for one.
    case .data, .date: throw CodingFailure.mismatch(type, stored)
    default: break
    }
    if case .json(let json) = stored {
      return try decode(Data(json), as: T.self, named: type, stored: stored)
    }
    return try decode(Data(stored.json), as: T.self, named: type, stored: stored)
  }

  /// The value of a JSON document.
  static func decode<T: Decodable>(
    _ json: Data, as: T.Type, named type: any Any.Type = T.self, stored: StoredValue? = nil
  ) throws(StorageError) -> T {
    do {
      return try decoder.decode(T.self, from: json)
    } catch {
      throw CodingFailure.error(.decodingFailed, "decode", type, error, stored: stored)
    }
  }

  // MARK: Coders

  /// For documents that people read; all else goes through ``JSONRun``, which writes the same
  /// values.
  static func makeEncoder() -> JSONEncoder {
    let encoder = JSONEncoder()
    encoder.outputFormatting = .withoutEscapingSlashes
    encoder.nonConformingFloatEncodingStrategy = .convertToString(
      positiveInfinity: JSONText.infinity, negativeInfinity: JSONText.negativeInfinity,
      nan: JSONText.notANumber)
    return encoder
  }

  static let decoder: JSONDecoder = {
    let decoder = JSONDecoder()
    decoder.nonConformingFloatDecodingStrategy = .convertFromString(
      positiveInfinity: JSONText.infinity, negativeInfinity: JSONText.negativeInfinity,
      nan: JSONText.notANumber)
    return decoder
  }()
}

/// `value`, if that is its type: without a dynamic cast, which takes a hundred times as long.
@inlinable @inline(__always)
func same<T, Concrete>(_ value: T, as type: Concrete.Type) -> Concrete? {
  T.self == Concrete.self ? unsafeBitCast(value, to: Concrete.self) : nil
}

/// A URL with a base, which the JSON coders would flatten.
private struct RelativeURL: Codable {
  let relative: String
  let base: URL?

  init(_ url: URL) {
    relative = url.relativeString
    base = url.baseURL
  }

  var url: URL? { URL(string: relative, relativeTo: base) }
}

/// `Optional`, for code that has it as some `T`.
@usableFromInline
protocol OptionalValue: ExpressibleByNilLiteral {
  var wrappedCodable: (any Codable)? { get }
  static func decodeWrapped(_ stored: StoredValue) throws(StorageError) -> Any
  static func wrappedDocument(_ bytes: Data) throws(StorageError) -> Any
}

extension Optional: OptionalValue where Wrapped: Codable {
  @usableFromInline
  var wrappedCodable: (any Codable)? { self }

  @usableFromInline
  static func decodeWrapped(_ stored: StoredValue) throws(StorageError) -> Any {
    try Codec.decode(stored, as: Wrapped.self) as Wrapped? as Any
  }

  @usableFromInline
  static func wrappedDocument(_ bytes: Data) throws(StorageError) -> Any {
    // What saving a nil writes.
    if Wrapped.self != Data.self, Wrapped.self != String.self, bytes.elementsEqual("null\n".utf8) {
      return Wrapped?.none as Any
    }
    // By its name: inferred it would be this very type, without end.
    return try Document.value(of: bytes, as: Wrapped.self) as Wrapped? as Any
  }
}

/// A stored number, and what it is without loss in other types.
private struct Number {
  private let stored: StoredValue
  private let text: String

  init?(_ stored: StoredValue) {
    switch stored {
    case .int, .double: text = ""
    case .json(let bytes):
      guard let first = bytes.first, first == UInt8(ascii: "-") || (0x30...0x39).contains(first)
      else { return nil }
      text = String(decoding: bytes, as: UTF8.self)
    case .bool, .string, .data, .date: return nil
    }
    self.stored = stored
  }

  func integer<I: FixedWidthInteger>(_ type: I.Type) -> I? {
    switch stored {
    case .int(let value): I(exactly: value)
    case .double(let value): I(exactly: value)
    default: I(text) ?? double.flatMap { I(exactly: $0) }
    }
  }

  var double: Double? {
    switch stored {
    case .int(let value): return Double(exactly: value)
    case .double(let value): return value
    default:
      // Only if the shortest decimal of the Double is the very number that is written here.
      guard let value = Double(text), value.isFinite,
        let written = Self.normalized(text), let kept = Self.normalized(value.description),
        written == kept
      else { return nil }
      return value
    }
  }

  /// The digits of a JSON number without outer zeros, and the power of ten of the last one.
  private static func normalized(_ text: String) -> (isNegative: Bool, [UInt8], exponent: Int)? {
    let parts = text.lowercased().split(separator: "e", maxSplits: 1)
    guard let mantissa = parts.first, let shift = parts.count == 2 ? Int(parts[1]) : 0 else {
      return nil
    }
    let halves = mantissa.split(separator: ".", maxSplits: 1)
    var digits = halves.joined().utf8.drop { !(0x31...0x39).contains($0) }[...]
    var exponent = shift.subtractingReportingOverflow(halves.count == 2 ? halves[1].count : 0)
      .partialValue
    while digits.last == UInt8(ascii: "0") {
      digits = digits.dropLast()
      exponent &+= 1
    }
    return (text.hasPrefix("-"), Array(digits), digits.isEmpty ? 0 : exponent)
  }

  var float: Float? {
    guard let double else { return nil }
    guard double.isFinite else { return Float(double) }
    guard let value = Float(double.description), value.isFinite,
      Double(value) == double || Double(value.description) == double
    else { return nil }
    return value
  }
}

/// Errors of the coders, told without any value.
enum CodingFailure {
  static func mismatch(_ type: any Any.Type, _ stored: StoredValue?) -> StorageError {
    StorageError(
      .wrongType, operation: "decode",
      reason: "stored is \(stored?.kindInWords ?? "something else"), asked for was \(type)",
      remedy: "Read it as the type it was stored as, or store it again.")
  }

  static func error(
    _ code: StorageError.Code, _ operation: String, _ type: any Any.Type, _ error: any Error,
    stored: StoredValue? = nil
  ) -> StorageError {
    let problem: String
    switch error {
    case DecodingError.typeMismatch(_, let context) where context.codingPath.isEmpty:
      return mismatch(type, stored)
    case DecodingError.keyNotFound(let key, let context):
      problem = "no value for \(path(context.codingPath + [key]))"
    case DecodingError.typeMismatch(let expected, let context):
      problem = "not a \(expected) at \(path(context.codingPath))"
    case DecodingError.valueNotFound(let expected, let context):
      problem = "null in place of \(expected) at \(path(context.codingPath))"
    case DecodingError.dataCorrupted(let context):
      problem = "not readable at \(path(context.codingPath))"
    case EncodingError.invalidValue(_, let context):
      problem = "not expressible at \(path(context.codingPath))"
    default:
      // Another error's text may quote the value: its type must do.
      problem = "its coding threw \(Swift.type(of: error))"
    }
    return StorageError(
      code, operation: operation, reason: "\(type): \(problem)",
      remedy: code == .encodingFailed
        ? "The old value is intact; store a value that can be encoded."
        : "Read it as the type it was stored as; give new properties a default or make them "
          + "optional.")
  }

  /// The path's names where they come from the type; keys of a dictionary are part of the value.
  private static func path(_ keys: [any CodingKey]) -> String {
    if keys.isEmpty { return "the top" }
    return keys.map { key in
      let mirror = Mirror(reflecting: key)
      let isDeclared = mirror.displayStyle == .enum && mirror.children.isEmpty
      return isDeclared ? key.stringValue : "*"
    }.joined(separator: ".")
  }
}
