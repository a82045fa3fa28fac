import Foundation
import KeepsakeTesting
import Observation
import Testing

@testable import Keepsake

@Suite(.temporaryStorage, .timeLimit(.minutes(5))) struct ObservationTests {
  // MARK: Who is told

  @Test(arguments: Write.allCases, [Defaults.Suite.standard, .memory])
  func eachWriteTellsBeforeItReturns(_ write: Write, _ suite: Defaults.Suite) throws {
    @Default("size", defaultValue: 16, suite: suite) var size: Int
    Defaults.set(20, forKey: "size", suite: suite)
    for round in 1...3 {
      let notices = Notices()
      #expect(notices.track { size } == 20)
      try write.run(on: $size)
      #expect(notices.count == 1, "round \(round)")
      #expect(size != 20)
      try write.run(on: $size)
      Defaults.set(20, forKey: "size", suite: suite)
      #expect(notices.count == 1, "once, until it is tracked again")
    }
  }

  @Test func optionalSettingsAreTrackedToo() {
    @DefaultOptional("name") var name: String?
    let notices = Notices()
    #expect(notices.track { name } == nil)
    name = "Ann"
    #expect(notices.count == 1)
    #expect(notices.track { name } == "Ann")
    $name.reset()
    #expect(notices.count == 2)
    #expect(notices.track { name } == nil)
    Defaults.set("Bob", forKey: "name")
    #expect(notices.count == 3)
  }

  @Test func whatWasNotReadIsNoNews() throws {
    @Default("size", defaultValue: 16) var size: Int
    size = 20
    let notices = Notices()
    notices.track { size }
    Defaults.set(1, forKey: "other")
    Defaults.set(1, forKey: "size", suite: "other")
    Defaults.remove("other")
    Defaults.set(20, forKey: "size")
    try Defaults.shared.synchronize()
    #expect(notices.count == 0)
    size = 21
    #expect(notices.count == 1)
  }

  @Test func aFailedWriteIsNoNews() throws {
    @Default("size", defaultValue: 16) var size: Int
    let notices = Notices()
    notices.track { size }
    struct Failed: Error {}
    #expect(throws: Failed.self) { try Defaults.update("size", default: 0) { _ in throw Failed() } }
    expectFailure(.encodingFailed) { try Defaults.shared.set(Unwritable(), forKey: "size") }
    #expect(notices.count == 0)
  }

  @Test func severalSettingsInOneClosureTellOnce() throws {
    @Default("a", defaultValue: 0) var a: Int
    @Default("b", defaultValue: 0) var b: Int
    @Default("c", defaultValue: 0, suite: "other") var c: Int
    for write in [{ a += 1 }, { b += 1 }, { c += 1 }] {
      let notices = Notices()
      notices.track { a + b + c + a + b + c }
      write()
      #expect(notices.count == 1)
    }
    let notices = Notices()
    notices.track { a + b + c }
    try Defaults.shared.import(Data(#"{"a": 10, "b": 10}"#.utf8))
    #expect(notices.count == 1)
  }

  @Test func closuresInsideOneAnotherAreAllTold() {
    @Default("size", defaultValue: 16) var size: Int
    @Default("other", defaultValue: 0) var other: Int
    let (inner, outer) = (Notices(), Notices())
    outer.track {
      _ = other
      inner.track { size }
      return size
    }
    size = 17
    #expect(inner.count == 1)
    #expect(outer.count == 1)
  }

  @Test func keysThatDifferOnlyInTheirBytesAreTwo() {
    @Default("caf\u{E9}", defaultValue: 0) var composed: Int
    @Default("cafe\u{301}", defaultValue: 0) var decomposed: Int
    let (one, other) = (Notices(), Notices())
    one.track { composed }
    other.track { decomposed }
    decomposed = 1
    #expect(one.count == 0)
    #expect(other.count == 1)
  }

  @Test func whatNobodyTracksCostsNothing() {
    @Default("size", defaultValue: 16) var size: Int
    size += 1
    #expect(!Defaults.shared.observed.isUsed)
    Notices().track { size }
    #expect(Defaults.shared.observed.isUsed)
    size += 1
    #expect(!Defaults.shared.observed.isUsed, "everybody has been told")
  }

  @Test func aSuiteWithoutAPlaceIsReportedAndReadsAsTheDefault() {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    let name = String(repeating: "x", count: 300)
    @Default("size", defaultValue: 16, suite: Defaults.Suite(name)) var size: Int
    let notices = Notices()
    #expect(notices.track { size } == 16)
    #expect(!$size.reset())
    #expect(notices.count == 0)
    #expect(
      failures.all.map(\.operation) == ["Defaults.changes", "Defaults.get", "Defaults.remove"])
  }

  // MARK: What observers do

  @Test func observersReadWhatIsNew() {
    @Default("size", defaultValue: 16) var size: Int
    let key = $size.key
    let seen = Locked<[Int]>([])
    withObservationTracking {
      _ = size
    } onChange: {
      let value = Defaults[key]
      seen.withLock { $0.append(value) }
    }
    Defaults.update("size", default: 0) { $0 = 17 }
    #expect(seen.withLock { $0 } == [17])
  }

  @Test func observersMayWriteWhatTheyObserve() {
    @Default("size", defaultValue: 16) var size: Int
    @Default("copy", defaultValue: 0) var copy: Int
    let key = $size.key
    let (sizes, copies) = (Notices(), Notices())
    withObservationTracking {
      _ = size
    } onChange: {
      sizes.add()
      Defaults.update(key) { $0 += 1 }
      Defaults.set(Defaults[key], forKey: "copy")
    }
    copies.track { copy }
    Defaults.update("size", default: 0) { $0 = 20 }
    #expect(sizes.count == 1)
    #expect(copies.count == 1)
    #expect(size == 21)
    #expect(copy == 21)
  }

  @Test func observersMayTrackAgain() {
    @Default("size", defaultValue: 16) var size: Int
    let loop = Loop($size.key)
    loop.run()
    for number in 20...30 { size = number }
    #expect(loop.seen.withLock { $0 } == [16] + Array(20...30))
  }

  /// An observer that was called inside the closure could not write.
  @Test(arguments: [Defaults.Suite.standard, .memory])
  func noObserverIsCalledInsideAnUpdate(_ suite: Defaults.Suite) async throws {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    @Default("size", defaultValue: 16, suite: "other") var size: Int
    let notices = Notices()
    withObservationTracking {
      _ = size
    } onChange: {
      Defaults.update("sum", default: 0, suite: suite) { $0 += 100 }
      notices.add()
    }
    Defaults.update("sum", default: 0, suite: suite) { sum in
      sum += 1
      size = 17
      #expect(notices.thread != pthread_self())
    }
    try await eventually("told after it") { notices.count == 1 }
    #expect(Defaults.int("sum", suite: suite) == 101)
    #expect(failures.all.isEmpty)
  }

  // MARK: What comes in between

  @Test func aChangeBeforeTheObserverIsInstalledIsNotMissed() async throws {
    @Default("size", defaultValue: 16) var size: Int
    let (first, notices) = (Notices(), Notices())
    first.track { size }
    notices.track {
      let old = size
      size = old + 1
      return old
    }
    #expect(first.count == 1)
    try await eventually("told late") { notices.count == 1 }
    #expect(first.count == 1)
    notices.track { size }
    try await Task.sleep(for: .milliseconds(50))
    #expect(notices.count == 1, "what comes after it is told in time")
    size = 0
    #expect(notices.count == 2)
  }

  @Test func aValueThatOnlyOneReaderSawIsTakenBackFromIt() async throws {
    // Looks at the file once a second only.
    let directory = try TemporaryDirectory()
    let suite = Defaults.Suite("standard", in: directory.url)
    let other = Defaults.Store(suite: suite, scope: try #require(StorageScope.temporary))
    @Default("size", defaultValue: 1, suite: suite) var size: Int
    size = 1
    let (early, late) = (Notices(), Notices())
    let plan = FaultPlan(decide: { $0.call == .watch ? .fail(ENOSPC) : .proceed })
    FaultPlan.$current.withValue(plan) { _ = early.track { size } }
    // The first look is over before the file changes.
    try await Task.sleep(for: .milliseconds(100))
    try other.set(2, forKey: "size")
    #expect(late.track { size } == 2)
    try other.set(1, forKey: "size")
    try await eventually("the reader that saw 2 is told") { late.count == 1 }
    try await eventually("and so is the one before it") { early.count == 1 }
  }

  @Test func whatItsOwnWriteChangesIsNeverLeftToTheBackground() throws {
    @Default("size", defaultValue: 0) var size: Int
    for number in 1...500 {
      let notices = Notices()
      notices.track { size }
      size = number
      try #require(notices.count == 1, "set \(number)")
      try #require(notices.thread == pthread_self())
    }
  }

  @Test func manyWhoReadAgainAreNotToldForEver() async throws {
    @Default("size", defaultValue: 0) var size: Int
    let setting = $size
    let told = Locked(0)
    @Sendable func follow() {
      withObservationTracking {
        _ = setting.wrappedValue
      } onChange: {
        told.withLock { $0 += 1 }
        follow()
      }
    }
    for _ in 0..<1_500 { follow() }
    // Rounds are found too small and made larger a few times: then there is silence.
    var last = -1
    try await eventually("nobody is told any more") {
      defer { last = told.withLock { $0 } }
      usleep(100_000)
      return told.withLock { $0 } == last
    }
    #expect(told.withLock { $0 } < 20_000)
  }

  @Test func thoseWhoNeverHearAnythingDoNotPileUp() async throws {
    @Default("size", defaultValue: 0) var size: Int
    let setting = $size
    // What view models that are gone leave behind: told now and then, they are let go.
    let told = Locked(0)
    for _ in 0..<5_000 {
      withObservationTracking {
        _ = setting.wrappedValue
      } onChange: {
        told.withLock { $0 += 1 }
      }
    }
    try await eventually("full rounds end") { told.withLock { $0 } >= 3_000 }
    #expect(told.withLock { $0 } < 5_000, "the last ones have nothing to hear yet")
  }

  @Test func anothersChangeIsToldAfterAWriteThatDidNotLookAtIt() async throws {
    let engine = MemoryEngine()
    let observed = ObservedSettings(.success(engine), try #require(StorageScope.temporary))
    let notices = Notices()
    notices.track { observed.noteRead("theme") }
    try observed.telling(["size"]) { () throws(StorageError) in
      try engine.set(.string("dark"), forKey: "theme")
      observed.check()
    }
    try await eventually("it is told in the background") { notices.count == 1 }
  }

  @Test func theBackgroundLeavesAChangeToItsWriter() async throws {
    let engine = MemoryEngine()
    let observed = ObservedSettings(.success(engine), try #require(StorageScope.temporary))
    let notices = Notices()
    notices.track { observed.noteRead("size") }
    try observed.telling(["size"]) { () throws(StorageError) in
      try engine.set(.int(1), forKey: "size")
      let isChecked = DispatchSemaphore(value: 0)
      DispatchQueue.global().async {
        observed.check()
        isChecked.signal()
      }
      isChecked.wait()
    }
    #expect(notices.count == 1)
    #expect(notices.thread == pthread_self())
  }

  @Test func nobodyMissesTheLastValue() async throws {
    @Default("size", defaultValue: 0) var size: Int
    let setting = $size
    let last = 300
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<4 {
        group.addTask {
          while true {
            let (changes, changed) = AsyncStream.makeStream(of: Void.self)
            let value = withObservationTracking {
              setting.wrappedValue
            } onChange: {
              changed.finish()
            }
            if value >= 2 * last { return }
            for await _ in changes {}
            // At its time limit the loop above does not wait any more.
            try Task.checkCancellation()
          }
        }
      }
      for _ in 0..<2 {
        group.addTask {
          for _ in 0..<last {
            setting.update { $0 += 1 }
            await Task.yield()
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(size == 2 * last)
  }

  // MARK: View models

  @Test @MainActor func aViewModelRendersEachState() async throws {
    let model = ViewModel()
    model.render()
    #expect(model.frames == ["16 -"])
    model.size = 17
    try await eventually("a property") { model.frames.last == "17 -" }
    model.name = "Ann"
    try await eventually("an optional one") { model.frames.last == "17 Ann" }
    Defaults.set(18, forKey: "size")
    try await eventually("the facade") { model.frames.last == "18 Ann" }
    model.selection = 5
    try await eventually("a property that is no setting") { model.frames.last == "18 Ann5" }
    model.$size.update { $0 += 1 }
    try await eventually("an update") { model.frames.last == "19 Ann5" }
    Defaults.removeAll()
    try await eventually("all gone") { model.frames.last == "16 -5" }
    #expect(model.frames.count == 7)
  }

  @Test func observationsFollow() async throws {
    guard #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) else { return }
    @Default("size", defaultValue: 16) var size: Int
    let setting = $size
    var sizes = Observations { setting.wrappedValue }.makeAsyncIterator()
    #expect(await sizes.next() == 16)
    for number in 17...30 {
      size = number
      #expect(await sizes.next() == number)
    }
  }

  // MARK: Scopes and the background

  @Test func observersInTheBackgroundReachTheirOwnStores() async throws {
    @Default("size", defaultValue: 16) var size: Int
    let seen = Locked<[Int]>([])
    withObservationTracking {
      _ = size
    } onChange: {
      let value = Defaults.int("size")
      seen.withLock { $0.append(value) }
    }
    // As another process.
    let finder = try #require(StorageScope.temporary).finder
    let other = Defaults.Store(suite: .standard, scope: StorageScope(finder: finder))
    try other.set(17, forKey: "size")
    try await eventually("told") { !seen.withLock { $0 }.isEmpty }
    #expect(seen.withLock { $0 } == [17])
  }

  @Test func aTrackedStoreIsFreed() async throws {
    weak var store: Defaults.Store?
    weak var observed: ObservedSettings?
    try await StorageSystem.withTemporary {
      @Default("size", defaultValue: 16) var size: Int
      let notices = Notices()
      notices.track { size }
      size = 17
      #expect(notices.count == 1)
      notices.track { size }
      // As another process, so that it is known to follow.
      let finder = try #require(StorageScope.temporary).finder
      try Defaults.Store(suite: .standard, scope: StorageScope(finder: finder))
        .set(18, forKey: "size")
      try await eventually("told") { notices.count == 2 }
      notices.track { size }
      store = Defaults.shared
      observed = Defaults.shared.observed
      #expect(store != nil && observed != nil)
    }
    // A look in the background may be under way.
    try await eventually("freed") { store == nil && observed == nil }
  }

  @Test func aStoreThatIsGoneNoLongerWaits() async throws {
    let engine = MemoryEngine()
    let scope = try #require(StorageScope.temporary)
    var observed: ObservedSettings? = ObservedSettings(.success(engine), scope)
    withObservationTracking {
      observed?.noteRead("size")
    } onChange: {
    }
    #expect(!engine.observers.isEmpty)
    observed = nil
    try await eventually("no observer") { engine.observers.isEmpty }
  }
}

extension OneAtATime {
  @Suite(.temporaryStorage, .timeLimit(.minutes(5))) struct ObservationOfProcessesTests {
    @Test func changesOfOtherProcessesAreTold() async throws {
      let directory = try TemporaryDirectory()
      let peer = try Peer.start(directory, "serve")
      @Default("size", defaultValue: 16, suite: Defaults.Suite("standard", in: directory.url))
      var size: Int
      for number in 1...20 {
        let notices = Notices()
        notices.track { size }
        #expect(try peer.ask("set other \(number)") == "ok")
        #expect(try peer.ask("set size \(number)") == "ok")
        try await eventually("told of \(number)") { notices.count == 1 }
        #expect(size == number)
      }
      let notices = Notices()
      notices.track { size }
      #expect(try peer.ask("clear") == "ok")
      try await eventually("told of the end") { notices.count == 1 }
      #expect(size == 16)
    }
  }
}

/// The ways to change a setting.
enum Write: CaseIterable {
  case property, propertyUpdate, reset, set, setNil, remove, removeAll, update, throwingUpdate
  case typedKey, typedUpdate, store, `import`

  func run(on setting: Default<Int>) throws {
    let (key, suite) = (setting.key, setting.key.suite)
    switch self {
    case .property: setting.wrappedValue = 1
    case .propertyUpdate: setting.update { $0 = 1 }
    case .reset: setting.reset()
    case .set: Defaults.set(1, forKey: key.name, suite: suite)
    case .setNil: Defaults.set(nil, forKey: key.name, suite: suite)
    case .remove: Defaults.remove(key.name, suite: suite)
    case .removeAll: Defaults.removeAll(suite: suite)
    case .update: Defaults.update(key.name, default: 0, suite: suite) { $0 = 1 }
    case .throwingUpdate:
      try Defaults.update(key.name, default: 0, suite: suite) { value throws(CancellationError) in
        value = 1
      }
    case .typedKey: Defaults[key] = 1
    case .typedUpdate: Defaults.update(key) { $0 = 1 }
    case .store: try Defaults.suite(suite).set(1, for: key)
    case .import: Defaults.import(Data(#"{"size": 1}"#.utf8), suite: suite)
    }
  }
}

/// Counts how often observers are told.
private final class Notices: Sendable {
  private let state = Locked<(count: Int, thread: pthread_t?)>((0, nil))

  var count: Int { state.withLock { $0.count } }
  /// Where the last one was told.
  var thread: pthread_t? { state.withLock { $0.thread } }

  func add() { state.withLock { $0 = ($0.count + 1, pthread_self()) } }

  @discardableResult
  func track<R>(_ read: () -> R) -> R {
    withObservationTracking(read) { self.add() }
  }
}

/// Tracks anew as often as it is told.
private final class Loop: Sendable {
  let key: Defaults.Key<Int>
  let seen = Locked<[Int]>([])

  init(_ key: Defaults.Key<Int>) { self.key = key }

  func run() {
    let value = withObservationTracking {
      Default(key).wrappedValue
    } onChange: {
      self.run()
    }
    seen.withLock { $0.append(value) }
  }
}

@MainActor @Observable private final class ViewModel {
  @ObservationIgnored @Default("size", defaultValue: 16) var size: Int
  @ObservationIgnored @DefaultOptional("name") var name: String?
  var selection: Int?
  @ObservationIgnored private(set) var frames: [String] = []

  /// What a user interface does: draws, and again when anything that it drew has changed.
  func render() {
    withObservationTracking {
      frames.append("\(size) \(name ?? "-")\(selection.map(String.init) ?? "")")
    } onChange: {
      Task { @MainActor in self.render() }
    }
  }
}

private struct Unwritable: Codable {
  init() {}
  init(from decoder: any Decoder) throws {}
  func encode(to encoder: any Encoder) throws { throw CancellationError() }
}
