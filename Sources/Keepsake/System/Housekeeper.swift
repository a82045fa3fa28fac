internal import Synchronization

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// What happens off the callers' path: syncing journals within a second and at exit, compaction, and
/// tidying up caches.
enum Housekeeper {
  private struct State {
    var generation = ForkGuard.generation
    var unsynced: [Journal] = []
    var hasExitHook = false
  }

  private static let state = Locked(State())

  /// How much goes on that a normal exit waits for: else a program that is started often and runs for a
  /// moment would never get to the end of a compaction.
  private static let running = Atomic(0)
  private static let longestWaitAtExit = Duration.seconds(2)

  /// Runs `work` soon. In a forked child, which may have no use for threads, it runs at once.
  static func run(_ work: @escaping @Sendable () -> Void) {
    if ForkGuard.isForkedChild { return work() }
    state.withLock { installExitHook(&$0) }
    running.add(1, ordering: .sequentiallyConsistent)
    BackgroundThread.run(
      carryingFaults {
        work()
        running.subtract(1, ordering: .sequentiallyConsistent)
      })
  }

  private static func installExitHook(_ state: inout State) {
    if state.hasExitHook { return }
    state.hasExitHook = true
    atexit { Housekeeper.workAtExit() }
  }

  /// Runs `work` after a while, unless the process has ended by then.
  static func run(after pause: Duration, _ work: @escaping @Sendable () -> Void) {
    guard !ForkGuard.isForkedChild else { return }
    BackgroundThread.run(after: pause, carryingFaults(work))
  }

  /// Sees to it that what `journal` has written survives a power cut a second from now.
  static func syncSoon(_ journal: Journal) {
    let isFirst = state.withLock { state in
      if state.generation != ForkGuard.generation {
        state.generation = ForkGuard.generation
        state.unsynced = []  // the parent's
      }
      state.unsynced.append(journal)
      installExitHook(&state)
      return state.unsynced.count == 1
    }
    if ForkGuard.isForkedChild {
      syncNow()
    } else if isFirst {
      BackgroundThread.run(after: .seconds(1), carryingFaults { syncNow() })
    }
  }

  private static func syncNow() {
    let journals = state.withLock { state in
      // From here on the exit hook does not find them in the list.
      running.add(1, ordering: .sequentiallyConsistent)
      defer { state.unsynced = [] }
      return state.unsynced
    }
    defer { running.subtract(1, ordering: .sequentiallyConsistent) }
    for journal in journals { journal.synchronizeInBackground() }
  }

  /// Waits for no lock: a thread that was stopped in the middle may hold any.
  private static func workAtExit() {
    let end = ContinuousClock.now + longestWaitAtExit
    while !ForkGuard.isForkedChild, running.load(ordering: .sequentiallyConsistent) > 0,
      ContinuousClock.now < end
    {
      usleep(500)
    }
    let journals = state.withLockIfAvailable { state in
      state.generation == ForkGuard.generation ? state.unsynced : []
    }
    for journal in journals ?? [] { journal.synchronizeAtExit() }
  }
}
