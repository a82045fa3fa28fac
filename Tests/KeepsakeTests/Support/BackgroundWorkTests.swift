import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite(.ownThread) struct BackgroundWorkTests {
  @Test func manyJobsUseFewThreads() async throws {
    let active = Locked(0)
    let most = Locked(0)
    let done = Locked(0)
    for _ in 0..<100 {
      BackgroundWork.run {
        let count = active.increment()
        most.withLock { $0 = max($0, count) }
        for _ in 0..<100 { sched_yield() }
        active.withLock { $0 -= 1 }
        done.withLock { $0 += 1 }
      }
    }
    try await eventually("all is done") { done.withLock { $0 } == 100 }
    #expect((1...4).contains(most.withLock { $0 }))
  }

  @Test func laterJobsDoNotDelayEarlierOnes() async throws {
    let done = Locked<Set<String>>([])
    for _ in 0..<10 {
      BackgroundWork.run(after: .seconds(86_400)) { done.withLock { _ = $0.insert("in a day") } }
    }
    BackgroundWork.run(after: .milliseconds(1)) { done.withLock { _ = $0.insert("soon") } }
    BackgroundWork.run { done.withLock { _ = $0.insert("now") } }
    try await eventually("both have run") { done.withLock { $0 } == ["now", "soon"] }
  }

  /// Signal handlers of the program must not run on threads of the library, but a crash must be
  /// reported.
  @Test func backgroundThreadsBlockAllSignalsExceptFaults() async throws {
    let blocked = Locked<[Int32: Bool]>([:])
    let isStarted = BackgroundThread.start(.maintenance) {
      var mask = sigset_t()
      pthread_sigmask(SIG_SETMASK, nil, &mask)
      for signal in [SIGTERM, SIGINT, SIGUSR1, SIGSEGV, SIGBUS, SIGABRT] {
        blocked.withLock { $0[signal] = sigismember(&mask, signal) == 1 }
      }
    }
    #expect(isStarted)
    try await eventually("the thread has looked") { blocked.withLock { $0.count } == 6 }
    let signals = blocked.withLock { $0 }
    #expect(signals.filter(\.value).keys.sorted() == [SIGINT, SIGUSR1, SIGTERM].sorted())
  }

  /// The address space has no room for the stack of another thread.
  @Test(.singleThreaded, .multiprocess) func eachChangeIsSyncedIfNoThreadCanBeStarted() async {
    await #expect(processExitsWith: .success) {
      let directory = try TemporaryDirectory()
      let failures = Failures()
      let store = directory.store(failures: failures)
      let syncs = SyncCounter()
      try await FaultPlan.$current.withValue(syncs.plan) {
        // The limit is in force.
        try withoutNewThreads {
          try #require(!BackgroundThread.start(.maintenance) {})
          try syncs.expectSyncs(with: store)
        }
        #expect(failures.all.map(\.operation) == ["Defaults.synchronize"])
        #expect(failures.all.first?.remedy.contains("ulimit -u") == true)
        // A thread can be started again: it syncs the next change.
        let (count, caller) = (syncs.count, pthread_self())
        try store.set(4, forKey: "k")
        try await eventually("the change is synced") { syncs.count == count + 1 }
        #expect(syncs.lastThread != caller)
      }
      #expect(failures.all.count == 1)
    }
  }

  /// Sweeps and evictions may take minutes.
  @Test(.multiprocess) func syncsDoNotWaitForLongJobs() async {
    await #expect(processExitsWith: .success) {
      let directory = try TemporaryDirectory()
      let store = directory.store()
      let syncs = SyncCounter()
      try await withLongJobs {
        try await FaultPlan.$current.withValue(syncs.plan) {
          // Makes the file, which is synced before it gets its name.
          try store.set(0, forKey: "k")
          for number in 1...3 {
            let count = syncs.count
            try store.set(number, forKey: "k")
            try await eventually("the change is synced") { syncs.count > count }
          }
        }
      }
    }
  }

  /// A thread that runs a long job will make no sync soon.
  @Test(.singleThreaded, .multiprocess)
  func eachChangeIsSyncedIfNoOtherThreadCanBeStarted() async {
    await #expect(processExitsWith: .success) {
      let directory = try TemporaryDirectory()
      let store = directory.store()
      let isRunning = Locked(false)
      let end = DispatchSemaphore(value: 0)
      BackgroundWork.run {
        isRunning.withLock { $0 = true }
        end.wait()
      }
      try await eventually("the job runs") { isRunning.withLock { $0 } }
      let syncs = SyncCounter()
      try FaultPlan.$current.withValue(syncs.plan) {
        try withoutNewThreads { try syncs.expectSyncs(with: store) }
      }
      end.signal()
    }
  }

  /// Timeouts of fetches, and looks for changes of settings.
  @Test(.multiprocess) func timedJobsDoNotWaitForLongJobs() async {
    await #expect(processExitsWith: .success) {
      let directory = try TemporaryDirectory()
      let store = directory.cache()
      let fetches = InFlightFetches.shared
      try await withLongJobs {
        let (call, _) = fetches.makeCall(to: .init(store, "k"), timeout: .milliseconds(20))
        try await eventually("the producer is overdue") { !fetches.isFetching(call.target) }
        fetches.finish(call, with: .cancelled)
        fetches.leave(call)
      }
    }
  }

  /// A thread that waits until the sync is due takes a long job in the meantime.
  @Test(.multiprocess) func queuedSyncsDoNotWaitForLongJobs() async {
    await #expect(processExitsWith: .success) {
      let isSynced = Locked(false)
      _ = BackgroundWork.syncSoon({ isSynced.withLock { $0 = true } }, atExit: {})
      try await withLongJobs {
        try await eventually("the sync is made") { isSynced.withLock { $0 } }
      }
    }
  }

  /// As of two suites, one of them on a server that does not answer.
  @Test(.multiprocess) func aSyncDoesNotWaitForAnotherOne() async {
    await #expect(processExitsWith: .success) {
      let gate = ThreadGate()
      let isSynced = Locked(false)
      _ = BackgroundWork.syncSoon({ gate.wait() }, atExit: {})
      _ = BackgroundWork.syncSoon({ isSynced.withLock { $0 = true } }, atExit: {})
      try await eventually("the second sync is made") { isSynced.withLock { $0 } }
      #expect(!gate.isOpen)
      gate.open()
    }
  }

  /// Of the threads, only one waits for them.
  @Test(.multiprocess) func aDelayedJobDoesNotWaitForAnotherOne() async {
    await #expect(processExitsWith: .success) {
      let gate = ThreadGate()
      let hasRun = Locked(false)
      BackgroundWork.run(after: .milliseconds(200)) { gate.wait() }
      BackgroundWork.run(after: .milliseconds(400)) { hasRun.withLock { $0 = true } }
      try await eventually("the second job has run") { hasRun.withLock { $0 } }
      #expect(!gate.isOpen)
      gate.open()
    }
  }

  @Test(.singleThreaded, .multiprocess)
  func queuedSyncsAreMadeBeforeALongJobIfNoOtherThreadCanBeStarted() async {
    await #expect(processExitsWith: .success) {
      let isSynced = Locked(false)
      let hasRun = Locked(false)
      let end = DispatchSemaphore(value: 0)
      _ = BackgroundWork.syncSoon({ isSynced.withLock { $0 = true } }, atExit: {})
      try withoutNewThreads {
        BackgroundWork.run {
          end.wait()
          hasRun.withLock { $0 = true }
        }
        waitUntil("the sync is made") { isSynced.withLock { $0 } }
      }
      end.signal()
      // The first thread may have ended before the job was added.
      BackgroundWork.run {}
      try await eventually("the job has run") { hasRun.withLock { $0 } }
    }
  }

  @Test(.singleThreaded, .multiprocess) func changesAreNoticedOnceAThreadCanBeStarted() async {
    await #expect(processExitsWith: .success) {
      let directory = try TemporaryDirectory()
      let (store, other) = (directory.store(), directory.store())
      try store.set(0, forKey: "k")
      let changes = Locked<AsyncStream<Void>?>(nil)
      try withoutNewThreads {
        let journal = try store.journal
        changes.withLock { $0 = journal.changes { _ in true } }
      }
      let stream = try #require(changes.withLock { $0 })
      let isNoticed = Locked(false)
      let follower = Task { for await _ in stream { isNoticed.withLock { $0 = true } } }
      var number = 0
      try await eventually("a change is noticed") {
        number += 1
        try other.set(number, forKey: "k")
        return isNoticed.withLock { $0 }
      }
      follower.cancel()
    }
  }

  @Test(.singleThreaded, .multiprocess) func jobsWaitForTheNextThread() async {
    await #expect(processExitsWith: .success) {
      let done = Locked(0)
      try withoutNewThreads {
        for _ in 0..<3 { BackgroundWork.run { done.withLock { $0 += 1 } } }
        #expect(done.withLock { $0 } == 0, "the caller may hold a lock that they need")
      }
      BackgroundWork.run { done.withLock { $0 += 1 } }
      try await eventually("all have run") { done.withLock { $0 } == 4 }
    }
  }
}

