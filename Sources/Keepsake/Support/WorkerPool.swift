/// Threads for work that may wait: for the disk, for another process, or for the user.
///
/// Swift's tasks share about as many threads as there are processors, so work that waits on one of
/// them delays every task of the program. Here it has its own threads, which are started when they
/// are needed and end after a while without work.
///
/// Work that waits costs nothing, so a job gets a thread at once if all others wait. Work that
/// computes or copies takes the processors away from the program's tasks, so only as many such jobs
/// run at a time as there are processors; the rest is queued. A thread looks at what the others do
/// while jobs are queued. Jobs start in the order of their submission.
///
/// A job may block its thread until a job that it submitted has ended. Such a nested job does not
/// count against the bound of the jobs that may wait for it, or they would wait for each other.
final class WorkerPool: Sendable {
  typealias JobID = UInt64

  struct Job: Sendable {
    let id: JobID
    /// How many jobs are, one inside the other, around the one that is submitted.
    let depth: Int
    let work: @Sendable () -> Void
    /// Runs instead of `work` if the job is cancelled before it has started.
    let onCancel: @Sendable () -> Void
  }

  /// One thread.
  private final class Worker: Sendable {
    let threadID = BackgroundThread.currentID
    let wakeUp = Condition()
  }

  private enum Step {
    case run(Job, Helper?)
    /// Determine which of these threads wait.
    case check([Int32])
    case end
  }

  /// The thread that must look at the queue next.
  private enum Helper {
    case idle(Worker)
    case new
  }

  /// Jobs that are nested more deeply count as nested this deeply.
  static let maximumDepth = 7

  private let state: Locked<State>
  private let idleTime: Duration

  /// - Parameters:
  ///   - bound: How many jobs of one depth run at a time.
  ///   - idleTime: How long a thread waits for work before it ends.
  init(bound: Int = 64, idleTime: Duration = .seconds(2)) {
    state = Locked(State(bound: bound))
    self.idleTime = idleTime
  }

  func makeID() -> JobID {
    state.withLock { state in
      state.lastID += 1
      return state.lastID
    }
  }

  /// Runs a job soon; before it returns if there is no thread for it.
  func submit(_ job: Job) {
    let helper = state.withLock { state in
      state.append(job)
      return state.helper()
    }
    guard !call(helper) else { return }
    state.withLock { $0.takeJobWithoutThread(job) }?.work()
  }

  /// Cancels a job that has not started; does nothing if it has.
  func cancel(_ id: JobID) {
    state.withLock { $0.pending.removeValue(forKey: id) }?.onCancel()
  }

  /// For tests.
  var threadCount: Int { state.withLock { $0.threadCount } }
  var pendingCount: Int { state.withLock { $0.pending.count } }

  // MARK: Threads

  /// Makes a thread look at the queue; false if the system cannot create it.
  private func call(_ helper: Helper?) -> Bool {
    switch helper {
    case .idle(let worker):
      worker.wakeUp.signal()
    case .new:
      if BackgroundThread.start(.work, { [self] in runJobs() }) { return true }
      state.withLock { $0.threadCount -= 1 }
      return false
    case nil: break
    }
    return true
  }

  private func runJobs() {
    let worker = Worker()
    while true {
      let step = state.wait(for: worker.wakeUp, timeout: idleTime) { state, isTimedOut in
        state.nextStep(of: worker, isTimedOut: isTimedOut)
      }
      switch step {
      case .run(let job, let helper):
        // A job that gets no thread now is run by one of those that there are.
        _ = call(helper)
        job.work()
        state.withLock { $0.finish(job, worker) }
      case .check(let threads):
        check(threads)
      case .end: return
      }
    }
  }

  private static let checkInterval = Duration.milliseconds(2)

  /// Determines how many jobs may run. If no more than are running now, waits a moment.
  private func check(_ threads: [Int32]) {
    let count = BackgroundThread.runnableCount(threads, upTo: BackgroundThread.processorCount)
    let isOccupied = state.withLock { state in
      state.setAllowance(runnableCount: count)
      return state.running.count >= state.allowance
    }
    if isOccupied { BackgroundThread.sleep(for: Self.checkInterval) }
    state.withLock { $0.isChecking = false }
  }

  // MARK: State

