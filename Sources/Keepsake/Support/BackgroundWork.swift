internal import KeepsakeLibc
internal import Synchronization

/// Runs work that no caller waits for: syncing journals within a second and at exit, compacting
/// them, sweeping caches, and releasing leases at exit.
package enum BackgroundWork {
  private struct Job {
    let due: ContinuousClock.Instant
    let work: @Sendable () -> Void
    /// Whether the process waits for it before it exits. Otherwise a program that runs only for a
    /// moment, and often, would never finish a compaction.
    var delaysExit = false
  }

  private struct State {
    /// In the order in which they become due.
    var jobs: [Job] = []
    var threadCount = 0
    /// Whether a thread is waiting for the next job to become due; one is enough. A job that is
    /// added wakes it.
    var hasWaitingThread = false
    /// How many syncs are running. A normal exit waits for them…
    var runningSyncCount = 0
    /// …and for jobs that delay it.
    var runningJobCount = 0
    /// The process that the pending syncs belong to.
    var generation = ForkGuard.generation
    var syncThreadCount = 0
    var pendingSyncs: [(sync: @Sendable () -> Void, syncAtExit: @Sendable () -> Void)] = []
    var exitWork: [@Sendable () -> Void] = []
    var hasExitHook = false
    var isShortageReported = false
  }

  private static let state = Locked(State())
  /// Enough jobs that delay the exit, which may wait for the disk for minutes. One more thread is
  /// for the others, such as the timeouts of fetches.
  private static let maximumJobCount = 4
  private static let maximumThreadCount = maximumJobCount + 1
  private static let jobIsAdded = Condition()
  private static let maximumExitDelay = Duration.seconds(2)

  /// Runs `work` soon, on another thread because the caller may hold a lock that it needs. A forked
  /// child, which may not use threads, runs it at once.
  ///
  /// - Parameter delaysExit: False for quick work that a process need not finish.
  @inline(never)
  package static func run(delaysExit: Bool = true, _ work: @escaping @Sendable () -> Void) {
    if ForkGuard.isForkedChild { return work() }
    add(Job(due: .now, work: carryingTaskLocals(work), delaysExit: delaysExit))
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

  // MARK: Syncs

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
    let (isDueNow, isReported) = state.withLock { state in
      if state.generation != ForkGuard.generation {
        state.generation = ForkGuard.generation
        // They belong to the parent process.
        (state.pendingSyncs, state.syncThreadCount) = ([], 0)
      }
      state.pendingSyncs.append((carryingTaskLocals(sync), syncAtExit))
      installExitHook(&state)
      // The thread of an earlier one makes this one too.
      if state.pendingSyncs.count > 1 || startSyncThread(&state, after: syncDelay) {
        return (false, true)
      }
      state.syncThreadCount += 1
      defer { state.isShortageReported = true }
      return (true, state.isShortageReported || ForkGuard.isForkedChild)
    }
    if isDueNow { makeSyncs() }
    return !isReported
  }

  /// A thread of its own: the syncs must not wait for jobs, which may take long.
  ///
  /// - Returns: false if it cannot be started.
  @discardableResult
  private static func startSyncThread(_ state: inout State, after delay: Duration) -> Bool {
    if ForkGuard.isForkedChild { return false }
    // The first of them that ends its sync makes the next one.
    if state.syncThreadCount == maximumThreadCount { return true }
    let isStarted = BackgroundThread.start(.maintenance) {
      BackgroundThread.sleep(for: delay)
      makeSyncs()
    }
    if isStarted { state.syncThreadCount += 1 }
    return isStarted
  }

  /// Makes one pending sync after the other, and leaves the rest to another thread each time: a
  /// sync may wait for a server without end.
  private static func makeSyncs() {
    while let sync = state.withLock({ takeSync(&$0) }) {
      sync()
      state.withLock { $0.runningSyncCount -= 1 }
    }
  }

  /// The next pending sync; nil if there is none, and the thread ends.
  private static func takeSync(_ state: inout State) -> (@Sendable () -> Void)? {
    if state.pendingSyncs.isEmpty {
      state.syncThreadCount -= 1
      return nil
    }
    // From here on the exit hook does not see it in the list, so it must wait for it.
    state.runningSyncCount += 1
    let (sync, _) = state.pendingSyncs.removeFirst()
    if !state.pendingSyncs.isEmpty { startSyncThread(&state, after: .zero) }
    return sync
  }

  // MARK: Threads

  /// Leaves a job to a thread, and starts one unless there are enough.
  ///
  /// Without a thread, the job waits until a later call can start one. It does not run on the
  /// caller's thread, which may hold a lock that it needs.
  private static func add(_ job: Job) {
    state.withLock { state in
      installExitHook(&state)
      let index = state.jobs.lastIndex { $0.due <= job.due }.map { $0 + 1 } ?? 0
      state.jobs.insert(job, at: index)
      state.hasWaitingThread = false
      jobIsAdded.signal()
      startThread(&state)
    }
  }

  private static func startThread(_ state: inout State) {
    if state.threadCount < maximumThreadCount,
      BackgroundThread.start(.maintenance, { runJobs() })
    {
      state.threadCount += 1
    }
  }

  private enum Step {
    case run(Job)
    case wait(Duration)
    case end
  }

  private static func runJobs() {
    while true {
      switch state.withLock({ nextStep(&$0) }) {
      case .run(let job):
        job.work()
        if job.delaysExit { state.withLock { $0.runningJobCount -= 1 } }
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
    let mayDelayExit = state.runningJobCount < maximumJobCount
    if let index = state.jobs.firstIndex(where: { mayDelayExit || !$0.delaysExit }) {
      let pause = state.jobs[index].due - .now
      if pause <= .zero {
        let job = state.jobs.remove(at: index)
        if job.delaysExit { state.runningJobCount += 1 }
        // The other jobs must not wait for this one, which may take long.
        if !state.jobs.isEmpty, !state.hasWaitingThread { startThread(&state) }
        return .run(job)
      }
      if !state.hasWaitingThread {
        state.hasWaitingThread = true
        return .wait(pause)
      }
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

  /// How long to wait for the lock, which a thread that was stopped at exit may hold.
  private static let lockTimeoutAtExit = Duration.milliseconds(100)
  private static let isExitWorkDone = Atomic(false)

  private static func runExitWork() {
    if ForkGuard.isForkedChild { return }
    let work = state.withLock(timeout: lockTimeoutAtExit) { $0.exitWork } ?? []
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

  private static func finishAtExit() {
    if !ForkGuard.isForkedChild { waitAtExit { hasUnfinishedWork } }
    let pending = state.withLock(timeout: lockTimeoutAtExit) { state in
      state.generation == ForkGuard.generation ? state.pendingSyncs : []
    }
    for (_, syncAtExit) in pending ?? [] { syncAtExit() }
  }

  private static var hasUnfinishedWork: Bool {
    state.withLockIfAvailable { state in
      // Without a thread, jobs that are waiting will not be run.
      state.runningSyncCount + state.runningJobCount > 0
        || state.threadCount > 0 && state.jobs.contains(where: \.delaysExit)
    } ?? true
  }
}
