/// How long a call may wait in all, for threads, processes and other programs.
struct Wait {
  let timeout: Duration
  private let start = CoarseClock.now

  init(timeout: Duration) { self.timeout = timeout }

  var passed: Duration { .nanoseconds(CoarseClock.now - start) }

  /// Whether a tenth of a second has passed. Comparing durations takes longer than the clock.
  var isLong: Bool { CoarseClock.now - start > 100_000_000 }
}
