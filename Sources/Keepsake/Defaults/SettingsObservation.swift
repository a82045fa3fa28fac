internal import Observation
internal import Synchronization

/// Connects the settings of one store to Observation.
///
/// The first tracked read of a key makes a ``TrackedValue``, whose key path the reader registers
/// with Observation. Later reads share it as long as they find the same value. Once the stored
/// value differs, by whichever process, the tracked value is removed and its observers are
/// notified; the next tracked read makes a new one. Observers are never called under a lock,
/// because they read and write settings.
///
/// Observation installs an observer only after the closure that reads has returned, so it would
/// miss a change before that. But installing hashes the key path, and if the observers of a tracked
/// value have been notified already, ``TrackedValue/hash(into:)`` has them notified once more.
final class SettingsObservation: Observable, Sendable {
  private struct State {
    /// The current tracked value of each key that has observers.
    var trackedValues = ByteKeyedDictionary<TrackedValue>()
    /// Tracked values that have been removed but whose observers are still to be notified.
    var removedValues: [TrackedValue] = []
    /// The writes of this process that are in progress.
    var activeWrites = 0
    /// Whether the last of these writes must start a check of all keys.
    var isCheckPending = false
    var isFollowing = false
    /// Waits for changes by other processes.
    var follower: Task<Void, Never>?

    /// Removes a tracked value, unless that has been done already.
    mutating func remove(_ tracked: TrackedValue) {
      guard trackedValues[tracked.key] === tracked else { return }
      trackedValues.remove(tracked.key)
      removedValues.append(tracked)
    }
  }

  private let findEngine: @Sendable () -> Result<any ValueEngine, StorageError>
  private let scope: StorageScope
  private let registrar = ObservationRegistrar()
  private let state = Locked(State())
  /// Mirrors whether `state` has tracked values, so that a write without observers costs one load.
  private let mayHaveObservers = Atomic(false)

  /// Whether any observer still waits for a change.
  var hasObservers: Bool { mayHaveObservers.load(ordering: .relaxed) }

  init(
    _ engine: @autoclosure @escaping @Sendable () -> Result<any ValueEngine, StorageError>,
    _ scope: StorageScope
  ) {
    findEngine = engine
    self.scope = scope
  }

  deinit { state.withLock { $0.follower?.cancel() } }

  // Observation identifies what is read by a key path. The values behind these are never used.
  private subscript(probe: TrackingProbe) -> Void { () }
  private subscript(tracked: TrackedValue) -> Void { () }

  // MARK: Reading

  private static let probe = \SettingsObservation.[TrackingProbe()]

  /// Whether Observation is tracking the code that runs on this thread.
  ///
  /// Observation has no call that says so, but `access` hashes its key path if tracking and does
  /// nothing otherwise. The probe counts its hashes in a thread-local variable, because all threads
  /// share its key path: making one for each read would cost every untracked read an allocation.
  @inline(__always)
  private var isTracking: Bool {
    let count = ThreadState.probeHashes
    registrar.access(self, keyPath: Self.probe)
    return ThreadState.probeHashes != count
  }

  /// If Observation is tracking, has the observer notified when the value of `key` changes. Call
  /// this before the value is read.
  func registerAccess(to key: String) {
    if isTracking { track(key) }
  }

  private func track(_ key: String) {
    // First, so that no change by another process is missed after the value has been read.
    follow()
    // A failure is not reported, because the read that follows reports it.
    let value = (try? self.value(key)) ?? nil
    let (tracked, isReplacement) = state.withLock { state in
      let current = state.trackedValues[key]
      let isCurrent = current.map { $0.value.isEquivalent(to: value) } ?? false
      if isCurrent, let current, current.addRead() { return (current, false) }
      if let current { state.removedValues.append(current) }
      let capacity = isCurrent ? current?.nextCapacity : nil
      let new = TrackedValue(
        key, value, capacity: capacity ?? TrackedValue.minimumCapacity
      ) { [weak self] in self?.notifyLate($0) }
      state.trackedValues.set(key, new)
      mayHaveObservers.store(true, ordering: .relaxed)
      return (new, current != nil)
    }
    registrar.access(self, keyPath: \.[tracked])
    // A write that ended before the tracked value was made did not know of it. The engine's lock
    // orders all later writes after this second read, so they do.
    if (try? self.value(key)) ?? nil == value {
      if isReplacement { checkSoon() }
    } else {
      state.withLock { $0.remove(tracked) }
      checkSoon()
    }
  }

