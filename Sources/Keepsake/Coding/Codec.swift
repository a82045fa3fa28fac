public import FoundationEssentials

/// Converts values to ``StoredValue`` and back; no other part of the library encodes or decodes.
///
/// The checks of `T.self` fold away where the compiler knows the type. They are here rather than in
/// overloads so that generic code, too, stores `Data` as raw bytes and a `String` as text.
@usableFromInline
enum Codec {
  // MARK: Encoding

  /// The stored form of `value`; nil if it is a nil at any depth of optionals, which means removal.
  @inlinable
  static func encode<T: Codable>(_ value: T) throws(StorageError) -> StoredValue? {
    if let value = exactCast(value, to: Int.self) { return .int(Int64(value)) }
    if let value = exactCast(value, to: Bool.self) { return .bool(value) }
    if let value = exactCast(value, to: String.self) { return .string(value) }
    if let value = exactCast(value, to: Double.self) { return .double(value) }
    if let value = exactCast(value, to: Data.self) { return .data(value) }
    return try encodeOther(value)
  }

  /// Encodes the types that ``encode(_:)`` does not handle itself.
  ///
  /// Types are compared by identity wherever that is possible: a dynamic cast takes longer than
  /// writing a small value.
  @usableFromInline
  static func encodeOther<T: Codable>(_ value: T) throws(StorageError) -> StoredValue? {
    if let value = exactCast(value, to: Date.self) {
      return .date(value.timeIntervalSinceReferenceDate)
    }
    if let value = exactCast(value, to: Float.self) {
      // The shortest decimal that reads back as this Float: 0.1, not 0.10000000149011612.
      return .double(Double(value.description) ?? Double(value))
    }
    if let value = exactCast(value, to: String?.self) { return value.map { .string($0) } }
    if let value = exactCast(value, to: Int?.self) { return value.map { .int(Int64($0)) } }
    if let value = exactCast(value, to: Bool?.self) { return value.map { .bool($0) } }
    if let value = exactCast(value, to: Double?.self) { return value.map { .double($0) } }
    if let value = exactCast(value, to: Data?.self) { return value.map { .data($0) } }
    if let value = exactCast(value, to: Defaults.Value.self) {
      if case .null = value { return nil }
      if let scalar = value.scalar { return scalar }
    }
    if let value = exactCast(value, to: URL.self), value.baseURL != nil || value.isPathOnly {
      return try encodeModel(RelativeURL(value), of: T.self)
    }
    if let value = exactCast(value, to: Decimal.self), value.isNaN {
      throw StorageError(
        .encodingFailed, operation: "encode", reason: "the Decimal is NaN",
        remedy: "Store nil instead.")
    }
    if T.self is any AnyOptional.Type {
      guard let wrapped = (value as? any AnyOptional)?.wrappedValue else { return nil }
      return try encodeOpened(wrapped)
    }
    if T.self is any FixedWidthInteger.Type, let value = value as? any FixedWidthInteger {
      return integer(value)
    }
    return try encodeModel(value, of: T.self)
  }

  private static func encodeOpened(_ value: any Codable) throws(StorageError) -> StoredValue? {
    try encode(value)
  }

  private static func integer(_ value: any FixedWidthInteger) -> StoredValue {
    Int64(exactly: value).map { .int($0) } ?? .json(Array(value.description.utf8))
  }

  private static func encodeModel<T: Encodable>(
    _ value: T, of type: any Any.Type
  ) throws(StorageError) -> StoredValue? {
    let json: [UInt8]
    do {
      json = try JSONWriter.bytes(of: value)
    } catch {
      throw StorageError(encodingError: error, type: type)
    }
    switch json.first {
    case UInt8(ascii: "{"), UInt8(ascii: "["): return .json(json)
    default: if let stored = json.withUnsafeBytes({ StoredValue(json: $0) }) { return stored }
    }
    throw StorageError(
      .encodingFailed, operation: "encode", reason: "\(type) did not encode a value",
      remedy: "Make its encode(to:) encode a value.")
  }

  // MARK: Decoding

