internal import CKeepsake
internal import Observation
internal import Synchronization

/// The settings of one store as Observation sees them.
///
/// A key is followed in rounds. A round begins with the first tracked read and ends as soon as the
/// value differs from what was read then, whoever changed it: its observers are told, and the next
/// tracked read begins another. Nobody is told under a lock, as observers read and write settings.
///
/// Observers are installed only after the closure that read has returned. A round that ended before
/// that notices, as installing looks up its hash, and has them told once more.
final class ObservedSettings: Observable, Sendable {
  private struct State {
    /// The rounds that go on, by key.
    var rounds = ByteKeyedDictionary<Round>()
    /// Rounds that are over because a later read found another value, but still to be told.
    var overdue: [Round] = []
    /// The writes that this process is in the middle of.
    var writers = 0
    /// Whether somebody has left a look at all keys to the writers.
    var isCheckOwed = false
    var isFollowing = false
    /// Waits for changes that others make.
    var follower: Task<Void, Never>?

    /// Leaves a round to the next who tells, unless somebody else has ended it.
    mutating func end(_ round: Round) {
      guard rounds[round.key] === round else { return }
      rounds.remove(round.key)
      overdue.append(round)
    }
  }

  private let engine: Result<any ValueEngine, StorageError>
  private let scope: StorageScope
  private let registrar = ObservationRegistrar()
  private let state = Locked(State())
  /// Whether there is any round, so that a write without observers costs one load.
  private let isInUse = Atomic(false)

  /// Whether anybody who tracks has still to be told of a change.
  var isUsed: Bool { isInUse.load(ordering: .relaxed) }

  init(_ engine: Result<any ValueEngine, StorageError>, _ scope: StorageScope) {
    self.engine = engine
    self.scope = scope
  }

  deinit { state.withLock { $0.follower?.cancel() } }

  /// What the key paths of Observation lead to: nothing, they are only names.
  private subscript(probe: TrackingProbe) -> Void { () }
  private subscript(round: Round) -> Void { () }

  // MARK: Reading

  private static let probe = \ObservedSettings.[TrackingProbe()]

  /// Whether a closure is tracked on this thread.
  ///
  /// A registrar does not say so, but only then does an access put its key path into a set.
  @inline(__always)
  private var isTracked: Bool {
    let thread = keepsake_thread_observation()
    let before = thread.pointee.probes
    registrar.access(self, keyPath: Self.probe)
    return thread.pointee.probes != before
  }

  /// Lets those who track on this thread hear when the value of `key` changes; to be called before
  /// it is read.
  func noteRead(_ key: String) {
    if isTracked { track(key) }
  }

  private func track(_ key: String) {
    // First, so that no change falls between the look and the waiting.
    follow()
    let value = valueForRead(key)
    let (round, isOverdue) = state.withLock { state in
      let present = state.rounds[key]
      if let present, present.value == value, present.mayHaveAnother() { return (present, false) }
      if let present { state.overdue.append(present) }
      let capacity = present.map { $0.value == value ? $0.nextCapacity : Round.leastCapacity }
      let round = Round(key, value, capacity: capacity ?? Round.leastCapacity) { [weak self] in
        self?.tellLate($0)
      }
      state.rounds.set(key, round)
      isInUse.store(true, ordering: .relaxed)
      return (round, present != nil)
    }
    registrar.access(self, keyPath: \.[round])
    // A write that ended before the round began did not know of it; all later ones do, because the
    // engine's lock orders them after this look.
    if valueForRead(key) == value {
      if isOverdue { checkSoon() }
    } else {
      state.withLock { $0.end(round) }
      checkSoon()
    }
  }

  /// The read itself reports a failure.
  private func valueForRead(_ key: String) -> StoredValue? {
    do throws(StorageError) {
      return try engine.get().value(forKey: key)
    } catch {
      return nil
    }
  }

  // MARK: Following

  /// Looks at the followed keys from now on whenever the engine says so, as long as the store
  /// lives.
  private func follow() {
    let isFirst = state.withLock { state in
      defer { state.isFollowing = true }
      return !state.isFollowing
    }
    guard isFirst else { return }
    do throws(StorageError) {
      let ticks = try engine.get().changes { [weak self] in self?.isFollowed($0) ?? false }
      let follower = Task.detached { [weak self] in
        var iterator = ticks.makeAsyncIterator()
        // At once too: another thread may have read before there were any ticks.
        repeat { self?.checkSoon() } while await iterator.next() != nil
      }
      state.withLock { $0.follower = follower }
    } catch {
      state.withLock { $0.isFollowing = false }
      scope.report(error.inContext(of: "changes").reported(by: "Defaults"))
    }
  }

  private func isFollowed(_ key: String) -> Bool {
    state.withLock { $0.rounds[key] != nil }
  }

  /// Off the thread of a reader, who is in the middle of something.
  private func checkSoon() {
    BackgroundWork.run { [weak self] in self?.check() }
  }

  /// Tells of what others have changed, or what could not be told where it was changed.
  func check() {
    inScope {
      settle(nil) { state in
        // A writer that has had its look already does not see what is new: it asks for another one.
        state.isCheckOwed = state.writers > 0
        return state.writers == 0
      }
    }
  }

