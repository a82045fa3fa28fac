/// The `Encoder` with which one value writes itself to a ``JSONWriter``, and its containers.
///
/// It names the value by an ID, so that the writer can reject an encoder that is used after its
/// value is complete, or while a nested value is being encoded.
struct JSONValueEncoder: Encoder {
  /// The key of an array element or of a superclass.
  struct Key: CodingKey {
    let intValue: Int?
    var stringValue: String { intValue.map { "Index \($0)" } ?? "super" }
    init(_ index: Int?) { intValue = index }
    init?(stringValue: String) { nil }
    init?(intValue: Int) { self.intValue = intValue }
  }

  let writer: JSONWriter
  let valueID: Int
  /// How many keys lead to the value.
  let pathLength: Int

  var codingPath: [any CodingKey] { Array(writer.path.prefix(pathLength)) }
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
    writer.open(.object, for: self)
    return KeyedEncodingContainer(JSONKeyedContainer(encoder: self))
  }

  func unkeyedContainer() -> any UnkeyedEncodingContainer {
    writer.open(.array, for: self)
    return JSONUnkeyedContainer(encoder: self)
  }

  func singleValueContainer() -> any SingleValueEncodingContainer { self }
}

// The container protocols require an `encode` for each primitive type of the standard library. The
// generic one satisfies all of them except those for 128-bit integers, for which the protocols'
// default implementation, which throws, would be chosen.

extension JSONValueEncoder: SingleValueEncodingContainer {
  func encodeNil() throws { try encode(JSONWriter.Null()) }
  func encode(_ value: Int128) throws { try writer.encode(value, for: self) }
  func encode(_ value: UInt128) throws { try writer.encode(value, for: self) }
  func encode<T: Encodable>(_ value: T) throws { try writer.encode(value, for: self) }
}

/// The members of an object.
struct JSONKeyedContainer<Key: CodingKey>: KeyedEncodingContainerProtocol {
  let encoder: JSONValueEncoder
  private var writer: JSONWriter { encoder.writer }
  var codingPath: [any CodingKey] { encoder.codingPath }

  func encodeNil(forKey key: Key) throws { try encode(JSONWriter.Null(), forKey: key) }

  func encode(_ value: Int128, forKey key: Key) throws {
    try writer.encode(value, forKey: key, for: encoder)
  }

  func encode(_ value: UInt128, forKey key: Key) throws {
    try writer.encode(value, forKey: key, for: encoder)
  }

  func encode<T: Encodable>(_ value: T, forKey key: Key) throws {
    try writer.encode(value, forKey: key, for: encoder)
  }

  func nestedContainer<NestedKey: CodingKey>(
    keyedBy type: NestedKey.Type, forKey key: Key
  ) -> KeyedEncodingContainer<NestedKey> {
    let nested = writer.nestedWriter(.object, forKey: key, for: encoder)
    return KeyedEncodingContainer(JSONKeyedContainer<NestedKey>(encoder: nested.encoder))
  }

  func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
    JSONUnkeyedContainer(encoder: writer.nestedWriter(.array, forKey: key, for: encoder).encoder)
  }

  func superEncoder() -> any Encoder {
    writer.nestedWriter(.undecided, forKey: JSONValueEncoder.Key(nil), for: encoder).encoder
  }

  func superEncoder(forKey key: Key) -> any Encoder {
    writer.nestedWriter(.undecided, forKey: key, for: encoder).encoder
  }
}

/// The elements of an array.
struct JSONUnkeyedContainer: UnkeyedEncodingContainer {
  let encoder: JSONValueEncoder
  private var writer: JSONWriter { encoder.writer }
  var codingPath: [any CodingKey] { encoder.codingPath }
  var count: Int { writer.count(for: encoder) }

  func encodeNil() throws { try encode(JSONWriter.Null()) }
  func encode(_ value: Int128) throws { try writer.encodeElement(value, for: encoder) }
  func encode(_ value: UInt128) throws { try writer.encodeElement(value, for: encoder) }
  func encode<T: Encodable>(_ value: T) throws { try writer.encodeElement(value, for: encoder) }

  func nestedContainer<NestedKey: CodingKey>(
    keyedBy type: NestedKey.Type
  ) -> KeyedEncodingContainer<NestedKey> {
    let nested = writer.nestedWriterForElement(.object, for: encoder)
    return KeyedEncodingContainer(JSONKeyedContainer<NestedKey>(encoder: nested.encoder))
  }

  func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer {
    JSONUnkeyedContainer(encoder: writer.nestedWriterForElement(.array, for: encoder).encoder)
  }

  func superEncoder() -> any Encoder {
    writer.nestedWriterForElement(.undecided, for: encoder).encoder
  }
}
