internal import FoundationEssentials

/// The bytes that a ``StorageEngine`` stores for a value.
extension StoredValue {
  var engineData: Data {
    var text: [UInt8] = []
    TaggedJSON.append(self, to: &text)
    return Data(text)
  }

  /// The value of a key's bytes, which may have been edited by hand; nil if there are none.
  init?(engineData data: Data?, key: String) throws(StorageError) {
    guard let data else { return nil }
    guard let json = JSONScanner.value(of: Array(data)), !json.hasDuplicateNames,
      let value = TaggedJSON.value(json.bytes)
    else {
      throw StorageError(
        .damaged, operation: "get", key: key, reason: "the engine returned bytes that are not JSON",
        remedy: "Set the value again, or remove it.")
    }
    self = value
  }
}
