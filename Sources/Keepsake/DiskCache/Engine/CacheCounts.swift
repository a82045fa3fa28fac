package import Synchronization

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
