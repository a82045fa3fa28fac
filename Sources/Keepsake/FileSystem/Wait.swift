/// How long a call may wait in all, for threads, processes and other programs.
struct Wait {
  let timeout: Duration
  private let start = CoarseClock.now

  init(timeout: Duration) { self.timeout = timeout }

  var rest: Duration { max(.zero, timeout - .nanoseconds(CoarseClock.now - start)) }
}
