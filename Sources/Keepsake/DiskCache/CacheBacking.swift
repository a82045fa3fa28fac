/// A backing that keeps caches where several machines share them.
///
/// It makes their engines. A program without such a backing does not contain their code.
package protocol CacheBacking: StorageBacking {
  /// The engine of a cache that machines share; nil for a cache that stays on this machine.
  ///
  /// Not called for caches in memory or in a directory that the caller chose. The call does not
  /// wait.
  ///
  /// - Parameters:
  ///   - files: The entries of this machine.
  ///   - onFailure: Called with failures that no caller can be told about.
  func cacheEngine(
    over files: FileCache, of cache: DiskCache.Name, app: String,
    onFailure: @escaping @Sendable (StorageError) -> Void
  ) -> (any SharedCacheEngine)?
}

/// The engine of a cache that machines share.
package protocol SharedCacheEngine: CacheEngine {
  /// Makes the turn of a fetch, which begins to wait now.
  func makeTurn(_ key: String) -> any FetchTurn
}

/// The attempt of one fetch to be the only one that produces a value, on any machine.
package protocol FetchTurn: AnyObject, Sendable {
  /// nil until the producer may run.
  var production: SharedProduction? { get }
  /// Whether another machine was found to produce the value.
  var isElsewhere: Bool { get }

  /// Begins, or waits for the machine that has begun.
  ///
  /// - Parameters:
  ///   - version: The version of the entry that was found.
  ///   - waits: Whether to wait.
  /// - Returns: Whether to produce the value; if not, look again.
  /// - Throws: `CancellationError`.
  func begin(
    knowing version: EntryVersion?, waits: Bool, isolation: isolated (any Actor)?
  ) async throws -> Bool

  /// Lets another machine begin, unless the value was stored.
  func end()
}
