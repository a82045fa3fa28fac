internal import Keepsake

/// The fetches of this process that wait for a machine that produces the value of their key.
///
/// No thread waits: a task is resumed by a message, by a timer, or by its cancellation.
final class ProducerWaits: Sendable {
  struct Ticket: Sendable {
    fileprivate let key: ExactString
    fileprivate let id: UInt64
  }

  private struct Wait: Sendable {
    var isOver = false
    var continuation: CheckedContinuation<Void, Never>?
  }

  private struct State: Sendable {
    var waits: [ExactString: [UInt64: Wait]] = [:]
    var lastID: UInt64 = 0

    /// Ends a wait. Returns what to resume outside the lock.
    mutating func finish(_ key: ExactString, _ id: UInt64) -> CheckedContinuation<Void, Never>? {
      waits[key]?[id]?.isOver = true
      defer { waits[key]?[id]?.continuation = nil }
      return waits[key]?[id]?.continuation
    }
  }

  private let state = Locked(State(), afterFork: { State() })

  /// Begins to listen for messages about the key. The caller must end that with ``drop(_:)``.
  func makeTicket(_ key: String) -> Ticket {
    let key = ExactString(key)
    return state.withLock { state in
      state.lastID += 1
      state.waits[key, default: [:]][state.lastID] = Wait()
      return Ticket(key: key, id: state.lastID)
    }
  }

  func drop(_ ticket: Ticket) {
    state.withLock { state in
      state.waits[ticket.key]?[ticket.id] = nil
      if state.waits[ticket.key]?.isEmpty == true { state.waits[ticket.key] = nil }
    }
  }

  /// Suspends until a message has arrived since the ticket was made, the time has passed, or the
  /// task is cancelled.
  func wait(for ticket: Ticket, atMost time: Duration) async {
    let timer = Task {
      try? await Task.sleep(for: time)
      self.wake(ticket)
    }
    defer { timer.cancel() }
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let isOver = state.withLock { state in
          if state.waits[ticket.key]?[ticket.id]?.isOver ?? true { return true }
          state.waits[ticket.key]?[ticket.id]?.continuation = continuation
          return false
        }
        if isOver { continuation.resume() }
      }
    } onCancel: {
      wake(ticket)
    }
  }

  private func wake(_ ticket: Ticket) {
    state.withLock { $0.finish(ticket.key, ticket.id) }?.resume()
  }

  func wake(_ key: String) {
    let continuations = state.withLock { state in
      if state.waits.isEmpty { return [CheckedContinuation<Void, Never>]() }
      let key = ExactString(key)
      return (state.waits[key] ?? [:]).keys.compactMap { state.finish(key, $0) }
    }
    for continuation in continuations { continuation.resume() }
  }

  func wakeAll() {
    let continuations = state.withLock { state in
      state.waits.flatMap { key, waits in waits.keys.compactMap { state.finish(key, $0) } }
    }
    for continuation in continuations { continuation.resume() }
  }

  /// For tests.
  var count: Int {
    state.withLock { $0.waits.values.reduce(0) { $0 + $1.values.count { $0.continuation != nil } } }
  }
}
