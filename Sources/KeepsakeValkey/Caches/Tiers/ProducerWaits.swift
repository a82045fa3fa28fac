internal import Keepsake

/// The fetches of this process that wait for a machine that produces the value of their key.
///
/// No thread waits: a task is resumed by a message, by a timer, or by its cancellation.
final class ProducerWaits: Sendable {
  /// A fetch that waits, or will.
  final class Ticket: Sendable {
    private struct State: Sendable {
      var isOver = false
      var continuation: CheckedContinuation<Void, Never>?
    }

    fileprivate let key: ExactString
    private let state = Locked(State())

    fileprivate init(_ key: ExactString) { self.key = key }

    fileprivate var isWaiting: Bool { state.withLock { $0.continuation != nil } }

    /// Resumes the continuation when the wait is over.
    fileprivate func wait(_ continuation: CheckedContinuation<Void, Never>) {
      let isOver = state.withLock { state in
        if !state.isOver { state.continuation = continuation }
        return state.isOver
      }
      if isOver { continuation.resume() }
    }

    fileprivate func end() {
      let continuation = state.withLock { state in
        state.isOver = true
        defer { state.continuation = nil }
        return state.continuation
      }
      continuation?.resume()
    }
  }

  private let tickets = Locked<[ExactString: [Ticket]]>([:], afterFork: { [:] })

  /// Begins to listen for messages about the key. The caller must end that with ``drop(_:)``.
  func makeTicket(_ key: String) -> Ticket {
    let ticket = Ticket(ExactString(key))
    tickets.withLock { $0[ticket.key, default: []].append(ticket) }
    return ticket
  }

  func drop(_ ticket: Ticket) {
    tickets.withLock { tickets in
      tickets[ticket.key]?.removeAll { $0 === ticket }
      if tickets[ticket.key]?.isEmpty == true { tickets[ticket.key] = nil }
    }
  }

  /// Suspends until a message has arrived since the ticket was made, the time has passed, or the
  /// task is cancelled.
  func wait(for ticket: Ticket, atMost time: Duration) async {
    let timer = Task {
      try? await Task.sleep(for: time)
      ticket.end()
    }
    defer { timer.cancel() }
    await withTaskCancellationHandler {
      await withCheckedContinuation { ticket.wait($0) }
    } onCancel: {
      ticket.end()
    }
  }

  func wake(_ key: String) {
    for ticket in tickets.withLock({ $0[ExactString(key)] ?? [] }) { ticket.end() }
  }

  func wakeAll() { for ticket in all { ticket.end() } }

  private var all: [Ticket] { tickets.withLock { $0.values.flatMap { $0 } } }

  /// For tests.
  var count: Int { all.count { $0.isWaiting } }
}
