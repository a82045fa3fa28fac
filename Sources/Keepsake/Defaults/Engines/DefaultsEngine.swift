/// What a ``Defaults/Store`` needs from what lies below it: values by key.
///
/// A ``StorageEngine`` that knows values, and so keeps them ready for use.
@usableFromInline
protocol DefaultsEngine: StorageEngine, AnyObject {
  func value(forKey key: String) throws(StorageError) -> StoredValue?

  /// The decoded model that is kept for the key's present value, if there is one at hand.
  func model(forKey key: String) -> DecodedModel?

  /// The value with what is needed to know it again.
  func entry(forKey key: String) throws(StorageError) -> EngineEntry?

  /// Keeps a decoded model beside the value that `stamp` names, for as long as that value stands.
  func remember(_ model: DecodedModel, forKey key: String, stamp: UInt64)

  func allKeys() throws(StorageError) -> [String]

  func commit(_ change: EngineChange) throws(StorageError)

  /// Makes the changes, in this order.
  func commit(_ changes: [EngineChange]) throws(StorageError)

  /// Stores a key's value if the one there is still `old`; nil stands for none. Returns whether it
  /// was.
  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool

  /// Replaces a key's value by what `change` makes of it while nobody else can write.
  func update(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError)

  func clear() throws(StorageError)

  /// Returns when all that was written survives a power cut.
  func makeDurable() throws(StorageError)

  /// Signals after changes of wanted keys, by whatever process, and perhaps of others, for as long
  /// as somebody iterates over it.
  func ticks(
    of isWanted: @escaping @Sendable (String) -> Bool
  ) throws(StorageError) -> AsyncStream<Void>

  /// Where the values lie; nil when only in memory, or nobody knows.
  var path: String? { get throws(StorageError) }
}

extension DefaultsEngine {
  func commit(_ change: EngineChange) throws(StorageError) { try commit([change]) }
}

@usableFromInline
struct EngineEntry: Sendable {
  let value: StoredValue
  let stamp: UInt64
}

@usableFromInline
enum EngineChange: Sendable {
  case set(String, StoredValue)
  case remove(String)
  case clear
}

extension EngineChange {
  /// What stores the value of a key, or with nil removes it.
  init(_ key: String, _ value: StoredValue?) {
    self = value.map { .set(key, $0) } ?? .remove(key)
  }

  /// Removing what is not there changes nothing.
  var isRemoval: Bool { if case .remove = self { true } else { false } }

  /// What it changes; nil for all.
  var key: String? {
    switch self {
    case .set(let key, _), .remove(let key): key
    case .clear: nil
    }
  }
}

extension [EngineChange] {
  /// The only key that they change; nil where there are several.
  var onlyKey: String? { count == 1 ? self[0].key : nil }

  /// The keys that they change; nil for all.
  var keys: [String]? {
    var keys: [String] = []
    for change in self {
      guard let key = change.key else { return nil }
      keys.append(key)
    }
    return keys
  }
}

/// The values of a suite, by key, as every engine keeps them in memory.
struct ValueTable {
  struct Entry {
    var value: StoredValue
    var stamp: UInt64
    /// The bytes the record takes on disk.
    var size: Int
    var model: DecodedModel?
  }

  private(set) var entries = ByteKeyedDictionary<Entry>()
  /// The bytes that the records of all values take on disk.
  private(set) var liveSize = 0
  /// Counts up with every change and never back, so that a stamp names one value for good.
  private var stamp: UInt64 = 0

  @inline(__always)
  subscript(key: String) -> Entry? { entries[key] }

  mutating func apply(_ change: EngineChange, size: Int = 0) {
    switch change {
    case .set(let key, let value):
      stamp += 1
      let entry = Entry(value: value, stamp: stamp, size: size, model: nil)
      liveSize += size
      var oldSize = 0
      // In its place, which spares a copy of the old one.
      let isThere = entries.modify(key) {
        oldSize = $0.size
        $0 = entry
      }
      if isThere { liveSize -= oldSize } else { entries.set(key, entry) }
    case .remove(let key):
      liveSize -= entries.remove(key)?.size ?? 0
    case .clear:
      entries = ByteKeyedDictionary()
      liveSize = 0
    }
  }

  mutating func remember(_ model: DecodedModel, forKey key: String, stamp: UInt64) {
    entries.modify(key) { if $0.stamp == stamp { $0.model = model } }
  }

  func entry(forKey key: String) -> EngineEntry? {
    entries[key].map { EngineEntry(value: $0.value, stamp: $0.stamp) }
  }
}