  /// The stored value as a `T`.
  ///
  /// Numbers convert to another type only without loss; nothing else converts at all.
  @inlinable
  static func decode<T: Codable>(
    _ stored: StoredValue, as type: T.Type = T.self
  ) throws(StorageError) -> T {
    if T.self == Int.self, case .int(let value) = stored, let value = Int(exactly: value),
      let value = exactCast(value, to: T.self)
    {
      return value
    }
    if case .bool(let value) = stored, let value = exactCast(value, to: T.self) { return value }
    if case .string(let value) = stored, let value = exactCast(value, to: T.self) { return value }
    if T.self == Double.self, case .double(let value) = stored,
      let value = exactCast(value, to: T.self)
    {
      return value
    }
    return try decodeOther(stored)
  }

  /// The stored value of a setting as a `T`, as ``decode(_:as:)`` returns it.
  ///
  /// A program on Foundation's `UserDefaults` stores a model as the bytes of a `JSONEncoder`. After
  /// an import, these bytes are read as the model.
  @inlinable @inline(__always)
  static func decodeSetting<T: Codable>(
    _ stored: StoredValue, as type: T.Type = T.self
  ) throws(StorageError) -> T {
    do throws(StorageError) {
      return try decode(stored, as: T.self)
    } catch {
      return try decodeJSON(in: stored, after: error)
    }
  }

  @usableFromInline
  static func decodeJSON<T: Codable>(
    in stored: StoredValue, after error: StorageError
  ) throws(StorageError) -> T {
    // Only objects and arrays, because a number or a text may be anything.
    guard case .data(let bytes) = stored, error.code == .wrongType, let first = bytes.first,
      first == UInt8(ascii: "{") || first == UInt8(ascii: "[")
    else { throw error }
    do throws(StorageError) {
      return try decode(.json(Array(bytes)), as: T.self)
    } catch let failure {
      throw failure.code == .wrongType ? error : failure
    }
  }

  /// Whether a ``StoredValue`` holds values of this type as they are, so that reading one decodes
  /// nothing.
  @inlinable
  static func isStoredAsIs(_ type: (some Codable).Type) -> Bool {
    type == Int.self || type == Bool.self || type == String.self || type == Double.self
      || type == Data.self
  }

  /// Decodes what ``decode(_:as:)`` does not handle itself, comparing types by identity wherever
  /// that is possible.
  @usableFromInline
  static func decodeOther<T: Codable>(_ stored: StoredValue) throws(StorageError) -> T {
    if T.self == String?.self { return bitCast(Optional(try decode(stored, as: String.self))) }
    if T.self == Int?.self { return bitCast(Optional(try decode(stored, as: Int.self))) }
    if T.self == Bool?.self { return bitCast(Optional(try decode(stored, as: Bool.self))) }
    if T.self == Double?.self { return bitCast(Optional(try decode(stored, as: Double.self))) }
    if T.self == Data?.self { return bitCast(Optional(try decode(stored, as: Data.self))) }
    if T.self == Date?.self { return bitCast(Optional(try decode(stored, as: Date.self))) }
    if isStoredAsIs(T.self) || T.self == Date.self || T.self == Float.self {
      return try decodeScalar(stored)
    }
    if T.self is any AnyOptional.Type || T.self is any FixedWidthInteger.Type
      || T.self == URL.self
    {
      return try decodeOpened(stored)
    }
    if T.self == Defaults.Value.self {
      if let value = Defaults.Value(stored) { return bitCast(value) }
      throw StorageError(
        .decodingFailed, operation: "decode",
        reason: "the value is nested more than \(Defaults.Value.maximumDepth) levels deep",
        remedy: "Read it as the type that it was stored as.")
    }
    return try decodeModel(stored, as: T.self)
  }

  private static func decodeScalar<T: Codable>(_ stored: StoredValue) throws(StorageError) -> T {
    switch stored {
    case .bool, .string: break
    case .data(let value): if T.self == Data.self { return bitCast(value) }
    case .date(let value):
      if T.self == Date.self { return bitCast(Date(timeIntervalSinceReferenceDate: value)) }
    case .int, .double, .json:
      let number = LosslessNumber(stored)
      if T.self == Int.self, let value = number?.integer(Int.self) { return bitCast(value) }
      if T.self == Double.self, let value = number?.double { return bitCast(value) }
      if T.self == Float.self, let value = number?.float { return bitCast(value) }
    }
    throw StorageError(mismatch: stored, with: T.self)
  }

