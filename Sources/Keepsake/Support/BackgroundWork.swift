internal import KeepsakeLibc
internal import Synchronization

/// Runs work that no caller waits for: syncing journals within a second and at exit, compacting
/// them, sweeping caches, and releasing leases at exit.
package enum BackgroundWork {
  private struct Job {
    let due: ContinuousClock.Instant
    let work: @Sendable () -> Void
    /// Whether the process waits for it before it exits.
    var delaysExit = false
    /// Whether it makes the pending syncs.
    var isSync = false
  }

  private struct State {
    var generation = ForkGuard.generation
    /// In the order in which they become due.
    var jobs: [Job] = []
    var threadCount = 0
    /// How many threads run a job that is no sync. It may take long.
    var occupiedCount = 0
    /// Whether a thread is waiting for the next job to become due; one is enough. A job that is
    /// added wakes it.
    var hasWaitingThread = false
    var pendingSyncs: [(sync: @Sendable () -> Void, syncAtExit: @Sendable () -> Void)] = []
    var exitWork: [@Sendable () -> Void] = []
    var hasExitHook = false
    var isShortageReported = false
  }

  private static let state = Locked(State())
  /// Enough for work that waits for the disk, however many jobs there are. One more makes syncs,
  /// which must not wait for other jobs.
  private static let maximumThreadCount = 4
  private static let jobIsAdded = Condition()

  /// The number of running jobs that a normal exit waits for. Otherwise a program that runs only
  /// for a moment, and often, would never finish a compaction.
  private static let unfinishedCount = Atomic(0)
  private static let maximumExitDelay = Duration.seconds(2)

  /// Runs `work` soon, on another thread because the caller may hold a lock that it needs. A forked
  /// child, which may not use threads, runs it at once.
  @inline(never)
  package static func run(_ work: @escaping @Sendable () -> Void) {
    if ForkGuard.isForkedChild { return work() }
    unfinishedCount.add(1, ordering: .sequentiallyConsistent)
    add(Job(due: .now, work: carryingTaskLocals(work), delaysExit: true))
  }

  /// Runs `work` after `delay`, unless the process has ended by then.
  @inline(never)
  package static func run(after delay: Duration, _ work: @escaping @Sendable () -> Void) {
    guard !ForkGuard.isForkedChild else { return }
    add(Job(due: .now + delay, work: carryingTaskLocals(work)))
  }

  /// Runs `work` on another thread when the process exits normally, which waits for it. A forked
  /// child does not run it.
  package static func runAtExit(_ work: @escaping @Sendable () -> Void) {
    state.withLock { state in
      // A separate hook, which runs before the hooks that were installed earlier: one of them may
      // end what the work needs.
      if state.exitWork.isEmpty { atexit { BackgroundWork.runExitWork() } }
      state.exitWork.append(work)
    }
  }

  private static let syncDelay = Duration.seconds(1)

  /// Runs `sync` within about a second; before it returns if there is no thread for it. The caller
  /// must hold no lock that `sync` needs.
  ///
  /// - Parameter syncAtExit: Runs instead if the process exits first. It must not wait for a lock:
  ///   a thread that was stopped at exit may hold it.
  /// - Returns: Whether this is the first time in this process that there was no thread.
  static func syncSoon(
    _ sync: @escaping @Sendable () -> Void, atExit syncAtExit: @escaping @Sendable () -> Void
  ) -> Bool {
    let isFirst = state.withLock { state in
      if state.generation != ForkGuard.generation {
        state.generation = ForkGuard.generation
        state.pendingSyncs = []  // they belong to the parent process
      }
      state.pendingSyncs.append((carryingTaskLocals(sync), syncAtExit))
      installExitHook(&state)
      return state.pendingSyncs.count == 1
    }
    if ForkGuard.isForkedChild {
      syncNow()
    } else if isFirst, !add(Job(due: .now + syncDelay, work: { syncNow() }, isSync: true)) {
      syncNow()
      return state.withLock { state in
        defer { state.isShortageReported = true }
        return !state.isShortageReported
      }
    }
    return false
  }

  private static func syncNow() {
    let pending = state.withLock { state in
      state.jobs.removeAll { $0.isSync }
      // From here on the exit hook does not see them in the list, so it must wait for them.
      unfinishedCount.add(1, ordering: .sequentiallyConsistent)
      defer { state.pendingSyncs = [] }
      return state.pendingSyncs
    }
    defer { unfinishedCount.subtract(1, ordering: .sequentiallyConsistent) }
    for (sync, _) in pending { sync() }
  }

  // MARK: Threads

  /// Leaves a job to a thread, and starts one unless there are enough.
  ///
  /// Without a thread, the job waits until a later call can start one. It does not run on the
  /// caller's thread, which may hold a lock that it needs.
  ///
  /// - Returns: Whether a thread is not occupied. Such a thread makes the queued syncs, at the
  ///   latest before it becomes occupied.
  @discardableResult private static func add(_ job: Job) -> Bool {
    state.withLock { state in
      installExitHook(&state)
      let index = state.jobs.lastIndex { $0.due <= job.due }.map { $0 + 1 } ?? 0
      state.jobs.insert(job, at: index)
      state.hasWaitingThread = false
      jobIsAdded.signal()
      if state.threadCount < maximumThreadCount + (job.isSync ? 1 : 0) { startThread(&state) }
      return state.threadCount > state.occupiedCount
    }
  }

  /// Starts a thread under the lock, so that no other thread counts on one that does not start.
  @discardableResult private static func startThread(_ state: inout State) -> Bool {
    let isStarted = BackgroundThread.start(.maintenance) { runJobs() }
    if isStarted { state.threadCount += 1 }
    return isStarted
  }

  private enum Step {
    case run(Job, syncsFirst: Bool)
    case wait(Duration)
    case end
  }

  private static func runJobs() {
    while true {
      switch state.withLock({ nextStep(&$0) }) {
      case .run(let job, let syncsFirst):
        if syncsFirst { syncNow() }
        job.work()
        if job.delaysExit { unfinishedCount.subtract(1, ordering: .sequentiallyConsistent) }
        if !job.isSync { state.withLock { $0.occupiedCount -= 1 } }
      case .wait(let pause):
        state.wait(for: jobIsAdded, timeout: pause) { state, isTimedOut -> Void? in
          if !isTimedOut, state.hasWaitingThread { return nil }
          state.hasWaitingThread = false
          return ()
        }
      case .end: return
      }
    }
  }

  private static func nextStep(_ state: inout State) -> Step {
    let now = ContinuousClock.now
    let onlySyncs = state.occupiedCount >= maximumThreadCount
    let first = state.jobs.firstIndex { !onlySyncs || $0.isSync }
    if let first, state.jobs[first].due <= now {
      let job = state.jobs.remove(at: first)
      if job.isSync { return .run(job, syncsFirst: false) }
      state.occupiedCount += 1
      // The queued syncs must not wait until one of the jobs ends.
      let needsThread =
        state.occupiedCount == state.threadCount && state.jobs.contains { $0.isSync }
      return .run(job, syncsFirst: needsThread && !startThread(&state))
    }
    if let first, !state.hasWaitingThread {
      state.hasWaitingThread = true
      return .wait(state.jobs[first].due - now)
    }
    state.threadCount -= 1
    return .end
  }

  // MARK: Exit

  private static func installExitHook(_ state: inout State) {
    if state.hasExitHook { return }
    state.hasExitHook = true
    atexit { BackgroundWork.finishAtExit() }
  }

  private static let isExitWorkDone = Atomic(false)

  private static func runExitWork() {
    if ForkGuard.isForkedChild { return }
    let work = state.withLockIfAvailable { $0.exitWork } ?? []
    let isStarted = BackgroundThread.start(.maintenance) {
      for work in work { work() }
      isExitWorkDone.store(true, ordering: .sequentiallyConsistent)
    }
    if isStarted { waitAtExit { !isExitWorkDone.load(ordering: .sequentiallyConsistent) } }
  }

  private static func waitAtExit(while isUnfinished: () -> Bool) {
    let end = ContinuousClock.now + maximumExitDelay
    while isUnfinished(), ContinuousClock.now < end {
      BackgroundThread.sleep(for: .microseconds(500))
    }
  }

  /// Waits for a lock only briefly: a thread that was stopped at exit may hold it.
  private static func finishAtExit() {
    if !ForkGuard.isForkedChild { waitAtExit { hasUnfinishedWork } }
    let pending = state.withLock(timeout: .milliseconds(100)) { state in
      state.generation == ForkGuard.generation ? state.pendingSyncs : []
    }
    for (_, syncAtExit) in pending ?? [] { syncAtExit() }
  }

  private static var hasUnfinishedWork: Bool {
    // Without a thread, jobs that are waiting will not be run.
    let waitingCount = state.withLockIfAvailable { state in
      state.threadCount > 0 ? 0 : state.jobs.count { $0.delaysExit }
    }
    return unfinishedCount.load(ordering: .sequentiallyConsistent) > waitingCount ?? 0
  }
}
