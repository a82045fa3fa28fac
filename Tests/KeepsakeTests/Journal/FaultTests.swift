import Foundation
import Testing

@testable import Keepsake

/// Each system call of each write failing in turn: an error, the old value intact, the new one
/// absent or whole, nothing left behind.
@Suite struct FaultTests {
  static let errors: [Int32] = [ENOSPC, EIO, EACCES]

  /// Fails the n-th call with `code`; counts the calls.
  static func failing(_ number: Int, _ code: Int32) -> (plan: FaultPlan, count: @Sendable () -> Int)
  {
    let counter = Counter()
    let plan = FaultPlan(decide: { _ in counter.next() == number ? .fail(code) : .proceed })
    return (plan, { counter.value })
  }

  final class Counter: Sendable {
    private let state = Locked(0)
    var value: Int { state.withLock { $0 } }
    func next() -> Int {
      state.withLock { state in
        state += 1
        return state
      }
    }
  }

  enum Operation: String, CaseIterable {
    case create, set, setOther, remove, removeAll, update, compact, synchronize, repair

    func run(_ store: Defaults.Store) throws {
      switch self {
      case .create, .set: try store.set("new", forKey: "k")
      case .setOther: try store.set("new", forKey: "other")
      case .remove: try store.remove("k")
      case .removeAll: try store.removeAll()
      case .update: try store.update("k", default: "") { $0 = "new" }
      case .compact: try store.journal.compact()
      case .synchronize: try store.synchronize()
      case .repair: _ = try store.string("k")
      }
    }
  }

