/// Keeps the entries of a cache store: in files or in memory.
///
/// An expired entry counts as missing for all calls.
package protocol CacheEngine: AnyObject, Sendable {
  /// The directory of this cache; nil for a cache in memory.
  var directory: String? { get }
  var counts: CacheCounts { get }
  /// In bytes; nil for no limit.
  var sizeLimit: Int? { get set }

  func read(_ key: String) throws(StorageError) -> Payload?
  /// Finds what a fetch can use. This includes an entry that is kept after its expiry and, with
  /// `noValue`, a record that there is no value. Counts neither a hit nor a miss.
  ///
  /// - Parameters:
  ///   - key: The key of the entry.
  ///   - noValue: Whether to find such a record.
  ///   - tags: Whether the tags of an entry that has not expired are needed.
  func find(_ key: String, noValue: Bool, tags: Bool) throws(StorageError) -> CacheLookup
  /// The value of an entry, to be read in pieces; nil if there is none.
  func openChunks(_ key: String) throws(StorageError) -> ChunkSource?
  func contains(_ key: String) throws(StorageError) -> Bool
  func entry(_ key: String) throws(StorageError) -> DiskCache.Entry?
  /// The path of the payload file; nil if there is no entry, or if it is not in a file.
  func path(_ key: String) throws(StorageError) -> String?

  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError)
  /// Starts an entry that is written in pieces; it becomes visible when the writer finishes.
  func startWriting(_ key: String) throws(StorageError) -> any CacheWriter

  /// Records that there is no value.
  func writeNoValue(
    forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError)
  /// Gives a stale entry new properties without writing its value again.
  ///
  /// - Returns: Whether it was done; false if the entry has been replaced in the meantime.
  func renew(
    _ stale: CachedEntry, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) -> Bool

  func remove(
    _ key: String, by production: SharedProduction?, hook: CommitHook
  ) throws(StorageError)
  /// Returns the number of entries that were removed.
  func removeExpired() throws(StorageError) -> Int
  func removeAll() throws(StorageError)
  func keys() throws(StorageError) -> [String]
  func totalSize() throws(StorageError) -> Int

  /// Makes the turn of a fetch, which begins to wait now; nil for a cache of one machine.
  func makeTurn(_ key: String) -> (any FetchTurn)?
}

extension CacheEngine {
  package func makeTurn(_ key: String) -> (any FetchTurn)? { nil }
}