  /// Lets observers that are called in the background reach the stores that this one belongs to.
  private func inScope(_ body: () -> Void) {
    StorageScope.$temporary.withValue(scope, operation: body)
  }

  // MARK: Writing

  /// Runs `write`, then tells of what has changed of `keys`, before it returns and on this thread;
  /// nil stands for all.
  @inline(__always)
  func telling<R, E: Error>(
    _ keys: @autoclosure () -> [String]?, _ write: () throws(E) -> R
  ) throws(E) -> R {
    let isCounted = isUsed
    // Until it ends the background leaves all changes to it.
    if isCounted { state.withLock { $0.writers += 1 } }
    defer { if isCounted || isUsed { endWrite(keys(), isCounted: isCounted) } }
    return try write()
  }

  private func endWrite(_ keys: [String]?, isCounted: Bool) {
    // Inside an update an observer could not write, and locks may be held.
    if UpdateFrame.isInside {
      if isCounted { state.withLock { $0.writers -= 1 } }
      return checkSoon()
    }
    var isOwed = false
    settle(keys) { state in
      if isCounted { state.writers -= 1 }
      if state.writers == 0 { swap(&isOwed, &state.isCheckOwed) }
      return true
    }
    if isOwed { checkSoon() }
  }

  // MARK: Telling

  /// Ends the rounds of these keys whose value is another one now, if `mayTell`, and tells their
  /// observers.
  private func settle(_ keys: [String]?, _ mayTell: (inout State) -> Bool) {
    let rounds = state.withLock { state in
      if let keys { return keys.compactMap { state.rounds[$0] } }
      return state.rounds.elements.map(\.value)
    }
    // Outside the lock: a look at the engine may read files and report failures.
    let changed = rounds.filter { round in currentValue(round.key) != round.value }
    let ended = state.withLock { state in
      guard mayTell(&state) else { return [] as [Round] }
      for round in changed { state.end(round) }
      defer { state.overdue = [] }
      if state.rounds.count == 0 { isInUse.store(false, ordering: .relaxed) }
      return state.overdue
    }
    for round in ended {
      round.isOver.store(true, ordering: .releasing)
      tell(round)
    }
  }

  private func currentValue(_ key: String) -> StoredValue? {
    do throws(StorageError) {
      return try engine.get().value(forKey: key)
    } catch {
      // Reading gives the default now.
      scope.report(error.inContext(of: "changes", key: key).reported(by: "Defaults"))
      return nil
    }
  }

  private func tell(_ round: Round) {
    let thread = keepsake_thread_observation()
    let outer = thread.pointee.round
    thread.pointee.round = round.identity
    defer { thread.pointee.round = outer }
    registrar.willSet(self, keyPath: \.[round])
    registrar.didSet(self, keyPath: \.[round])
  }

  /// Tells observers that are being installed as their round is over already.
  private func tellLate(_ round: Round) {
    // Not here and now, where the registrar holds its lock, but when it is done.
    BackgroundWork.run(after: .milliseconds(10)) { [weak self] in
      self?.inScope { self?.tell(round) }
    }
  }
}

/// Counts how often it is hashed on each thread.
private struct TrackingProbe: Hashable {
  /// Without a member there would be nothing to hash in a key path.
  private let number = 0

  func hash(into hasher: inout Hasher) {
    keepsake_thread_observation().pointee.probes &+= 1
    hasher.combine(number)
  }
}

/// What tracked reads of one key have in common until the value is another one.
private final class Round: Hashable, Sendable {
  let key: String
  let value: StoredValue?
  /// Whether its observers have been told: who is installed from now on comes late.
  let isOver = Atomic(false)
  private let reads = Atomic(1)
  private let capacity: Int
  private let start = CoarseClock.now
  private let tellLate: @Sendable (Round) -> Void

  init(
    _ key: String, _ value: StoredValue?, capacity: Int,
    tellLate: @escaping @Sendable (Round) -> Void
  ) {
    self.key = key
    self.value = value
    self.capacity = capacity
    self.tellLate = tellLate
  }

  /// Notes a tracked read, unless there have been too many.
  ///
  /// Observers that never hear anything stay with the registrar, also when the view models that
  /// they belong to are gone. So a round ends after so many: who is still there is told and reads
  /// again.
  func mayHaveAnother() -> Bool { reads.add(1, ordering: .relaxed).oldValue < capacity }

  static let leastCapacity = 1_000

  /// How many the round after this one, if this one is full, may have.
  ///
  /// Twice as many when it was full at once: then those who were told just before have filled it,
  /// and there are that many.
  var nextCapacity: Int {
    CoarseClock.now - start < WallClock.second ? capacity * 2 : capacity
  }

  var identity: UnsafeRawPointer { UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque()) }

  static func == (a: Round, b: Round) -> Bool { a === b }

  func hash(into hasher: inout Hasher) {
    hasher.combine(ObjectIdentifier(self))
    // While they are being told observers are looked up and removed, which is no news.
    if isOver.load(ordering: .acquiring),
      keepsake_thread_observation().pointee.round != identity
    {
      tellLate(self)
    }
  }
}
