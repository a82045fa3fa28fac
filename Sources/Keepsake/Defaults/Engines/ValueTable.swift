/// The values of a suite by key, as engines keep them in memory.
struct ValueTable: ~Copyable {
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
  /// The version of the last change that removed values.
  private var lastRemoval: UInt64 = 0

  @inline(__always)
  subscript(key: String) -> Entry? { entries[key] }

  /// The value of a key; nil if it has none.
  @inline(__always)
  borrowing func value(forKey key: String) -> StoredValue? {
    entries.withValue(of: key) { $0.value }
  }

  /// The model that was cached beside the value of a key.
  @inline(__always)
  borrowing func model(forKey key: String) -> DecodedModel? {
    entries.withValue(of: key) { $0.model }
  }

  mutating func apply(_ change: ValueChange, size: Int = 0) {
    version += 1
    guard let value = change.value else {
      lastRemoval = version
      liveSize -= entries.remove(change.key)?.size ?? 0
      return
    }
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
    version += 1
    lastRemoval = version
    entries = ByteKeyedDictionary()
    liveSize = 0
  }

  /// Caches a model beside the value that it was decoded from.
  mutating func cache(_ model: DecodedModel, of value: StoredValue, forKey key: String) {
    entries.modify(key) { if $0.value == value { $0.model = model } }
  }

  /// A copy of what has changed, which can be made under a lock.
  struct Changes: Sendable {
    fileprivate let copies: ByteKeyedDictionary<Entry>.Copies<StoredValue>
    fileprivate let isComplete: Bool
    fileprivate let version: UInt64

    var values: ChangedValues {
      ChangedValues(
        values: copies.elements.map { ($0.key, $0.element) }, isComplete: isComplete,
        version: version)
    }
  }

  /// The values that were set since the table had this version; all values if that is nil, or if a
  /// value was removed since.
  func changedValues(since version: UInt64?) -> Changes {
    let known = version.flatMap { $0 < lastRemoval ? nil : $0 }
    let start = known ?? 0
    let copies = entries.copies { $0.version > start ? $0.value : nil }
    return Changes(copies: copies, isComplete: known == nil, version: self.version)
  }
}
