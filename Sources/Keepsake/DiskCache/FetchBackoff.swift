/// Spaces the attempts to produce values whose producers fail: the first after a second, each later
/// one after twice as long, up to a minute.
final class FetchBackoff: Sendable {
  private struct Failure {
    var count: Int
    /// When the next attempt is due, in nanoseconds since 1970.
    var nextAttempt: Int64
  }

  private static let longestDelay = 60 * WallClock.second
  private static let maximumCount = 1_000

  /// By the key's bytes.
  private let failures = Locked<[[UInt8]: Failure]>([:])

  /// Whether the producer of a key failed so recently that it should not run yet.
  func isWaiting(_ key: String) -> Bool {
    failures.withLock { failures in
      guard !failures.isEmpty, let failure = failures[Array(key.utf8)] else { return false }
      let rest = failure.nextAttempt.subtractingSaturated(WallClock.now)
      // A longer rest means that the clock was set back.
      return rest > 0 && rest <= Self.longestDelay
    }
  }

  func noteFailure(_ key: String) {
    failures.withLock { failures in
      let key = Array(key.utf8)
      let now = WallClock.now
      if failures.count >= Self.maximumCount, failures[key] == nil {
        failures = failures.filter { $0.value.nextAttempt > now }
        if failures.count >= Self.maximumCount { failures = [:] }
      }
      let count = (failures[key]?.count ?? 0) + 1
      let delay = min(WallClock.second << Int64(min(count - 1, 6)), Self.longestDelay)
      failures[key] = Failure(count: count, nextAttempt: now.addingSaturated(delay))
    }
  }

  func noteSuccess(_ key: String) {
    failures.withLock { failures in
      if !failures.isEmpty { failures[Array(key.utf8)] = nil }
    }
  }
}
