internal import Synchronization

/// The streams that wait for changes of one suite.
final class Observers: Sendable {
  private struct Observer {
    let isRelevant: @Sendable (String) -> Bool
    let continuation: AsyncStream<Void>.Continuation
  }

  private struct State {
    var lastID = 0
    var observers: [Int: Observer] = [:]
  }

  private let state = Locked(State())
  private let count = Atomic(0)

  var isEmpty: Bool { count.load(ordering: .relaxed) == 0 }

  /// Wakes the streams for which the key is relevant; nil stands for all keys. Costs one load if
  /// there are none.
  @inline(__always)
  func signal(_ key: @autoclosure () -> String? = nil) {
    if !isEmpty { wake(key()) }
  }

  private func wake(_ key: String?) {
    // Outside the lock, because a resumed task may end another stream.
    for observer in state.withLock({ Array($0.observers.values) })
    where key.map(observer.isRelevant) ?? true {
      observer.continuation.yield()
    }
  }

  /// A stream with an element whenever a relevant key may have changed since the last element. Many
  /// changes may make one element, because waking a task costs more than a set.
  func changes(where isRelevant: @escaping @Sendable (String) -> Bool) -> AsyncStream<Void> {
    let (stream, continuation) = AsyncStream.makeStream(
      of: Void.self, bufferingPolicy: .bufferingNewest(1))
    let id = state.withLock { state in
      state.lastID += 1
      state.observers[state.lastID] = Observer(isRelevant: isRelevant, continuation: continuation)
      count.add(1, ordering: .relaxed)
      return state.lastID
    }
    continuation.onTermination = { [weak self] _ in self?.remove(id) }
    return stream
  }

  private func remove(_ id: Int) {
    let removed = state.withLock { $0.observers.removeValue(forKey: id) }
    if removed != nil { count.subtract(1, ordering: .relaxed) }
  }
}
