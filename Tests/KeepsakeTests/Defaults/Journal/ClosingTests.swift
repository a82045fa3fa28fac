import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A journal that has closed its files because other stores needed the descriptors.
@Suite struct ClosingTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory(isQuick: true) }

  @Test func aClosedJournalIsReadAndWritten() throws {
    let (store, other) = (directory.store(), directory.store())
    try keepFromBackgroundSync(store)
    try store.set(1, forKey: "a")
    for number in 2..<10 {
      #expect(try store.journal.closeIdleFiles())
      if number.isMultiple(of: 2) {
        #expect(try store.int("a") == number - 1)
        #expect(try store.journal.closeIdleFiles())
      }
      try (number.isMultiple(of: 3) ? other : store).set(number, forKey: "a")
      #expect(try store.int("a") == number && other.int("a") == number)
    }
  }

  @Test func aJournalThatWasReplacedWhileItWasClosedIsReadAnew() throws {
    let failures = Failures()
    let store = directory.store(failures: failures)
    try keepFromBackgroundSync(store)
    try store.set(1, forKey: "a")
    #expect(try store.journal.closeIdleFiles())
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
    try await eventually("the files stay open") { try store.journal.closeIdleFiles() }
    #expect(try store.int("a") == 1)
    try await eventually("the files stay open") { try store.journal.closeIdleFiles() }
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

  @Test func aClosedJournalIsSyncedAtExit() throws {
    let store = directory.store()
    try keepFromBackgroundSync(store)
    try store.set(1, forKey: "a")
    let journal = try store.journal
    #expect(journal.closeIdleFiles())
    let count = Locked(0)
    let plan = FaultPlan(decide: { event in
      if event.call == .fdatasync { count.withLock { $0 += 1 } }
      return .proceed
    })
    FaultPlan.$current.withValue(plan) { journal.synchronizeAtExit() }
    #expect(count.withLock { $0 } == 1)
  }
}