  @Test(arguments: Operation.allCases, errors)
  func eachFailingCallLeavesOldOrNew(_ operation: Operation, _ code: Int32) throws {
    var number = 0
    while true {
      number += 1
      let folder = try TemporaryFolder()
      if operation != .create {
        try folder.store().set("old", forKey: "k")
        try folder.store().set("here", forKey: "bystander")
      }
      if operation == .repair {
        var bytes = try folder.bytes(of: TemporaryFolder.journal)
        bytes[JournalFormat.headerSize - 10] ^= 1
        try folder.write(bytes, to: TemporaryFolder.journal)
      }
      let store = folder.store()
      if operation == .compact { _ = try store.string("k") }
      let (plan, count) = Self.failing(number, code)
      var failure: StorageError?
      FaultPlan.$current.withValue(plan) {
        do { try operation.run(store) } catch { failure = error as? StorageError }
      }
      let comment = Comment(rawValue: "call \(number) of \(operation), errno \(code)")

      // A fresh reader and the store itself agree on old or new.
      let reader = folder.store()
      let seen = try store.string("k")
      #expect(try reader.string("k") == seen, comment)
      let old = operation == .create ? nil : "old"
      let new: String? =
        switch operation {
        case .create, .set, .update: "new"
        case .remove, .removeAll: nil
        case .setOther, .compact, .synchronize, .repair: "old"
        }
      #expect(seen == old || seen == new, comment)
      if failure == nil { #expect(seen == new, comment) }
      if operation != .create, operation != .removeAll || failure != nil && seen == "old" {
        #expect(try reader.string("bystander") == "here", comment)
      }
      if let failure {
        #expect(failure.path != nil && !failure.remedy.isEmpty, comment)
        if code == ENOSPC { #expect(failure.code == .diskFull, comment) }
      }
      // It works again afterwards, and nothing lies about.
      try store.set("after", forKey: "k")
      #expect(try reader.string("k") == "after", comment)
      #expect(try folder.store().string("k") == "after", comment)
      #expect(try folder.names().filter { $0.hasSuffix(".tmp") }.isEmpty, comment)
      if count() < number { break }  // there was no such call: all have been tried
    }
    #expect(number > 1, "\(operation) makes no system call")
  }

  @Test func eachShortWriteLeavesOldOrNew() throws {
    for length in 0..<60 {
      let folder = try TemporaryFolder()
      let store = folder.store()
      try store.set("old", forKey: "k")
      // The first write stops early, the next finds the disk full.
      let writes = Counter()
      let plan = FaultPlan(
        decide: { event in
          event.call == .write && writes.next() > (length == 0 ? 0 : 1) ? .fail(ENOSPC) : .proceed
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
      #expect(try folder.store(failures: failures).string("k") == seen)
      try store.set(1, forKey: "next")
      let reader = folder.store(failures: failures)
      #expect(try reader.string("k") == seen)
      #expect(try reader.int("next") == 1)
      #expect(failures.all.isEmpty, "length \(length): a torn tail is no damage")
    }
  }

  @Test func aFailedSyncIsNeverTrustedAgain() throws {
    let folder = try TemporaryFolder()
    let store = folder.store()
    try store.set(1, forKey: "a")
    let journal = try store.journal
    let before = try #require(try FileSystem.status(journal.location.path))
    let syncs = Counter()
    let plan = FaultPlan(decide: { event in
      event.call == .fdatasync && syncs.next() == 1 ? .fail(EIO) : .proceed
    })
    try FaultPlan.$current.withValue(plan) { try store.synchronize() }
    let after = try #require(try FileSystem.status(journal.location.path))
    #expect(!after.isSameFile(as: before), "the store was not written to a new file")
    #expect(try folder.store().int("a") == 1)

    // Where that fails too, it is an error.
    let broken = FaultPlan(decide: { $0.call == .fdatasync ? .fail(EIO) : .proceed })
    let error = FaultPlan.$current.withValue(broken) {
      #expect(throws: StorageError.self) { try store.synchronize() }
    }
    #expect(error?.code == .system(EIO))
    try store.synchronize()
    #expect(try folder.store().int("a") == 1)
  }

  @Test func synchronizeSyncsTheFileThenTheFolderOnce() throws {
    let folder = try TemporaryFolder()
    let store = folder.store()
    try store.set(1, forKey: "a")
    let other = folder.store()
    try other.set(2, forKey: "a")
    let calls = try systemCalls {
      try other.synchronize()
      try other.synchronize()
    }
    #expect(calls.filter { $0 == .fdatasync || $0 == .fsync } == [.fdatasync, .fsync, .fdatasync])
  }

  /// Where the design says what a set costs.
  @Test func aSetMakesFiveSystemCalls() throws {
    let folder = try TemporaryFolder()
    let store = folder.store()
    try store.set(1, forKey: "a")
    // Lock, is the journal still there, append, publish; the fifth unlocks.
    let least: [SystemCall] = [.lock, .stat, .write, .publish]
    let all = try (0..<100).map { number in
      try systemCalls {
        try store.set(number, forKey: "a")
        _ = try store.int("a")
      }
    }
    #expect(all.contains(least))
    // Once within a tick of the clock also: is the lock file still there.
    #expect(all.allSatisfy { $0 == least || $0 == [.lock, .stat, .stat, .write, .publish] })
  }

  @Test func aSetAfterAnotherProcessesLooksWhetherTheLockFileIsThere() throws {
    let folder = try TemporaryFolder()
    let (store, other) = (folder.store(), folder.store())
    for number in 0..<10 {
      try store.set(number, forKey: "a")
      try other.set(number, forKey: "b")
      let calls = try systemCalls { try store.set(number, forKey: "c") }
      #expect(calls.prefix(3) == [.lock, .stat, .stat])
    }
  }

  @Test func setsAreSyncedAgainAfterASyncThatFailed() async throws {
    let store = try TemporaryFolder().store()
    let journal = try store.journal
    try store.set(0, forKey: "k")
    try await Task.sleep(for: .milliseconds(1_500))
    #expect(!journal.state.withLock { $0.isUnsynced })
    let plan = FaultPlan(decide: { $0.call == .fdatasync ? .fail(EIO) : .proceed })
    FaultPlan.$current.withValue(plan) { _ = try? store.synchronize() }
    #expect(journal.state.withLock { $0.isUnsynced })
    try store.set(1, forKey: "k")
    try await Task.sleep(for: .milliseconds(1_500))
    #expect(!journal.state.withLock { $0.isUnsynced })
  }

  @Test func anOldTemporaryFileThatCannotBeRemovedStopsNoWrite() throws {
    let folder = try TemporaryFolder()
    try folder.write([1], to: ".standard.jsonl.a.tmp")
    try FileManager.default.setAttributes(
      [.modificationDate: Date(timeIntervalSinceNow: -3_600)],
      ofItemAtPath: folder.file(".standard.jsonl.a.tmp").path)
    let store = folder.store()
    let plan = FaultPlan(decide: { $0.call == .unlink ? .fail(EPERM) : .proceed })
    try FaultPlan.$current.withValue(plan) { try store.set(1, forKey: "k") }
    #expect(try store.int("k") == 1)
  }

  @Test func aJournalThatIsDeletedBeforeItsCompactionIsNoFailure() throws {
    let folder = try TemporaryFolder()
    let failures = Failures()
    let store = folder.store(failures: failures)
    try store.set(1, forKey: "k")
    try FileManager.default.removeItem(at: folder.file(TemporaryFolder.journal))
    try store.journal.start(.atOnce)
    #expect(failures.all.isEmpty)
  }
}
