import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake

@Suite(.temporaryStorage, .timeLimit(.minutes(5))) struct ChangesTests {
  @Test(arguments: [Defaults.Suite.standard, .memory])
  func changesOfThisProcessArrive(_ suite: Defaults.Suite) async {
    var changes = Defaults.changes("k", default: 0, suite: suite).makeAsyncIterator()
    Defaults.set(1, forKey: "k", suite: suite)
    #expect(await changes.next() == 1)
    Defaults.set(1, forKey: "k", suite: suite)  // equal: not repeated
    Defaults.set(5, forKey: "other", suite: suite)
    Defaults.set(2, forKey: "k", suite: suite)
    #expect(await changes.next() == 2)
    Defaults.remove("k", suite: suite)
    #expect(await changes.next() == 0)
    Defaults.set(3, forKey: "k", suite: suite)
    Defaults.set(4, forKey: "k", suite: suite)
    #expect(await changes.next() == 4, "the latest only")
  }

  @Test func whatChangesBeforeTheFirstNextIsNotMissed() async {
    let sequence = Defaults.changes("k", type: String.self)
    Defaults.set("early", forKey: "k")
    var changes = sequence.makeAsyncIterator()
    #expect(await changes.next() == "early")
  }

  @Test func changesOfOtherProcessesArrive() async throws {
    let folder = try TemporaryFolder()
    let store = folder.store()
    let peer = try Peer.start(folder, "serve")
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

  @Test func changesArriveAlsoWithoutAWatch() async throws {
    let folder = try TemporaryFolder()
    let store = folder.store()
    let peer = try Peer.start(folder, "serve")
    let plan = FaultPlan(decide: { $0.call == .watch ? .fail(ENOSPC) : .proceed })
    let sequence = store.changes("k", default: 0)
    var changes = FaultPlan.$current.withValue(plan) { sequence.makeAsyncIterator() }
    #expect(try peer.ask("set k 1") == "ok")
    #expect(await changes.next() == 1)
  }

  @Test func cancellingEndsTheLoop() async throws {
    let store = Defaults.shared
    let task = Task {
      for await _ in store.changes("k", default: 0) {}
      return true
    }
    try await Task.sleep(for: .milliseconds(20))
    task.cancel()
    #expect(await task.value)
    #expect(try store.journal.observers.isEmpty)
  }

  @Test func anotherTypeShowsAsTheDefaultAndIsReported() async {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    var changes = Defaults.changes("k", default: 9).makeAsyncIterator()
    Defaults.set("text", forKey: "k")
    #expect(await changes.next() == 9)
    #expect(failures.all.map(\.code) == [.wrongType])
  }

  @Test func whatASyncReadFirstArrivesAllTheSame() async throws {
    let folder = try TemporaryFolder()
    let (store, other) = (folder.store(), folder.store())
    try store.set(0, forKey: "k")
    let sequence = store.changes("k", default: 0)
    let plan = FaultPlan(decide: { $0.call == .watch ? .fail(ENOSPC) : .proceed })
    FaultPlan.$current.withValue(plan) { _ = sequence.makeAsyncIterator() }  // one look a second
    let loop = Task { () -> Int? in
      for await value in sequence { return value }
      return nil
    }
    try await Task.sleep(for: .milliseconds(100))
    try other.set(1, forKey: "k")
    try store.synchronize()
    try await Task.sleep(for: .milliseconds(2_500))
    loop.cancel()
    #expect(await loop.value == 1)
  }

  @Test func changesArriveAfterTheFilesWereDeleted() async throws {
    let folder = try TemporaryFolder()
    let store = folder.store()
    try store.set(5, forKey: "k")
    var changes = store.changes("k", default: 0).makeAsyncIterator()
    for number in 1...2 {
      for name in try folder.names() { try FileManager.default.removeItem(at: folder.file(name)) }
      #expect(await changes.next() == 0)
      let other = folder.store()  // as another process that starts now
      try other.set(number, forKey: "k")
      #expect(await changes.next() == number)
      try other.set(number + 10, forKey: "k")
      #expect(await changes.next() == number + 10)
    }
  }

  @Test func aRemovedFolderIsNotBroughtBack() async throws {
    let folder = try TemporaryFolder()
    let inner = folder.url.appending(path: "inner")
    let scope = StorageScope(
      finder: DirectoryFinder(app: "test", chosen: .init(configuration: inner)))
    let store = scope.defaults(.standard)
    try store.set(1, forKey: "k")
    var changes = store.changes("k", default: 0).makeAsyncIterator()
    try FileManager.default.removeItem(at: inner)
    #expect(await changes.next() == 0)
    try await Task.sleep(for: .milliseconds(50))
    #expect(!FileManager.default.fileExists(atPath: inner.path))
    scope.close()
  }
}
