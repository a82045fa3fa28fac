internal import FoundationEssentials

/// A value as the bytes of a file: what the caches keep in payload files.
///
/// `Data` stays the very bytes and text its UTF-8, so that other programs can use the file.
struct Payload: Sendable {
  enum Kind: UInt8, Sendable {
    case data = 0
    case text = 1
    case json = 2
    /// Seconds since the reference date, as JSON.
    case date = 3
    /// A number that JSON cannot say, as its name in a JSON string.
    case number = 4
  }

  let bytes: Data
  let kind: Kind

  init(bytes: Data, kind: Kind) {
    self.bytes = bytes
    self.kind = kind
  }

  init(_ value: StoredValue) {
    switch value {
    case .data(let data): self.init(bytes: data, kind: .data)
    case .string(let text): self.init(bytes: Data(text.utf8), kind: .text)
    default:
      let kind: Kind =
        switch value.kind {
        case .date: .date
        case .number: .number
        default: .json
        }
      self.init(bytes: Data(value.json), kind: kind)
    }
  }

  /// What the bytes mean; nil when they do not fit their kind.
  var value: StoredValue? {
    switch kind {
    case .data: .data(bytes)
    case .text: String(validating: bytes, as: UTF8.self).map { .string($0) }
    case .json: bytes.withUnsafeBytes { StoredValue(kind: .json, json: $0) }
    case .date: bytes.withUnsafeBytes { StoredValue(kind: .date, json: $0) }
    case .number: bytes.withUnsafeBytes { StoredValue(kind: .number, json: $0) }
    }
  }
}
