internal import FoundationEssentials

// None of these quotes a value, nor an error text that may quote one.

extension StorageError {
  /// The stored value is not of type `type`, which the caller asked for.
  init(mismatch stored: StoredValue?, with type: any Any.Type) {
    let reason =
      if let stored, LosslessNumber(stored) != nil, type is any Numeric.Type {
        "the stored number cannot be represented exactly as \(type)"
      } else if let stored {
        "the stored value is \(stored.typeDescription), not \(type)"
      } else {
        "the stored value is not of type \(type)"
      }
    self.init(
      .wrongType, operation: "decode", reason: reason,
      remedy: "Read it as the type it was stored as, or store it again.")
  }

  /// An encoder, or the value's own `encode(to:)`, threw `error`.
  init(encodingError error: any Error, type: any Any.Type) {
    let problem =
      if case EncodingError.invalidValue(_, let context) = error {
        "the value at \(Self.path(context.codingPath)) cannot be written as JSON"
      } else {
        "its encode(to:) threw \(Swift.type(of: error))"
      }
    self.init(
      .encodingFailed, operation: "encode", reason: "\(type): \(problem)",
      remedy: "Store a value that can be encoded; the old value is intact.")
  }

  /// A decoder, or the type's own `init(from:)`, threw `error`.
  init(decodingError error: any Error, type: any Any.Type, stored: StoredValue?) {
    let problem: String
    switch error {
    case DecodingError.typeMismatch(_, let context) where context.codingPath.isEmpty:
      self.init(mismatch: stored, with: type)
      return
    case DecodingError.typeMismatch(let expected, let context):
      problem = "the value at \(Self.path(context.codingPath)) is not of type \(expected)"
    case DecodingError.keyNotFound(let key, let context):
      problem = "there is no value at \(Self.path(context.codingPath + [key]))"
    case DecodingError.valueNotFound(let expected, let context):
      problem = "the value at \(Self.path(context.codingPath)) is null, not \(expected)"
    case DecodingError.dataCorrupted(let context) where Self.enumeration(context) != nil:
      let enumeration = Self.enumeration(context) ?? ""
      let cases = context.codingPath.isEmpty ? Self.cases(of: type) : nil
      self.init(
        .decodingFailed, operation: "decode",
        reason: (context.codingPath.isEmpty
          ? "the stored value is" : "\(type): the value at \(Self.path(context.codingPath)) is")
          + " no case of \(enumeration)" + (cases.map { ", which has \($0)" } ?? ""),
        remedy: "Store one of its cases, or add the stored one to \(enumeration).")
      return
    case DecodingError.dataCorrupted(let context):
      problem = "the value at \(Self.path(context.codingPath)) cannot be read"
    default:
      problem = "its init(from:) threw \(Swift.type(of: error))"
    }
    self.init(
      .decodingFailed, operation: "decode", reason: "\(type): \(problem)",
      remedy: "Read it as the type it was stored as; give new properties a default or make them "
        + "optional.")
  }

  /// The name of the enum that has no case of a stored raw value, as the standard library says it.
  /// The value follows these words.
  private static func enumeration(_ context: DecodingError.Context) -> String? {
    let (start, end) = ("Cannot initialize ", " from invalid ")
    guard context.debugDescription.hasPrefix(start) else { return nil }
    let rest = context.debugDescription.dropFirst(start.count)
    return rest.firstRange(of: end).map { String(rest[..<$0.lowerBound]) }
  }

  /// The raw values of an enum that lists its cases.
  private static func cases(of type: any Any.Type) -> String? {
    func rawValues<T: CaseIterable>(_ type: T.Type) -> [String] {
      type.allCases.compactMap { ($0 as? any RawRepresentable).map { "\($0.rawValue)" } }
    }
    guard let type = type as? any CaseIterable.Type else { return nil }
    let values = rawValues(type)
    return values.isEmpty ? nil : values.prefix(20).joined(separator: ", ")
  }

  /// The names of the properties that lead to a value; `*` for the keys of a dictionary, which are
  /// part of the value.
  private static func path(_ keys: [any CodingKey]) -> String {
    if keys.isEmpty { return "the top level" }
    return keys.map { key in
      let mirror = Mirror(reflecting: key)
      let isProperty = mirror.displayStyle == .enum && mirror.children.isEmpty
      return isProperty ? key.stringValue : "*"
    }.joined(separator: ".")
  }
}
