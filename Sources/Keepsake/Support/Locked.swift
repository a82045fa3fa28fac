internal import CKeepsake
internal import KeepsakeLibc

/// A value that one thread at a time can access.
///
/// Replaces `Synchronization.Mutex`, whose contended path ThreadSanitizer cannot see on Linux: the
/// kernel takes the lock on behalf of the waiter, so every hand-over looks like a race.
///
/// Unchecked because the compiler cannot know that the mutex guards the value, which is only
/// accessed through ``withLock(_:)`` and its variants.
struct Locked<Value>: ~Copyable, @unchecked Sendable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private let value: UnsafeMutablePointer<Value>

  init(_ initial: consuming sending Value) {
    mutex = .allocate(capacity: 1)
    pthread_mutex_init(mutex, nil)
    value = .allocate(capacity: 1)
    value.initialize(to: initial)
  }

  deinit {
    value.deinitialize(count: 1)
    value.deallocate()
    pthread_mutex_destroy(mutex)
    mutex.deallocate()
  }

  /// Runs `body` once no other thread is in a call of this kind.
  @inline(__always)
  func withLock<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return try body(&value.pointee)
  }

  /// The same, but returns nil if the lock cannot be taken within `timeout`.
  func withLock<R, E: Error>(
    timeout: Duration, _ body: (inout Value) throws(E) -> R
  ) throws(E) -> R? {
    if pthread_mutex_trylock(mutex) != 0 {
      let (seconds, attoseconds) = timeout.components
      guard keepsake_lock_mutex(mutex, seconds, attoseconds / 1_000_000_000) else { return nil }
    }
    defer { pthread_mutex_unlock(mutex) }
    return try body(&value.pointee)
  }

  /// The same, but returns nil at once if another thread holds the lock.
  func withLockIfAvailable<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R? {
    guard pthread_mutex_trylock(mutex) == 0 else { return nil }
    defer { pthread_mutex_unlock(mutex) }
    return try body(&value.pointee)
  }
}
