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
    default: self.init(bytes: Data(value.json), kind: value.payloadKind)
    }
  }

  /// What the bytes mean; nil when they do not fit their kind.
  var value: StoredValue? {
    // Without a copy.
    if kind == .data { return .data(bytes) }
    return bytes.withUnsafeBytes { kind.value(of: $0) }
  }
}

extension Payload.Kind {
  /// What bytes of this kind mean; nil when they do not fit it.
  func value(of bytes: UnsafeRawBufferPointer) -> StoredValue? {
    switch self {
    case .data: .data(Data(bytes))
    case .text: String(utf8: bytes).map { .string($0) }
    case .json: StoredValue(kind: .json, json: bytes)
    case .date: StoredValue(kind: .date, json: bytes)
    case .number: StoredValue(kind: .number, json: bytes)
    }
  }
}

extension StoredValue {
  fileprivate var payloadKind: Payload.Kind {
    switch self {
    case .data: .data
    case .string: .text
    default:
      switch kind {
      case .date: .date
      case .number: .number
      default: .json
      }
    }
  }

  /// Calls `body` with what a ``Payload`` of this value has, without a copy where there is none to
  /// make.
  func withPayload<R, E: Error>(
    _ body: (Payload.Kind, UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    switch self {
    case .data(let data):
      try data.span.bytes.withUnsafeBytes { bytes throws(E) in try body(payloadKind, bytes) }
    case .string(let text):
      try text.utf8.span.bytes.withUnsafeBytes { bytes throws(E) in try body(payloadKind, bytes) }
    default: try json.span.bytes.withUnsafeBytes { bytes throws(E) in try body(payloadKind, bytes) }
    }
  }
}
