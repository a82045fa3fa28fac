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
package final class WorkerPool: Sendable {
  /// Work that runs once, however many threads try.
  final class Job: Sendable {
    /// How many jobs are, one inside the other, around the one that is submitted.
    let depth: Int
    private let work: Locked<(@Sendable () -> Void)?>

    init(depth: Int, _ work: @escaping @Sendable () -> Void) {
      self.depth = depth
      self.work = Locked(work)
    }

    var hasStarted: Bool { work.withLock { $0 == nil } }

    /// Runs the work, unless that has started.
    func run() {
      let work = work.withLock { work in
        defer { work = nil }
        return work
      }
      work?()
    }
  }

  /// One thread.
  private final class Worker: Sendable {
    let threadID = BackgroundThread.currentID
    let wakeUp = Condition()
  }

  private enum Step {
    case run(Job)
    /// Determine which of these threads wait.
    case check([Int32])
    case end
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

  /// Runs a job soon; before it returns if there is no thread for it.
  func submit(_ job: Job) {
    let willBeRun = state.withLock { state in
      state.queues[job.depth].append(job)
      // Running jobs that are less deeply nested may wait for this one.
      let willBeRun =
        callHelper(&state) || state.threadCount > state.running.count
        || state.runningCounts[job.depth...].contains { $0 > 0 }
      if !willBeRun { state.queues[job.depth].removeLast() }
      return willBeRun
    }
    if !willBeRun { job.run() }
  }

  /// For tests.
  var threadCount: Int { state.withLock { $0.threadCount } }
  var pendingCount: Int { state.withLock { $0.queues.reduce(0) { $0 + $1.pendingCount } } }

  // MARK: Threads

  /// Makes a thread look at the queue if one should, besides those that do; false if the system
  /// cannot create it.
  @discardableResult private func callHelper(_ state: inout State) -> Bool {
    guard let depth = state.nextDepth, state.running.count < state.allowance || !state.isChecking
    else { return true }
    if let worker = state.idle.popLast() {
      worker.wakeUp.signal()
    } else if state.threadCount < state.bound * (depth + 1) {
      guard BackgroundThread.start(.work, { [self] in runJobs() }) else { return false }
      state.threadCount += 1
    }
    return true
  }

  private func runJobs() {
    let worker = Worker()
    while true {
      let step = state.wait(for: worker.wakeUp, timeout: idleTime) { state, isTimedOut in
        nextStep(of: worker, &state, isTimedOut: isTimedOut)
      }
      switch step {
      case .run(let job):
        job.run()
        state.withLock { state in
          state.running[ObjectIdentifier(worker)] = nil
          state.runningCounts[job.depth] -= 1
        }
      case .check(let threads):
        check(threads)
      case .end: return
      }
    }
  }

  /// What a worker does next; nil if it waits.
  private func nextStep(of worker: Worker, _ state: inout State, isTimedOut: Bool) -> Step? {
    state.idle.removeAll { $0 === worker }
    if let depth = state.nextDepth {
      let isAllowed = state.running.count < state.allowance
      if isAllowed && (state.isChecking || !state.isAllowanceOutdated),
        let job = state.queues[depth].popFirst()
      {
        state.running[ObjectIdentifier(worker)] = worker.threadID
        state.runningCounts[depth] += 1
        state.lastStart = CoarseClock.now
        // A job that gets no thread now is run by one of those that there are.
        callHelper(&state)
        return .run(job)
      }
      if !state.isChecking {
        state.isChecking = true
        return .check(Array(state.running.values))
      }
    }
    if isTimedOut {
      state.threadCount -= 1
      return .end
    }
    state.idle.append(worker)
    return nil
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
    /// By depth. They also have jobs that were cancelled.
    var queues = [JobQueue](repeating: JobQueue(), count: maximumDepth + 1)
    var threadCount = 0
    /// The threads that wait for work. The last one waits for the shortest time.
    var idle: [Worker] = []
    /// The threads that have a job, by worker: not every system tells their numbers.
    var running: [ObjectIdentifier: Int32] = [:]
    /// By depth.
    var runningCounts = [Int](repeating: 0, count: maximumDepth + 1)
    /// How many jobs may run.
    var allowance = BackgroundThread.processorCount
    var isChecking = false
    /// When ``allowance`` was set, and when a job started.
    var lastCheck = CoarseClock.now
    var lastStart = CoarseClock.now

    init(bound: Int) { self.bound = bound }

    /// The depth of the next job that the bound admits: a job that another one may wait for is
    /// first.
    var nextDepth: Int? {
      queues.indices.last { depth in runningCounts[depth] < bound && !queues[depth].isEmpty }
    }

    // MARK: The allowance

    private static let maximumAge: Int64 = 10_000_000
    private static let maximumStall: Int64 = 100_000_000

    /// Whether threads that were waiting when the allowance was set may be running by now.
    var isAllowanceOutdated: Bool {
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

/// Jobs, first in, first out.
private struct JobQueue: Sendable {
  private var jobs: [WorkerPool.Job] = []
  private var start = 0

  var isEmpty: Bool { start == jobs.count }
  var pendingCount: Int { jobs[start...].count { !$0.hasStarted } }

  mutating func append(_ job: WorkerPool.Job) { jobs.append(job) }
  mutating func removeLast() { jobs.removeLast() }

  mutating func popFirst() -> WorkerPool.Job? {
    if isEmpty { return nil }
    let job = jobs[start]
    start += 1
    if start == jobs.count || start >= 64 && 2 * start >= jobs.count {
      jobs.removeFirst(start)
      start = 0
    }
    return job
  }
}
