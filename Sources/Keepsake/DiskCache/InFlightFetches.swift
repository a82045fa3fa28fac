/// The values that are being fetched: one producer for each key, however many wait for it.
///
/// The first to ask leads and produces; the others wait. A leader that is cancelled hands over to
/// the next who waits. One for the whole process, as the producer of one cache may fetch from
/// another. Continuations are resumed outside the lock: cancelling may hold a task's own lock.
final class InFlightFetches: Sendable {
  static let shared = InFlightFetches()

  enum Outcome: Sendable {
    /// What was produced, in stored form; nil for a nil.
    case value(StoredValue?)
    case failure(any Error)
    /// It is this passenger's turn to produce it.
    case lead
    case cancelled
  }

  /// What is fetched: a key's bytes, of one store.
  struct Destination: Hashable, Sendable {
    let store: ObjectIdentifier
    let key: [UInt8]

    init(_ store: DiskCache.Store, _ key: String) {
      self.store = ObjectIdentifier(store)
      self.key = Array(key.utf8)
    }
  }

  /// One call of `fetch`.
  struct Passenger: Hashable, Sendable {
    let destination: Destination
    fileprivate let number: UInt64
  }

  private struct Flight {
    var leader: Passenger
    var waiters: [(passenger: Passenger, continuation: CheckedContinuation<Outcome, Never>)] = []
  }

  private struct State {
    var flights: [UInt64: Flight] = [:]
    /// The flight that who asks now joins; an older one of the key may still be on its way.
    var current: [Destination: UInt64] = [:]
    /// The flight of each passenger, be it as the leader or as one who waits.
    var flightOf: [Passenger: UInt64] = [:]
    var lastNumber: UInt64 = 0
    /// Those who were cancelled before they began to wait.
    var cancelled: Set<Passenger> = []
    /// The flights that a leader's producer waits for in turn.
    var waitsFor: [Passenger: [UInt64]] = [:]

    mutating func nextNumber() -> UInt64 {
      lastNumber += 1
      return lastNumber
    }

    /// The flight that a passenger leads.
    func flight(ledBy passenger: Passenger) -> UInt64? {
      flightOf[passenger].flatMap { flights[$0]?.leader == passenger ? $0 : nil }
    }

    /// Takes a flight off the list.
    mutating func end(_ number: UInt64) -> Flight? {
      guard let flight = flights.removeValue(forKey: number) else { return nil }
      let destination = flight.leader.destination
      if current[destination] == number { current[destination] = nil }
      return flight
    }

    /// Whether a flight waits, over any number of others, for one that these passengers lead.
    func waits(_ flight: UInt64, for led: [Passenger]) -> Bool {
      if led.isEmpty { return false }
      var seen: Set<UInt64> = []
      var open = [flight]
      while let number = open.popLast() {
        guard seen.insert(number).inserted, let leader = flights[number]?.leader else { continue }
        if led.contains(leader) { return true }
        open += waitsFor[leader] ?? []
      }
      return false
    }
  }

  private let state = Locked(State())

  /// Those for whom this task is producing.
  @TaskLocal static var led: [Passenger] = []

  func makePassenger(to destination: Destination) -> Passenger {
    state.withLock { Passenger(destination: destination, number: $0.nextNumber()) }
  }

