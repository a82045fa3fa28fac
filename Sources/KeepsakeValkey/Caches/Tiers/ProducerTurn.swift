internal import Keepsake

/// The attempt of one fetch to be the only one that produces a value, on any machine. On one
/// machine, ``InFlightFetches`` sees to that.
final class ProducerTurn: FetchTurn {
  private struct State: Sendable {
    var production: SharedProduction?
    var isElsewhere = false
  }

  private let tiers: TieredCache
  private let key: String
  private let start: ContinuousClock.Instant
  private let state = Locked(State())

  /// - Parameter start: Since when the fetch waits.
  init(_ tiers: TieredCache, _ key: String, since start: ContinuousClock.Instant = .now) {
    self.tiers = tiers
    self.key = key
    self.start = start
  }

  /// nil until the producer may run.
  var production: SharedProduction? { state.withLock { $0.production } }
  /// Whether another machine was found to produce the value.
  var isElsewhere: Bool { state.withLock { $0.isElsewhere } }

  /// Begins, or waits for the machine that has begun.
  ///
  /// - Parameters:
  ///   - version: That of the entry that was found.
  ///   - waits: Whether to wait.
  /// - Returns: Whether to produce the value; if not, look again.
  /// - Throws: `CancellationError`.
  func begin(
    knowing version: EntryVersion?, waits: Bool, isolation: isolated (any Actor)? = #isolation
  ) async throws -> Bool {
    func begin(_ lease: CacheLease? = nil) {
      let production = SharedProduction(
        lease: lease, began: tiers.withKnown { $0.now() })
      state.withLock { $0.production = production }
    }
    if let production {
      // The producer knows the changes that the second look-up has found.
      begin(production.lease)
      return true
    }
    // A producer that fetches in turn may wait for itself, which only this machine notices.
    let isNested = !InFlightFetches.producing.isEmpty
    if isNested, tiers.hasLease(of: key) {
      begin()
      return true
    }
    // Before the question, or a message could come between it and the wait.
    let ticket = tiers.waits.makeTicket(key)
    defer { tiers.waits.drop(ticket) }
    switch try await BlockingWork.run({ [tiers, key] in tiers.takeLease(key, knowing: version) }) {
    case .granted(let lease, let hasNews):
      begin(lease)
      return !hasNews
    case .busy(let time):
      // Two machines whose producers wait for each other must not do so for long, and a producer
      // that never ends must not keep all machines waiting.
      let rest = tiers.longestWait - (ContinuousClock.now - start)
      if isNested && isElsewhere || rest <= .zero {
        begin()
        return true
      }
      state.withLock { $0.isElsewhere = true }
      if waits { await tiers.waits.wait(for: ticket, atMost: min(time, rest)) }
      try Task.checkCancellation()
      return false
    case .unavailable:
      begin()
      return true
    }
  }

  /// Lets another machine begin, unless the value was stored.
  func end() {
    if let lease = production?.lease { tiers.release(lease) }
  }
}
