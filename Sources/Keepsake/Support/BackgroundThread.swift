internal import CKeepsake
internal import KeepsakeLibc

/// The library's own threads, which `top -H` shows by name.
///
/// Not Dispatch threads: Swift's tasks share those, so that work which waits would stall the tasks
/// of the program. Dispatch also aborts a program that has no descriptors left when a thread starts
/// to wait.
package enum BackgroundThread {
  package enum Name: String, Sendable {
    /// Work that may wait; see ``WorkerPool``.
    case work = "keepsake-io"
    /// Syncs, compactions and sweeps; see ``BackgroundWork``.
    case maintenance = "keepsake-bg"
    /// Changes of files; see ``FileWatcher``.
    case watcher = "keepsake-watch"
    /// The connections to a server; see `Link` of KeepsakeValkey.
    case link = "keepsake-link"
  }

  private final class Work: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
  }

  /// Starts a thread that runs `body`; false if the system cannot create one.
  package static func start(_ name: Name, _ body: @escaping @Sendable () -> Void) -> Bool {
    let work = Unmanaged.passRetained(
      Work {
        keepsake_name_thread(name.rawValue)
        body()
      })
    let isStarted = start(work)
    if !isStarted { work.release() }
    return isStarted
  }

  /// The code of the error when the system allows no more threads.
  package static let limitError = EAGAIN

  /// Blocks the calling thread for `duration`, even if signals arrive in the meantime.
  package static func sleep(for duration: Duration) {
    let end = ContinuousClock.now + duration
    while true {
      let rest = end - ContinuousClock.now
      if rest <= .zero { return }
      usleep(UInt32(min(500_000, max(1, rest / .microseconds(1)))))
    }
  }

  /// Enough for the caller's closures, for example to decode JSON. Some systems give less.
  private static let minimumStackSize = 1 << 20

  private static func start(_ work: Unmanaged<Work>) -> Bool {
    var attributes = pthread_attr_t()
    guard pthread_attr_init(&attributes) == 0 else { return false }
    defer { pthread_attr_destroy(&attributes) }
    var stackSize = 0
    pthread_attr_getstacksize(&attributes, &stackSize)
    if stackSize < minimumStackSize { pthread_attr_setstacksize(&attributes, minimumStackSize) }
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
    #else
    var thread = pthread_t()
    #endif
    return pthread_create(&thread, &attributes, { BackgroundThread.run($0) }, work.toOpaque()) == 0
  }

  private static func run(_ work: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    if let work { Unmanaged<Work>.fromOpaque(work).takeRetainedValue().body() }
    return nil
  }

  // MARK: What threads do

  /// The calling thread, as ``runnableCount(_:upTo:)`` knows it.
  static var currentID: Int32 { keepsake_thread_id() }

  /// How many processors the program may use.
  static let processorCount = Int(keepsake_processor_count())

  /// How many of the threads use a processor or wait for one; the rest wait for something else.
  ///
  /// Stops counting at `limit`. Threads whose state cannot be read are not counted.
  static func runnableCount(_ threads: some Sequence<Int32>, upTo limit: Int) -> Int {
    var count = 0
    for thread in threads where count < limit {
      if state(of: thread) == UInt8(ascii: "R") { count += 1 }
    }
    return count
  }

  /// The state in `/proc/<pid>/stat`, which follows the name in parentheses; nil if it is unknown.
  private static func state(of thread: Int32) -> UInt8? {
    let path = "/proc/self/task/\(thread)/stat"
    guard
      case .success(let number) = openDescriptor(
        .open, path, { Int(open(path, O_RDONLY | O_CLOEXEC)) })
    else { return nil }
    let file = Int32(number)
    defer { close(file) }
    return withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { buffer in
      let count = read(file, buffer.baseAddress, buffer.count)
      guard count > 0 else { return nil }
      let text = UnsafeRawBufferPointer(rebasing: buffer[..<count])
      guard let end = text.lastIndex(of: UInt8(ascii: ")")), end + 2 < count else { return nil }
      return text[end + 2]
    }
  }
}
