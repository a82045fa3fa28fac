internal import FoundationEssentials

/// The bytes that a ``StorageEngines/Engine`` stores for a value.
extension StoredValue {
  var engineData: Data {
    var text: [UInt8] = []
    TaggedJSON.append(self, to: &text)
    return Data(text)
  }

  /// The value of an engine's bytes, which may have been edited by hand; nil if they are not JSON.
  init?(engineData data: Data) {
    guard let json = JSONScanner.value(of: Array(data)), !json.hasDuplicateNames,
      let value = TaggedJSON.value(json.bytes)
    else { return nil }
    self = value
  }

  /// The value of a key's bytes; nil if there are none.
  init?(engineData data: Data?, key: String) throws(StorageError) {
    guard let data else { return nil }
    guard let value = StoredValue(engineData: data) else { throw .notJSON(key) }
    self = value
  }
}

extension StorageError {
  static func notJSON(_ key: String) -> StorageError {
    StorageError(
      .damaged, operation: "get", key: key, reason: "the engine returned bytes that are not JSON",
      remedy: "Set the value again, or remove it.")
  }
}
