internal import Synchronization

/// The streams that wait for changes of one suite.
final class Observers: Sendable {
  /// A class, because copying a closure and a continuation takes a tenth of a set.
  private final class Observer: Sendable {
    let isRelevant: @Sendable (String) -> Bool
    let continuation: AsyncStream<Void>.Continuation

    init(
      isRelevant: @escaping @Sendable (String) -> Bool,
      continuation: AsyncStream<Void>.Continuation
    ) {
      self.isRelevant = isRelevant
      self.continuation = continuation
    }
  }

  private let observers = Locked<[Observer]>([])
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
    for observer in observers.withLock({ $0 }) where key.map(observer.isRelevant) ?? true {
      observer.continuation.yield()
    }
  }

  /// A stream with an element whenever a relevant key may have changed since the last element. Many
  /// changes may make one element, because waking a task costs more than a set.
  func changes(where isRelevant: @escaping @Sendable (String) -> Bool) -> AsyncStream<Void> {
    let (stream, continuation) = AsyncStream.makeStream(
      of: Void.self, bufferingPolicy: .bufferingNewest(1))
    let observer = Observer(isRelevant: isRelevant, continuation: continuation)
    observers.withLock { $0.append(observer) }
    count.add(1, ordering: .relaxed)
    let id = ObjectIdentifier(observer)
    continuation.onTermination = { [weak self] _ in self?.remove(id) }
    return stream
  }

  private func remove(_ id: ObjectIdentifier) {
    // Released outside the lock.
    let removed = observers.withLock { observers in
      observers.firstIndex { ObjectIdentifier($0) == id }.map { observers.remove(at: $0) }
    }
    if removed != nil { count.subtract(1, ordering: .relaxed) }
  }
}
