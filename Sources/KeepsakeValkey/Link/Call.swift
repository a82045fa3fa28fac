internal import Keepsake

/// One request of a caller: commands that are sent one after the other, and their replies.
///
/// Unchecked because its variables are only used under the lock of the link.
final class Call: @unchecked Sendable {
  typealias Outcome = Result<[Reply], StorageError>

  let commands: [Command]
  let byteCount: Int
  /// Whether no command changes anything.
  let isRead: Bool
  let start: ContinuousClock.Instant
  /// How long its caller waits while nothing arrives, besides the ``Command/waitTime`` of the
  /// command whose reply is next.
  let timeout: Duration
  /// When its caller stops waiting, whatever arrives.
  let limit: ContinuousClock.Instant
  /// What the caller's thread waits for, if there is no completion.
  let condition = Condition()
  /// Called on the link's thread. nil if a thread waits.
  let completion: (@Sendable (Outcome) -> Void)?

  var replies: [Reply] = []
  /// When it was passed to a connection, and the positions in the connection's output before the
  /// first command, after it, and after the last one; nil until then.
  var sent: (time: ContinuousClock.Instant, start: UInt64, firstEnd: UInt64, lastEnd: UInt64)?
  /// Whether it waits for its second connection, because nothing was sent over the first one.
  var isRepeated = false
  var outcome: Outcome?

  init(
    _ commands: [Command], timeout: Duration, replyTime: Duration,
    completion: (@Sendable (Outcome) -> Void)?
  ) {
    self.commands = commands
    byteCount = commands.reduce(0) { $0 + $1.byteCount }
    isRead = commands.allSatisfy(\.isRead)
    start = .now
    // No sum of the two overflows.
    self.timeout = min(timeout, .seconds(86_400))
    limit = commands.reduce(start + max(replyTime, self.timeout * 20)) { $0 + $1.waitTime }
    self.completion = completion
  }

  /// Whether a thread waits for it.
  var hasWaiter: Bool { outcome == nil && completion == nil }

  /// When its caller stops waiting if nothing arrives before.
  var expiry: ContinuousClock.Instant { start + timeout }
}
