internal import FoundationEssentials

extension StorageEngines {
  /// An engine that keeps the values of a suite in memory, for short-lived data and for tests.
  ///
  /// The suite `.memory` has one. To keep another suite in memory, give it one:
  ///
  /// ```swift
  /// try StorageSystem.bootstrap(
  ///   app: "com.example.notes", engines: ["session": StorageEngines.memory()])
  /// ```
  ///
  /// Its values are gone when the engine is deallocated. Calls may come from any thread.
  public static func memory() -> some Engine { MemoryEngine() }
}

/// See ``StorageEngines/memory()``.
final class MemoryEngine: StorageEngines.Engine {
  private let table: ReadWriteLocked<ValueTable>
  /// Orders writers. Readers never take it, so that the closure of an update may read.
  private let writer = Locked(())
  private let timeout = Duration.seconds(10)
  let observers = Observers()

  /// - Parameter replacement: Makes the values of a forked child if the fork interrupted a change;
  ///   for copies of values, which can be made again. Without it, the child uses the values as they
  ///   are.
  init(afterFork replacement: (@Sendable () -> ValueTable)? = nil) {
    table = ReadWriteLocked(ValueTable(), afterFork: replacement)
  }

  /// The bytes of a key, as JSON with the same meaning as what was set; nil if there are none.
  func data(forKey key: String) throws -> Data? { value(forKey: key)?.engineData }

  /// Stores the bytes of a key, which must be JSON; nil removes them.
  func set(_ data: Data?, forKey key: String) throws {
    try set(Self.value(of: data, key), forKey: key)
  }

  /// Stores the bytes of a key if its current bytes are `old`; nil stands for no bytes.
  func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool {
    try replace(Self.value(of: old, key), with: Self.value(of: new, key), forKey: key)
  }

  /// Stores the bytes of several keys in one step, if every key of `conditions` has the bytes that
  /// it has there.
  func apply(
    _ changes: [StorageEngines.Entry], ifCurrent conditions: [StorageEngines.Entry]
  ) throws -> Bool {
    let conditions = try conditions.map { ($0.key, try Self.value(of: $0.data, $0.key)) }
    let changes = try changes.map {
      ValueChange(key: $0.key, value: try Self.value(of: $0.data, $0.key))
    }
    return try apply(changes) { table in
      conditions.allSatisfy { key, value in table[key]?.value == value }
    }
  }

  /// All keys that have bytes.
  func keys() -> [String] { table.withReadLock { $0.entries.copiedKeys }.keys }

  /// Removes all bytes of all keys in one step.
  func removeAll() throws {
    try exclusively { table.withLock { $0.removeAll() } }
    observers.signal()
  }

  /// A stream with an element after each change.
  func changes() -> AsyncStream<Void>? { changes { _ in true } }

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
  func cachedModel(forKey key: String) -> DecodedModel? {
    table.withReadLock { $0.model(forKey: key) }
  }

  @usableFromInline
  func cache(_ model: DecodedModel, of value: StoredValue, forKey key: String) {
    table.withLock { $0.cache(model, of: value, forKey: key) }
  }

  @usableFromInline
  func set(_ value: StoredValue?, forKey key: String) throws(StorageError) {
    try exclusively { table.withLock { $0.apply(ValueChange(key: key, value: value)) } }
    observers.signal(key)
  }

  @usableFromInline
  func apply(_ changes: [ValueChange]) throws(StorageError) {
    _ = try apply(changes) { _ in true }
  }

  /// Makes several changes in one step, if `condition` returns true.
  private func apply(
    _ changes: [ValueChange], if condition: (borrowing ValueTable) -> Bool
  ) throws(StorageError) -> Bool {
    let isDone = try exclusively {
      table.withLock { table in
        guard condition(table) else { return false }
        for change in changes { table.apply(change) }
        return true
      }
    }
    if isDone { observers.signal(changes.onlyKey) }
    return isDone
  }

  @usableFromInline
  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool {
    try apply([ValueChange(key: key, value: new)]) { $0[key]?.value == old }
  }

  /// Replaces all values in one step. Those that stay the same count as unchanged.
  func replaceAll(with values: [ValueChange]) throws(StorageError) {
    let changes = try exclusively {
      // Compared without excluding readers. No other thread writes in the meantime.
      var missing = ByteKeyedDictionary<Bool>()
      for key in keys() { missing.set(key, true) }
      var changes: [ValueChange] = []
      for change in values.withoutRepeatedKeys {
        missing.remove(change.key)
        if value(forKey: change.key) != change.value { changes.append(change) }
      }
      changes += missing.keys.map { ValueChange(key: $0, value: nil) }
      table.withLock { table in for change in changes { table.apply(change) } }
      return changes
    }
    for change in changes { observers.signal(change.key) }
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
    throw LockFile.threadTimeoutError(
      timeout, path: nil, lockFile: nil,
      remedy: "Do not wait for other threads inside the closure of an update.")
  }
}
