internal import Dispatch

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
  private static let queue = DispatchQueue(
    label: "keepsake.housekeeping", qos: .utility, attributes: .concurrent)

  /// What a normal exit waits for: else a program that is started often and runs for a moment would
  /// never get to the end of a compaction.
  private static let running = DispatchGroup()

  /// Runs `work` soon. A forked child has no dispatch threads: there it runs at once.
  static func run(_ work: @escaping @Sendable () -> Void) {
    if ForkGuard.isForkedChild {
      work()
    } else {
      state.withLock { installExitHook(&$0) }
      queue.async(group: running, execute: carryingFaults(work))
    }
  }

  private static func installExitHook(_ state: inout State) {
    if state.hasExitHook { return }
    state.hasExitHook = true
    atexit { Housekeeper.workAtExit() }
  }

  /// Runs `work` after a while, unless the process has ended by then.
  static func run(after pause: Duration, _ work: @escaping @Sendable () -> Void) {
    guard !ForkGuard.isForkedChild else { return }
    queue.asyncAfter(deadline: .now() + pause / .seconds(1), execute: carryingFaults(work))
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
      queue.asyncAfter(deadline: .now() + .seconds(1), execute: carryingFaults { syncNow() })
    }
  }

  private static func syncNow() {
    let journals = state.withLock { state in
      running.enter()  // from here on the exit hook does not find them in the list
      defer { state.unsynced = [] }
      return state.unsynced
    }
    defer { running.leave() }
    for journal in journals { journal.synchronizeInBackground() }
  }

  /// Waits for no lock: a thread that was stopped in the middle may hold any.
  private static func workAtExit() {
    if !ForkGuard.isForkedChild { _ = running.wait(timeout: .now() + .seconds(2)) }
    let journals = state.withLockIfAvailable { state in
      state.generation == ForkGuard.generation ? state.unsynced : []
    }
    for journal in journals ?? [] { journal.synchronizeAtExit() }
  }
}
