internal import KeepsakeLibc

/// A thread of the library's own, for work that no caller waits for.
///
/// Not one of Dispatch's, which ends a program that has no descriptor left when it begins to wait
/// for anything.
enum BackgroundThread {
  private final class Work: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
  }

  /// Starts a thread that runs `body`; false where the system has none to give.
  static func start(_ body: @escaping @Sendable () -> Void) -> Bool {
    let work = Unmanaged.passRetained(Work(body))
    let isStarted = start(work)
    if !isStarted { work.release() }
    return isStarted
  }

  /// Blocks the calling thread for `duration`, even if signals arrive meanwhile.
  static func sleep(for duration: Duration) {
    let end = ContinuousClock.now + duration
    while true {
      let rest = end - ContinuousClock.now
      if rest <= .zero { return }
      usleep(UInt32(min(500_000, max(1, rest / .microseconds(1)))))
    }
  }

  private static func start(_ work: Unmanaged<Work>) -> Bool {
    var attributes = pthread_attr_t()
    guard pthread_attr_init(&attributes) == 0 else { return false }
    defer { pthread_attr_destroy(&attributes) }
    pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
    // Signals are for the program's own threads, but for those that tell of a fault: a thread
    // begins with the mask that its maker has then.
    var blocked = sigset_t()
    var own = sigset_t()
    sigfillset(&blocked)
    for fault in [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS, SIGPROF] {
      sigdelset(&blocked, fault)
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &own)
    defer { pthread_sigmask(SIG_SETMASK, &own, nil) }
    #if canImport(Darwin)
    var thread: pthread_t?
    return pthread_create(
      &thread, &attributes,
      { context in
        Unmanaged<Work>.fromOpaque(context).takeRetainedValue().body()
        return nil
      }, work.toOpaque()) == 0
    #else
    var thread = pthread_t()
    return pthread_create(
      &thread, &attributes,
      { context in
        if let context { Unmanaged<Work>.fromOpaque(context).takeRetainedValue().body() }
        return nil
      }, work.toOpaque()) == 0
    #endif
  }
}
