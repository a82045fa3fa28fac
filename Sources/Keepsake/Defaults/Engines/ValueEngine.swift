/// Stores the values of one suite: what a ``Defaults/Store`` is built on.
///
/// Unlike a ``StorageEngines/Engine``, which stores bytes, it knows values and can keep them
/// decoded. The journal and ``MemoryEngine`` are value engines; ``CustomEngine`` makes one of a
/// `StorageEngines.Engine`.
@usableFromInline
protocol ValueEngine: AnyObject, Sendable {
  func value(forKey key: String) throws(StorageError) -> StoredValue?

  /// The cached model of the key's current value; nil if there is none at hand.
  func cachedModel(forKey key: String) -> DecodedModel?

  /// Caches the model that was decoded from `value` until the key gets another value; does nothing
  /// if it has one.
  func cache(_ model: DecodedModel, of value: StoredValue, forKey key: String)

  /// Stores a value; nil removes it.
  func set(_ value: StoredValue?, forKey key: String) throws(StorageError)

  /// Makes several changes, in this order.
  func apply(_ changes: [ValueChange]) throws(StorageError)

  /// Stores a value if the current one is still `old`; nil stands for no value.
  ///
  /// - Returns: Whether the value was stored.
  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool

  /// Replaces a value with the result of `change`, while no other thread or process can write.
  ///
  /// `change` returns nil to leave the value alone, and `.some(nil)` to remove it.
  func update(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError)

  func keys() throws(StorageError) -> [String]

  /// The values that may have changed since an earlier call returned this version; all values if it
  /// is nil.
  func changedValues(since version: UInt64?) throws(StorageError) -> ChangedValues

  // These two have no typed error because `MemoryEngine` implements them as a public
  // `StorageEngines.Engine`, whose calls may throw any.

  func removeAll() throws

  /// Returns when everything that was stored survives a power cut.
  func synchronize() throws

  /// A stream with an element after each change of a key for which `isRelevant` returns true, made
  /// by any process. Changes of other keys may yield elements too.
  func changes(
    where isRelevant: @escaping @Sendable (String) -> Bool
  ) throws(StorageError) -> AsyncStream<Void>

  /// The file that holds the values; nil if they are only in memory, or elsewhere.
  var path: String? { get }

  /// Whether reads return copies, which may be older than what the engine compares with.
  var isCopy: Bool { get }
  /// Whether a read need not wait for a server.
  var isReady: Bool { get }
}

/// Values of a suite that may have changed since an earlier moment.
@usableFromInline
struct ChangedValues: Sendable {
  let values: [(key: String, value: StoredValue)]
  /// Whether these are all values, so that a key which is missing has none.
  let isComplete: Bool
  /// Stands for the moment at which the values were read; nil if the engine has no versions.
  let version: UInt64?
}

extension ValueEngine {
  // By default, reading finds the value anew, and decodes it each time.

  @usableFromInline
  func cachedModel(forKey key: String) -> DecodedModel? { nil }
  @usableFromInline
  func cache(_ model: DecodedModel, of value: StoredValue, forKey key: String) {}

  @usableFromInline var isCopy: Bool { false }
  @usableFromInline var isReady: Bool { true }

  /// For engines without versions: always returns all values. Damaged ones count as missing, so
  /// that they do not hide the changes of other keys.
  @usableFromInline
  func changedValues(since version: UInt64?) throws(StorageError) -> ChangedValues {
    ChangedValues(values: try readValues(skipsDamaged: true), isComplete: true, version: nil)
  }

  /// The values of all keys. Not a dictionary, in which two keys would collide that differ only in
  /// normalization (NFC and NFD).
  func readValues(
    skipsDamaged: Bool = false
  ) throws(StorageError) -> [(key: String, value: StoredValue)] {
    var values: [(key: String, value: StoredValue)] = []
    for key in try keys() {
      do throws(StorageError) {
        if let value = try value(forKey: key) { values.append((key, value)) }
      } catch  where skipsDamaged && error.code == .damaged {}
    }
    return values
  }
}

/// The new value of a key; nil removes it.
@usableFromInline
struct ValueChange: Sendable {
  let key: String
  let value: StoredValue?
}

extension [ValueChange] {
  /// The key that they change; nil if there are several.
  var onlyKey: String? { count == 1 ? self[0].key : nil }

  /// Only the last change of each key.
  var withoutRepeatedKeys: [ValueChange] {
    var positions = ByteKeyedDictionary<Int>()
    for (position, change) in enumerated() { positions.set(change.key, position) }
    if positions.count == count { return self }
    return positions.elements.map(\.value).sorted().map { self[$0] }
  }
}

extension StorageError {
  /// `error` itself if it is a `StorageError`, and otherwise one that wraps it.
  init(_ error: any Error, thrownBy engine: Any.Type, key: String? = nil) {
    if let error = error as? StorageError {
      self = error
      return
    }
    // Only its type, because its text may quote the value.
    self.init(
      .engineFailed, operation: "call", key: key,
      reason: "\(engine) threw \(type(of: error))",
      remedy: "See the underlying error, and the documentation of \(engine).",
      underlyingError: error)
  }
}
