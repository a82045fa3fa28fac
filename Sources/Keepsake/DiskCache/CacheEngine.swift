internal import FoundationEssentials
internal import Synchronization

/// Keeps the entries of a cache store: in files or in memory.
///
/// An expired entry counts as missing for all calls.
protocol CacheEngine: AnyObject, Sendable {
  /// The directory of this cache; nil for a cache in memory.
  var directory: String? { get }
  /// The directory that holds all caches of the app; nil for a cache in memory.
  var parentDirectory: String? { get }
  var counts: CacheCounts { get }
  /// In bytes; nil for no limit.
  var sizeLimit: Int? { get set }

  func read(_ key: String) throws(StorageError) -> Payload?
  func contains(_ key: String) throws(StorageError) -> Bool
  func entry(_ key: String) throws(StorageError) -> DiskCache.Entry?
  /// The path of the payload file; nil if there is no entry, or if it is not in a file.
  func path(_ key: String) throws(StorageError) -> String?

  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError)
  /// Starts an entry that is written in pieces; it becomes visible when the writer finishes.
  func startWriting(_ key: String) throws(StorageError) -> any CacheWriter

  func remove(_ key: String, hook: CommitHook) throws(StorageError)
  /// Returns the number of entries that were removed.
  func removeExpired() throws(StorageError) -> Int
  func removeAll() throws(StorageError)
  func keys() throws(StorageError) -> [String]
  func totalSize() throws(StorageError) -> Int
}

/// Surrounds the step that makes a write or a removal visible, while the key is locked.
///
/// It decides whether to call `commit`, and what else has to happen before any other writer of the
/// key continues.
typealias CommitHook = (_ commit: () throws(StorageError) -> Void) throws(StorageError) -> Void

/// How an entry is stored.
struct WriteOptions: Sendable {
  let expiry: StoredExpiry
  /// Whether the entry has to survive a power cut once it is stored.
  let isDurable: Bool
}

/// Writes an entry in pieces; discards them if it is released before it has finished.
///
/// Its calls must not overlap.
protocol CacheWriter: AnyObject, Sendable {
  /// The number of bytes so far.
  var count: Int { get }
  func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError)
  func append(contentsOf file: File) throws(StorageError)
  func finish(_ options: WriteOptions, hook: CommitHook) throws(StorageError)
}

/// What ``DiskCache/Statistics`` reports, counted since the process started.
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

enum CacheSizeLimit {
  /// Throws for an entry that would have to be evicted at once.
  static func check(_ size: Int, within limit: Int?, path: String?) throws(StorageError) {
    guard let limit, size > limit else { return }
    throw StorageError(
      .misuse, operation: "set", path: path,
      reason: "the value takes \(size) bytes, more than the cache size limit of \(limit)",
      remedy: "Raise sizeLimit, or store a smaller value.")
  }

  /// The size in bytes down to which a cache evicts. It leaves room, so that not every set evicts.
  static func evictionTarget(of limit: Int) -> Int { limit / 10 * 9 }
}
