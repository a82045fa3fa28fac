internal import Synchronization

extension OpenCache {
  /// Removes the least recently used entries until nine tenths of the limit are left.
  ///
  /// - Parameter limit: The limit; nil if there is none any more.
  func evict(toFit limit: () -> Int?) throws(StorageError) {
    guard let ledger else { return }
    for _ in 0..<3 {
      for number in 0..<EntryName.directoryCount where ledger.size(of: number).bytes == nil {
        try CacheSubdirectory(cache: self, ledger: ledger, number: number).scan()
      }
      let size = recordedSize(ledger)
      // The limit after the size: what was stored under a raised limit is not evicted for the old.
      guard let limit = limit(), size > limit else { return }
      try evictOnce(toFit: limit, ledger)
    }
  }

  /// Takes as many subdirectories as make a fair sample, removes their oldest entries, and
  /// continues with the next subdirectories.
  private func evictOnce(toFit limit: Int, _ ledger: CacheLedger) throws(StorageError) {
    let target = CacheSizeLimit.evictionTarget(of: limit)
    let totalSize = recordedSize(ledger)
    let subdirectories = try subdirectoriesToScan()
    let start = Int.random(in: 0...subdirectories.count)
    var sample: [EvictionCandidate] = []
    let rotated = subdirectories[start...] + subdirectories[..<start]
    for (step, subdirectory) in rotated.enumerated() {
      for entry in try subdirectory.scan().entries {
        let sidecar = try FileSystem.status(
          entry.name.sidecarPath, in: directory, withTimes: true)
        guard let sidecar else { continue }
        sample.append(
          EvictionCandidate(
            name: entry.name, payload: entry.payload, footprint: entry.footprint, sidecar: sidecar,
            lastUsed: lastUse(of: entry.name, entry.payload, sidecar)))
      }
      let isLast = step == subdirectories.count - 1
      guard sample.count >= 10_000 || isLast else { continue }
      sample.sort { $0.lastUsed < $1.lastUsed }
      // The last used entry is kept even if it alone exceeds nine tenths.
      let goal = sample.last.map { $0.footprint > target ? limit : target } ?? target
      let size = sample.reduce(0) { $0 + $1.footprint }
      var surplus = size - Int(Double(size) * min(1, Double(goal) / Double(max(1, totalSize))))
      for candidate in sample {
        guard surplus > 0, recordedSize(ledger) > goal else { break }
        surplus -= try evict(candidate) ? candidate.footprint : 0
      }
      sample = []
    }
  }

  private struct EvictionCandidate {
    let name: EntryName
    let payload: FileStatus
    let footprint: Int
    let sidecar: FileStatus
    let lastUsed: Int64
  }

  private func lastUse(
    of name: EntryName, _ payload: FileStatus, _ sidecar: FileStatus
  ) -> Int64 {
    // The kernel's time of the sidecar can be a timer tick before the exact times in memory. An
    // entry that was stored in that tick must not count as older than all that were read in it.
    let created = payload.canExpire ? .min : payload.accessed
    let lastUsed = max(sidecar.modified, created, verifiedEntries.lastUse(of: name) ?? .min)
    // A time in the future says nothing, because the clock has been set back since.
    return lastUsed > WallClock.now + 60 * WallClock.second ? .min : lastUsed
  }

  /// Removes an entry, unless it was used or written since it was chosen.
  ///
  /// - Returns: Whether it was removed.
  private func evict(_ candidate: EvictionCandidate) throws(StorageError) -> Bool {
    let name = candidate.name
    let isEvicted = try withKeyLock(name, timeout: timeout) {
      entry throws(StorageError) -> Bool in
      let sidecar = try FileSystem.status(name.sidecarPath, in: directory, withTimes: true)
      let payload = try FileSystem.status(name.path, in: directory, withTimes: true)
      guard sidecar == candidate.sidecar, payload == candidate.payload else { return false }
      try entry.remove()
      return true
    }
    guard isEvicted == true else { return false }
    counts.evictions.add(1, ordering: .relaxed)
    return true
  }
}
