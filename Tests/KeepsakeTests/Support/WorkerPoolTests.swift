import Foundation
import Synchronization
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite(.ownThread, .timeLimit(.minutes(20))) struct WorkerPoolTests {
  @Test func asManyJobsWaitAsTheBoundAllows() async throws {
    let (pool, gate) = (WorkerPool(), ThreadGate())
    let running = Locked(0)
    for _ in 0..<70 {
      pool.submit {
        running.withLock { $0 += 1 }
        gate.wait()
        running.withLock { $0 -= 1 }
      }
    }
    try await eventually("64 jobs wait") { running.withLock { $0 } == 64 }
    #expect(pool.threadCount == 64 && pool.pendingCount == 6)
    gate.open()
    try await eventually("all have run") {
      pool.pendingCount == 0 && running.withLock { $0 } == 0
    }
  }

  @Test func jobsStartInTheOrderOfTheirSubmission() async throws {
    let (pool, gate) = (WorkerPool(bound: 1), ThreadGate())
    let order = Locked<[Int]>([])
    pool.submit { gate.wait() }
    for number in 0..<200 { pool.submit { order.withLock { $0.append(number) } } }
    gate.open()
    try await eventually("all have run") { order.withLock { $0.count } == 200 }
    #expect(order.withLock { $0 } == Array(0..<200))
  }

  /// Each job waits for one that it submitted, with which it fills two levels of the bound.
  @Test func jobsMayWaitForJobsThatTheySubmit() async throws {
    let pool = WorkerPool(bound: 3)
    let ended = Locked(0)
    for _ in 0..<9 {
      pool.submit {
        let (outer, inner) = (ThreadGate(), ThreadGate())
        pool.submit(depth: 1) {
          pool.submit(depth: 2) { inner.open() }
          inner.wait()
          outer.open()
        }
        outer.wait()
        ended.withLock { $0 += 1 }
      }
    }
    try await eventually("all have ended") { ended.withLock { $0 } == 9 }
    #expect(pool.threadCount <= 9)
  }

  /// Counts jobs without a lock, at which they would wait for each other.
  private final class Counts: Sendable {
    private let running = Atomic(0)
    let most = Atomic(0)
    let ended = Atomic(0)

    func begin() {
      most.max(running.add(1, ordering: .relaxed).newValue, ordering: .relaxed)
    }

    func end() {
      running.subtract(1, ordering: .relaxed)
      ended.add(1, ordering: .relaxed)
    }
  }

  /// Otherwise the tasks of the program would wait for a processor behind all of them.
  @Test func jobsThatComputeRunOnFewThreads() async throws {
    let pool = WorkerPool()
    let counts = Counts()
    let start = ContinuousClock.now
    for _ in 0..<60 {
      pool.submit {
        counts.begin()
        let end = threadTime() + 2_000_000
        while threadTime() < end {}
        counts.end()
      }
    }
    try await eventually("all have ended") { counts.ended.load(ordering: .relaxed) == 60 }
    // On a busy machine a job may get the next one started because it takes 100 milliseconds.
    let stallCount = Int((ContinuousClock.now - start) / .milliseconds(100))
    let most = counts.most.load(ordering: .relaxed)
    #expect(most <= BackgroundThread.processorCount + 20 + stallCount)
  }

  @Test func threadsEndWithoutWork() async throws {
    let (pool, gate) = (WorkerPool(idleTime: .milliseconds(10)), ThreadGate())
    let names = Locked<[String]>([])
    for _ in 0..<20 {
      pool.submit {
        let name = threadName()
        names.withLock { $0.append(name) }
        gate.wait()
      }
    }
    try await eventually("all jobs run") { names.withLock { $0.count } == 20 }
    // More than one for each, if a busy machine takes long to start a thread.
    #expect(pool.threadCount >= 20)
    gate.open()
    try await eventually("all threads have ended") {
      pool.pendingCount == 0 && pool.threadCount == 0
    }
    #expect(names.withLock { Set($0) } == ["keepsake-io"])
    // The next job gets a new one.
    let isDone = Locked(false)
    pool.submit { isDone.withLock { $0 = true } }
    try await eventually("it has run") { isDone.withLock { $0 } }
  }

  @Test func backgroundThreadsHaveNames() async throws {
    let name = Locked("")
    BackgroundWork.run { name.withLock { $0 = threadName() } }
    try await eventually("it has run") { name.withLock { $0 } == "keepsake-bg" }
  }

  @Test func aCancelledTaskLeavesTheQueueAtOnce() async throws {
    let (pool, gate) = (WorkerPool(bound: 1), ThreadGate())
    let isStarted = Locked(false)
    let hasRun = Locked(false)
    let running = Task {
      try await BlockingWork.run(on: pool) { @Sendable in
        isStarted.withLock { $0 = true }
        gate.wait()
        return 5
      }
    }
    try await eventually("the first has started") { isStarted.withLock { $0 } }
    let queued = Task {
      try await BlockingWork.run(on: pool) { @Sendable in hasRun.withLock { $0 = true } }
    }
    try await eventually("the second is queued") { pool.pendingCount == 1 }
    queued.cancel()
    await #expect(throws: CancellationError.self) { try await queued.value }
    #expect(pool.pendingCount == 0)
    // One that has started ends as if it had not been cancelled.
    running.cancel()
    gate.open()
    #expect(try await running.value == 5)
    #expect(!hasRun.withLock { $0 })
  }

  /// A task that is cancelled at any moment runs its closure or throws, and never both or neither.
  @Test func cancellationRacesWithTheStart() async throws {
    let pool = WorkerPool(bound: 2)
    for _ in 0..<200 {
      let count = Locked(0)
      let task = Task {
        try await BlockingWork.run(on: pool) { @Sendable in count.withLock { $0 += 1 } }
      }
      await Task.yield()
      task.cancel()
      switch await task.result {
      case .success: #expect(count.withLock { $0 } == 1)
      case .failure(let error):
        #expect(error is CancellationError && count.withLock { $0 } == 0)
      }
    }
    #expect(pool.pendingCount == 0)
  }

  @Test(.singleThreaded, .multiprocess) func workIsDoneIfNoThreadCanBeStarted() async {
    await #expect(processExitsWith: .success) {
      let pool = WorkerPool(bound: 1)
      let done = Locked<[Int]>([])
      let gate = ThreadGate()
      try withoutNewThreads {
        // There is no thread that could do it later.
        pool.submit { done.withLock { $0.append(1) } }
        #expect(done.withLock { $0 } == [1] && pool.threadCount == 0)
      }
      pool.submit {
        done.withLock { $0.append(0) }
        gate.wait()
      }
      try await eventually("it has started") { done.withLock { $0 } == [1, 0] }
      try withoutNewThreads {
        // The thread that waits at the gate does it, unless that may wait for it.
        pool.submit { done.withLock { $0.append(2) } }
        #expect(done.withLock { $0 } == [1, 0])
        pool.submit(depth: 1) { done.withLock { $0.append(3) } }
        #expect(done.withLock { $0 } == [1, 0, 3])
      }
      gate.open()
      try await eventually("the thread has done it") { done.withLock { $0 } == [1, 0, 3, 2] }
    }
  }
}

extension WorkerPool {
  fileprivate func submit(depth: Int = 0, _ work: @escaping @Sendable () -> Void) {
    submit(Job(depth: depth, work))
  }
}

/// The name of the calling thread.
func threadName() -> String {
  let text = try? String(contentsOfFile: "/proc/thread-self/comm", encoding: .utf8)
  return text?.trimmingCharacters(in: .newlines) ?? ""
}

/// The processor time of the calling thread, in nanoseconds.
func threadTime() -> Int {
  var time = timespec()
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
  return time.tv_sec * 1_000_000_000 + time.tv_nsec
}
