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
    guard let sizeLimit, eviction.mayRun else { return }
    let (totalSize, isSizeKnown) = ledger.totalSize
    if totalSize.subtractingReportingOverflow(sizeLimit).partialValue > sizeLimit / 10 {
      let bytes = cache.footprint(size: added, sidecar: Sidecar.headerSize)
      // The eviction in the background fails as well, and reports it.
      try? cache.evict(bytes: 2 * bytes, toFit: sizeLimit)
    }
    if totalSize > sizeLimit || !isSizeKnown { evictInBackground() }
  }

  /// Deletes emptied subdirectories, and continues the daily sweep if it is due.
  ///
  /// - Parameter forWriting: Whether to start for the sweep alone. Reads leave it to writes.
  func cleanUpInBackground(_ cache: OpenCache, forWriting: Bool = true) {
    guard let ledger = cache.ledger else { return }
    do throws(StorageError) {
      // Checked here, because there are hardly ever any, to avoid starting a thread for nothing.
      if !forWriting || !isSweepDue(ledger), try cache.trash().isEmpty { return }
    } catch {
      return report(error.inContext(of: "sweep", path: paths.directory))
    }
    start(sweep) { [self] () throws(StorageError) in
      guard let cache = try openCache(), let ledger = cache.ledger else { return }
      // Another process may have swept since.
      if isSweepDue(ledger) {
        _ = try cache.sweep(from: ledger.nextSweepStart)
      } else {
        try cache.deleteTrash()
      }
    }
  }

  /// Counts the subdirectories again whose sizes may be wrong: an earlier process was killed before
  /// it recorded a change, or this or another one could not record it.
  func countInBackground(_ cache: OpenCache) {
    if cache.ledger?.mayBeWrong != true { return }
    start(count) { [self] () throws(StorageError) in
      guard let cache = try openCache() else { return }
      cache.isCountDue.store(false, ordering: .relaxed)
      try cache.countAgain()
    }
  }

  /// If several processes evict at the same time, each stops once the total size is small enough.
  func evictInBackground() {
    start(eviction) { [self] () throws(StorageError) in
      try retryingIfRemoved { () throws(StorageError) in
        // A cache that was removed in the meantime is not created again for this.
        if sizeLimit != nil { try openCache()?.evict { sizeLimit } }
      }
    }
  }

  private func start(
    _ job: MaintenanceJob, _ work: @escaping @Sendable () throws(StorageError) -> Void
  ) {
    if !job.request() { return }
    BackgroundWork.run { [self] in
      job.run(work) { report($0.inContext(of: job.operation, path: paths.directory)) }
    }
  }
}
