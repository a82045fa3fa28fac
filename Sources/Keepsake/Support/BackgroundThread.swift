internal import KeepsakeLibc

/// Threads of the library, for work that no caller waits for.
///
/// Not Dispatch threads: Dispatch aborts a program that has no descriptors left when a thread
/// starts to wait.
enum BackgroundThread {
  private final class Work: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
  }

  /// Starts a thread that runs `body`; false if the system cannot create one.
  static func start(_ body: @escaping @Sendable () -> Void) -> Bool {
    let work = Unmanaged.passRetained(Work(body))
    let isStarted = start(work)
    if !isStarted { work.release() }
    return isStarted
  }

  /// The code of the error when the system allows no more threads.
  static let limitError = EAGAIN

  /// Blocks the calling thread for `duration`, even if signals arrive in the meantime.
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
    // Signals belong to the program's own threads, except those that report a fault of the thread
    // itself. A new thread inherits the signal mask of its creator.
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
