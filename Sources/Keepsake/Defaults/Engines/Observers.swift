internal import Synchronization

/// Those who wait for changes of one suite.
final class Observers: Sendable {
  private struct Waiting {
    let isRelevant: @Sendable (String) -> Bool
    let continuation: AsyncStream<Void>.Continuation
  }

  private struct State {
    var next = 0
    var waiting: [Int: Waiting] = [:]
  }

  private let state = Locked(State())
  private let count = Atomic(0)

  var isEmpty: Bool { count.load(ordering: .relaxed) == 0 }

  /// Tells those who want the key to look again; nil stands for all keys. Costs one load when
  /// nobody waits.
  @inline(__always)
  func signal(_ key: @autoclosure () -> String? = nil) {
    if !isEmpty { tell(key()) }
  }

  private func tell(_ key: String?) {
    // Resumed outside the lock: a continuation may run code that ends another one.
    for waiting in state.withLock({ Array($0.waiting.values) })
    where key.map(waiting.isRelevant) ?? true {
      waiting.continuation.yield()
    }
  }

  /// A stream that has an element pending whenever something that is wanted may have changed since
  /// the last one was taken. To wake somebody for each key that changes would cost more than a set.
  func changes(where isRelevant: @escaping @Sendable (String) -> Bool) -> AsyncStream<Void> {
    let (stream, continuation) = AsyncStream.makeStream(
      of: Void.self, bufferingPolicy: .bufferingNewest(1))
    let id = state.withLock { state in
      state.next += 1
      state.waiting[state.next] = Waiting(isRelevant: isRelevant, continuation: continuation)
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
