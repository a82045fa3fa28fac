internal import Synchronization

/// The open cache of a ``FileCache``, which ``OpenStores`` closes if it is idle.
///
/// It is an object of its own because ``OpenStores`` keeps a weak reference to it: the runtime then
/// counts references to the object in a slower way, and each call retains the ``FileCache``.
final class CurrentCache: FileHoldingStore {
  let cache = Locked<OpenCache?>(nil)
  /// Whether the cache was closed because other stores needed its descriptors.
  private let isClosedAsIdle = Atomic(false)

  var lastUse: Int64? { cache.withLockIfAvailable { $0?.lastUse ?? 0 } }

  /// Calls that are using the files keep them open until they end.
  func closeIdleFiles() -> Bool {
    // Released outside the lock.
    var idle: OpenCache?
    let isClosed = cache.withLockIfAvailable { cache in
      idle = cache
      cache = nil
      return true
    }
    if idle != nil { isClosedAsIdle.store(true, ordering: .relaxed) }
    return isClosed ?? false
  }

  /// Whether the cache was closed as idle since the last call.
  func takeIsClosedAsIdle() -> Bool { isClosedAsIdle.exchange(false, ordering: .relaxed) }
}
