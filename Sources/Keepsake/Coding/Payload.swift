package import FoundationEssentials

/// A value as the bytes of a separate file, such as a cache's payload file.
///
/// `Data` is kept as it is and text as UTF-8, so that other programs can use the file.
package struct Payload: Sendable {
  /// What the bytes are. The raw values are part of the file formats.
  package enum Kind: UInt8, Sendable {
    case data = 0
    case text = 1
    case json = 2
    /// Seconds since the reference date, as JSON.
    case date = 3
    /// The name of a number that is not finite, as a JSON string.
    case number = 4
  }

  package let bytes: Data
  package let kind: Kind

  package init(bytes: Data, kind: Kind) {
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

  /// The value of the bytes; nil if they do not fit their kind.
  var value: StoredValue? {
    // Shares the bytes instead of copying them.
    if kind == .data { return .data(bytes) }
    return bytes.withUnsafeBytes { kind.value(of: $0) }
  }
}

extension Payload.Kind {
  /// The value of bytes of this kind; nil if they do not fit it.
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
    if case .string = self { return .text }
    switch kind {
    case .json: return .json
    case .data: return .data
    case .date: return .date
    case .number: return .number
    }
  }

  /// Calls `body` with the kind and bytes of this value's ``Payload``, copying as little as
  /// possible.
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
