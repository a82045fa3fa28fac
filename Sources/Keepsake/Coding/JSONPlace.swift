/// A place for one value in a ``JSONRun``: the `Encoder` that a value gets, and its containers.
struct JSONPlace: Encoder {
  /// The key of an element, or of a superclass.
  struct Key: CodingKey {
    let intValue: Int?
    var stringValue: String { intValue.map { "Index \($0)" } ?? "super" }
    init(_ index: Int?) { intValue = index }
    init?(stringValue: String) { nil }
    init?(intValue: Int) { self.intValue = intValue }
  }

  let run: JSONRun
  /// Which of the run's values it is.
  let id: Int
  /// How many keys lead to it.
  let depth: Int

  var codingPath: [any CodingKey] { Array(run.path.prefix(depth)) }
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
    run.open(.object, at: self)
    return KeyedEncodingContainer(JSONMembers(place: self))
  }

  func unkeyedContainer() -> any UnkeyedEncodingContainer {
    run.open(.array, at: self)
    return JSONElements(place: self)
  }

  func singleValueContainer() -> any SingleValueEncodingContainer { self }
}

// In all three, the generic `encode` is also what the protocols ask for each of the standard
// library's types, but for the widest integers: there it would be passed over for one that throws.

extension JSONPlace: SingleValueEncodingContainer {
  func encodeNil() throws { try encode(JSONScalar.Null()) }
  func encode(_ value: Int128) throws { try run.encode(value, at: self) }
  func encode(_ value: UInt128) throws { try run.encode(value, at: self) }
  func encode<T: Encodable>(_ value: T) throws { try run.encode(value, at: self) }
}

/// The members of an object.
struct JSONMembers<Key: CodingKey>: KeyedEncodingContainerProtocol {
  let place: JSONPlace
  var codingPath: [any CodingKey] { place.codingPath }

  func encodeNil(forKey key: Key) throws { try encode(JSONScalar.Null(), forKey: key) }

  func encode(_ value: Int128, forKey key: Key) throws {
    try place.run.encode(value, forKey: key, at: place)
  }

  func encode(_ value: UInt128, forKey key: Key) throws {
    try place.run.encode(value, forKey: key, at: place)
  }

  func encode<T: Encodable>(_ value: T, forKey key: Key) throws {
    try place.run.encode(value, forKey: key, at: place)
  }

  func nestedContainer<NestedKey: CodingKey>(
    keyedBy type: NestedKey.Type, forKey key: Key
  ) -> KeyedEncodingContainer<NestedKey> {
    let run = place.run.run(.object, forKey: key, at: place)
    return KeyedEncodingContainer(JSONMembers<NestedKey>(place: run.place))
  }

  func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
    JSONElements(place: place.run.run(.array, forKey: key, at: place).place)
  }

  func superEncoder() -> any Encoder {
    place.run.run(.nothing, forKey: JSONPlace.Key(nil), at: place).place
  }

  func superEncoder(forKey key: Key) -> any Encoder {
    place.run.run(.nothing, forKey: key, at: place).place
  }
}

/// The elements of an array.
struct JSONElements: UnkeyedEncodingContainer {
  let place: JSONPlace
  var codingPath: [any CodingKey] { place.codingPath }
  var count: Int { place.run.count(at: place) }

  func encodeNil() throws { try encode(JSONScalar.Null()) }
  func encode(_ value: Int128) throws { try place.run.encodeElement(value, at: place) }
  func encode(_ value: UInt128) throws { try place.run.encodeElement(value, at: place) }
  func encode<T: Encodable>(_ value: T) throws { try place.run.encodeElement(value, at: place) }

  func nestedContainer<NestedKey: CodingKey>(
    keyedBy type: NestedKey.Type
  ) -> KeyedEncodingContainer<NestedKey> {
    let run = place.run.runForElement(.object, at: place)
    return KeyedEncodingContainer(JSONMembers<NestedKey>(place: run.place))
  }

  func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer {
    JSONElements(place: place.run.runForElement(.array, at: place).place)
  }

  func superEncoder() -> any Encoder { place.run.runForElement(.nothing, at: place).place }
}
