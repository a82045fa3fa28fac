internal import CKeepsake
internal import KeepsakeLibc
internal import Synchronization

/// A mutex that a forked child can lock, even if another thread of its parent had locked it.
///
/// That thread does not exist in the child, so it would never unlock the mutex. The child therefore
/// replaces the mutex, and the value that it guards too, before it first uses them.
///
/// Of no generic type, so that its code is not compiled for each type of value.
///
/// Unchecked because it holds a pointer and a closure, which never change. Only the one thread that
/// takes the mutex over in a forked child calls the closure.
struct ProcessLock: ~Copyable, @unchecked Sendable {
  private let pointer: UnsafeMutablePointer<pthread_mutex_t>
  private let replaceValue: (() -> Void)?
  /// The process that uses the mutex; with ``isBeingTakenOver`` while one of its threads replaces
  /// the mutex.
  private let generation = Atomic(ForkGuard.generation)
  private static var isBeingTakenOver: UInt64 { 1 << 63 }

  /// - Parameter replaceValue: Replaces the value in a forked child in whose parent another thread
  ///   had locked the mutex.
  init(replaceValue: (() -> Void)?) {
    pointer = .allocate(capacity: 1)
    pthread_mutex_init(pointer, nil)
    self.replaceValue = replaceValue
  }

  deinit {
    pthread_mutex_destroy(pointer)
    pointer.deallocate()
  }

  /// Locks the mutex, and returns it for the caller to unlock.
  @inline(never)
  func lock() -> UnsafeMutablePointer<pthread_mutex_t> {
    let mutex = usable()
    pthread_mutex_lock(mutex)
    return mutex
  }

  /// The same; nil if the mutex cannot be locked within `timeout`.
  @inline(never)
  func lock(timeout: Duration) -> UnsafeMutablePointer<pthread_mutex_t>? {
    let mutex = usable()
    if pthread_mutex_trylock(mutex) == 0 { return mutex }
    let isLocked = timeout > .zero && keepsake_lock_mutex(mutex, timeout.saturatedNanoseconds)
    return isLocked ? mutex : nil
  }

  /// Unlocks the mutex that this thread has locked, also in a child that it has forked since.
  func unlock() { pthread_mutex_unlock(pointer) }

  /// The mutex, for the caller to lock. It must be asked for each time.
  ///
  /// - Parameter abandoned: Is called if the mutex was locked when this process was forked, with no
  ///   other thread in the way.
  @inline(__always)
  func usable(abandoned: () -> Void = {}) -> UnsafeMutablePointer<pthread_mutex_t> {
    let current = ForkGuard.generation
    if generation.load(ordering: .acquiring) != current { takeOver(current, abandoned) }
    return pointer
  }

  @inline(never)
  private func takeOver(_ current: UInt64, _ abandoned: () -> Void) {
    while true {
      let found = generation.load(ordering: .acquiring)
      if found == current { return }
      let claim = current | Self.isBeingTakenOver
      guard found != claim,
        generation.compareExchange(
          expected: found, desired: claim, ordering: .acquiringAndReleasing
        ).exchanged
      else {
        sched_yield()
        continue
      }
      if pthread_mutex_trylock(pointer) == 0 {
        pthread_mutex_unlock(pointer)
      } else {
        pthread_mutex_init(pointer, nil)
        replaceValue?()
        abandoned()
      }
      return generation.store(current, ordering: .releasing)
    }
  }
}
