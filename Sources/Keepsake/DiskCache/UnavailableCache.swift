/// Stands in for a cache that has no place, as without a home directory: each call says why.
final class UnavailableCache: CacheEngine {
  private let error: StorageError
  let counts = CacheCounts()

  init(_ error: StorageError) { self.error = error }

  var directory: String? { get throws(StorageError) { throw error } }
  var container: String? { get throws(StorageError) { throw error } }
  var sizeLimit: Int? {
    get { nil }
    set {}
  }
  func read(_ key: String) throws(StorageError) -> Payload? { throw error }
  func contains(_ key: String) throws(StorageError) -> Bool { throw error }
  func entry(_ key: String) throws(StorageError) -> DiskCache.Entry? { throw error }
  func path(_ key: String) throws(StorageError) -> String? { throw error }
  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, within lock: KeyLockBody
  ) throws(StorageError) { throw error }
  func startWriting(_ key: String) throws(StorageError) -> any CacheWriter { throw error }
  func remove(_ key: String, within lock: KeyLockBody) throws(StorageError) { throw error }
  func removeExpired() throws(StorageError) -> Int { throw error }
  func removeAll() throws(StorageError) { throw error }
  func keys() throws(StorageError) -> [String] { throw error }
  func totalSize() throws(StorageError) -> Int { throw error }
}
