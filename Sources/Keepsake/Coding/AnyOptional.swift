internal import FoundationEssentials

/// Any `Optional`, for generic code that does not know what it wraps.
protocol AnyOptional: ExpressibleByNilLiteral {
  var wrappedValue: (any Codable)? { get }
  static func decodeWrapped(_ stored: StoredValue) throws(StorageError) -> Any
  static func decodeWrapped(document: Data) throws(StorageError) -> Any
}

extension Optional: AnyOptional where Wrapped: Codable {
  var wrappedValue: (any Codable)? { self }

  static func decodeWrapped(_ stored: StoredValue) throws(StorageError) -> Any {
    try Codec.decode(stored, as: Wrapped.self) as Wrapped? as Any
  }

  static func decodeWrapped(document: Data) throws(StorageError) -> Any {
    // `DocumentCodec` writes a nil like this.
    if Wrapped.self != Data.self, Wrapped.self != String.self, document.elementsEqual("null\n".utf8)
    {
      return Wrapped?.none as Any
    }
    // With an inferred type it would be `Wrapped?` again, and never end.
    return try DocumentCodec.decode(document, as: Wrapped.self) as Wrapped? as Any
  }
}
