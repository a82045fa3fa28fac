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
    let order = Locked<[Int]>([])
    BackgroundWork.run(after: .milliseconds(400)) { order.withLock { $0.append(2) } }
    for _ in 0..<10 { BackgroundWork.run(after: .seconds(5)) {} }
    BackgroundWork.run { order.withLock { $0.append(1) } }
    try await eventually("both have run") { order.withLock { $0.count } == 2 }
    #expect(order.withLock { $0 } == [1, 2])
  }

  /// Signal handlers of the program must not run on threads of the library, but a crash must be
  /// reported.
  @Test func backgroundThreadsBlockAllSignalsExceptFaults() async throws {
    let blocked = Locked<[Int32: Bool]>([:])
    let isStarted = BackgroundThread.start {
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
}
