/// The engine of a store that was taken before `bootstrap`: until the store is first used, it is
/// not known which engine that is.
///
/// All other stores have their engines at once, so that a call of theirs takes no longer.
final class DeferredEngine: ValueEngine {
  let engine: FirstUse<Result<any ValueEngine, StorageError>>

  init(_ find: @escaping @Sendable () -> Result<any ValueEngine, StorageError>) {
    engine = FirstUse(make: find)
  }

  private var found: any ValueEngine {
    get throws(StorageError) { try engine.value.get() }
  }

  func value(forKey key: String) throws(StorageError) -> StoredValue? {
    try found.value(forKey: key)
  }

  func versionedValue(forKey key: String) throws(StorageError) -> VersionedValue? {
    try found.versionedValue(forKey: key)
  }

  func cachedModel(forKey key: String) -> DecodedModel? {
    (try? engine.value.get())?.cachedModel(forKey: key)
  }

  func cache(_ model: DecodedModel, forKey key: String, version: UInt64) {
    (try? engine.value.get())?.cache(model, forKey: key, version: version)
  }

  func set(_ value: StoredValue?, forKey key: String) throws(StorageError) {
    try found.set(value, forKey: key)
  }

  func apply(_ changes: [ValueChange]) throws(StorageError) { try found.apply(changes) }

  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool {
    try found.replace(old, with: new, forKey: key)
  }

  func update(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError) {
    try found.update(key, change)
  }

  func keys() throws(StorageError) -> [String] { try found.keys() }

  func changedValues(since version: UInt64?) throws(StorageError) -> ChangedValues {
    try found.changedValues(since: version)
  }

  func removeAll() throws { try found.removeAll() }
  func synchronize() throws { try found.synchronize() }

  func changes(
    where isRelevant: @escaping @Sendable (String) -> Bool
  ) throws(StorageError) -> AsyncStream<Void> {
    try found.changes(where: isRelevant)
  }

  var path: String? { (try? engine.value.get())?.path }
  var isCopy: Bool { (try? engine.value.get())?.isCopy ?? false }
  var isReady: Bool { (try? engine.value.get())?.isReady ?? true }
}
