/// Work that waits for the disk, on threads other than those that tasks share.
package enum BlockingWork {
  package static let pool = WorkerPool()

  /// How many jobs are around the calling code, which is also known to the tasks that they create.
  @TaskLocal private static var depth = 0

  /// Runs `work` soon, on another thread. A forked child, which has none, runs it at once.
  package static func start(_ work: @escaping @Sendable () -> Void) {
    if ForkGuard.isForkedChild { return work() }
    pool.submit(WorkerPool.Job(depth: depth, carryingTaskLocals(work)))
  }

  /// Runs `body` on another thread, in a task that has the task-local values of the calling task
  /// and is cancelled with it. Calls to the facades in it use the calling task's stores.
  ///
  /// - Throws: What `body` throws, or `CancellationError` if the task was cancelled before `body`
  ///   started.
  package static func run<R>(
    on pool: WorkerPool = pool, _ body: sending @escaping () throws -> sending R
  ) async throws -> sending R {
    try Task.checkCancellation()
    // Safe: `body` is passed on here and not used again.
    nonisolated(unsafe) let body = body
    if ForkGuard.isForkedChild { return try body() }
    let executor = JobExecutor(pool, depth: depth)
    let innerDepth = min(depth + 1, WorkerPool.maximumDepth)
    let task = Task(executorPreference: executor) {
      // It may have been cancelled in the queue.
      try Task.checkCancellation()
      return Transferred(try $depth.withValue(innerDepth, operation: body))
    }
    return try await withTaskCancellationHandler {
      try await task.value.value
    } onCancel: {
      task.cancel()
      executor.cancel()
    }
  }
}

/// A value that one task hands to another.
///
/// Unchecked because the first task does not use the value after it has handed it over.
private struct Transferred<Value>: @unchecked Sendable {
  let value: Value

  init(_ value: Value) { self.value = value }
}

/// Runs one task that never suspends, as a job of a pool.
private final class JobExecutor: TaskExecutor {
  private let pool: WorkerPool
  private let depth: Int
  private let job = Locked<WorkerPool.Job?>(nil)

  init(_ pool: WorkerPool, depth: Int) {
    self.pool = pool
    self.depth = depth
  }

  func enqueue(_ task: consuming ExecutorJob) {
    let task = UnownedJob(task)
    let job = WorkerPool.Job(depth: depth) {
      task.runSynchronously(on: self.asUnownedTaskExecutor())
    }
    self.job.withLock { $0 = job }
    pool.submit(job)
  }

  /// Runs the task at once if it is still queued, for it to find that it was cancelled.
  func cancel() { job.withLock { $0 }?.run() }
}
