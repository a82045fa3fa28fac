/// Stands in for a suite that has no place, as without a home directory: each call says why.
final class UnavailableEngine: DefaultsEngine {
  private let error: StorageError

  init(_ error: StorageError) { self.error = error }

  var path: String? { get throws(StorageError) { throw error } }
  func value(forKey key: String) throws(StorageError) -> StoredValue? { throw error }
  func entry(forKey key: String) throws(StorageError) -> EngineEntry? { throw error }
  func model(forKey key: String) -> DecodedModel? { nil }
  func remember(_ model: DecodedModel, forKey key: String, stamp: UInt64) {}
  func allKeys() throws(StorageError) -> [String] { throw error }
  func commit(_ changes: [EngineChange]) throws(StorageError) { throw error }
  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool { throw error }
  func update(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError) { throw error }
  func clear() throws(StorageError) { throw error }
  func makeDurable() throws(StorageError) { throw error }
  func ticks(
    of isWanted: @escaping @Sendable (String) -> Bool
  ) throws(StorageError) -> AsyncStream<Void> { throw error }
}
