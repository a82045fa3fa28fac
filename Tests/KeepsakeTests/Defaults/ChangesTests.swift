import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite(.temporaryStorage, .timeLimit(.minutes(20))) struct ChangesTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  @Test(arguments: [Defaults.Suite.standard, .memory])
  func deliversChangesByThisProcess(_ suite: Defaults.Suite) async {
    var changes = Defaults.changes("k", default: 0, suite: suite).makeAsyncIterator()
    Defaults.set(1, forKey: "k", suite: suite)
    #expect(await changes.next() == 1)
    Defaults.set(1, forKey: "k", suite: suite)  // unchanged: not repeated
    Defaults.set(5, forKey: "other", suite: suite)
    Defaults.set(2, forKey: "k", suite: suite)
    #expect(await changes.next() == 2)
    Defaults.remove("k", suite: suite)
    #expect(await changes.next() == 0)
    Defaults.set(3, forKey: "k", suite: suite)
    Defaults.set(4, forKey: "k", suite: suite)
    #expect(await changes.next() == 4, "only the latest")
  }

  @Test func deliversChangesBeforeTheFirstNext() async {
    let sequence = Defaults.changes("k", type: String.self)
    Defaults.set("early", forKey: "k")
    var changes = sequence.makeAsyncIterator()
    #expect(await changes.next() == "early")
  }

  @Test(arguments: [Defaults.Suite.standard, .memory])
  func beginsWithTheCurrentValueIfAsked(_ suite: Defaults.Suite) async {
    Defaults.set(1, forKey: "k", suite: suite)
    let sequence = Defaults.changes("k", default: 0, initial: true, suite: suite)
    Defaults.set(2, forKey: "k", suite: suite)
    // Each loop begins anew.
    for _ in 0..<2 {
      var changes = sequence.makeAsyncIterator()
      #expect(await changes.next() == 2, "the value at the first next()")
    }
    var changes = sequence.makeAsyncIterator()
    #expect(await changes.next() == 2)
    Defaults.set(2, forKey: "k", suite: suite)
    Defaults.set(3, forKey: "k", suite: suite)
    #expect(await changes.next() == 3)
    var missing = Defaults.changes("none", type: Int.self, initial: true).makeAsyncIterator()
    #expect(await missing.next() == .some(nil))
    let key = Defaults.Key("none", default: 7, suite: suite)
    var typed = Defaults.suite(suite).changes(key, initial: true).makeAsyncIterator()
    #expect(await typed.next() == 7)
    Defaults.set("text", forKey: "none", suite: suite)
    StorageSystem.onFailure = { _ in }
    var mistyped = Defaults.changes(key, initial: true).makeAsyncIterator()
    #expect(await mistyped.next() == 7)
  }

  /// Waking a task takes longer than a set, so a loop must not be woken for each.
  @Test(arguments: [Defaults.Suite.standard, .memory])
  func changesInQuickSuccessionAreCombined(_ suite: Defaults.Suite) async throws {
    let store = Defaults.suite(suite)
    let sequence = store.changes("k", default: 0)
    let count = Locked(0)
    let loop = Task {
      // A period that does not end during the test.
      await ChangeSignals.$lengthOfPeriod.withValue(.seconds(86_400)) {
        for await _ in sequence { count.withLock { $0 += 1 } }
      }
    }
    try store.set(1, forKey: "k")
    try await eventually("the loop has begun") { count.withLock { $0 } > 0 }
    for number in 2...1_000 {
      try store.set(number, forKey: "k")
      await Task.yield()
    }
    loop.cancel()
    await loop.value
    // The first element needs no signal.
    #expect(count.withLock { $0 } <= ChangeSignals.mostChecks + 1)
  }

  @Test func theLastOfManyQuickChangesIsDelivered() async throws {
    let store = Defaults.shared
    let sequence = store.changes("k", default: 0)
    let loop = Task { for await value in sequence where value == 1_000 { break } }
    for number in 1...1_000 { try store.set(number, forKey: "k") }
    await loop.value
  }

  @Test func deliversChangesByOtherProcesses() async throws {
    let store = directory.store()
    let peer = try Peer.start(directory, "serve")
    var changes = store.changes("k", default: 0).makeAsyncIterator()
    for number in 1...20 {
      #expect(try peer.ask("set k \(number)") == "ok")
      #expect(await changes.next() == number)
    }
    #expect(try peer.ask("clear") == "ok")
    #expect(await changes.next() == 0)
    #expect(try peer.ask("set k 21") == "ok")
    #expect(await changes.next() == 21)
  }

  @Test func cancellationEndsTheLoopAndTheWatch() async throws {
    let store = directory.store()
    try store.set(1, forKey: "size")
    let journal = try store.journal
    let waiting = Task { for await _ in store.changes("size", default: 0) {} }
    try await eventually("the file is watched") { journal.loaded.withLock { $0.isFollowed } }
    waiting.cancel()
    await waiting.value
    #expect(journal.observers.isEmpty)
    try await eventually("the watch has ended") {
      try store.set(2, forKey: "size")
      return journal.loaded.withLock { !$0.isFollowed }
    }
    var changes = store.changes("size", default: 0).makeAsyncIterator()
    try directory.store().set(3, forKey: "size")
    #expect(await changes.next() == 3)
  }

  @Test func anotherTypeAppearsAsTheDefaultAndIsReported() async {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    var changes = Defaults.changes("k", default: 9).makeAsyncIterator()
    Defaults.set("text", forKey: "k")
    #expect(await changes.next() == 9)
    #expect(failures.all.map(\.code) == [.wrongType])
  }

  @Test func deliversChangesThatSynchronizeHasRead() async throws {
    let (store, other) = (directory.store(), directory.store())
    try store.set(0, forKey: "k")
    let sequence = store.changes("k", default: 0)
    let plan = FaultPlan(decide: { $0.call == .watch ? .fail(ENOSPC) : .proceed })
    FaultPlan.$current.withValue(plan) { _ = sequence.makeAsyncIterator() }  // one check a second
    let values = Locked<[Int]>([])
    let loop = Task {
      for await value in sequence { values.withLock { $0.append(value) } }
    }
    // The loop has made its first check, which needs no signal.
    try store.set(1, forKey: "k")
    try await eventually("the first change is delivered") { values.withLock { $0 } == [1] }
    try other.set(2, forKey: "k")
    try store.synchronize()
    try await eventually("the second one is delivered") { values.withLock { $0.count } > 1 }
    loop.cancel()
    #expect(values.withLock { $0 } == [1, 2])
  }

  @Test func deliversChangesAfterTheFilesWereDeleted() async throws {
    let store = directory.store()
    try store.set(5, forKey: "k")
    var changes = store.changes("k", default: 0).makeAsyncIterator()
    for number in 1...2 {
      for name in try directory.names() {
        try FileManager.default.removeItem(at: directory.file(name))
      }
      #expect(await changes.next() == 0)
      let other = directory.store()  // as in a process that starts now
      try other.set(number, forKey: "k")
      #expect(await changes.next() == number)
      try other.set(number + 10, forKey: "k")
      #expect(await changes.next() == number + 10)
    }
  }

  @Test func removedDirectoryIsNotRecreated() async throws {
    let inner = TemporaryDirectory("inner", in: directory)
    let store = inner.store()
    try store.set(1, forKey: "k")
    var changes = store.changes("k", default: 0).makeAsyncIterator()
    try FileManager.default.removeItem(at: inner.url)
    #expect(await changes.next() == 0)
    await waitForBackgroundWork(dueWithin: .milliseconds(50))
    #expect(!FileManager.default.fileExists(atPath: inner.path))
  }
}

