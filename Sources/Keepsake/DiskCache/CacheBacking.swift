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
  ) -> (any CacheEngine)?
}
