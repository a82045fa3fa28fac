internal import Keepsake

/// One of a link's two connections, and when to make it again after it has ended.
struct ReconnectingConnection {
  typealias Instant = ContinuousClock.Instant

  var connection: Connection?
  /// When to connect; nil if that has begun, or no connection is needed.
  var nextAttempt: Instant?
  /// When the attempt fails that waits for what it needs; nil if none does.
  var preparationDeadline: Instant?
  /// Whether a thread finds out what is needed. It may be for an attempt that has failed since.
  var isPreparing = false
  private var lastAttempt: Instant?
  /// Since when the connection has been ready.
  private var readySince: Instant?
  /// How many connections were lost, or could not be made, since one that lasted.
  private var failureCount = 0

  /// A connection that lasted this long shows that the server is well.
  private static let stableTime = Duration.seconds(1)

  var isReady: Bool { connection?.isReady ?? false }

  /// Whether there is no connection, and none is being made.
  var isIdle: Bool { connection == nil && preparationDeadline == nil }

  /// Begins an attempt.
  ///
  /// - Returns: Whether to start a thread that finds out what is needed.
  mutating func prepare(until deadline: Instant) -> Bool {
    preparationDeadline = deadline
    nextAttempt = nil
    lastAttempt = .now
    readySince = nil
    defer { isPreparing = true }
    return !isPreparing
  }

  mutating func begin(_ connection: Connection) {
    self.connection = connection
    nextAttempt = nil
    preparationDeadline = nil
    readySince = nil
  }

  mutating func noteReady() { readySince = .now }

  /// Plans the next attempt. Returns whether to make it at once; only the first attempt after a
  /// connection that worked is.
  mutating func scheduleAttempt(_ options: LinkOptions, isAtOnce: Bool) -> Bool {
    let now = ContinuousClock.now
    if let readySince, now - readySince >= Self.stableTime { failureCount = 0 }
    defer { failureCount += 1 }
    connection = nil
    preparationDeadline = nil
    if isAtOnce, readySince != nil, failureCount == 0 {
      nextAttempt = now
      return true
    }
    let bound = min(options.maximumBackoff, options.minimumBackoff * (1 << min(failureCount, 16)))
    nextAttempt = now + bound * Double.random(in: 0...1)
    return false
  }

  /// Makes the next attempt earlier because it is needed, unless the last one was just made.
  ///
  /// - Returns: Whether it did.
  mutating func hurry() -> Bool {
    let now = ContinuousClock.now
    guard let next = nextAttempt, next > now, lastAttempt.map({ now - $0 >= .seconds(1) }) ?? true
    else { return false }
    nextAttempt = now
    return true
  }
}
