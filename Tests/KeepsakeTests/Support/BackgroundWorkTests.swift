import Foundation
import Testing

@testable import Keepsake

@Suite struct BackgroundWorkTests {
  @Test func manyJobsUseFewThreads() async throws {
    let active = Locked(0)
    let most = Locked(0)
    let done = Locked(0)
    for _ in 0..<100 {
      BackgroundWork.run {
        let count = active.withLock { active in
          active += 1
          return active
        }
        most.withLock { $0 = max($0, count) }
        usleep(2_000)
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
      let syncCount = Locked(0)
      let plan = FaultPlan(
        decide: { _ in .proceed },
        observe: { event, _ in
          if event.call == .fdatasync { syncCount.withLock { $0 += 1 } }
        })
      try await FaultPlan.$current.withValue(plan) {
        // The limit is in force.
        try withoutNewThreads {
          try #require(!BackgroundThread.start(.maintenance) {})
          // Makes the file, which is synced before it gets its name.
          try store.set(0, forKey: "k")
          for number in 1...3 {
            let count = syncCount.withLock { $0 }
            try store.set(number, forKey: "k")
            #expect(syncCount.withLock { $0 } == count + 1)
          }
        }
        #expect(failures.all.map(\.operation) == ["Defaults.synchronize"])
        #expect(failures.all.first?.remedy.contains("ulimit -u") == true)
        // A thread can be started again: it syncs the next change.
        let count = syncCount.withLock { $0 }
        let start = ContinuousClock.now
        try store.set(4, forKey: "k")
        // On a busy machine, the second after which it is synced may have passed already.
        let isSynced = syncCount.withLock { $0 } > count
        #expect(!isSynced || ContinuousClock.now - start >= .seconds(1))
        try await eventually("the change is synced") { syncCount.withLock { $0 } == count + 1 }
      }
      #expect(failures.all.count == 1)
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

/// Runs `body` while this process can start no thread.
func withoutNewThreads(_ body: () throws -> Void) throws {
  let pages = try #require(
    try String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(separator: " ").first)
  let size = try #require(Int(pages)) * Int(getpagesize())
  var limit = rlimit()
  getrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit)
  let old = limit
  limit.rlim_cur = rlim_t(size + 1 << 20)
  try #require(setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0)
  defer {
    withUnsafePointer(to: old) { _ = setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), $0) }
  }
  try body()
}
