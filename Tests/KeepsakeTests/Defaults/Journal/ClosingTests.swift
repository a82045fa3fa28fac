import Foundation
import Synchronization
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A journal that has closed its files because other stores needed the descriptors.
@Suite struct ClosingTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory(isQuick: true) }

  /// A store whose files no work in the background uses.
  private func makeStore(failures: Failures = Failures()) throws -> Defaults.Store {
    let store = directory.store(failures: failures)
    try keepFromBackgroundSync(store)
    // It believes that the watch, which begins half a second later, is about to begin.
    try store.journal.isWatchDue.store(true, ordering: .relaxed)
    return store
  }

  /// Closes its files, which the stores of other tests may be about to do.
  private func close(
    _ store: Defaults.Store, sourceLocation: SourceLocation = #_sourceLocation
  ) async throws {
    try await eventually("the files stay open", sourceLocation: sourceLocation) {
      try store.journal.closeIdleFiles()
    }
  }

  @Test func aClosedJournalIsReadAndWritten() async throws {
    let (store, other) = (try makeStore(), directory.store())
    try store.set(1, forKey: "a")
    for number in 2..<10 {
      try await close(store)
      if number.isMultiple(of: 2) {
        #expect(try store.int("a") == number - 1)
        try await close(store)
      }
      try (number.isMultiple(of: 3) ? other : store).set(number, forKey: "a")
      #expect(try store.int("a") == number && other.int("a") == number)
    }
  }

  @Test func aJournalThatWasReplacedWhileItWasClosedIsReadAnew() async throws {
    let failures = Failures()
    let store = try makeStore(failures: failures)
    try store.set(1, forKey: "a")
    try await close(store)
    try FileSystem.unlink(directory.file(TemporaryDirectory.journal).path)
    // On this file system it usually gets the inode number of the old one.
    try directory.store().set(2, forKey: "b")
    #expect(try store.int("a") == 0 && store.int("b") == 2)
    #expect(failures.all.isEmpty)
  }

  @Test func observersHearNothingOfTheClosing() async throws {
    let store = directory.store()
    try store.set(1, forKey: "a")
    var changes = store.changes().makeAsyncIterator()
    // The watch that begins may be using the files.
    try await close(store)
    #expect(try store.int("a") == 1)
    try await close(store)
    try directory.store().set(2, forKey: "b")
    #expect(await changes.next(isolation: nil) == ["b"])
  }

  @Test func closingDuringUseLosesNothing() throws {
    let stores = [directory.store(), directory.store()]
    let count = Coverage.count(sample: 150, complete: 2_000)
    let isOver = Locked(false)
    let faults = Locked<[String]>([])
    let threads = (0..<4).map { number in
      startThread {
        let store = stores[number % 2]
        for round in 1...count {
          do {
            try store.update("count", default: 0) { $0 += 1 }
            try store.set(round, forKey: "own\(number)")
            let found = try store.int("own\(number)")
            if found != round { faults.withLock { $0.append("\(found) for \(round)") } }
          } catch {
            faults.withLock { $0.append("\(error)") }
          }
        }
      }
    }
    let closer = startThread {
      while !isOver.withLock({ $0 }) {
        for store in stores { _ = try? store.journal.closeIdleFiles() }
        sched_yield()
      }
    }
    for thread in threads { thread.wait() }
    isOver.withLock { $0 = true }
    closer.wait()
    #expect(faults.withLock { Array($0.prefix(3)) } == [])
    #expect(try directory.store().int("count") == 4 * count)
  }

  @Test func aClosedJournalIsSyncedAtExit() async throws {
    let store = try makeStore()
    try store.set(1, forKey: "a")
    let journal = try store.journal
    try await close(store)
    let count = Locked(0)
    let plan = FaultPlan(decide: { event in
      if event.call == .fdatasync { count.withLock { $0 += 1 } }
      return .proceed
    })
    FaultPlan.$current.withValue(plan) { journal.synchronizeAtExit() }
    #expect(count.withLock { $0 } == 1)
  }

  /// Other threads run on while a process exits.
  @Test func anExitWaitsForAThreadThatUsesTheJournal() throws {
    let store = try makeStore()
    try store.set(1, forKey: "a")
    let journal = try store.journal
    let (isHeld, isOver) = (ThreadGate(), ThreadGate())
    let holder = startThread {
      journal.loaded.withLock { _ in
        isHeld.open()
        isOver.wait()
      }
    }
    isHeld.wait()
    let count = Locked(0)
    let plan = FaultPlan(decide: { event in
      if event.call == .fdatasync { _ = count.increment() }
      return .proceed
    })
    let thread = Locked<Int32?>(nil)
    let exit = startThread {
      thread.withLock { $0 = BackgroundThread.currentID }
      FaultPlan.$current.withValue(plan) { journal.synchronizeAtExit(timeout: .seconds(600)) }
    }
    // It has returned, or waits for the lock.
    waitUntil("the thread waits") {
      guard let thread = thread.withLock({ $0 }) else { return false }
      return exit.isOpen || BackgroundThread.runnableCount([thread], upTo: 1) == 0
    }
    isOver.open()
    holder.wait()
    exit.wait()
    #expect(count.withLock { $0 } == 1)
  }
}
