/// The values of a suite by key, as engines keep them in memory.
struct ValueTable {
  struct Entry {
    var value: StoredValue
    var version: UInt64
    /// The size of the value's record on disk, in bytes.
    var size: Int
    var model: DecodedModel?
  }

  private(set) var entries = ByteKeyedDictionary<Entry>()
  /// The total size of the records of all values on disk, in bytes.
  private(set) var liveSize = 0
  /// Grows with every change and never starts over, so that a version identifies one value.
  private var version: UInt64 = 0

  @inline(__always)
  subscript(key: String) -> Entry? { entries[key] }

  mutating func apply(_ change: ValueChange, size: Int = 0) {
    guard let value = change.value else {
      liveSize -= entries.remove(change.key)?.size ?? 0
      return
    }
    version += 1
    let entry = Entry(value: value, version: version, size: size, model: nil)
    liveSize += size
    var oldSize = 0
    // Replacing an entry in place does not copy the old one.
    let isReplaced = entries.modify(change.key) {
      oldSize = $0.size
      $0 = entry
    }
    if isReplaced { liveSize -= oldSize } else { entries.set(change.key, entry) }
  }

  mutating func removeAll() {
    entries = ByteKeyedDictionary()
    liveSize = 0
  }

  /// Caches a model beside its value, unless the value has changed since `version`.
  mutating func cache(_ model: DecodedModel, forKey key: String, version: UInt64) {
    entries.modify(key) { if $0.version == version { $0.model = model } }
  }

  func versionedValue(forKey key: String) -> VersionedValue? {
    entries[key].map { VersionedValue(value: $0.value, version: $0.version) }
  }
}
