internal import FoundationEssentials
internal import Synchronization

/// What a cache store needs of whatever keeps its entries: files, memory, or nothing at all.
protocol CacheEngine: AnyObject, Sendable {
  /// The directory of the cache; nil without one.
  var directory: String? { get throws(StorageError) }
  /// The directory that holds the app's caches; nil without one.
  var container: String? { get throws(StorageError) }
  var counts: CacheCounts { get }
  /// In bytes; nil for none.
  var sizeLimit: Int? { get set }

  /// nil when nothing is stored, or not any more. An expired entry is as good as none for all
  /// calls.
  func read(_ key: String) throws(StorageError) -> Payload?
  func contains(_ key: String) throws(StorageError) -> Bool
  func entry(_ key: String) throws(StorageError) -> DiskCache.Entry?
  /// The payload's file; nil when nothing is stored, or not in a file.
  func path(_ key: String) throws(StorageError) -> String?

  /// Stores an entry; `lock` is called while no other writer of the key can come between, with what
  /// puts it in its place.
  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, within lock: KeyLockBody
  ) throws(StorageError)
  /// Starts an entry that comes in pieces; nothing is to be seen of it before the end.
  func startWriting(_ key: String) throws(StorageError) -> any CacheWriter

  func remove(_ key: String, within lock: KeyLockBody) throws(StorageError)
  /// Returns how many entries it removed.
  func removeExpired() throws(StorageError) -> Int
  func removeAll() throws(StorageError)
  func keys() throws(StorageError) -> [String]
  func totalSize() throws(StorageError) -> Int
}

/// Decides, when no other writer of a key can come between, whether to go on with what it is given.
typealias KeyLockBody = (_ goOn: () throws(StorageError) -> Void) throws(StorageError) -> Void

/// How an entry is to be stored.
struct WriteOptions: Sendable {
  let lifespan: Lifespan
  /// Whether it is to survive a power cut once it is stored.
  let isDurable: Bool
}

/// An entry on its way into a cache; given up when it is let go before it is finished.
///
/// For one caller at a time.
protocol CacheWriter: AnyObject, Sendable {
  var count: Int { get }
  func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError)
  func append(contentsOf file: File) throws(StorageError)
  func finish(_ options: WriteOptions, within lock: KeyLockBody) throws(StorageError)
}

/// Hits and misses since the process started.
final class CacheCounts: Sendable {
  let hits = Atomic(0)
  let misses = Atomic(0)
  let evictions = Atomic(0)
  let damaged = Atomic(0)

  var current: DiskCache.Statistics {
    DiskCache.Statistics(
      hits: hits.load(ordering: .relaxed), misses: misses.load(ordering: .relaxed),
      evictions: evictions.load(ordering: .relaxed), damaged: damaged.load(ordering: .relaxed))
  }
}

extension DiskCache {
  /// Refuses what could not stay.
  static func require(_ size: Int, toFit limit: Int?, path: String?) throws(StorageError) {
    guard let limit, size > limit else { return }
    throw StorageError(
      .misuse, operation: "set", path: path,
      reason: "it takes \(size) bytes, more than the cache's size limit of \(limit)",
      remedy: "Raise the limit, or store less.")
  }
}
