internal import Synchronization

/// Coalesces concurrent fetches: at most one task produces the value of a key, and the others share
/// it.
///
/// The first call becomes the producer and the rest wait. If the producer's task is cancelled, the
/// next waiter takes over. Once a producer has taken longer than its timeout, no call waits for it,
/// and the next one produces the value, too.
///
/// There is one instance per process because the producer of one cache may fetch from another, and
/// deadlocks must be detected across caches.
///
/// Continuations are resumed outside the lock, because cancelling a task may hold a lock of its
/// own.
package final class InFlightFetches: Sendable {
  static let shared = InFlightFetches()

  /// How a call of `fetch` continues after it has joined.
  enum Outcome: Sendable {
    /// What the producer has found or made.
    case found(FoundEntry)
    case failure(any Error)
    /// The producer has taken longer than its timeout.
    case timedOut(Duration)
    /// This call must produce the value.
    case produce
    case cancelled
  }

  /// A store and a key.
  struct Target: Hashable, Sendable {
    let store: ObjectIdentifier
    let key: [UInt8]

    init(_ store: DiskCache.Store, _ key: String) {
      self.store = ObjectIdentifier(store)
      self.key = Array(key.utf8)
    }
  }

  /// One call of `fetch`.
  package struct Call: Hashable, Sendable {
    let target: Target
    /// How long other calls wait while this one produces the value.
    let timeout: Duration
    fileprivate let id: UInt64

    package static func == (a: Self, b: Self) -> Bool { a.id == b.id }
    package func hash(into hasher: inout Hasher) { hasher.combine(id) }
  }

  typealias FetchID = UInt64

  typealias Waiter = (call: Call, continuation: CheckedContinuation<Outcome, Never>)

  struct Fetch {
    let producer: Call
    var waiters: [Waiter]
    /// By ``CoarseClock``.
    let deadline: Int64
    /// Whether the producer has taken longer than its timeout.
    var isOverdue = false
    /// What happens then.
    var timeoutActions: [@Sendable () -> Void] = []

    init(producer: Call, waiters: [Waiter]) {
      self.producer = producer
      self.waiters = waiters
      deadline = CoarseClock.now.addingSaturated(producer.timeout.saturatedNanoseconds)
    }
  }

  struct State {
    var fetches: [FetchID: Fetch] = [:]
    /// The fetch that new calls join. An earlier fetch of the same key may still be running.
    var current: [Target: FetchID] = [:]
    /// The fetch that each call belongs to, as its producer or as a waiter.
    var fetchIDs: [Call: FetchID] = [:]
    /// The fetches that a producing call waits for, because its producer fetches them in turn.
    var dependencies: [Call: [FetchID]] = [:]
    var lastID: UInt64 = 0
    /// When to look for producers that have taken too long, by ``CoarseClock``.
    var looks: [Int64] = []
    /// Those of ``looks`` that are not scheduled yet.
    var newLooks: [Int64] = []

    mutating func makeID() -> UInt64 {
      lastID += 1
      return lastID
    }

    /// Starts a fetch with this call as its producer.
    mutating func start(_ call: Call) {
      let id = makeID()
      current[call.target] = id
      passOn(id, to: call)
    }

    /// The fetch of a key for which calls can wait.
    func running(_ target: Target) -> FetchID? {
      current[target].flatMap { fetches[$0]?.isOverdue == false ? $0 : nil }
    }

    /// Makes the call the producer of a fetch, with its own deadline.
    mutating func passOn(_ id: FetchID, to call: Call) {
      let fetch = Fetch(producer: call, waiters: fetches[id]?.waiters ?? [])
      fetches[id] = fetch
      fetchIDs[call] = id
      look(at: fetch.deadline)
    }

    /// Schedules a look for overdue producers, unless an earlier one will schedule it.
    mutating func look(at time: Int64) {
      if looks.contains(where: { $0 <= time }) { return }
      looks.append(time)
      newLooks.append(time)
    }

    /// The fetch whose value this call produces.
    func fetchID(producedBy call: Call) -> FetchID? {
      fetchIDs[call].flatMap { fetches[$0]?.producer == call ? $0 : nil }
    }

    mutating func removeFetch(_ id: FetchID) -> Fetch? {
      guard let fetch = fetches.removeValue(forKey: id) else { return nil }
      let target = fetch.producer.target
      if current[target] == id { current[target] = nil }
      return fetch
    }

    /// Whether a fetch waits, directly or through other fetches, for one of these calls.
    func doesFetch(_ id: FetchID, waitFor calls: [Call]) -> Bool {
      if calls.isEmpty { return false }
      var visited: Set<FetchID> = []
      var pending = [id]
      while let id = pending.popLast() {
        guard visited.insert(id).inserted, let producer = fetches[id]?.producer else { continue }
        if calls.contains(producer) { return true }
        pending += dependencies[producer] ?? []
      }
      return false
    }
  }

  /// Readable by tests, which wait for a number of waiters and check that nothing remains.
  let state = Locked(State())
  /// How many fetches new calls can join.
  private let currentCount = Atomic(0)

  /// The calls whose producers the current task is running: several if producers fetch in turn.
  @TaskLocal package static var producing: [Call] = []

  /// Runs `body`, which may start or detach fetches.
  private func change<R>(_ body: (inout State) -> R) -> R {
    let (result, looks) = state.withLock { state in
      let result = body(&state)
      currentCount.store(state.current.count, ordering: .sequentiallyConsistent)
      defer { state.newLooks = [] }
      return (result, state.newLooks)
    }
    for time in looks {
      let delay = Duration.nanoseconds(time.subtractingSaturated(CoarseClock.now))
      BackgroundWork.run(after: delay) { [self] in endOverdue(time) }
    }
    return result
  }

  /// Makes a call, and the producer of its key unless there is one.
  ///
  /// - Returns: Whether it is the producer. Otherwise it must join.
  func makeCall(to target: Target, timeout: Duration) -> (call: Call, isProducer: Bool) {
    change { state in
      let call = Call(target: target, timeout: timeout, id: state.makeID())
      guard state.running(target) == nil else { return (call, false) }
      state.start(call)
      return (call, true)
    }
  }

  /// Suspends until the value has been produced, or until this call must produce it.
  func join(_ call: Call, isolation: isolated (any Actor)? = #isolation) async -> Outcome {
    let producing = Self.producing
    defer {
      if !producing.isEmpty { removeDependency(of: producing, on: call) }
    }
    return await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let outcome: Outcome? = change { state in
          // The handler below may have run before this.
          if Task.isCancelled { return .cancelled }
          guard let id = state.running(call.target) else {
            state.start(call)
            return .produce
          }
          // Waiting for a fetch that waits for this task would be a deadlock.
          if state.doesFetch(id, waitFor: producing) { return .produce }
          for producer in producing { state.dependencies[producer, default: []].append(id) }
          state.fetches[id]?.waiters.append((call, continuation))
          state.fetchIDs[call] = id
          return nil
        }
        if let outcome { continuation.resume(returning: outcome) }
      }
    } onCancel: {
      let continuation = state.withLock { state -> CheckedContinuation<Outcome, Never>? in
        guard let id = state.fetchIDs[call],
          let index = state.fetches[id]?.waiters.firstIndex(where: { $0.call == call })
        else { return nil }
        return state.fetches[id]?.waiters.remove(at: index).continuation
      }
      continuation?.resume(returning: .cancelled)
    }
  }

  func isFetching(_ target: Target) -> Bool { state.withLock { $0.running(target) != nil } }

  private func removeDependency(of producers: [Call], on call: Call) {
    state.withLock { state in
      guard let id = state.fetchIDs[call] else { return }
      for producer in producers {
        guard let index = state.dependencies[producer]?.firstIndex(of: id) else { continue }
        state.dependencies[producer]?.remove(at: index)
        // The producer may have ended before, which would have removed this.
        if state.dependencies[producer]?.isEmpty == true { state.dependencies[producer] = nil }
      }
    }
  }

  /// Whether the cache should keep what `call` produced.
  ///
  /// False if the key was set or removed in the meantime, or if another call took over.
  func isCurrentProducer(_ call: Call) -> Bool {
    state.withLock { state in
      state.current[call.target].flatMap { state.fetches[$0]?.producer } == call
    }
  }

  /// Resumes all waiters with the producer's outcome.
  func finish(_ call: Call, with outcome: Outcome) {
    let fetch = change { state in
      state.fetchID(producedBy: call).flatMap { state.removeFetch($0) }
    }
    for waiter in fetch?.waiters ?? [] { waiter.continuation.resume(returning: outcome) }
  }

  /// Makes the next waiter the producer.
  func handOver(_ call: Call) {
    let next = change { state -> CheckedContinuation<Outcome, Never>? in
      guard let id = state.fetchID(producedBy: call) else { return nil }
      guard let next = state.fetches[id]?.waiters.first else {
        _ = state.removeFetch(id)
        return nil
      }
      state.fetches[id]?.waiters.removeFirst()
      state.passOn(id, to: next.call)
      return next.continuation
    }
    next?.resume(returning: .produce)
  }

  /// Resumes all waiters with an old value, and makes a new call the producer of the new one.
  ///
  /// - Returns: That call; nil if the key was set or removed in the meantime.
  func passOn(_ call: Call, with outcome: Outcome) -> Call? {
    let (next, waiters) = change { state -> (Call?, [Waiter]) in
      guard let id = state.fetchID(producedBy: call) else { return (nil, []) }
      let waiters = state.fetches[id]?.waiters ?? []
      guard state.current[call.target] == id else {
        _ = state.removeFetch(id)
        return (nil, waiters)
      }
      state.fetches[id]?.waiters = []
      let next = Call(target: call.target, timeout: call.timeout, id: state.makeID())
      state.passOn(id, to: next)
      return (next, waiters)
    }
    for waiter in waiters { waiter.continuation.resume(returning: outcome) }
    return next
  }

  // MARK: Producers that take too long

  /// Has `action` run once the producer has taken longer than its timeout.
  func onTimeout(of call: Call, _ action: @escaping @Sendable () -> Void) {
    // Another fetch may have scheduled the look that finds the producer overdue.
    let action = carryingTaskLocals(action)
    let isOverdue = state.withLock { state in
      guard let id = state.fetchID(producedBy: call) else { return false }
      state.fetches[id]?.timeoutActions.append(action)
      return state.fetches[id]?.isOverdue ?? false
    }
    if isOverdue { action() }
  }

  /// Ends the waits for the producers that have taken too long.
  private func endOverdue(_ look: Int64) {
    let overdue = change { state in
      state.looks.removeAll { $0 == look }
      let now = CoarseClock.now
      var overdue: [Fetch] = []
      for (id, fetch) in state.fetches where !fetch.isOverdue && fetch.deadline <= now {
        overdue.append(fetch)
        state.fetches[id]?.isOverdue = true
        state.fetches[id]?.waiters = []
      }
      let next = state.fetches.values.lazy.filter { !$0.isOverdue }.map(\.deadline).min()
      if let next { state.look(at: next) }
      return overdue
    }
    for fetch in overdue {
      for waiter in fetch.waiters {
        waiter.continuation.resume(returning: .timedOut(fetch.producer.timeout))
      }
    }
    // Last, because code of the app may take long.
    for action in overdue.flatMap(\.timeoutActions) { action() }
  }

  /// Forgets a call that is about to return.
  func leave(_ call: Call) {
    state.withLock { state in
      state.dependencies[call] = nil
      state.fetchIDs[call] = nil
    }
  }

  /// Whether no call can join a fetch. Each set asks this, so it takes no lock.
  var isEmpty: Bool { currentCount.load(ordering: .sequentiallyConsistent) == 0 }

  /// Detaches the running fetch, whose value is older than what was just stored or removed.
  func invalidate(_ target: Target) {
    change { $0.current[target] = nil }
  }

  /// Detaches the running fetches of all keys of a store.
  func invalidateAll(of store: DiskCache.Store) {
    let store = ObjectIdentifier(store)
    change { state in state.current = state.current.filter { $0.key.store != store } }
  }
}