  private struct State: Sendable {
    let bound: Int
    var lastID: JobID = 0
    var pending: [JobID: Job] = [:]
    /// By depth. They also have the jobs that were cancelled.
    var queues = [JobQueue](repeating: JobQueue(), count: maximumDepth + 1)
    var threadCount = 0
    /// The threads that wait for work. The last one waits for the shortest time.
    var idle: [Worker] = []
    /// The depth of the job of each thread that has one.
    var running: [ObjectIdentifier: (thread: Int32, depth: Int)] = [:]
    var runningCounts = [Int](repeating: 0, count: maximumDepth + 1)
    /// How many jobs may run.
    var allowance = BackgroundThread.processorCount
    var isChecking = false
    /// When ``allowance`` was set, and when a job started.
    var lastCheck = CoarseClock.now
    var lastStart = CoarseClock.now

    init(bound: Int) { self.bound = bound }

    mutating func append(_ job: Job) {
      pending[job.id] = job
      queues[job.depth].append(job.id)
    }

    /// What a worker does next; nil if it waits.
    mutating func nextStep(of worker: Worker, isTimedOut: Bool) -> Step? {
      idle.removeAll { $0 === worker }
      if let depth = nextDepth() {
        let isAllowed = running.count < allowance
        if isAllowed && (isChecking || !isAllowanceOutdated), let job = takeJob(depth) {
          running[ObjectIdentifier(worker)] = (worker.threadID, depth)
          runningCounts[depth] += 1
          lastStart = CoarseClock.now
          return .run(job, helper())
        }
        if !isChecking {
          isChecking = true
          return .check(running.values.map(\.thread))
        }
      }
      if isTimedOut {
        threadCount -= 1
        return .end
      }
      idle.append(worker)
      return nil
    }

    mutating func finish(_ job: Job, _ worker: Worker) {
      running[ObjectIdentifier(worker)] = nil
      runningCounts[job.depth] -= 1
    }

    /// The thread that should look at the queue now, besides those that do.
    mutating func helper() -> Helper? {
      guard let depth = nextDepth(), running.count < allowance || !isChecking else { return nil }
      if let worker = idle.popLast() { return .idle(worker) }
      guard threadCount < bound * (depth + 1) else { return nil }
      threadCount += 1
      return .new
    }

    /// The depth of the next job that the bound admits: a job that another one may wait for is
    /// first.
    private mutating func nextDepth() -> Int? {
      if pending.isEmpty { return nil }
      for depth in queues.indices.reversed() where runningCounts[depth] < bound {
        while let id = queues[depth].first {
          if pending[id] != nil { return depth }
          queues[depth].removeFirst()
        }
      }
      return nil
    }

    private mutating func takeJob(_ depth: Int) -> Job? {
      guard let id = queues[depth].first else { return nil }
      queues[depth].removeFirst()
      return pending.removeValue(forKey: id)
    }

    /// Takes a job back for which no thread could be started; nil if another thread will run it.
    mutating func takeJobWithoutThread(_ job: Job) -> Job? {
      // Running jobs that are less deeply nested may wait for this one.
      let willBeRun =
        threadCount > running.count || runningCounts[job.depth...].contains { $0 > 0 }
      return willBeRun ? nil : pending.removeValue(forKey: job.id)
    }

    // MARK: The allowance

    private static let maximumAge: Int64 = 10_000_000
    private static let maximumStall: Int64 = 100_000_000

    /// Whether threads that were waiting when the allowance was set may be running by now.
    private var isAllowanceOutdated: Bool {
      running.count >= BackgroundThread.processorCount
        && CoarseClock.now - lastCheck > Self.maximumAge
    }

    mutating func setAllowance(runnableCount: Int) {
      let processorCount = BackgroundThread.processorCount
      lastCheck = CoarseClock.now
      if runnableCount < processorCount {
        allowance = processorCount + running.count - runnableCount
      } else if CoarseClock.now - lastStart > Self.maximumStall {
        // Long computations must not keep the next job waiting.
        allowance = running.count + 1
      } else {
        allowance = max(processorCount, running.count - 1)
      }
    }
  }
}

/// Job identifiers, first in, first out.
private struct JobQueue: Sendable {
  private var ids: [WorkerPool.JobID] = []
  private var start = 0

  var first: WorkerPool.JobID? { start < ids.count ? ids[start] : nil }

  mutating func append(_ id: WorkerPool.JobID) { ids.append(id) }

  mutating func removeFirst() {
    start += 1
    guard start == ids.count || start >= 64 && 2 * start >= ids.count else { return }
    ids.removeFirst(start)
    start = 0
  }
}
