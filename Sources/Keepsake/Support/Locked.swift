internal import CKeepsake
internal import KeepsakeLibc

/// A value that one thread at a time can access.
///
/// Replaces `Synchronization.Mutex`, whose contended path ThreadSanitizer cannot see on Linux: the
/// kernel takes the lock on behalf of the waiter, so every hand-over looks like a race.
///
/// Unchecked because the compiler cannot know that the mutex guards the value, which is only
/// accessed through ``withLock(_:)`` and its variants.
package struct Locked<Value>: ~Copyable, @unchecked Sendable {
  private let mutex: ProcessMutex<Value>

  /// - Parameter replacement: Makes the value for a forked child whose parent was using it in
  ///   another thread. Without it, the child uses the value as it is.
  package init(
    _ initial: consuming sending Value, afterFork replacement: (@Sendable () -> Value)? = nil
  ) {
    mutex = ProcessMutex(initial, afterFork: replacement)
  }

  /// Runs `body` once no other thread is in a call of this kind.
  @inline(__always)
  package func withLock<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R {
    let locked = mutex.lock.lock()
    defer { pthread_mutex_unlock(locked) }
    return try body(&mutex.value.pointee)
  }

  /// The same, but returns nil if the lock cannot be taken within `timeout`.
  package func withLock<R, E: Error>(
    timeout: Duration, _ body: (inout Value) throws(E) -> R
  ) throws(E) -> R? {
    guard mutex.lock.lock(timeout: timeout) else { return nil }
    defer { mutex.lock.unlock() }
    return try body(&mutex.value.pointee)
  }

  /// The same, but returns nil at once if another thread holds the lock.
  package func withLockIfAvailable<R, E: Error>(
    _ body: (inout Value) throws(E) -> R
  ) throws(E) -> R? {
    let locked = mutex.lock.usable()
    guard pthread_mutex_trylock(locked) == 0 else { return nil }
    defer { pthread_mutex_unlock(locked) }
    return try body(&mutex.value.pointee)
  }

  /// The result of `body`, which is called until it returns one: at once, when `condition` was
  /// signaled, and each time `timeout` has passed since then, with `isTimedOut` true.
  package func wait<R>(
    for condition: Condition, timeout: Duration,
    _ body: (inout Value, _ isTimedOut: Bool) -> R?
  ) -> R {
    let (seconds, attoseconds) = timeout.components
    let locked = mutex.lock.lock()
    defer { pthread_mutex_unlock(locked) }
    var isTimedOut = false
    while true {
      if let result = body(&mutex.value.pointee, isTimedOut) { return result }
      isTimedOut = !keepsake_wait(
        condition.pointer, locked, seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
    }
  }
}

extension Locked<Void> {
  /// Takes the lock, for ``unlock()`` to release; false if that is not possible within `timeout`.
  func lock(timeout: Duration) -> Bool { mutex.lock.lock(timeout: timeout) }

  func unlock() { mutex.lock.unlock() }
}

extension ProcessLock {
  /// Locks the mutex; false if that is not possible within `timeout`.
  fileprivate func lock(timeout: Duration) -> Bool {
    let mutex = usable()
    if pthread_mutex_trylock(mutex) == 0 { return true }
    let (seconds, attoseconds) = timeout.components
    return keepsake_lock_mutex(mutex, seconds, attoseconds / 1_000_000_000)
  }

  /// Only for the thread that has locked it.
  fileprivate func unlock() { pthread_mutex_unlock(usable()) }
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
