internal import FoundationEssentials

/// Values as a ``StorageEngine`` has them.
extension StoredValue {
  var engineData: Data {
    var text: [UInt8] = []
    ValueText.append(self, to: &text)
    return Data(text)
  }

  /// The value of a key's bytes, which may have been changed by hand since they were written.
  init?(engineData data: Data?, key: String) throws(StorageError) {
    guard let data else { return nil }
    let text = Self.trimmed(data)
    if let value = Self.single(text) {
      self = value
      return
    }
    // Says whether it is JSON at all, down to the last escape; but it takes UTF-16 as well.
    guard !text.contains(0), String(validating: text, as: UTF8.self) != nil,
      let tree = try? Codec.decoder.decode(Tree.self, from: Data(text)),
      let json = JSONSlices.compact(Array(text)),
      // Of a member that is there twice the decoder has looked at one.
      tree.memberCount == JSONSlices.memberCount(in: json), let value = ValueText.value(json)
    else {
      throw StorageError(
        .damaged, operation: "get", key: key, reason: "the engine's bytes are not JSON",
        remedy: "Set the value again, or remove it.")
    }
    self = value
  }

  /// Without what editors add at the ends: a byte order mark (RFC 8259, section 8.1) and white
  /// space.
  private static func trimmed(_ data: Data) -> ArraySlice<UInt8> {
    let text = Array(data)
    let hasMark = text.starts(with: [0xEF, 0xBB, 0xBF])
    let start = text.dropFirst(hasMark ? 3 : 0).drop { JSONSlices.isSpace($0) }
    let end = start.lastIndex { !JSONSlices.isSpace($0) }
    return end.map { start[...$0] } ?? []
  }

  /// A truth value or an integer, which need no decoder to be known for one.
  private static func single(_ text: ArraySlice<UInt8>) -> StoredValue? {
    guard text.count <= 20 else { return nil }
    let text = String(decoding: text, as: UTF8.self)
    switch text {
    case "true": return .bool(true)
    case "false": return .bool(false)
    default:
      guard let number = Int64(text), String(number) == text else { return nil }
      return .int(number)
    }
  }
}
