public import FoundationEssentials

/// Keeps the values of a suite in memory, for short-lived data and for tests.
///
/// The suite `.memory` has one. To keep another suite in memory, give it one:
///
/// ```swift
/// try StorageSystem.bootstrap(app: "com.example.notes", engines: ["session": MemoryEngine()])
/// ```
///
/// Its values are gone when the engine is deallocated. Calls may come from any thread.
public final class MemoryEngine: StorageEngine {
  private let table = ReadWriteLocked(ValueTable())
  /// Orders writers. Readers never take it, so that the closure of an update may read.
  private let writer = Locked(())
  private let timeout = Duration.seconds(10)
  let observers = Observers()

  /// Creates an empty engine.
  public init() {}

  /// The bytes of a key, as JSON with the same meaning as what was set; nil if there are none.
  public func data(forKey key: String) throws -> Data? { value(forKey: key)?.engineData }

  /// Stores the bytes of a key, which must be JSON; nil removes them.
  public func set(_ data: Data?, forKey key: String) throws {
    try set(Self.value(of: data, key), forKey: key)
  }

  /// Stores the bytes of a key if its current bytes are `old`; nil stands for no bytes.
  public func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool {
    try replace(Self.value(of: old, key), with: Self.value(of: new, key), forKey: key)
  }

  /// All keys that have bytes.
  public func keys() -> [String] { table.withReadLock { $0.entries.copiedKeys }.keys }

  /// Removes all bytes of all keys in one step.
  public func removeAll() throws {
    try exclusively { table.withLock { $0.removeAll() } }
    observers.signal()
  }

  /// A stream with an element after each change.
  public func changes() -> AsyncStream<Void>? { changes { _ in true } }

  private static func value(of data: Data?, _ key: String) throws(StorageError) -> StoredValue? {
    do throws(StorageError) {
      return try StoredValue(engineData: data, key: key)
    } catch {
      throw StorageError(
        .misuse, operation: "set", key: key, reason: "the bytes are not JSON",
        remedy: "Set JSON, or use an engine that stores any bytes.")
    }
  }
}

extension MemoryEngine: ValueEngine {
  @usableFromInline var path: String? { nil }

  @usableFromInline
  func value(forKey key: String) -> StoredValue? { table.withReadLock { $0.value(forKey: key) } }

  @usableFromInline
  func versionedValue(forKey key: String) -> VersionedValue? {
    table.withReadLock { $0.versionedValue(forKey: key) }
  }

  @usableFromInline
  func cachedModel(forKey key: String) -> DecodedModel? { table.withReadLock { $0[key]?.model } }

  @usableFromInline
  func cache(_ model: DecodedModel, forKey key: String, version: UInt64) {
    table.withLock { $0.cache(model, forKey: key, version: version) }
  }

  @usableFromInline
  func set(_ value: StoredValue?, forKey key: String) throws(StorageError) {
    try exclusively { table.withLock { $0.apply(ValueChange(key: key, value: value)) } }
    observers.signal(key)
  }

  @usableFromInline
  func apply(_ changes: [ValueChange]) throws(StorageError) {
    try exclusively {
      table.withLock { table in for change in changes { table.apply(change) } }
    }
    observers.signal(changes.onlyKey)
  }

  @usableFromInline
  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool {
    let isReplaced = try exclusively {
      table.withLock { table in
        guard table[key]?.value == old else { return false }
        table.apply(ValueChange(key: key, value: new))
        return true
      }
    }
    if isReplaced { observers.signal(key) }
    return isReplaced
  }

  @usableFromInline
  func update(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError) {
    try exclusively { () throws(StorageError) in
      guard let replacement = try change(value(forKey: key)) else { return }
      table.withLock { $0.apply(ValueChange(key: key, value: replacement)) }
    }
    observers.signal(key)
  }

  @usableFromInline
  func changedValues(since version: UInt64?) -> ChangedValues {
    table.withReadLock { $0.changedValues(since: version) }.values
  }

  @usableFromInline
  func changes(where isRelevant: @escaping @Sendable (String) -> Bool) -> AsyncStream<Void> {
    observers.changes(where: isRelevant)
  }

  private func exclusively<R>(_ body: () throws(StorageError) -> R) throws(StorageError) -> R {
    let result = try writer.withLock(timeout: timeout) { _ throws(StorageError) in try body() }
    if let result { return result }
    throw StorageError(
      .timedOut, operation: "lock", reason: "another thread was writing for more than \(timeout)",
      remedy: "Do not wait for other threads inside the closure of an update.")
  }
}