  /// Decodes the types that only a dynamic cast recognizes.
  private static func decodeOpened<T: Codable>(_ stored: StoredValue) throws(StorageError) -> T {
    let decoded: Any?
    switch T.self {
    case let type as any AnyOptional.Type: decoded = try type.decodeWrapped(stored)
    case let type as any FixedWidthInteger.Type: decoded = integer(stored, as: type)
    default:
      switch stored {
      case .json: decoded = (try decodeModel(stored, as: T.self) as RelativeURL).url
      // Foundation's `UserDefaults` stores a file URL as its path.
      case .string(let path) where path.utf8.first == UInt8(ascii: "/"):
        decoded = URL(filePath: path, directoryHint: .inferFromPath)
      default: decoded = try decodeModel(stored, as: T.self) as URL
      }
    }
    guard let value = decoded as? T else { throw StorageError(mismatch: stored, with: T.self) }
    return value
  }

  private static func integer<I: FixedWidthInteger>(
    _ stored: StoredValue, as type: I.Type
  ) -> Any? {
    LosslessNumber(stored)?.integer(I.self)
  }

  private static func decodeModel<T: Decodable>(
    _ stored: StoredValue, as type: any Any.Type
  ) throws(StorageError) -> T {
    switch stored {
    // Their JSON is a string or a number, which a model may happen to decode from.
    case .data, .date: throw StorageError(mismatch: stored, with: type)
    case .json(let json): return try decode(Data(json), named: type, stored: stored)
    default:
      let value: T = try decode(Data(stored.json), named: type, stored: stored)
      // `Float16` and `CGFloat` round a number that they cannot represent.
      if let number = LosslessNumber(stored), let decoded = value as? any BinaryFloatingPoint,
        !number.isEqual(to: decoded)
      {
        throw StorageError(mismatch: stored, with: type)
      }
      return value
    }
  }

  /// The value of a JSON document; errors call its type `type`.
  static func decode<T: Decodable>(
    _ json: Data, as _: T.Type = T.self, named type: any Any.Type = T.self,
    stored: StoredValue? = nil
  ) throws(StorageError) -> T {
    do {
      return try decoder.decode(T.self, from: json)
    } catch {
      throw StorageError(decodingError: error, type: type, stored: stored)
    }
  }

  static let decoder: JSONDecoder = {
    let decoder = JSONDecoder()
    decoder.nonConformingFloatDecodingStrategy = .convertFromString(
      positiveInfinity: JSONNumber.infinity, negativeInfinity: JSONNumber.negativeInfinity,
      nan: JSONNumber.notANumber)
    return decoder
  }()
}

/// `value` if `T` is exactly `Concrete`, otherwise nil.
///
/// Unlike `as?` it looks at the static type only, which takes a hundredth of the time.
@inlinable @inline(__always)
func exactCast<T, Concrete>(_ value: T, to type: Concrete.Type) -> Concrete? {
  T.self == Concrete.self ? unsafeBitCast(value, to: Concrete.self) : nil
}

/// `value`, whose type the caller has found to be `T`.
@inline(__always)
private func bitCast<Concrete, T>(_ value: Concrete) -> T { unsafeBitCast(value, to: T.self) }

extension URL {
  /// Whether it is a path without a scheme, such as `/a`, which read as a string would become a
  /// file URL.
  fileprivate var isPathOnly: Bool {
    scheme == nil && relativeString.utf8.first == UInt8(ascii: "/")
  }
}

/// A URL with its base, which Foundation's coders would resolve into one absolute URL.
private struct RelativeURL: Codable {
  let relative: String
  let base: URL?

  init(_ url: URL) {
    relative = url.relativeString
    base = url.baseURL
  }

  var url: URL? { URL(string: relative, relativeTo: base) }
}
