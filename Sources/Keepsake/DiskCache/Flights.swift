/// The values that are being fetched: one producer for each key, however many wait for it.
///
/// The first to ask leads and produces; the others wait. A leader that is cancelled hands over to the
/// next who waits. Continuations are resumed outside the lock: cancelling may hold a task's own lock.
final class Flights: Sendable {
  enum Outcome: Sendable {
    /// What was produced, in stored form; nil for a nil.
    case value(StoredValue?)
    case failure(any Error)
    /// It is this passenger's turn to produce it.
    case lead
    case cancelled
  }

  /// One call of `fetch`.
  struct Passenger: Hashable, Sendable {
    fileprivate let number: UInt64
  }

  private struct Flight {
    let key: [UInt8]
    var leader: Passenger
    var waiters: [(passenger: Passenger, continuation: CheckedContinuation<Outcome, Never>)] = []
  }

  private struct State {
    var flights: [UInt64: Flight] = [:]
    /// The flight that who asks now joins; an older one of the key may still be on its way.
    var current: [[UInt8]: UInt64] = [:]
    var lastNumber: UInt64 = 0
    /// Those who were cancelled before they began to wait.
    var cancelled: Set<Passenger> = []
    /// The flights that a leader's producer waits for in turn.
    var waitsFor: [Passenger: [UInt64]] = [:]

    mutating func nextNumber() -> UInt64 {
      lastNumber += 1
      return lastNumber
    }

    func flight(ledBy passenger: Passenger) -> UInt64? {
      flights.first { $0.value.leader == passenger }?.key
    }

    /// Takes a flight off the list.
    mutating func end(_ number: UInt64) -> Flight? {
      guard let flight = flights.removeValue(forKey: number) else { return nil }
      if current[flight.key] == number { current[flight.key] = nil }
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

  func makePassenger() -> Passenger {
    state.withLock { Passenger(number: $0.nextNumber()) }
  }

  /// Waits until somebody else has produced the key's value, or until it is this passenger's turn.
  func board(
    _ passenger: Passenger, _ key: [UInt8], isolation: isolated (any Actor)? = #isolation
  ) async -> Outcome {
    let led = Self.led
    return await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let outcome: Outcome? = state.withLock { state in
          if state.cancelled.remove(passenger) != nil { return .cancelled }
          guard let flight = state.current[key] else {
            let number = state.nextNumber()
            state.flights[number] = Flight(key: key, leader: passenger)
            state.current[key] = number
            return .lead
          }
          // To wait for a value that itself waits for this one would never end.
          if state.waits(flight, for: led) { return .lead }
          for leader in led { state.waitsFor[leader, default: []].append(flight) }
          state.flights[flight]?.waiters.append((passenger, continuation))
          return nil
        }
        if let outcome { continuation.resume(returning: outcome) }
      }
    } onCancel: {
      let continuation = state.withLock { state -> CheckedContinuation<Outcome, Never>? in
        for (number, flight) in state.flights where flight.key == key {
          let place = flight.waiters.firstIndex { $0.passenger == passenger }
          if let place { return state.flights[number]?.waiters.remove(at: place).continuation }
        }
        state.cancelled.insert(passenger)
        return nil
      }
      continuation?.resume(returning: .cancelled)
    }
  }

  /// Whether what the passenger produced is still wanted in the cache: not when its key was set or
  /// removed meanwhile, or another one leads by now.
  func leads(_ passenger: Passenger, _ key: [UInt8]) -> Bool {
    state.withLock { state in
      state.current[key].flatMap { state.flights[$0]?.leader } == passenger
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
    }
  }

  /// How many wait for others, and whether nobody fetches at all; for tests.
  var waiterCount: Int { state.withLock { $0.flights.values.reduce(0) { $0 + $1.waiters.count } } }
  var isEmpty: Bool {
    state.withLock { state in
      state.flights.isEmpty && state.current.isEmpty && state.cancelled.isEmpty
        && state.waitsFor.isEmpty
    }
  }

  /// What is being fetched for the key is older than what is stored from now on; nil for all keys.
  func supersede(_ key: String?) {
    state.withLock { state in
      if state.current.isEmpty { return }
      if let key { state.current[Array(key.utf8)] = nil } else { state.current = [:] }
    }
  }
}
