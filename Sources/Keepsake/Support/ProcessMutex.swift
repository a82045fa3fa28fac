internal import KeepsakeLibc
internal import Synchronization

/// A mutex that a forked child can lock, even if another thread of its parent had locked it.
///
/// That thread does not exist in the child, so it would never unlock the mutex. The child therefore
/// makes the mutex anew before it uses it for the first time.
///
/// Unchecked because it holds a pointer, which never changes.
struct ProcessMutex: ~Copyable, @unchecked Sendable {
  let pointer: UnsafeMutablePointer<pthread_mutex_t>
  /// The process that uses the mutex; with ``isBeingTakenOver`` while one of its threads makes the
  /// mutex anew.
  private let generation = Atomic(ForkGuard.generation)
  private static let isBeingTakenOver: UInt64 = 1 << 63

  init() {
    pointer = .allocate(capacity: 1)
    pthread_mutex_init(pointer, nil)
  }

  deinit {
    pthread_mutex_destroy(pointer)
    pointer.deallocate()
  }

  /// Must be called before each use of ``pointer`` that locks it.
  ///
  /// - Parameter abandoned: Is called if the mutex was locked when this process was forked, with no
  ///   other thread in the way. What the mutex guards may then be half changed.
  @inline(__always)
  func enter(_ abandoned: () -> Void) {
    let current = ForkGuard.generation
    if generation.load(ordering: .acquiring) != current { takeOver(current, abandoned) }
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
        abandoned()
      }
      return generation.store(current, ordering: .releasing)
    }
  }
}
