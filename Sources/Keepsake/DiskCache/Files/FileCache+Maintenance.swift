internal import Synchronization

/// Background work: daily sweeps and eviction.
extension FileCache {
  private static let sweepInterval = 86_400 * WallClock.second

  private func isSweepDue(_ ledger: CacheLedger) -> Bool {
    WallClock.now.subtractingSaturated(ledger.lastSweep) > Self.sweepInterval
  }

  /// Evicts and sweeps after a write if that is due, in the background.
  ///
  /// If the cache exceeds its size limit by more than a tenth, the writer itself removes twice as
  /// much as it has added, so that the cache shrinks however many write, and none of them waits.
  ///
  /// - Parameter added: The size of the payload.
  func maintain(_ cache: OpenCache, added: Int) {
    guard let ledger = cache.ledger else { return }
    if isSweepDue(ledger) { cleanUpInBackground(cache) }
    if cache.isCountDue.load(ordering: .relaxed) { countInBackground(cache) }
    guard let sizeLimit, mayEvict else { return }
    let (totalSize, isSizeKnown) = ledger.totalSize
    if totalSize.subtractingReportingOverflow(sizeLimit).partialValue > sizeLimit / 10 {
      let bytes = cache.footprint(size: added, sidecar: Sidecar.headerSize)
      // The eviction in the background fails as well, and reports it.
      try? cache.evict(bytes: 2 * bytes, toFit: sizeLimit)
    }
    if totalSize > sizeLimit || !isSizeKnown { evictInBackground() }
  }

  /// Deletes emptied subdirectories, and continues the daily sweep if it is due.
  func cleanUpInBackground(_ cache: OpenCache) {
    guard let ledger = cache.ledger else { return }
    do throws(StorageError) {
      // Checked here, because there are hardly ever any, to avoid starting a thread for nothing.
      if !isSweepDue(ledger), try cache.trash().isEmpty { return }
    } catch {
      return report(error.inContext(of: "sweep", path: paths.directory))
    }
    inBackground("sweep") { [self] () throws(StorageError) in
      _ = try sweepLock.withLockIfAvailable { _ throws(StorageError) in
        // Another thread may have swept since.
        if isSweepDue(ledger) {
          _ = try cache.sweep(from: ledger.nextSweepStart)
        } else {
          try cache.deleteTrash()
        }
      }
    }
  }

  /// Counts the subdirectories again whose sizes may be wrong: an earlier process was killed before
  /// it recorded a change, or this or another one could not record it.
  func countInBackground(_ cache: OpenCache) {
    if cache.ledger?.mayBeWrong != true { return }
    inBackground("count") { [self] () throws(StorageError) in
      // While another program holds the ledger, each write comes here.
      _ = try sweepLock.withLockIfAvailable { _ throws(StorageError) in
        cache.isCountDue.store(false, ordering: .relaxed)
        try cache.countAgain()
      }
    }
  }

  func inBackground(
    _ operation: String, _ work: @escaping @Sendable () throws(StorageError) -> Void
  ) {
    BackgroundWork.run { [self] in
      do throws(StorageError) {
        try work()
      } catch  where error.code == .notFound {
        // The cache was emptied in the meantime.
      } catch {
        report(error.inContext(of: operation, path: paths.directory))
      }
    }
  }

  func evictInBackground() {
    // A running eviction checks this flag when it has finished.
    if isEvictionDue.exchange(true, ordering: .sequentiallyConsistent) { return }
    BackgroundWork.run { [self] in evict() }
  }

  /// Evicts entries, in one thread of this process at a time.
  ///
  /// If several processes evict at the same time, each stops once the total size is small enough.
  @inline(never)
  private func evict() {
    repeat {
      let result = evictionLock.withLockIfAvailable { _ -> StorageError? in
        isEvictionDue.store(false, ordering: .sequentiallyConsistent)
        return evictOnce()
      }
      guard let failure = result else { return }
      if let failure { report(failure.inContext(of: "evict", path: paths.directory)) }
    } while isEvictionDue.load(ordering: .sequentiallyConsistent)
  }

  /// False for a second after an eviction has failed: each set would try it again.
  private var mayEvict: Bool {
    let age = WallClock.now.subtractingSaturated(lastFailedEviction.load(ordering: .relaxed))
    return !(0..<WallClock.second).contains(age)
  }

  /// Returns the failure.
  private func evictOnce() -> StorageError? {
    // Another thread may have failed while this one waited for the lock.
    guard mayEvict else { return nil }
    do throws(StorageError) {
      try retryingIfRemoved { () throws(StorageError) in
        // A cache that was removed in the meantime is not created again for this.
        if sizeLimit != nil { try openCache()?.evict { sizeLimit } }
      }
      return nil
    } catch {
      lastFailedEviction.store(WallClock.now, ordering: .relaxed)
      return error
    }
  }
}
