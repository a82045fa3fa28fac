/// The values of a suite that is kept in the process.
final class MemoryTable: DefaultsEngine {
  private let table = Locked(ValueTable())
  /// Orders writers; never held by readers, so that the closure of an update may read.
  private let writer = Locked(())
  private let timeout = Duration.seconds(10)
  let observers = Observers()

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

  func commit(_ changes: [EngineChange]) throws(StorageError) {
    try exclusively {
      table.withLock { table in for change in changes { table.apply(change) } }
    }
    observers.signal(changes.onlyKey)
  }

  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool {
    let isDone = try exclusively {
      table.withLock { table in
        guard table[key]?.value == old else { return false }
        table.apply(EngineChange(key, new))
        return true
      }
    }
    if isDone { observers.signal(key) }
    return isDone
  }

  func update(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError) {
    try exclusively { () throws(StorageError) in
      guard let replacement = try change(value(forKey: key)) else { return }
      table.withLock { $0.apply(EngineChange(key, replacement)) }
    }
    observers.signal(key)
  }

  private func exclusively<R>(_ body: () throws(StorageError) -> R) throws(StorageError) -> R {
    let result = try writer.withLock(timeout: timeout) { _ throws(StorageError) in try body() }
    if let result { return result }
    throw StorageError(
      .timedOut, operation: "lock", reason: "another thread was writing for more than \(timeout)",
      remedy: "Do not wait for other threads inside the closure of an update.")
  }

  func allKeys() -> [String] { table.withLock { $0.entries.keys } }

  func clear() throws(StorageError) { try commit([.clear]) }

  func makeDurable() {}

  func ticks(of isWanted: @escaping @Sendable (String) -> Bool) -> AsyncStream<Void> {
    observers.ticks(of: isWanted)
  }
}
