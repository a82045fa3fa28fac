internal import FoundationEssentials
package import Synchronization

/// Keeps the entries of a cache store: in files or in memory.
///
/// An expired entry counts as missing for all calls.
package protocol CacheEngine: AnyObject, Sendable {
  /// The directory of this cache; nil for a cache in memory.
  var directory: String? { get }
  /// The directory that holds all caches of the app; nil for a cache in memory.
  var parentDirectory: String? { get }
  var counts: CacheCounts { get }
  /// In bytes; nil for no limit.
  var sizeLimit: Int? { get set }

  func read(_ key: String) throws(StorageError) -> Payload?
  /// Finds what a fetch can use: also an entry that is kept after its expiry, and with `noValue` a
  /// record that there is no value. Counts neither a hit nor a miss.
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

  /// Records, in place of the value, that there is none.
  func writeNoValue(
    forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError)
  /// Stores an entry that was found stale again without its value, which lives on.
  ///
  /// - Returns: Whether the entry is still that one.
  func renew(
    _ stale: CachedEntry, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) -> Bool

  func remove(_ key: String, by author: ChangeAuthor, hook: CommitHook) throws(StorageError)
  /// Returns the number of entries that were removed.
  func removeExpired() throws(StorageError) -> Int
  func removeAll() throws(StorageError)
  func keys() throws(StorageError) -> [String]
  func totalSize() throws(StorageError) -> Int
}

extension CacheEngine {
  package func remove(_ key: String, hook: CommitHook) throws(StorageError) {
    try remove(key, by: .caller, hook: hook)
  }
}

/// The author of a change to an entry. Only a cache that machines share tells authors apart.
package enum ChangeAuthor: Sendable {
  /// A call that sets or removes the entry: from now on no machine may use the old one.
  case caller
  /// A fetch; nil in a cache of one machine.
  case producer(SharedProduction?)
}

/// A producer that runs for a cache that machines share.
package struct SharedProduction: Sendable {
  /// nil to store the value on this machine alone.
  package let lease: CacheLease?
  /// When the producer began, as the cache counts what happens to it.
  package let began: UInt64

  package init(lease: CacheLease?, began: UInt64) {
    self.lease = lease
    self.began = began
  }
}

/// The right to produce the value of a key for all machines.
package struct CacheLease: Hashable, Sendable {
  package let key: String
  /// Tells it from any other lease.
  package let token: UInt64
  /// Common to all leases of the key until it is changed.
  package let production: UInt64

  package init(key: String, token: UInt64, production: UInt64) {
    self.key = key
    self.token = token
    self.production = production
  }
}

/// Surrounds the step that makes a write or a removal visible, while the key is locked.
///
/// It decides whether to call `commit`, and what else has to happen before any other writer of the
/// key continues.
package typealias CommitHook =
  (_ commit: () throws(StorageError) -> Void) throws(StorageError) -> Void

/// How an entry is stored.
package struct WriteOptions: Sendable {
  package let expiry: StoredExpiry
  /// Whether the entry has to survive a power cut once it is stored.
  package let isDurable: Bool
  package let details: EntryDetails?
  package let author: ChangeAuthor
  /// Asked while the key is locked: if false, nothing is stored. nil for true.
  let condition: (@Sendable () -> Bool)?

  package init(
    expiry: StoredExpiry, details: EntryDetails? = nil, isDurable: Bool,
    by author: ChangeAuthor = .caller, if condition: (@Sendable () -> Bool)? = nil
  ) {
    self.expiry = expiry
    self.details = details
    self.isDurable = isDurable
    self.author = author
    self.condition = condition
  }

  var isStillWanted: Bool { condition?() ?? true }

  /// nil if the entry would expire at once and not be kept.
  init?(
    _ expiry: DiskCache.Expiry, _ details: EntryDetails? = nil, isDurable: Bool,
    by author: ChangeAuthor = .caller
  ) {
    let now = WallClock.now
    if let expiry = StoredExpiry(expiry, now: now) {
      self.init(expiry: expiry, details: details, isDurable: isDurable, by: author)
    } else if let details, details.kept > 0 {
      self.init(expiry: .at(now), details: details, isDurable: isDurable, by: author)
    } else {
      return nil
    }
  }
}

/// What a fetch finds.
package enum FoundEntry: Sendable {
  case missing
  /// A record that there is no value.
  case noValue
  case fresh(CachedEntry)
  /// It has expired and is kept.
  case stale(CachedEntry)
}

/// An entry as a fetch finds it.
package struct CachedEntry: Sendable {
  package let payload: Payload
  /// In nanoseconds since 1970.
  let created: Int64
  /// Likewise, of one that has expired.
  let expires: Int64
  /// Empty if they were not asked for.
  package let tags: [String: String]
  /// That of one that has expired. See ``EntryDetails/version``.
  var version: EntryVersion?

  package init(
    payload: Payload, created: Int64, expires: Int64 = .max, tags: [String: String],
    version: EntryVersion? = nil
  ) {
    self.payload = payload
    self.created = created
    self.expires = expires
    self.tags = tags
    self.version = version
  }
}

/// What was found in a cache.
package struct CacheLookup: Sendable {
  package let found: FoundEntry
  /// Whether the server of a cache that machines share was asked for the value.
  package let isFromServer: Bool

  package init(_ found: FoundEntry, isFromServer: Bool = false) {
    self.found = found
    self.isFromServer = isFromServer
  }
}

/// Writes an entry in pieces; discards them if it is released before it has finished.
///
/// Its calls must not overlap.
package protocol CacheWriter: AnyObject, Sendable {
  /// The number of bytes so far.
  var count: Int { get }
  func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError)
  func append(contentsOf file: File) throws(StorageError)
  func finish(_ options: WriteOptions, hook: CommitHook) throws(StorageError)
}

/// What ``DiskCache/Statistics`` reports, counted since the process started.
package final class CacheCounts: Sendable {
  let hits = Atomic(0)
  let misses = Atomic(0)
  let coalesced = Atomic(0)
  let evictions = Atomic(0)
  package let damaged = Atomic(0)
  let sharedHits = Atomic(0)
  let sharedMisses = Atomic(0)

  /// Counts a hit or a miss.
  package func add(_ result: CacheLookup) {
    switch result.found {
    case .fresh, .noValue: add(isHit: true, isFromServer: result.isFromServer)
    case .stale, .missing: add(isHit: false, isFromServer: result.isFromServer)
    }
  }

  package func add(isHit: Bool, isFromServer: Bool = false) {
    if isHit {
      hits.add(1, ordering: .relaxed)
      if isFromServer { sharedHits.add(1, ordering: .relaxed) }
    } else {
      misses.add(1, ordering: .relaxed)
      if isFromServer { sharedMisses.add(1, ordering: .relaxed) }
    }
  }

  func addCoalesced() { coalesced.add(1, ordering: .relaxed) }

  var current: DiskCache.Statistics {
    DiskCache.Statistics(
      hits: hits.load(ordering: .relaxed), misses: misses.load(ordering: .relaxed),
      coalesced: coalesced.load(ordering: .relaxed),
      evictions: evictions.load(ordering: .relaxed), damaged: damaged.load(ordering: .relaxed),
      sharedHits: sharedHits.load(ordering: .relaxed),
      sharedMisses: sharedMisses.load(ordering: .relaxed))
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