  private func value(_ key: String) throws(StorageError) -> StoredValue? {
    try findEngine().get().value(forKey: key)
  }

  // MARK: Changes by other processes

  /// Checks the tracked values whenever the engine signals a change, until the store is freed.
  private func follow() {
    let isFirst = state.withLock { state in
      defer { state.isFollowing = true }
      return !state.isFollowing
    }
    guard isFirst else { return }
    do throws(StorageError) {
      let changes = try findEngine().get().changes { [weak self] in self?.isTracked($0) ?? false }
      let follower = Task.detached { [weak self] in
        var iterator = changes.makeAsyncIterator()
        // Check once now: another thread may have read before the engine began to signal.
        repeat { self?.checkSoon() } while await iterator.next() != nil
      }
      state.withLock { $0.follower = follower }
    } catch {
      state.withLock { $0.isFollowing = false }
      scope.report(error.inContext(of: "changes").reported(by: "Defaults"))
    }
  }

  private func isTracked(_ key: String) -> Bool {
    state.withLock { $0.trackedValues[key] != nil }
  }

  /// Checks in the background, because observers must not be called in the middle of a read.
  private func checkSoon() {
    BackgroundWork.run(delaysExit: false) { [weak self] in self?.check() }
  }

  /// Notifies the observers of every tracked value that has changed: by another process, or by a
  /// write that could not notify them itself.
  func check() {
    inScope { notifyObserversOfChanges(in: nil, after: .check) }
  }

  /// Gives observers that are called in the background access to the stores of this store's scope.
  private func inScope(_ body: () -> Void) {
    StorageScope.$temporary.withValue(scope, operation: body)
  }

  // MARK: Changes by this process

  /// Begins a write, which ends with ``endWrite(of:isCounted:)`` also if it fails; returns whether
  /// it is counted.
  @inline(__always)
  func beginWrite() -> Bool {
    guard hasObservers else { return false }
    // While a write is counted, background checks leave all changes to it.
    state.withLock { $0.activeWrites += 1 }
    return true
  }

  /// Ends a write: notifies the observers of the keys whose values it has changed, on this thread.
  /// Nil means all keys.
  @inline(__always)
  func endWrite(of keys: @autoclosure () -> [String]?, isCounted: Bool) {
    if isCounted || hasObservers { notifyObservers(of: keys(), isCounted: isCounted) }
  }

  private func notifyObservers(of keys: [String]?, isCounted: Bool) {
    // Inside an update an observer could not write, and locks may be held.
    if RunningUpdate.isAnyRunning {
      if isCounted { state.withLock { $0.activeWrites -= 1 } }
      return checkSoon()
    }
    notifyObserversOfChanges(in: keys, after: .write(isCounted: isCounted))
  }

  // MARK: Notifying

  private enum Event {
    case check
    case write(isCounted: Bool)
  }

  /// Notifies the observers of those tracked values of `keys` that have changed; nil means all
  /// keys.
  private func notifyObserversOfChanges(in keys: [String]?, after event: Event) {
    let candidates = state.withLock { state in
      if let keys { return keys.compactMap { state.trackedValues[$0] } }
      return state.trackedValues.elements.map(\.value)
    }
    // Without the lock, because the engine may read files and report errors.
    let changed = candidates.filter { !$0.value.isEquivalent(to: currentValue($0.key)) }
    var needsCheck = false
    let removed = state.withLock { state in
      switch event {
      case .check:
        // Leave it to the active writes, which notify on their own threads. One of them may have
        // compared the values already, so the last one starts another check.
        state.isCheckPending = state.activeWrites > 0
        if state.activeWrites > 0 { return [] as [TrackedValue] }
      case .write(let isCounted):
        if isCounted { state.activeWrites -= 1 }
        if state.activeWrites == 0 { swap(&needsCheck, &state.isCheckPending) }
      }
      for tracked in changed { state.remove(tracked) }
      defer { state.removedValues = [] }
      if state.trackedValues.count == 0 { mayHaveObservers.store(false, ordering: .relaxed) }
      return state.removedValues
    }
    for tracked in removed {
      tracked.notification.store(.running, ordering: .releasing)
      notify(tracked)
    }
    if needsCheck { checkSoon() }
  }

