internal import KeepsakeLibc
internal import Synchronization

/// What happens off the callers' path: syncing journals within a second and at exit, compaction,
/// and tidying up caches.
enum BackgroundWork {
  private struct Job {
    let due: ContinuousClock.Instant
    let work: @Sendable () -> Void
    /// Whether a normal exit waits for it.
    let isAwaited: Bool
  }

  private struct State {
    var generation = ForkGuard.generation
    var jobs: [Job] = []
    var threadCount = 0
    /// Whether a thread waits for what is due next: one is enough.
    var isAnyWaiting = false
    var unsynced: [(sync: @Sendable () -> Void, syncAtExit: @Sendable () -> Void)] = []
    var hasExitHook = false
  }

  private static let state = Locked(State())
  /// Enough for work that waits for the disk, and no more however much there is.
  private static let mostThreads = 4
  /// What is to come sooner than what a thread waits for is looked for as often.
  private static let glance = Duration.milliseconds(25)

  /// How much goes on that a normal exit waits for: else a program that is started often and runs
  /// for a moment would never get to the end of a compaction.
  private static let running = Atomic(0)
  private static let longestWaitAtExit = Duration.seconds(2)

  /// Runs `work` soon, and never on the caller's thread, which may hold what it needs. Only in a
  /// forked child, which may have no use for threads, it runs at once.
  static func run(_ work: @escaping @Sendable () -> Void) {
    if ForkGuard.isForkedChild { return work() }
    running.add(1, ordering: .sequentiallyConsistent)
    add(Job(due: .now, work: carryingTaskLocals(work), isAwaited: true))
  }

  /// Runs `work` after a while, unless the process has ended by then.
  static func run(after pause: Duration, _ work: @escaping @Sendable () -> Void) {
    guard !ForkGuard.isForkedChild else { return }
    add(Job(due: .now + pause, work: carryingTaskLocals(work), isAwaited: false))
  }

  /// Runs `sync` about a second from now, together with all others that are due by then.
  ///
  /// - Parameter syncAtExit: Runs in its place if the process exits first. It must not wait for a
  ///   lock: a thread that was stopped at exit may hold it.
  static func syncSoon(
    _ sync: @escaping @Sendable () -> Void, atExit syncAtExit: @escaping @Sendable () -> Void
  ) {
    let isFirst = state.withLock { state in
      if state.generation != ForkGuard.generation {
        state.generation = ForkGuard.generation
        state.unsynced = []  // the parent's
      }
      state.unsynced.append((carryingTaskLocals(sync), syncAtExit))
      installExitHook(&state)
      return state.unsynced.count == 1
    }
    if ForkGuard.isForkedChild {
      syncNow()
    } else if isFirst {
      run(after: .seconds(1)) { syncNow() }
    }
  }

  private static func syncNow() {
    let unsynced = state.withLock { state in
      // From here on the exit hook does not find them in the list.
      running.add(1, ordering: .sequentiallyConsistent)
      defer { state.unsynced = [] }
      return state.unsynced
    }
    defer { running.subtract(1, ordering: .sequentiallyConsistent) }
    for (sync, _) in unsynced { sync() }
  }

  // MARK: Threads

  private static func add(_ job: Job) {
    let needsThread = state.withLock { state in
      installExitHook(&state)
      state.jobs.append(job)
      guard state.threadCount < mostThreads else { return false }
      state.threadCount += 1
      return true
    }
    // Where there is none to be had the job waits for the next one that comes.
    if needsThread, !BackgroundThread.start({ work() }) { state.withLock { $0.threadCount -= 1 } }
  }

  private enum Next {
    case job(Job)
    case wait(Duration)
    case nothing
  }

  private static func work() {
    while true {
      switch state.withLock({ next(&$0) }) {
      case .job(let job):
        job.work()
        if job.isAwaited { running.subtract(1, ordering: .sequentiallyConsistent) }
      case .wait(let pause):
        BackgroundThread.sleep(for: pause)
        state.withLock { $0.isAnyWaiting = false }
      case .nothing: return
      }
    }
  }

  private static func next(_ state: inout State) -> Next {
    let now = ContinuousClock.now
    let first = state.jobs.indices.min { state.jobs[$0].due < state.jobs[$1].due }
    if let first, state.jobs[first].due <= now { return .job(state.jobs.remove(at: first)) }
    if let first, !state.isAnyWaiting {
      state.isAnyWaiting = true
      return .wait(min(state.jobs[first].due - now, glance))
    }
    state.threadCount -= 1
    return .nothing
  }

  // MARK: The end

  private static func installExitHook(_ state: inout State) {
    if state.hasExitHook { return }
    state.hasExitHook = true
    atexit { BackgroundWork.workAtExit() }
  }

  /// Waits for no lock: a thread that was stopped in the middle may hold any.
  private static func workAtExit() {
    let end = ContinuousClock.now + longestWaitAtExit
    while !ForkGuard.isForkedChild, running.load(ordering: .sequentiallyConsistent) > 0,
      ContinuousClock.now < end
    {
      usleep(500)
    }
    let unsynced = state.withLockIfAvailable { state in
      state.generation == ForkGuard.generation ? state.unsynced : []
    }
    for (_, syncAtExit) in unsynced ?? [] { syncAtExit() }
  }
}
