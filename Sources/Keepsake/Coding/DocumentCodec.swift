internal import FoundationEssentials

/// Converts values to the files of a ``Folder`` and back: `Data` and `String` as they are, anything
/// else as indented JSON.
enum DocumentCodec {
  static func encode<T: Codable>(_ value: T) throws(StorageError) -> Data {
    switch value {
    case let data as Data: return data
    case let text as String: return Data(text.utf8)
    // Every sequence of bytes is a value already, so none is left for nil.
    case _ where T.self == String?.self || T.self == Data?.self:
      throw StorageError(
        .encodingFailed, operation: "encode", reason: "nil cannot be stored in a raw file",
        remedy: "Delete the file instead.")
    default:
      do {
        // Throws where Foundation's encoder ends the process, for two kinds of container or a value
        // that is nested too deeply, and for `Decimal.nan`, which that writes as invalid JSON.
        _ = try JSONWriter.bytes(of: value)
        return try encoder.encode(value) + [UInt8(ascii: "\n")]
      } catch {
        throw StorageError(encodingError: error, type: T.self)
      }
    }
  }

  static func decode<T: Codable>(
    _ document: Data, as type: T.Type = T.self
  ) throws(StorageError) -> T {
    let decoded: Any?
    switch T.self {
    case is Data.Type: decoded = document
    case is String.Type: decoded = String(validating: document, as: UTF8.self)
    case let type as any AnyOptional.Type: decoded = try type.decodeWrapped(document: document)
    default: decoded = try Codec.decode(document, as: T.self)
    }
    if let value = decoded as? T { return value }
    throw StorageError(
      .decodingFailed, operation: "decode", reason: "the file is not UTF-8 text",
      remedy: "Load it as Data.")
  }

  /// Stored values are written by ``JSONWriter`` instead; both write the same values.
  static let encoder: JSONEncoder = {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    encoder.nonConformingFloatEncodingStrategy = .convertToString(
      positiveInfinity: JSONNumber.infinity, negativeInfinity: JSONNumber.negativeInfinity,
      nan: JSONNumber.notANumber)
    return encoder
  }()
}
