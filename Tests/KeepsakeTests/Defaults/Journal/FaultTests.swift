import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Makes each system call of each write fail in turn, and expects an error, the old or the whole
/// new value, and no temporary files.
@Suite(.ownThread, .singleThreaded) struct FaultTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  @Test func eachFailingCallLeavesTheOldOrTheNewValue() async throws {
    try await FaultSweep<DefaultsModel>().run()
  }

  @Test func aCallThatIsKilledLeavesTheOldOrTheNewState() throws {
    try FaultSweep<DefaultsModel>().runKills()
  }

  private static func failingOneSync() -> FaultPlan {
    let count = Locked(0)
    return FaultPlan(decide: {
      $0.call == .fdatasync && count.increment() == 1 ? .fail(EIO) : .proceed
    })
  }

  @Test func failedSyncIsNeverRepeatedOnTheSameFile() throws {
    let store = directory.store()
    try store.set(1, forKey: "a")
    let journal = try store.journal
    let before = try #require(try FileSystem.status(journal.location.path))
    try FaultPlan.$current.withValue(Self.failingOneSync()) { try store.synchronize() }
    let after = try #require(try FileSystem.status(journal.location.path))
    #expect(!after.isSameFile(as: before), "the store was not written to a new file")
    #expect(try directory.store().int("a") == 1)

    // If the new file cannot be synced either, it is an error.
    let broken = FaultPlan(decide: { $0.call == .fdatasync ? .fail(EIO) : .proceed })
    FaultPlan.$current.withValue(broken) {
      expectFailure(.system(EIO)) { try store.synchronize() }
    }
    try store.synchronize()
    #expect(try directory.store().int("a") == 1)
  }

  /// A read fails at the same moment, so that the next set is not in the table.
  @Test func aFailedSyncLosesNothingThatAReadHasMissed() throws {
    let store = directory.store()
    let journal = try store.journal
    journal.lookOnlyWhenUsed()
    try keepFromBackgroundSync(store)
    try store.set(1, forKey: "a")
    try FaultPlan.$current.withValue(Self.failingOneSync()) {
      try interrupt(before: .fdatasync) {
        let plan = FaultPlan(decide: { $0.call == .stat ? .fail(EIO) : .proceed })
        FaultPlan.$current.withValue(plan) {
          expectFailure(.system(EIO)) { try journal.validate() }
        }
        try store.set(2, forKey: "b")
      } in: {
        try store.synchronize()
      }
    }
    for store in [store, directory.store()] { #expect(try Set(store.keys()) == ["a", "b"]) }
  }

  /// The journal of a store whose last sync failed.
  private func makeCondemnedJournal(of store: Defaults.Store) throws -> Journal {
    let journal = try store.journal
    journal.lookOnlyWhenUsed()
    try keepFromBackgroundSync(store)
    try store.set(1, forKey: "a")
    let plan = FaultPlan(decide: { $0.call == .fdatasync ? .fail(EIO) : .proceed })
    FaultPlan.$current.withValue(plan) {
      expectFailure(.system(EIO)) { try store.synchronize() }
    }
    return journal
  }

  /// Another process sets between two steps of a read.
  @Test func aFailedSyncIsRememberedWhileOthersSet() throws {
    let (store, other) = (directory.store(), directory.store())
    try keepFromBackgroundSync(other)
    let journal = try makeCondemnedJournal(of: store)
    let before = try #require(try FileSystem.status(journal.location.path))
    try other.set(2, forKey: "a")
    let count = Locked(0)
    let plan = FaultPlan(
      decide: { _ in .proceed },
      observe: { event, _ in
        guard event.call == .stat, count.increment() == 1 else { return }
        FaultPlan.$current.withValue(nil) {
          #expect(throws: Never.self) { try other.set(3, forKey: "a") }
        }
      })
    let value = try FaultPlan.$current.withValue(plan) { try store.int("a") }
    #expect(value == 3)
    #expect(count.withLock { $0 } == 1, "the whole file was read")
    try store.synchronize()
    let after = try #require(try FileSystem.status(journal.location.path))
    #expect(!after.isSameFile(as: before), "the store was not written to a new file")
    #expect(try directory.store().int("a") == 3)
  }

  @Test func aFailedSyncIsRememberedAfterARestore() throws {
    let store = directory.store()
    let journal = try makeCondemnedJournal(of: store)
    let backup = try directory.bytes(of: TemporaryDirectory.journal)
    try store.set(1, forKey: "a")
    try File(journal.location.path, .readWrite).overwrite(backup.span.bytes, at: 0)
    try journal.validate()
    #expect(journal.loaded.withLock { $0.isCondemned })
  }

  @Test func synchronizeSyncsTheDirectoryOnce() throws {
    let (store, other) = (directory.store(), directory.store())
    for store in [store, other] { try keepFromBackgroundSync(store) }
    try store.set(1, forKey: "a")
    try other.set(2, forKey: "a")
    let calls = try systemCalls {
      try other.synchronize()
      try other.synchronize()
    }
    #expect(calls.filter { $0 == .fdatasync || $0 == .fsync } == [.fdatasync, .fsync, .fdatasync])
  }

  @Test func aSetMakesFourSystemCalls() throws {
    let store = directory.store()
    try keepFromBackgroundSync(store)
    try store.set(1, forKey: "a")
    let writes = Self.writeCount
    for number in 0..<100 {
      let calls = try systemCalls {
        try store.set(number, forKey: "a")
        _ = try store.int("a")
      }
      // Unlocking is not recorded, and the word is stored through the mapping.
      #expect(calls == [.lock, .stat, .write, .publish])
    }
    if let writes, let after = Self.writeCount { #expect(after - writes == 100) }
  }

  /// How many system calls of this thread have written to files; nil if the kernel does not count.
  private static var writeCount: Int? {
    let text = try? String(contentsOfFile: "/proc/thread-self/io", encoding: .utf8)
    let line = text?.split(separator: "\n").first { $0.hasPrefix("syscw: ") }
    return line.flatMap { Int($0.dropFirst(7)) }
  }

  @Test func aSetAfterAnotherProcessesSetReadsIt() throws {
    let (store, other) = (directory.store(), directory.store())
    for store in [store, other] {
      try keepFromBackgroundSync(store)
      // A watch that begins reads too.
      try store.journal.lookOnlyWhenUsed()
    }
    for number in 0..<10 {
      try store.set(number, forKey: "a")
      try other.set(number, forKey: "b")
      let calls = try systemCalls { try store.set(number, forKey: "c") }
      #expect(calls.filter { $0 == .read }.count == 1)
      #expect(try store.int("b") == number)
    }
  }

  @Test func setsAreSyncedAfterAFailedSync() async throws {
    let store = try TemporaryDirectory().store()
    let journal = try store.journal
    try store.set(0, forKey: "k")
    try await eventually("it is synced") { !journal.loaded.withLock { $0.isUnsynced } }
    let plan = FaultPlan(decide: { $0.call == .fdatasync ? .fail(EIO) : .proceed })
    FaultPlan.$current.withValue(plan) { _ = try? store.synchronize() }
    #expect(journal.loaded.withLock { $0.isUnsynced })
    try store.set(1, forKey: "k")
    try await eventually("it is synced") { !journal.loaded.withLock { $0.isUnsynced } }
  }

  /// Space stays allocated beyond the end, so that only removals get what is left of it.
  @Test func aSetThatCannotReserveSpaceIsRefused() throws {
    let store = directory.store()
    try store.set(1, forKey: "k")
    let full = FaultPlan(decide: { $0.call == .reserve ? .fail(ENOSPC) : .proceed })
    try FaultPlan.$current.withValue(full) { () throws in
      var count = 0
      while (try? store.set(count, forKey: "k")) != nil {
        count += 1
        try #require(count < 1_000)
      }
      #expect(try store.int("k") == count - 1)
      expectFailure(.diskFull) { try store.set(1, forKey: "other") }
      try store.remove("k")
      #expect(try !store.contains("k") && !directory.store().contains("k"))
      expectFailure(.diskFull) { try store.set(2, forKey: "k") }
    }
    try store.set(3, forKey: "k")
    #expect(try directory.store().int("k") == 3)
  }

  @Test func aSetReservesSpaceOncePerManySets() throws {
    let store = directory.store()
    try store.set(0, forKey: "k")
    let calls = try systemCalls {
      for number in 0..<100 { try store.set(number, forKey: "k") }
    }
    #expect(calls.count { $0 == .reserve } <= 1)
    let unsupported = FaultPlan(decide: { $0.call == .reserve ? .fail(EOPNOTSUPP) : .proceed })
    let other = directory.store()
    try FaultPlan.$current.withValue(unsupported) {
      for number in 0..<1_000 { try other.set(number, forKey: "k") }
    }
    #expect(try directory.store().int("k") == 999)
  }

  @Test func aRemovalReplacesALargeFileOnce() throws {
    let store = directory.store()
    try store.set(String(repeating: "x", count: 2 << 20), forKey: "a")
    let calls = try systemCalls { try store.removeAll() }
    #expect(calls.count { $0 == .exchange } == 1)
  }

  /// Without space for a record, a removal deletes the file.
  @Test func aRemovalThatCannotDeleteTheFileChangesNothing() throws {
    let store = directory.store()
    try keepFromBackgroundSync(store)
    try store.set(1, forKey: "a")
    let before = try directory.bytes(of: TemporaryDirectory.journal)
    let plan = FaultPlan(decide: { event in
      switch event.call {
      case .write: .fail(ENOSPC)
      case .unlink: .fail(EACCES)
      default: .proceed
      }
    })
    FaultPlan.$current.withValue(plan) {
      expectFailure(.accessDenied) { try store.removeAll() }
    }
    #expect(try directory.bytes(of: TemporaryDirectory.journal) == before)
    #expect(try store.int("a") == 1 && directory.store().int("a") == 1)
  }

  /// Nor on a file system that cannot reserve space may the journal outgrow its word.
  @Test func moreThanFourGigabytesAreRefused() throws {
    let journal = directory.journal()
    journal.lookOnlyWhenUsed()
    journal.loaded.withLock { ($0.isSyncScheduled, $0.isCompacting) = (true, true) }
    let unsupported = FaultPlan(decide: { $0.call == .reserve ? .fail(EOPNOTSUPP) : .proceed })
    try FaultPlan.$current.withValue(unsupported) {
      try journal.set(.int(1), forKey: "a")
      try journal.writer.withLock { writer in
        let handle = try #require(writer.handle)
        writer.end = JournalWord.largestEnd - 10
        try handle.file.truncate(to: writer.end)
        let word = JournalWord(id: writer.id, end: writer.end)
        try handle.publish(word)
        writer.word = word
      }
      expectFailure(.misuse) { try journal.set(.int(2), forKey: "a") }
    }
  }

  @Test func setSucceedsWhenAnOldTemporaryFileCannotBeRemoved() throws {
    try directory.write([1], to: ".standard.jsonl.a.tmp")
    let store = directory.store()
    let plan = FaultPlan(decide: { $0.call == .unlink ? .fail(EPERM) : .proceed })
    try FaultPlan.$current.withValue(plan) {
      try anHourLater { try store.set(1, forKey: "k") }
    }
    #expect(try store.int("k") == 1)
  }

  @Test func compactionOfADeletedJournalReportsNothing() throws {
    let failures = Failures()
    let store = directory.store(failures: failures)
    try store.set(1, forKey: "k")
    try FileManager.default.removeItem(at: directory.file(TemporaryDirectory.journal))
    try store.journal.start(.now)
    #expect(failures.all.isEmpty)
  }
}
