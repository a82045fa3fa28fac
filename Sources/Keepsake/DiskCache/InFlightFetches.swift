internal import Synchronization

/// Coalesces concurrent fetches: at most one task produces the value of a key, and the others share
/// it.
///
/// The first call becomes the producer and the rest wait. If the producer's task is cancelled, the
/// next waiter takes over. There is one instance per process because the producer of one cache may
/// fetch from another, and waiting in a circle must be detected across caches.
///
/// Continuations are resumed outside the lock, because cancelling a task may hold a lock of its
/// own.
package final class InFlightFetches: Sendable {
  static let shared = InFlightFetches()

  /// How a call of `fetch` continues after it has joined.
  enum Outcome: Sendable {
    /// The value in its stored form; nil if nil was produced.
    case value(StoredValue?)
    case failure(any Error)
    /// This call has to produce the value.
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
    fileprivate let id: UInt64
  }

  typealias FetchID = UInt64

  struct Fetch {
    var producer: Call
    var waiters: [(call: Call, continuation: CheckedContinuation<Outcome, Never>)] = []
  }

  struct State {
    var fetches: [FetchID: Fetch] = [:]
    /// The fetch that new calls join. An earlier fetch of the same key may still be running.
    var current: [Target: FetchID] = [:]
    /// The fetch that each call belongs to, as its producer or as a waiter.
    var fetchIDs: [Call: FetchID] = [:]
    /// Calls that were cancelled before they started waiting.
    var cancelled: Set<Call> = []
    /// The fetches that a producing call waits for, because its producer fetches them in turn.
    var dependencies: [Call: [FetchID]] = [:]
    var lastID: UInt64 = 0

    mutating func makeID() -> UInt64 {
      lastID += 1
      return lastID
    }

    /// Starts a fetch with this call as its producer.
    mutating func start(_ call: Call) {
      let id = makeID()
      fetches[id] = Fetch(producer: call)
      current[call.target] = id
      fetchIDs[call] = id
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
    state.withLock { state in
      defer { currentCount.store(state.current.count, ordering: .sequentiallyConsistent) }
      return body(&state)
    }
  }

  func makeCall(to target: Target) -> Call {
    state.withLock { Call(target: target, id: $0.makeID()) }
  }

  /// Suspends until the value has been produced, or until this call has to produce it.
  func join(_ call: Call, isolation: isolated (any Actor)? = #isolation) async -> Outcome {
    let producing = Self.producing
    defer {
      if !producing.isEmpty { removeDependency(of: producing, on: call) }
    }
    return await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let outcome: Outcome? = change { state in
          if state.cancelled.remove(call) != nil { return .cancelled }
          guard let id = state.current[call.target] else {
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
        else {
          state.cancelled.insert(call)
          return nil
        }
        return state.fetches[id]?.waiters.remove(at: index).continuation
      }
      continuation?.resume(returning: .cancelled)
    }
  }

  /// Makes the call the producer of its key; false if there is one.
  func lead(_ call: Call) -> Bool {
    change { state in
      if state.current[call.target] != nil { return false }
      state.start(call)
      return true
    }
  }

  func isFetching(_ target: Target) -> Bool { state.withLock { $0.current[target] != nil } }

  private func removeDependency(of producers: [Call], on call: Call) {
    state.withLock { state in
      guard let id = state.fetchIDs[call] else { return }
      for producer in producers {
        guard let index = state.dependencies[producer]?.firstIndex(of: id) else { continue }
        state.dependencies[producer]?.remove(at: index)
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
      state.fetches[id]?.producer = next.call
      state.fetches[id]?.waiters.removeFirst()
      return next.continuation
    }
    next?.resume(returning: .produce)
  }

  /// Forgets a call that is about to return.
  func leave(_ call: Call) {
    state.withLock { state in
      state.cancelled.remove(call)
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