  private func currentValue(_ key: String) -> StoredValue? {
    do throws(StorageError) {
      return try value(key)
    } catch {
      // The setting reads as its default now.
      scope.report(error.inContext(of: "changes", key: key).reported(by: "Defaults"))
      return nil
    }
  }

  private func notify(_ tracked: TrackedValue) {
    let outer = ThreadState.notifiedValue
    ThreadState.notifiedValue = tracked.address
    registrar.willSet(self, keyPath: \.[tracked])
    registrar.didSet(self, keyPath: \.[tracked])
    ThreadState.notifiedValue = outer
    let last = tracked.notification.exchange(.ended, ordering: .acquiringAndReleasing)
    if last == .mustRepeat { notifyLate(tracked) }
  }

  /// Notifies observers that were installed after the others had been notified.
  private func notifyLate(_ tracked: TrackedValue) {
    // Later, because the registrar is installing them at this moment and holds its lock.
    BackgroundWork.run(after: .milliseconds(10)) { [weak self] in
      if tracked.beginAgain() { self?.inScope { self?.notify(tracked) } }
    }
  }
}

/// How far the notification of a tracked value's observers is.
private enum Notification: UInt8, AtomicRepresentable {
  case due, running, ended
  /// It is running, and must be repeated when it has ended: the registrar forgets an observer only
  /// after it was called, so a second notification at the same time would call it twice.
  case mustRepeat
}

/// Counts on each thread how often it is hashed.
private struct TrackingProbe: Hashable {
  /// A key path hashes its arguments only if they have a stored property.
  private let number = 0

  func hash(into hasher: inout Hasher) {
    ThreadState.probeHashes &+= 1
    hasher.combine(number)
  }
}

/// A value that observers have read, for as long as it is the key's value.
private final class TrackedValue: Hashable, Sendable {
  let key: String
  let value: StoredValue?
  /// Any observer that is installed after its beginning may have missed it.
  let notification = Atomic(Notification.due)
  private let reads = Atomic(1)
  private let capacity: Int
  private let creationTime = CoarseClock.now
  private let notifyLate: @Sendable (TrackedValue) -> Void

  init(
    _ key: String, _ value: StoredValue?, capacity: Int,
    notifyLate: @escaping @Sendable (TrackedValue) -> Void
  ) {
    self.key = key
    self.value = value
    self.capacity = capacity
    self.notifyLate = notifyLate
  }

  /// Counts a tracked read; returns false if the capacity is used up.
  ///
  /// The registrar keeps an observer until it is notified, even after its view model is gone. To
  /// free those, a tracked value is replaced after a number of reads although the value has not
  /// changed: observers that are still alive are notified and read again.
  func addRead() -> Bool { reads.add(1, ordering: .relaxed).oldValue < capacity }

  static let minimumCapacity = 1_000

  /// The capacity of the tracked value that replaces this one when it is full.
  ///
  /// If this one was full within a second, the observers that were just notified have filled it: so
  /// many are alive, and the capacity doubles.
  var nextCapacity: Int {
    CoarseClock.now - creationTime < WallClock.second ? capacity * 2 : capacity
  }

  var address: UnsafeRawPointer { UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque()) }

  static func == (a: TrackedValue, b: TrackedValue) -> Bool { a === b }

  func hash(into hasher: inout Hasher) {
    hasher.combine(ObjectIdentifier(self))
    // Notifying hashes the key path too, to look up and remove the observers.
    if notification.load(ordering: .acquiring) != .due, ThreadState.notifiedValue != address,
      !repeatIfRunning()
    {
      notifyLate(self)
    }
  }

  /// Has a running notification repeated; false if none is running.
  private func repeatIfRunning() -> Bool {
    let last = notification.compareExchange(
      expected: .running, desired: .mustRepeat, ordering: .acquiringAndReleasing
    ).original
    return last != .ended
  }

  /// Begins to notify again, unless another thread does, which then repeats it.
  func beginAgain() -> Bool {
    while true {
      let (isBegun, _) = notification.compareExchange(
        expected: .ended, desired: .running, ordering: .acquiringAndReleasing)
      if isBegun { return true }
      if repeatIfRunning() { return false }
    }
  }
}
