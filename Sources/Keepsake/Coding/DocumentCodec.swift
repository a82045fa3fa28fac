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
      var json: Data
      do {
        json = try encoder.encode(value)
      } catch {
        throw StorageError(encodingError: error, type: T.self)
      }
      // Foundation's encoder writes `Decimal.nan` as something that is not JSON.
      guard JSONScanner.value(of: Array(json)) != nil else {
        throw StorageError(
          .encodingFailed, operation: "encode", reason: "\(T.self) contains a Decimal that is NaN",
          remedy: "Store nil instead.")
      }
      json.append(UInt8(ascii: "\n"))
      return json
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
