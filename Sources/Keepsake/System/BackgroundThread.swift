#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A thread for one piece of work that no caller waits for.
///
/// Not Dispatch's, which ends a program that has no descriptor left when it begins to wait for anything.
enum BackgroundThread {
  private final class Work: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
  }

  /// Runs `body` after `pause`; here and at once where the system has no thread to give.
  static func run(after pause: Duration = .zero, _ body: @escaping @Sendable () -> Void) {
    let work = Unmanaged.passRetained(
      Work {
        if pause > .zero { Tick.wait(pause) }
        body()
      })
    if start(work) { return }
    work.release()
    body()
  }

  private static func start(_ work: Unmanaged<Work>) -> Bool {
    var attributes = pthread_attr_t()
    guard pthread_attr_init(&attributes) == 0 else { return false }
    defer { pthread_attr_destroy(&attributes) }
    pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
    // Signals are for the program's own threads; a thread begins with those that its maker holds off.
    var all = sigset_t()
    var own = sigset_t()
    sigfillset(&all)
    pthread_sigmask(SIG_SETMASK, &all, &own)
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
