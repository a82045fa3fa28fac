internal import Dispatch

/// Work that waits for the disk, on threads other than those that tasks share.
package enum BlockingWork {
  private static let queue = DispatchQueue(label: "keepsake.work", attributes: .concurrent)

  /// Runs `work` soon, on another thread.
  static func start(_ work: @escaping @Sendable () -> Void) {
    // A forked child has no Dispatch threads.
    if ForkGuard.isForkedChild { work() } else { queue.async(execute: carryingTaskLocals(work)) }
  }
}
