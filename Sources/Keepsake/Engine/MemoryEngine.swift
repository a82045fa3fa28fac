/// Keeps a suite in the process: for short-lived data and for tests.
final class MemoryEngine: DefaultsEngine {
  private let table = Locked(ValueTable())
  /// Orders writers; never held by readers, so that the closure of an update may read.
  private let writer = Locked(())
  private let timeout = Duration.seconds(10)
  private let observers = Observers()

  var path: String? { nil }
  var folder: String? { nil }

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

  func commit(
    _ changes: [EngineChange], if condition: StampCondition?
  ) throws(StorageError) -> Bool {
    let isDone = try exclusively {
      table.withLock { table in
        guard table.satisfies(condition) else { return false }
        for change in changes { table.apply(change) }
        return true
      }
    }
    observers.signal()
    return isDone
  }

  func replace(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError) {
    try exclusively { () throws(StorageError) in
      guard let replacement = try change(value(forKey: key)) else { return }
      table.withLock { $0.apply(replacement.map { .set(key, $0) } ?? .remove(key)) }
    }
    observers.signal()
  }

  private func exclusively<R>(_ body: () throws(StorageError) -> R) throws(StorageError) -> R {
    let result = try writer.withLock(timeout: timeout) { _ throws(StorageError) in try body() }
    if let result { return result }
    throw StorageError(
      .timedOut, operation: "lock", reason: "another thread was writing for more than \(timeout)",
      remedy: "Do not wait for other threads inside the closure of an update.")
  }

  func removeAll() throws(StorageError) { _ = try commit([.clear], if: nil) }

  func synchronize() {}

  func ticks() -> AsyncStream<Void> { observers.ticks() }
}
