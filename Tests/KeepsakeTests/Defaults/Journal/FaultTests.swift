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

  @Test func shortWriteLeavesTheOldOrTheNewValue() throws {
    for length in 0..<60 {
      let directory = try TemporaryDirectory(isQuick: true)
      let store = directory.store()
      try store.set("old", forKey: "k")
      // The first write is short, and the disk is full for the next.
      let isFull = Locked(length == 0)
      let plan = FaultPlan(
        decide: { event in
          guard event.call == .write else { return .proceed }
          return isFull.withLock { isFull in
            defer { isFull = true }
            return isFull ? .fail(ENOSPC) : .proceed
          }
        },
        shorten: { _ in max(1, length) })
      var failure: StorageError?
      FaultPlan.$current.withValue(plan) {
        do { try store.set("new", forKey: "k") } catch { failure = error as? StorageError }
      }
      let seen = try store.string("k")
      #expect(seen == (failure == nil ? "new" : "old"), "length \(length)")
      if let failure { #expect(failure.code == .diskFull) }
      let failures = Failures()
      #expect(try directory.store(failures: failures).string("k") == seen)
      try store.set(1, forKey: "next")
      let reader = directory.store(failures: failures)
      #expect(try reader.string("k") == seen)
      #expect(try reader.int("next") == 1)
      #expect(failures.all.isEmpty, "length \(length): a torn tail is not damage")
    }
  }

  @Test func failedSyncIsNeverRepeatedOnTheSameFile() throws {
    let store = directory.store()
    try store.set(1, forKey: "a")
    let journal = try store.journal
    let before = try #require(try FileSystem.status(journal.location.path))
    let isFailing = Locked(true)
    let plan = FaultPlan(decide: { event in
      guard event.call == .fdatasync else { return .proceed }
      return isFailing.withLock { isFailing in
        defer { isFailing = false }
        return isFailing ? .fail(EIO) : .proceed
      }
    })
    try FaultPlan.$current.withValue(plan) { try store.synchronize() }
    let after = try #require(try FileSystem.status(journal.location.path))
    #expect(!after.isSameFile(as: before), "the store was not written to a new file")
    #expect(try directory.store().int("a") == 1)

    // If the new file cannot be synced either, it is an error.
    let broken = FaultPlan(decide: { $0.call == .fdatasync ? .fail(EIO) : .proceed })
    let error = FaultPlan.$current.withValue(broken) {
      #expect(throws: StorageError.self) { try store.synchronize() }
    }
    #expect(error?.code == .system(EIO))
    try store.synchronize()
    #expect(try directory.store().int("a") == 1)
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

  @Test func setMakesThreeSystemCalls() throws {
    let store = directory.store()
    try keepFromBackgroundSync(store)
    try store.set(1, forKey: "a")
    // Lock, append, unlock, which is not recorded. The mark and the word are stored.
    let least: [SystemCall] = [.lock, .publish, .write, .publish]
    let writes = Self.writeCount
    let all = try (0..<100).map { number in
      try systemCalls {
        try store.set(number, forKey: "a")
        _ = try store.int("a")
      }
    }
    if let writes, let after = Self.writeCount { #expect(after - writes == 100) }
    #expect(all.contains(least))
    // Once in a tick of the clock: whether the lock file and the journal still are the same.
    // The header is read in the next tick if the one before ended between the two checks.
    let checks: [SystemCall] = [.lock, .stat, .stat, .read, .publish, .write, .publish]
    let checksWithoutHeader = checks.filter { $0 != .read }
    let allowed = [least, checks, checksWithoutHeader]
    // If the tick ends before the word is stored, the lock file is looked at once more.
    let late = allowed.map { Array($0.dropLast()) + [.stat, .publish] }
    #expect(all.allSatisfy { allowed.contains($0) || late.contains($0) })
  }

  /// How many system calls of this thread have written to files; nil if the kernel does not count.
  private static var writeCount: Int? {
    let text = try? String(contentsOfFile: "/proc/thread-self/io", encoding: .utf8)
    let line = text?.split(separator: "\n").first { $0.hasPrefix("syscw: ") }
    return line.flatMap { Int($0.dropFirst(7)) }
  }

  @Test func setAfterAnotherProcessesSetChecksTheLockFile() throws {
    let (store, other) = (directory.store(), directory.store())
    for store in [store, other] { try keepFromBackgroundSync(store) }
    for number in 0..<10 {
      try store.set(number, forKey: "a")
      try other.set(number, forKey: "b")
      let calls = try systemCalls { try store.set(number, forKey: "c") }
      #expect(calls.prefix(3) == [.lock, .stat, .stat])
    }
  }

  @Test func setsAreSyncedAfterAFailedSync() async throws {
    let store = try TemporaryDirectory().store()
    let journal = try store.journal
    try store.set(0, forKey: "k")
    try await eventually("it is synced") { !journal.file.withLock { $0.isUnsynced } }
    let plan = FaultPlan(decide: { $0.call == .fdatasync ? .fail(EIO) : .proceed })
    FaultPlan.$current.withValue(plan) { _ = try? store.synchronize() }
    #expect(journal.file.withLock { $0.isUnsynced })
    try store.set(1, forKey: "k")
    try await eventually("it is synced") { !journal.file.withLock { $0.isUnsynced } }
  }

  @Test func removalOnAFullDiskIsSyncedAndReservesSpaceAgain() async throws {
    let store = try TemporaryDirectory().store()
    let journal = try store.journal
    try store.set(0, forKey: "k")
    try await eventually("it is synced") { !journal.file.withLock { $0.isUnsynced } }
    // Only the space that is reserved for removals is left.
    let calls = Locked<[SystemCall]>([])
    let plan = FaultPlan(decide: { event in
      let isFull = calls.withLock { calls in
        calls.append(event.call)
        return !calls.contains(.truncate)
      }
      return event.call == .write && isFull ? .fail(ENOSPC) : .proceed
    })
    try FaultPlan.$current.withValue(plan) { try store.remove("k") }
    let all = calls.withLock { $0 }
    let release = try #require(all.firstIndex(of: .truncate))
    // The old journal is closed when the writer takes the lock again.
    let lock = try #require(all.lastIndex(of: .lock))
    #expect(release < lock && all[lock...].contains(.reserve))
    try await eventually("it is synced") { !journal.file.withLock { $0.isUnsynced } }
  }

  /// The blocks of a replaced journal may become free a moment later.
  @Test func removalOnAFullDiskWaitsForSpace() throws {
    let store = try TemporaryDirectory().store()
    try store.set(0, forKey: "k")
    let releases = Locked(0)
    let plan = FaultPlan(decide: { event in
      let count = releases.withLock { count in
        if event.call == .truncate { count += 1 }
        return count
      }
      return event.call == .write && count < 4 ? .fail(ENOSPC) : .proceed
    })
    try FaultPlan.$current.withValue(plan) { try store.remove("k") }
    #expect(try !store.contains("k"))
  }

  /// Otherwise another program could take it.
  @Test(arguments: [false, true])
  func removalReservesSpaceAgainWhileItHasTheLock(isRemoved: Bool) throws {
    let store = directory.store()
    try store.set(0, forKey: "k")
    let calls = Locked<[SystemCall]>([])
    let plan = FaultPlan(decide: { event in
      let hasReleased = calls.withLock { calls in
        calls.append(event.call)
        return calls.contains(.truncate)
      }
      // No new journal can be made.
      return event.call == .write && !(isRemoved && hasReleased)
        || event.path.hasSuffix(".tmp") ? .fail(ENOSPC) : .proceed
    })
    FaultPlan.$current.withValue(plan) { _ = try? store.remove("k") }
    #expect(try store.contains("k") != isRemoved)
    let afterRelease = calls.withLock { $0.drop { $0 != .truncate } }
    let reserve = try #require(afterRelease.firstIndex(of: .reserve))
    #expect(!afterRelease[..<reserve].contains(.lock))
  }

  /// Otherwise a change would take blocks that became free after a removal had used the reserve.
  @Test(arguments: [false, true])
  func writerReservesMissingSpaceBeforeItTakesABlock(isOpenedAgain: Bool) throws {
    let first = directory.store()
    // The first journal reserves space, too.
    let full = FaultPlan(decide: { $0.call == .reserve ? .fail(ENOSPC) : .proceed })
    try FaultPlan.$current.withValue(full) { try first.set(0, forKey: "k") }
    let store = isOpenedAgain ? directory.store() : first
    func reserves(before value: String) throws -> Int {
      let calls = Locked<[SystemCall]>([])
      let plan = FaultPlan(decide: { event in
        calls.withLock { $0.append(event.call) }
        return event.call == .reserve ? .succeed(0) : .proceed
      })
      try FaultPlan.$current.withValue(plan) { try store.set(value, forKey: "k") }
      let all = calls.withLock { $0 }
      return try all[..<#require(all.firstIndex(of: .write))].count { $0 == .reserve }
    }
    #expect(try reserves(before: "short") == 0)
    let long = String(repeating: "v", count: 4_096)
    #expect(try reserves(before: long) >= 4)
    #expect(try reserves(before: long) == 0)
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
