/// Encodes any name as a file name, and decodes it.
///
/// Percent-encoded, with a dot in front as well: a name never hides its file.
enum FileName {
  /// nil if the result would be too long for a file system.
  static func encode(_ name: String) -> String? {
    let encoded = escape(name)
    return encoded.count <= maximumLength ? String(decoding: encoded, as: UTF8.self) : nil
  }

  /// Leaves room for a suffix.
  static let maximumLength = 200

  /// The encoded name without a limit on its length.
  static func escape(_ name: String) -> [UInt8] {
    let encoded = Array(PercentEncoding.encode(name).utf8)
    // An empty name needs a file name too; no other name is encoded as a single %.
    guard let first = encoded.first else { return [UInt8(ascii: "%")] }
    return first == UInt8(ascii: ".") ? Array("%2E".utf8) + encoded.dropFirst() : encoded
  }

  /// nil for a file name that ``encode(_:)`` does not produce.
  static func decode(_ fileName: String) -> String? {
    if fileName == "%" { return "" }
    let bytes = Array(fileName.utf8)
    guard let name = PercentEncoding.decode(bytes[...]), escape(name) == bytes else { return nil }
    return name
  }
}