/// Counts how often files are synced.
private final class SyncCounter: Sendable {
  private let state = Locked((count: 0, lastThread: pthread_self()))

  var count: Int { state.withLock { $0.count } }
  /// The thread that made the last sync.
  var lastThread: pthread_t { state.withLock { $0.lastThread } }

  var plan: FaultPlan {
    FaultPlan(
      decide: { _ in .proceed },
      observe: { [self] event, _ in
        guard event.call == .fdatasync else { return }
        state.withLock { $0 = ($0.count + 1, pthread_self()) }
      })
  }

  /// Expects each change to be synced when the call returns.
  func expectSyncs(with store: Defaults.Store) throws {
    // Makes the file, which is synced before it gets its name.
    try store.set(0, forKey: "k")
    for number in 1...3 {
      let before = count
      try store.set(number, forKey: "k")
      #expect(count == before + 1)
    }
  }
}

/// Runs `body` while four of eight jobs run, as many as can, and do not end.
private func withLongJobs(_ body: () async throws -> Void) async throws {
  let running = Locked(0)
  let gate = ThreadGate()
  for _ in 0..<8 {
    BackgroundWork.run {
      _ = running.increment()
      gate.wait()
    }
  }
  try await eventually("four jobs run") { running.withLock { $0 } == 4 }
  try await body()
  #expect(running.withLock { $0 } == 4)
  gate.open()
  try await eventually("all jobs have run") { running.withLock { $0 } == 8 }
}