@Suite(.temporaryStorage, .timeLimit(.minutes(20))) struct SuiteChangesTests {
  @Test(arguments: [Defaults.Suite.standard, .memory])
  func deliversKeysThatWereAddedChangedOrRemoved(_ suite: Defaults.Suite) async throws {
    try Defaults.suite(suite).import(
      Data(#"{"kept": 1, "changed": 1, "removed": 1}"#.utf8))
    var changes = Defaults.changes(suite: suite).makeAsyncIterator()
    Defaults.set(2, forKey: "changed", suite: suite)
    Defaults.remove("removed", suite: suite)
    Defaults.set(1, forKey: "set", suite: suite)
    Defaults.set(1, forKey: "kept", suite: suite)
    Defaults.set(1, forKey: "elsewhere", suite: "elsewhere")
    #expect(await changes.next(isolation: nil) == ["changed", "removed", "set"])
    Defaults.update("set", default: 0, suite: suite) { $0 += 1 }
    #expect(await changes.next(isolation: nil) == ["set"])
    Defaults.removeAll(suite: suite)
    #expect(await changes.next(isolation: nil) == ["kept", "changed", "set"])
  }

  /// A loop over 10,000 keys must not compare all of them after each set.
  @Test(arguments: [Defaults.Suite.standard, .memory])
  func onlyTheValuesSetSinceAreLookedAt(_ suite: Defaults.Suite) throws {
    let engine = try Defaults.suite(suite).engine.get()
    for number in 0..<100 { try engine.set(.int(0), forKey: "k\(number)") }
    let all = try engine.changedValues(since: nil)
    #expect(all.values.count == 100 && all.isComplete)
    #expect(try engine.changedValues(since: all.version).values.isEmpty)
    for number in [7, 3, 7] { try engine.set(.int(1), forKey: "k\(number)") }
    let few = try engine.changedValues(since: all.version)
    #expect(Set(few.values.map(\.key)) == ["k3", "k7"] && few.values.count == 2)
    #expect(!few.isComplete)
    // The key of a removed value is only missing.
    try engine.set(nil, forKey: "k5")
    let removed = try engine.changedValues(since: few.version)
    #expect(removed.values.count == 99 && removed.isComplete)
    #expect(try engine.changedValues(since: removed.version).values.isEmpty)
    try engine.removeAll()
    let none = try engine.changedValues(since: removed.version)
    #expect(none.values.isEmpty && none.isComplete)
  }

  @Test(arguments: [Defaults.Suite.standard, .memory])
  func elementsAreTheDifferencesOfAllValues(_ suite: Defaults.Suite) async throws {
    let store = Defaults.suite(suite)
    var changes = store.changes().makeAsyncIterator()
    var values: [String: Int] = [:]
    var random = SystemRandomNumberGenerator()
    for _ in 0..<30 {
      var new = values
      for _ in 0..<Int.random(in: 1...4, using: &random) {
        let key = "k\(Int.random(in: 0..<12, using: &random))"
        switch Int.random(in: 0..<10, using: &random) {
        case 0:
          try store.removeAll()
          new = [:]
        case 1...3:
          try store.remove(key)
          new[key] = nil
        default:
          let value = Int.random(in: 0..<3, using: &random)
          try store.set(value, forKey: key)
          new[key] = value
        }
      }
      let keys = Set(values.keys).union(new.keys).filter { values[$0] != new[$0] }
      if !keys.isEmpty { #expect(await changes.next(isolation: nil) == keys) }
      values = new
    }
  }

  @Test func ignoresValuesThatWereChangedBack() async {
    Defaults.set(1, forKey: "restored")
    var changes = Defaults.changes().makeAsyncIterator()
    Defaults.set(2, forKey: "restored")
    Defaults.set(1, forKey: "passing")
    Defaults.remove("passing")
    Defaults.remove("restored")
    Defaults.set(1, forKey: "restored")
    Defaults.set("1", forKey: "type")
    #expect(await changes.next(isolation: nil) == ["type"])
    Defaults.set(1, forKey: "type")
    #expect(await changes.next(isolation: nil) == ["type"])
  }

  @Test func ignoresAnotherOrderOfADictionary() async throws {
    try Defaults.shared.import(Data(#"{"same": {"a": 1, "b": 2}, "list": [1, 2]}"#.utf8))
    var changes = Defaults.changes().makeAsyncIterator()
    try Defaults.shared.import(Data(#"{"same": {"b": 2, "a": 1}, "list": [2, 1]}"#.utf8))
    #expect(await changes.next(isolation: nil) == ["list"])
  }

  @Test func deliversChangesBeforeTheFirstNext() async {
    let sequence = Defaults.shared.changes()
    Defaults.set("early", forKey: "k")
    var changes = sequence.makeAsyncIterator()
    #expect(await changes.next(isolation: nil) == ["k"])
    var late = sequence.makeAsyncIterator()
    #expect(await late.next(isolation: nil) == ["k"], "each loop gets every change")
  }

  @Test func cancellationEndsTheLoop() async throws {
    let store = Defaults.shared
    let task = Task {
      for await _ in store.changes() {}
      return true
    }
    try await eventually("the loop waits") { try !store.journal.observers.isEmpty }
    task.cancel()
    #expect(await task.value)
    try await eventually("the loop has ended") { try store.journal.observers.isEmpty }
  }

  @Test func unreadableSuiteIsReportedAndCountsAsUnchanged() async throws {
    let failures = Failures()
    let directory = try TemporaryDirectory()
    let (store, other) = (directory.store(failures: failures), directory.store())
    // Not with the store that fails: it would sync a second later, and read the file for that.
    try other.set(1, forKey: "k")
    let isUnreadable = Locked(false)
    let plan = FaultPlan(decide: { event in
      if event.call == .watch { return .fail(ENOSPC) }  // one check a second
      // Once: looking at the path is the first call of each check, and of each read.
      guard event.call == .stat else { return .proceed }
      let fails = isUnreadable.withLock { isUnreadable in
        defer { isUnreadable = false }
        return isUnreadable
      }
      return fails ? .fail(EACCES) : .proceed
    })
    let keys = try await FaultPlan.$current.withValue(plan) {
      // Here, so that the watch that the first read begins later is part of the plan.
      var changes = store.changes().makeAsyncIterator()
      isUnreadable.withLock { $0 = true }
      var keys: Set<String>?
      var number = 1
      repeat {
        number += 1
        // Outside the fault plan, as in another process.
        try await Task.detached { [number] in try other.set(number, forKey: "other") }.value
        keys = await changes.next(isolation: nil)
      } while failures.all.isEmpty
      return keys
    }
    #expect(keys == ["other"])
    #expect(failures.all.map(\.operation) == ["Defaults.changes"])
  }

  /// The way to the file cannot be looked at for a moment, just when the file has been replaced.
  @Test func followingGoesOnAfterAFailure() async throws {
    let failures = Failures()
    let directory = try TemporaryDirectory()
    let (store, other) = (directory.store(failures: failures), directory.store())
    try other.set(1, forKey: "k")
    let path = directory.url.appending(path: TemporaryDirectory.journal).path
    let isFailing = Locked(false)
    let count = Locked(0)
    let plan = FaultPlan(decide: { event in
      if event.call == .watch { return .fail(ENOSPC) }  // one check a second
      let isOnTheWay = event.call == .stat && event.path == directory.path
      // More often than there are watches, which are polled one after the other.
      return isOnTheWay && isFailing.withLock { $0 } && count.increment() <= 5
        ? .fail(ENOMEM) : .proceed
    })
    let last = Locked(1)
    let following = Task {
      await FaultPlan.$current.withValue(plan) {
        for await value in store.changes("k", default: 0) { last.withLock { $0 = value } }
      }
    }
    defer { following.cancel() }
    try await eventually("the loop waits") { try !store.journal.observers.isEmpty }
    isFailing.withLock { $0 = true }
    try FileManager.default.copyItem(atPath: path, toPath: path + ".new")
    try FileSystem.rename(path + ".new", to: path)
    func reports() -> Int { failures.all.count { $0.operation == "Defaults.changes" } }
    try await eventually("the failure is reported") { reports() >= 1 }
    try other.set(2, forKey: "k")
    try await eventually("the change is delivered") { last.withLock { $0 } == 2 }
    // A look that succeeds in between makes the next failure a new one.
    #expect(reports() <= 5)
  }

  @Test func suiteWithoutDirectoryEndsTheLoopAndIsReported() async {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    let suite = Defaults.Suite(String(repeating: "x", count: 300))
    for await _ in Defaults.changes(suite: suite) {}
    #expect(failures.all.map(\.operation) == ["Defaults.changes"])
  }
}

extension OneAtATime {
  @Suite(.timeLimit(.minutes(20))) struct SuiteChangesOfProcessesTests {
    @Test func deliversChangesByOtherProcesses() async throws {
      let directory = try TemporaryDirectory()
      let store = directory.store()
      let peer = try Peer.start(directory, "serve")
      var changes = store.changes().makeAsyncIterator()
      for number in 1...20 {
        #expect(try peer.ask("set k\(number) \(number)") == "ok")
        #expect(await changes.next(isolation: nil) == ["k\(number)"])
      }
      #expect(try peer.ask("clear") == "ok")
      #expect(await changes.next(isolation: nil) == Set((1...20).map { "k\($0)" }))
    }
  }
}
