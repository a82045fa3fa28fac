/// A member that every JSON object of its kind has, with null where there is no value.
struct Nullable<Value: Encodable & Sendable>: Encodable, Sendable {
  var value: Value?

  func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    if let value { try container.encode(value) } else { try container.encodeNil() }
  }
}