  /// Waits until somebody else has produced the key's value, or until it is this passenger's turn.
  func board(
    _ passenger: Passenger, isolation: isolated (any Actor)? = #isolation
  ) async -> Outcome {
    let led = Self.led
    defer {
      if !led.isEmpty { stopWaiting(passenger, led) }
    }
    return await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let outcome: Outcome? = state.withLock { state in
          if state.cancelled.remove(passenger) != nil { return .cancelled }
          guard let flight = state.current[passenger.destination] else {
            let number = state.nextNumber()
            state.flights[number] = Flight(leader: passenger)
            state.current[passenger.destination] = number
            state.flightOf[passenger] = number
            return .lead
          }
          // To wait for a value that itself waits for this one would never end.
          if state.waits(flight, for: led) { return .lead }
          for leader in led { state.waitsFor[leader, default: []].append(flight) }
          state.flights[flight]?.waiters.append((passenger, continuation))
          state.flightOf[passenger] = flight
          return nil
        }
        if let outcome { continuation.resume(returning: outcome) }
      }
    } onCancel: {
      let continuation = state.withLock { state -> CheckedContinuation<Outcome, Never>? in
        guard let flight = state.flightOf[passenger],
          let place = state.flights[flight]?.waiters.firstIndex(where: { $0.passenger == passenger }
          )
        else {
          state.cancelled.insert(passenger)
          return nil
        }
        return state.flights[flight]?.waiters.remove(at: place).continuation
      }
      continuation?.resume(returning: .cancelled)
    }
  }

  /// The producers `led` do not wait for this passenger's flight any more.
  private func stopWaiting(_ passenger: Passenger, _ led: [Passenger]) {
    state.withLock { state in
      guard let flight = state.flightOf[passenger] else { return }
      for leader in led {
        guard let place = state.waitsFor[leader]?.firstIndex(of: flight) else { continue }
        state.waitsFor[leader]?.remove(at: place)
      }
    }
  }

  /// Whether what the passenger produced is still wanted in the cache: not when its key was set or
  /// removed meanwhile, or another one leads by now.
  func leads(_ passenger: Passenger) -> Bool {
    state.withLock { state in
      state.current[passenger.destination].flatMap { state.flights[$0]?.leader } == passenger
    }
  }

  /// Gives all who wait what the leader got.
  func land(_ passenger: Passenger, _ outcome: Outcome) {
    let flight = state.withLock { state in
      state.flight(ledBy: passenger).flatMap { state.end($0) }
    }
    for waiter in flight?.waiters ?? [] { waiter.continuation.resume(returning: outcome) }
  }

  /// Lets the next who waits lead.
  func handOver(_ passenger: Passenger) {
    let next = state.withLock { state -> CheckedContinuation<Outcome, Never>? in
      guard let number = state.flight(ledBy: passenger) else { return nil }
      guard let next = state.flights[number]?.waiters.first else {
        _ = state.end(number)
        return nil
      }
      state.flights[number]?.leader = next.passenger
      state.flights[number]?.waiters.removeFirst()
      return next.continuation
    }
    next?.resume(returning: .lead)
  }

  /// Forgets a passenger who is through.
  func leave(_ passenger: Passenger) {
    state.withLock { state in
      state.cancelled.remove(passenger)
      state.waitsFor[passenger] = nil
      state.flightOf[passenger] = nil
    }
  }

  var isAnyOnItsWay: Bool { state.withLock { !$0.current.isEmpty } }

  /// What is being fetched for the key is older than what was stored or removed just now.
  func supersede(_ destination: Destination) {
    state.withLock { $0.current[destination] = nil }
  }

  /// The same for all keys of a store.
  func supersedeAll(of store: DiskCache.Store) {
    let store = ObjectIdentifier(store)
    state.withLock { state in state.current = state.current.filter { $0.key.store != store } }
  }
}

extension InFlightFetches {
  /// How many wait for others to produce something for a store; for tests.
  func waiterCount(of store: DiskCache.Store) -> Int {
    let store = ObjectIdentifier(store)
    return state.withLock { state in
      state.flights.values.filter { $0.leader.destination.store == store }
        .reduce(0) { $0 + $1.waiters.count }
    }
  }

  /// Whether nothing is left of any fetch of a store; for tests.
  func isEmpty(for store: DiskCache.Store) -> Bool {
    let store = ObjectIdentifier(store)
    return state.withLock { state in
      let passengers =
        state.flights.values.map(\.leader) + state.cancelled + state.waitsFor.keys
        + state.flightOf.keys
      return passengers.allSatisfy { $0.destination.store != store }
        && state.current.keys.allSatisfy { $0.store != store }
    }
  }
}
