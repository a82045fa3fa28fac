internal import CKeepsake
internal import KeepsakeLibc

/// A value that one thread at a time can access.
///
/// Replaces `Synchronization.Mutex`, whose contended path ThreadSanitizer cannot see on Linux: the
/// kernel takes the lock on behalf of the waiter, so every hand-over looks like a race.
///
/// Unchecked because the compiler cannot know that the mutex guards the value, which is only
/// accessed through ``withLock(_:)`` and its variants.
package struct Locked<Value: ~Copyable>: ~Copyable, @unchecked Sendable {
  let value: UnsafeMutablePointer<Value>
  let lock: ProcessLock

  /// - Parameter replacement: Makes the value for a forked child whose parent was using it in
  ///   another thread. Without it, the child uses the value as it is.
  package init(
    _ initial: consuming sending Value, afterFork replacement: (@Sendable () -> Value)? = nil
  ) {
    let value = UnsafeMutablePointer<Value>.allocate(capacity: 1)
    value.initialize(to: initial)
    self.value = value
    // The old value is not released: that thread may have left it half changed.
    lock = ProcessLock(replaceValue: replacement.map { make in { value.initialize(to: make()) } })
  }

  deinit {
    value.deinitialize(count: 1)
    value.deallocate()
  }

  /// Runs `body` once no other thread is in a call of this kind.
  @inline(__always)
  package func withLock<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R {
    let locked = lock.lock()
    defer { pthread_mutex_unlock(locked) }
    return try body(&value.pointee)
  }

  /// The same, but returns nil if the lock cannot be taken within `timeout`.
  package func withLock<R, E: Error>(
    timeout: Duration, _ body: (inout Value) throws(E) -> R
  ) throws(E) -> R? {
    guard let locked = lock.lock(timeout: timeout) else { return nil }
    defer { pthread_mutex_unlock(locked) }
    return try body(&value.pointee)
  }

  /// The same, but returns nil at once if another thread holds the lock.
  package func withLockIfAvailable<R, E: Error>(
    _ body: (inout Value) throws(E) -> R
  ) throws(E) -> R? {
    try withLock(timeout: .zero, body)
  }

  /// The result of `body`, which is called until it returns one: at once, when `condition` was
  /// signaled, and each time `timeout` has passed since then, with `isTimedOut` true.
  package func wait<R>(
    for condition: Condition, timeout: Duration,
    _ body: (inout Value, _ isTimedOut: Bool) -> R?
  ) -> R {
    let locked = lock.lock()
    defer { pthread_mutex_unlock(locked) }
    var isTimedOut = false
    while true {
      if let result = body(&value.pointee, isTimedOut) { return result }
      isTimedOut = !keepsake_wait(condition.pointer, locked, timeout.saturatedNanoseconds)
    }
  }
}

extension Locked<Void> {
  /// Takes the lock, for ``unlock()`` to release; false if that is not possible within `timeout`.
  func lock(timeout: Duration) -> Bool { lock.lock(timeout: timeout) != nil }

  func unlock() { lock.unlock() }
}

/// What a thread waits for in ``Locked/wait(for:timeout:_:)`` until another thread signals it.
///
/// Unchecked because it holds a pointer, which never changes. Threads may use a condition at the
/// same time.
package final class Condition: @unchecked Sendable {
  fileprivate let pointer: UnsafeMutablePointer<pthread_cond_t>

  package init() {
    pointer = .allocate(capacity: 1)
    keepsake_make_condition(pointer)
  }

  deinit {
    pthread_cond_destroy(pointer)
    pointer.deallocate()
  }

  /// Wakes one thread that waits.
  package func signal() { pthread_cond_signal(pointer) }
}