/// Runs `body` while this process can start no thread.
func withoutNewThreads(_ body: () throws -> Void) throws {
  let resource = __rlimit_resource_t(RLIMIT_AS.rawValue)
  var old = rlimit()
  getrlimit(resource, &old)
  defer { setrlimit(resource, &old) }
  // Less than the stack of a thread takes, and as much as possible for everything else.
  var stack = rlimit()
  getrlimit(__rlimit_resource_t(RLIMIT_STACK.rawValue), &stack)
  let isUnlimited = stack.rlim_cur == .max
  let stackSize = isUnlimited ? 2 << 20 : min(Int(stack.rlim_cur), 8 << 20)
  // Until the limit is in force, other threads may reserve memory, as for their first allocation.
  var size = 0
  while true {
    size = addressSpace()
    var limit = old
    limit.rlim_cur = rlim_t(size + max(1 << 20, stackSize / 2))
    try #require(size > 0 && setrlimit(resource, &limit) == 0)
    if addressSpace() <= size { break }
    setrlimit(resource, &old)
  }
  try body()
}

/// How much address space this process takes, in bytes. Allocates nothing, as there may be no more.
private func addressSpace() -> Int {
  let file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC)
  defer { close(file) }
  return withUnsafeTemporaryAllocation(byteCount: 128, alignment: 1) { buffer in
    let count = max(0, read(file, buffer.baseAddress, buffer.count))
    let digits = buffer.prefix(count).prefix { $0 != UInt8(ascii: " ") }
    return digits.reduce(0) { $0 * 10 + Int($1 - UInt8(ascii: "0")) } * Int(getpagesize())
  }
}
