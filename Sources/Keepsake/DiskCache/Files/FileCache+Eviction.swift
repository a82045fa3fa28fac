internal import Synchronization

extension FileCache {
  /// After something was stored: sees to it that the cache does not grow beyond its limit, and that
  /// it is looked through once a day. Far beyond the limit the caller waits.
  func keepTidy(_ session: CacheSession) {
    guard let ledger = session.ledger else { return }
    if WallClock.now.subtractingSaturated(ledger.lastSweep) > Self.sweepPause { tidyUp(session) }
    guard let sizeLimit else { return }
    let total = ledger.total
    if total.subtractingReportingOverflow(sizeLimit).partialValue > sizeLimit / 10 {
      evict(waits: true)
    } else if total > sizeLimit || !ledger.isCounted {
      evictSoon()
    }
  }

  static let sweepPause = 86_400 * WallClock.second

  func evictSoon() {
    // Whoever evicts looks again when it is through.
    if isEvictionDue.exchange(true, ordering: .sequentiallyConsistent) { return }
    BackgroundWork.run { [self] in evict(waits: false) }
  }

  /// Removes the least recently used entries until nine tenths of the limit are left.
  private func evict(waits: Bool) {
    do throws(StorageError) {
      // One thread at a time; what several processes do at once their look at the total keeps
      // apart.
      repeat {
        let result: Void? =
          if waits {
            try evicting.withLock(timeout: timeout) { _ throws(StorageError) in try evict() }
          } else {
            try evicting.withLockIfAvailable { _ throws(StorageError) in try evict() }
          }
        if result == nil { return }
      } while isEvictionDue.load(ordering: .sequentiallyConsistent)
    } catch {
      report(error.inContext(of: "evict", path: location.root))
    }
  }

  private func evict() throws(StorageError) {
    isEvictionDue.store(false, ordering: .sequentiallyConsistent)
    try retrying { () throws(StorageError) in
      // Never one that is made for it: nobody wants a cache back that was removed meanwhile.
      guard let sizeLimit, let session = try session(), let ledger = session.ledger else { return }
      for _ in 0..<3 {
        for directory in 0..<EntryName.directoryCount where ledger.size(of: directory).bytes == nil
        {
          try survey(directory, session, ledger)
        }
        guard ledger.total > sizeLimit else { return }
        try evict(session, ledger, limit: sizeLimit)
      }
    }
  }

  /// One pass: the entries of as many subdirectories as make a fair sample, oldest first; then of
  /// the next.
  private func evict(
    _ session: CacheSession, _ ledger: CacheLedger, limit: Int
  ) throws(StorageError) {
    let target = limit / 10 * 9
    let total = ledger.total
    let directories = try directoriesToSurvey(session, ledger)
    let start = Int.random(in: 0...directories.count)
    var batch: [Candidate] = []
    for (step, directory) in (directories[start...] + directories[..<start]).enumerated() {
      for entry in try survey(directory, session, ledger).entries {
        let sidecar = try FileSystem.status(
          entry.name.sidecarPath, in: session.directory, withTimes: true)
        guard let sidecar else { continue }
        batch.append(Candidate(entry.name, entry.payload, entry.footprint, sidecar, session.memory))
      }
      let isLast = step == directories.count - 1
      guard batch.count >= 10_000 || isLast else { continue }
      batch.sort { $0.used < $1.used }
      // What was used last stays, also if it alone is more than nine tenths.
      let goal = batch.last.map { $0.footprint > target ? limit : target } ?? target
      let size = batch.reduce(0) { $0 + $1.footprint }
      var surplus = size - Int(Double(size) * min(1, Double(goal) / Double(max(1, total))))
      for candidate in batch {
        guard surplus > 0, ledger.total > goal else { break }
        surplus -= try evict(candidate, session) ? candidate.footprint : 0
      }
      batch = []
    }
  }

  private struct Candidate {
    let name: EntryName
    let payload: FileStatus
    let footprint: Int
    let sidecar: FileStatus
    let used: Int64

    init(
      _ name: EntryName, _ payload: FileStatus, _ footprint: Int, _ sidecar: FileStatus,
      _ memory: EntryMemory
    ) {
      self.name = name
      self.payload = payload
      self.footprint = footprint
      self.sidecar = sidecar
      let used = max(sidecar.modified, memory.lastUse(of: name) ?? .min)
      // From the future, before the clock was set back: as good as unknown.
      self.used = used > WallClock.now + 60 * WallClock.second ? .min : used
    }
  }

  /// Removes an entry, unless it was used or written since it was chosen.
  private func evict(_ candidate: Candidate, _ session: CacheSession) throws(StorageError) -> Bool {
    let name = candidate.name
    let outcome = try session.withKeyLock(name, timeout: timeout) {
      (ledger: CacheLedger) throws(StorageError) -> Bool in
      let sidecar = try FileSystem.status(name.sidecarPath, in: session.directory, withTimes: true)
      let payload = try FileSystem.status(name.path, in: session.directory, withTimes: true)
      guard sidecar == candidate.sidecar, payload == candidate.payload else { return false }
      try removeFiles(name, session, ledger)
      return true
    }
    guard case .done(true) = outcome else { return false }
    counts.evictions.add(1, ordering: .relaxed)
    return true
  }
}
