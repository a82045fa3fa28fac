import Foundation
import KeepsakeTesting
import Observation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite(.temporaryStorage, .timeLimit(.minutes(20))) struct ObservationTests {
  // MARK: Which observers are notified

  @Test(arguments: Write.allCases, [Defaults.Suite.standard, .memory])
  func everyWriteNotifiesBeforeItReturns(_ write: Write, _ suite: Defaults.Suite) throws {
    @Default("size", defaultValue: 16, suite: suite) var size: Int
    Defaults.set(20, forKey: "size", suite: suite)
    for attempt in 1...3 {
      let notifications = Notifications()
      #expect(notifications.track { size } == 20)
      try write.run(on: $size)
      #expect(notifications.count == 1, "attempt \(attempt)")
      #expect(size != 20)
      try write.run(on: $size)
      Defaults.set(20, forKey: "size", suite: suite)
      #expect(notifications.count == 1, "once, until it is tracked again")
    }
  }

  @Test func optionalSettingsAreTracked() {
    @DefaultOptional("name") var name: String?
    let notifications = Notifications()
    #expect(notifications.track { name } == nil)
    name = "Ann"
    #expect(notifications.count == 1)
    #expect(notifications.track { name } == "Ann")
    $name.reset()
    #expect(notifications.count == 2)
    #expect(notifications.track { name } == nil)
    Defaults.set("Bob", forKey: "name")
    #expect(notifications.count == 3)
  }

  @Test func changesOfOtherKeysDoNotNotify() throws {
    @Default("size", defaultValue: 16) var size: Int
    size = 20
    let notifications = Notifications()
    notifications.track { size }
    Defaults.set(1, forKey: "other")
    Defaults.set(1, forKey: "size", suite: "other")
    Defaults.remove("other")
    Defaults.set(20, forKey: "size")
    try Defaults.shared.synchronize()
    #expect(notifications.count == 0)
    size = 21
    #expect(notifications.count == 1)
  }

  @Test func anotherOrderOfADictionaryDoesNotNotify() throws {
    @Default("sizes", defaultValue: [:]) var sizes: [String: Int]
    let documents = [#"{"sizes": {"a": 1, "b": 2}}"#, #"{"sizes": {"b": 2, "a": 1}}"#]
    try Defaults.shared.import(Data(documents[0].utf8))
    let notifications = Notifications()
    for document in documents {
      notifications.track { sizes }
      try Defaults.shared.import(Data(document.utf8))
    }
    notifications.track { sizes }
    #expect(notifications.count == 0)
    sizes = ["b": 1, "a": 2]
    #expect(notifications.count > 0)
  }

  @Test func failedWritesDoNotNotify() throws {
    @Default("size", defaultValue: 16) var size: Int
    let notifications = Notifications()
    notifications.track { size }
    struct Failed: Error {}
    #expect(throws: Failed.self) { try Defaults.update("size", default: 0) { _ in throw Failed() } }
    expectFailure(.encodingFailed) { try Defaults.shared.set(Decimal.nan, forKey: "size") }
    #expect(notifications.count == 0)
  }

  @Test func oneClosureIsNotifiedOnceForSeveralSettings() throws {
    @Default("a", defaultValue: 0) var a: Int
    @Default("b", defaultValue: 0) var b: Int
    @Default("c", defaultValue: 0, suite: "other") var c: Int
    for write in [{ a += 1 }, { b += 1 }, { c += 1 }] {
      let notifications = Notifications()
      notifications.track { a + b + c + a + b + c }
      write()
      #expect(notifications.count == 1)
    }
    let notifications = Notifications()
    notifications.track { a + b + c }
    try Defaults.shared.import(Data(#"{"a": 10, "b": 10}"#.utf8))
    #expect(notifications.count == 1)
  }

  @Test func nestedClosuresAreAllNotified() {
    @Default("size", defaultValue: 16) var size: Int
    @Default("other", defaultValue: 0) var other: Int
    let (inner, outer) = (Notifications(), Notifications())
    outer.track {
      _ = other
      inner.track { size }
      return size
    }
    size = 17
    #expect(inner.count == 1)
    #expect(outer.count == 1)
  }

  @Test func keysThatDifferOnlyInNormalizationAreSeparate() {
    @Default("caf\u{E9}", defaultValue: 0) var composed: Int
    @Default("cafe\u{301}", defaultValue: 0) var decomposed: Int
    let (one, other) = (Notifications(), Notifications())
    one.track { composed }
    other.track { decomposed }
    decomposed = 1
    #expect(one.count == 0)
    #expect(other.count == 1)
  }

  @Test func hasObserversOnlyWhileSettingsAreTracked() {
    @Default("size", defaultValue: 16) var size: Int
    size += 1
    #expect(!Defaults.shared.observation.hasObservers)
    Notifications().track { size }
    #expect(Defaults.shared.observation.hasObservers)
    size += 1
    #expect(!Defaults.shared.observation.hasObservers, "all observers have been notified")
  }

  @Test func suiteWithoutDirectoryIsReportedAndReadsAsDefault() {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    let name = String(repeating: "x", count: 300)
    @Default("size", defaultValue: 16, suite: Defaults.Suite(name)) var size: Int
    let notifications = Notifications()
    #expect(notifications.track { size } == 16)
    #expect(!$size.reset())
    #expect(notifications.count == 0)
    #expect(
      failures.all.map(\.operation) == ["Defaults.changes", "Defaults.get", "Defaults.remove"])
  }

  // MARK: Observers that read and write

  @Test func observersReadTheNewValue() {
    @Default("size", defaultValue: 16) var size: Int
    let key = $size.key
    let seen = Locked<[Int]>([])
    Notifications().track({ size }, onChange: { seen.withLock { $0.append(Defaults[key]) } })
    Defaults.update("size", default: 0) { $0 = 17 }
    #expect(seen.withLock { $0 } == [17])
  }

  @Test func observersCanWriteWhatTheyObserve() {
    @Default("size", defaultValue: 16) var size: Int
    @Default("copy", defaultValue: 0) var copy: Int
    let key = $size.key
    let (sizes, copies) = (Notifications(), Notifications())
    sizes.track {
      size
    } onChange: {
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

  /// Removing the key paths of the others hashes its own again, while Observation still knows it.
  @Test func anObserverThatWritesForLongIsNotifiedOnce() {
    @Default("size", defaultValue: 16) var size: Int
    let others = (0..<1_000).map { Default("other\($0)", defaultValue: 0) }
    for other in others { Notifications().track { other.wrappedValue } }
    let calls = Locked(0)
    Notifications().track {
      size
    } onChange: {
      _ = calls.increment()
      for other in others { other.wrappedValue = 1 }
      // What is due earlier has begun by then.
      let isLater = DispatchSemaphore(value: 0)
      BackgroundWork.run(after: .milliseconds(100)) { isLater.signal() }
      isLater.wait()
    }
    size = 20
    #expect(calls.withLock { $0 } == 1)
  }

  @Test func observersCanTrackAgain() {
    @Default("size", defaultValue: 16) var size: Int
    let setting = $size
    let seen = Locked<[Int]>([])
    @Sendable func follow() {
      let value = Notifications().track({ setting.wrappedValue }, onChange: { follow() })
      seen.withLock { $0.append(value) }
    }
    follow()
    for number in 20...30 { size = number }
    #expect(seen.withLock { $0 } == [16] + Array(20...30))
  }

  /// Inside the closure an observer could not write.
  @Test(arguments: [Defaults.Suite.standard, .memory])
  func observersAreCalledAfterAnUpdate(_ suite: Defaults.Suite) async throws {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    @Default("size", defaultValue: 16, suite: "other") var size: Int
    let notifications = Notifications()
    notifications.track {
      size
    } onChange: {
      Defaults.update("sum", default: 0, suite: suite) { $0 += 100 }
    }
    Defaults.update("sum", default: 0, suite: suite) { sum in
      sum += 1
      size = 17
      #expect(notifications.thread != pthread_self())
    }
    try await eventually("notified after the update") { notifications.count == 1 }
    #expect(Defaults.int("sum", suite: suite) == 101)
    #expect(failures.all.isEmpty)
  }

  // MARK: Races

  @Test func changeBeforeObserverIsInstalledIsNotMissed() async throws {
    @Default("size", defaultValue: 16) var size: Int
    let (first, notifications) = (Notifications(), Notifications())
    first.track { size }
    notifications.track {
      let old = size
      size = old + 1
      return old
    }
    #expect(first.count == 1)
    try await eventually("notified late") { notifications.count == 1 }
    #expect(first.count == 1)
    notifications.track { size }
    await waitForBackgroundWork(dueWithin: .milliseconds(20))
    #expect(notifications.count == 1, "a tracked read after the change is not notified of it")
    size = 0
    #expect(notifications.count == 2)
  }

  @Test func readerOfAnIntermediateValueIsNotified() async throws {
    // Without a watch the store checks the file once a second only.
    let directory = try TemporaryDirectory()
    let suite = Defaults.Suite("standard", in: directory.url)
    let other = Defaults.Store(suite: suite, scope: try #require(StorageScope.temporary))
    @Default("size", defaultValue: 1, suite: suite) var size: Int
    size = 1
    let (early, late) = (Notifications(), Notifications())
    let plan = FaultPlan(decide: { $0.call == .watch ? .fail(ENOSPC) : .proceed })
    FaultPlan.$current.withValue(plan) { _ = early.track { size } }
    // The first check, which a task starts, begins before the file changes.
    await Task.detached {}.value
    await waitForBackgroundWork()
    try other.set(2, forKey: "size")
    #expect(late.track { size } == 2)
    try other.set(1, forKey: "size")
    try await eventually("the reader that saw 2 is notified") { late.count == 1 }
    try await eventually("so is the one before it") { early.count == 1 }
  }

  @Test func ownWritesAlwaysNotifyOnTheirThread() throws {
    @Default("size", defaultValue: 0) var size: Int
    for number in 1...500 {
      let notifications = Notifications()
      notifications.track { size }
      size = number
      try #require(notifications.count == 1, "set \(number)")
      try #require(notifications.thread == pthread_self())
    }
  }

  @Test func manyObserversThatReadAgainSettleDown() async throws {
    @Default("size", defaultValue: 0) var size: Int
    let setting = $size
    let notifications = Notifications()
    @Sendable func follow() {
      notifications.track({ setting.wrappedValue }, onChange: { follow() })
    }
    let start = ContinuousClock.now
    for _ in 0..<1_500 { follow() }
    // The capacity of the tracked value doubles a few times until all of them fit.
    var last = -1
    try await eventually("no more notifications") {
      last = notifications.count
      // A late notification is due after ten milliseconds.
      await waitForBackgroundWork(dueWithin: .milliseconds(50))
      return notifications.count == last
    }
    // One that takes a second to fill keeps its capacity, and notifies all of them once more.
    let seconds = Int((ContinuousClock.now - start) / .seconds(1)) + 1
    #expect(notifications.count < 20_000 + 3_000 * seconds)
  }

  @Test func observersOfAnUnchangedValueAreFreed() async throws {
    @Default("size", defaultValue: 0) var size: Int
    // View models that are gone leave their observers behind until they are notified.
    let notifications = Notifications()
    for _ in 0..<5_000 { notifications.track { size } }
    try await eventually("full tracked values are replaced") { notifications.count >= 3_000 }
    #expect(notifications.count < 5_000, "the last tracked value is not full")
  }

  @Test func changeDuringAnUnrelatedWriteIsNotified() async throws {
    let engine = MemoryEngine()
    let observation = SettingsObservation(.success(engine), try #require(StorageScope.temporary))
    let notifications = Notifications()
    notifications.track { observation.registerAccess(to: "theme") }
    let isCounted = observation.beginWrite()
    try engine.set(.string("dark"), forKey: "theme")
    observation.check()
    observation.endWrite(of: ["size"], isCounted: isCounted)
    try await eventually("notified in the background") { notifications.count == 1 }
  }

  @Test func checksLeaveChangesToActiveWrites() throws {
    let engine = MemoryEngine()
    let observation = SettingsObservation(.success(engine), try #require(StorageScope.temporary))
    let notifications = Notifications()
    notifications.track { observation.registerAccess(to: "size") }
    let isCounted = observation.beginWrite()
    try engine.set(.int(1), forKey: "size")
    startThread { observation.check() }.wait()
    observation.endWrite(of: ["size"], isCounted: isCounted)
    #expect(notifications.count == 1)
    #expect(notifications.thread == pthread_self())
  }

  @Test func observersAlwaysSeeTheLastValue() async throws {
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
            // The loop above also ends when the test reaches its time limit.
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

  @Test @MainActor func viewModelRendersEveryState() async throws {
    let model = ViewModel()
    model.render()
    #expect(model.frames == ["16 -"])
    model.size = 17
    try await eventually("after a property") { model.frames.last == "17 -" }
    model.name = "Ann"
    try await eventually("after an optional property") { model.frames.last == "17 Ann" }
    Defaults.set(18, forKey: "size")
    try await eventually("after a call of the facade") { model.frames.last == "18 Ann" }
    model.selection = 5
    try await eventually("after a property that is not a setting") {
      model.frames.last == "18 Ann5"
    }
    model.$size.update { $0 += 1 }
    try await eventually("after an update") { model.frames.last == "19 Ann5" }
    Defaults.removeAll()
    try await eventually("after removeAll") { model.frames.last == "16 -5" }
    #expect(model.frames.count == 7)
  }

  @Test func observationsSequenceFollows() async throws {
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

  // MARK: Scopes and lifetimes

  @Test func backgroundObserversUseTheStoresOfTheirScope() async throws {
    @Default("size", defaultValue: 16) var size: Int
    let seen = Locked<[Int]>([])
    Notifications().track {
      size
    } onChange: {
      seen.withLock { $0.append(Defaults.int("size")) }
    }
    // A store of its own, as in another process.
    let finder = try #require(StorageScope.temporary).finder
    let other = Defaults.Store(suite: .standard, scope: StorageScope(finder: finder))
    try other.set(17, forKey: "size")
    try await eventually("notified") { !seen.withLock { $0 }.isEmpty }
    #expect(seen.withLock { $0 } == [17])
  }

  @Test func trackedStoreIsFreed() async throws {
    weak var store: Defaults.Store?
    weak var observation: SettingsObservation?
    try await StorageSystem.withTemporary {
      @Default("size", defaultValue: 16) var size: Int
      let notifications = Notifications()
      notifications.track { size }
      size = 17
      #expect(notifications.count == 1)
      notifications.track { size }
      // A store of its own, as in another process: proves that this one follows its changes.
      let finder = try #require(StorageScope.temporary).finder
      try Defaults.Store(suite: .standard, scope: StorageScope(finder: finder))
        .set(18, forKey: "size")
      try await eventually("notified") { notifications.count == 2 }
      notifications.track { size }
      store = Defaults.shared
      observation = Defaults.shared.observation
      #expect(store != nil && observation != nil)
    }
    // A background check may be running.
    try await eventually("freed") { store == nil && observation == nil }
  }

  @Test func freedStoreStopsWaiting() async throws {
    let engine = MemoryEngine()
    let scope = try #require(StorageScope.temporary)
    var observation: SettingsObservation? = SettingsObservation(.success(engine), scope)
    Notifications().track { observation?.registerAccess(to: "size") }
    #expect(!engine.observers.isEmpty)
    observation = nil
    try await eventually("no observer") { engine.observers.isEmpty }
  }
}

extension OneAtATime {
  @Suite(.temporaryStorage, .timeLimit(.minutes(20))) struct ObservationOfProcessesTests {
    @Test func changesByOtherProcessesNotify() throws {
      let directory = try TemporaryDirectory()
      let peer = try Peer.start(directory, "serve")
      @Default("size", defaultValue: 16, suite: Defaults.Suite("standard", in: directory.url))
      var size: Int
      for number in 1...20 {
        let notifications = Notifications()
        notifications.track { size }
        #expect(try peer.ask("set other \(number)") == "ok")
        #expect(try peer.ask("set size \(number)") == "ok")
        waitUntil("notified of \(number)") { notifications.count == 1 }
        #expect(size == number)
      }
      let notifications = Notifications()
      notifications.track { size }
      #expect(try peer.ask("clear") == "ok")
      waitUntil("notified of the removal") { notifications.count == 1 }
      #expect(size == 16)
    }
  }
}

/// All ways to change a setting.
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
    case .import: try Defaults.suite(suite).import(Data(#"{"size": 1}"#.utf8))
    }
  }
}

/// Counts the notifications of observers.
private final class Notifications: Sendable {
  private let state = Locked<(count: Int, thread: pthread_t?)>((0, nil))

  var count: Int { state.withLock { $0.count } }
  /// The thread of the last notification.
  var thread: pthread_t? { state.withLock { $0.thread } }

  /// Calls `onChange` before the notification counts.
  @discardableResult
  func track<R>(_ read: () -> R, onChange: @escaping @Sendable () -> Void = {}) -> R {
    withObservationTracking(read) {
      onChange()
      self.state.withLock { $0 = ($0.count + 1, pthread_self()) }
    }
  }
}

@MainActor @Observable private final class ViewModel {
  @ObservationIgnored @Default("size", defaultValue: 16) var size: Int
  @ObservationIgnored @DefaultOptional("name") var name: String?
  var selection: Int?
  @ObservationIgnored private(set) var frames: [String] = []

  /// Renders, and again after every change of what it has read, as a user interface does.
  func render() {
    withObservationTracking {
      frames.append("\(size) \(name ?? "-")\(selection.map(String.init) ?? "")")
    } onChange: {
      Task { @MainActor in self.render() }
    }
  }
}
