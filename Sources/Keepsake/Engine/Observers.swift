internal import Synchronization

/// Those who wait for changes of one suite.
final class Observers: Sendable {
  private struct State {
    var next = 0
    var waiting: [Int: AsyncStream<Void>.Continuation] = [:]
  }

  private let state = Locked(State())
  private let count = Atomic(0)

  var isEmpty: Bool { count.load(ordering: .relaxed) == 0 }

  /// Tells everybody to look again. Costs one load when nobody waits.
  @inline(__always)
  func signal() {
    if !isEmpty { signalAll() }
  }

  private func signalAll() {
    // Resumed outside the lock: a continuation may run code that ends another one.
    for continuation in state.withLock({ Array($0.waiting.values) }) { continuation.yield() }
  }

  /// A stream that has an element pending whenever something changed since the last one was taken.
  func ticks() -> AsyncStream<Void> {
    let (stream, continuation) = AsyncStream.makeStream(
      of: Void.self, bufferingPolicy: .bufferingNewest(1))
    let id = state.withLock { state in
      state.next += 1
      state.waiting[state.next] = continuation
      count.add(1, ordering: .relaxed)
      return state.next
    }
    continuation.onTermination = { [weak self] _ in self?.remove(id) }
    return stream
  }

  private func remove(_ id: Int) {
    let removed = state.withLock { $0.waiting.removeValue(forKey: id) }
    if removed != nil { count.subtract(1, ordering: .relaxed) }
  }
}
