/// Keeps a suite in the process: for short-lived data and for tests.
final class MemoryEngine: DefaultsEngine {
  private let table = Locked(ValueTable())
  private let observers = Observers()

  var path: String? { nil }

  func value(forKey key: String) -> StoredValue? {
    table.withLock { $0[key]?.value }
  }

  func model(forKey key: String) -> DecodedModel? {
    table.withLock { $0[key]?.model }
  }

  func entry(forKey key: String) -> EngineEntry? {
    table.withLock { $0.entry(forKey: key) }
  }

  func remember(_ model: DecodedModel, forKey key: String, stamp: UInt64) {
    table.withLock { $0.remember(model, forKey: key, stamp: stamp) }
  }

  func keys() -> [String] { table.withLock { $0.entries.keys } }

  func commit(_ changes: [EngineChange], if condition: StampCondition?) -> Bool {
    let isDone = table.withLock { table in
      guard table.satisfies(condition) else { return false }
      for change in changes { table.apply(change) }
      return true
    }
    observers.signal()
    return isDone
  }

  func replace(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError) {
    try table.withLock { table throws(StorageError) in
      guard let replacement = try change(table[key]?.value) else { return }
      table.apply(replacement.map { .set(key, $0) } ?? .remove(key))
    }
    observers.signal()
  }

  func removeAll() { _ = commit([.clear], if: nil) }

  func synchronize() {}

  func ticks() -> AsyncStream<Void> { observers.ticks() }
}
