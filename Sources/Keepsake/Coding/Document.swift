internal import FoundationEssentials

/// Values as the documents of a ``Folder``: bytes and text as they are, all else as JSON that
/// people like to read.
enum Document {
  static func bytes<T: Codable>(of value: T) throws(StorageError) -> Data {
    switch value {
    case let data as Data: return data
    case let text as String: return Data(text.utf8)
    // Bytes and text stand for themselves: none are left over to say that there are none.
    case _ where T.self == String?.self || T.self == Data?.self:
      throw StorageError(
        .encodingFailed, operation: "encode", reason: "nil is no text and no bytes",
        remedy: "Delete the file in its stead.")
    default:
      var json = try Codec.encode(value, with: encoder)
      json.append(UInt8(ascii: "\n"))
      return json
    }
  }

  static func value<T: Codable>(
    of bytes: Data, as type: T.Type = T.self
  ) throws(StorageError) -> T {
    let found: Any?
    switch T.self {
    case is Data.Type: found = bytes
    case is String.Type: found = String(validating: bytes, as: UTF8.self)
    case let type as any OptionalValue.Type: found = try type.wrappedDocument(bytes)
    default: found = try Codec.decode(bytes, as: T.self)
    }
    if let value = found as? T { return value }
    throw StorageError(
      .decodingFailed, operation: "decode", reason: "the bytes are not text in UTF-8",
      remedy: "Load them as Data.")
  }

  private static let encoder: JSONEncoder = {
    let encoder = Codec.makeEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    return encoder
  }()
}
