internal import CKeepsake
internal import KeepsakeLibc
internal import Synchronization

/// A value that many threads can read at the same time, or one thread can change.
///
/// A reader writes to no memory that other readers use, so readers do not slow each other down: it
/// announces itself in the ``ReaderSlots`` and then looks whether a writer is at work. A writer
/// first says that it is, and then waits for the readers that were there before. Readers that come
/// later wait for the mutex.
///
/// Unchecked because the compiler cannot know that the value is guarded. It is only accessed
/// through ``withLock(_:)``, which excludes all others, and ``withReadLock(_:)``, which cannot
/// change it.
struct ReadWriteLocked<Value: ~Copyable>: ~Copyable, @unchecked Sendable {
  /// Orders the writers, and the readers that find one.
  private let mutex: Locked<Value>
  private let hasWriter = Atomic(false)

  /// - Parameter replacement: Makes the value for a forked child whose parent was using it in
  ///   another thread. Without it, the child uses the value as it is.
  init(_ initial: consuming sending Value, afterFork replacement: (@Sendable () -> Value)? = nil) {
    mutex = Locked(initial, afterFork: replacement)
  }

  private var value: UnsafeMutablePointer<Value> { mutex.value }

  /// The mutex, for the caller to lock. Not inlined, to keep reads short.
  @inline(never)
  private func usableMutex() -> UnsafeMutablePointer<pthread_mutex_t> {
    mutex.lock.usable(abandoned: { hasWriter.store(false, ordering: .releasing) })
  }

  /// Identifies this lock in the slots.
  private var id: UInt { UInt(bitPattern: value) }

  /// Runs `body` once no other thread is in a call for this value.
  @inline(__always)
  func withLock<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R {
    let mutex = usableMutex()
    pthread_mutex_lock(mutex)
    return try excludingReaders(mutex, body)
  }

  /// The same, but returns nil if another thread holds the lock, or waits for readers, for longer
  /// than `timeout`.
  func withLock<R, E: Error>(
    timeout: Duration, _ body: (inout Value) throws(E) -> R
  ) throws(E) -> R? {
    _ = usableMutex()
    guard let mutex = mutex.lock.lock(timeout: timeout) else { return nil }
    return try excludingReaders(mutex, body)
  }

  /// The same, but returns nil at once if another thread holds the lock or waits for readers.
  func withLockIfAvailable<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R? {
    try withLock(timeout: .zero, body)
  }

  /// The caller holds the mutex, which this releases.
  @inline(__always)
  private func excludingReaders<R, E: Error>(
    _ mutex: UnsafeMutablePointer<pthread_mutex_t>, _ body: (inout Value) throws(E) -> R
  ) throws(E) -> R {
    // Sequentially consistent, as are the slots: either the reader sees this, or this thread sees
    // the reader.
    hasWriter.store(true, ordering: .sequentiallyConsistent)
    ReaderSlots.waitForReaders(of: id)
    defer {
      hasWriter.store(false, ordering: .releasing)
      pthread_mutex_unlock(mutex)
    }
    // The thread sanitizer takes this for a change of the property, too, which readers use.
    let value = value
    return try body(&value.pointee)
  }

  /// Runs `body` once no thread is changing the value. It must be short, and must not use this or
  /// another `ReadWriteLocked`.
  @inline(__always)
  func withReadLock<R, E: Error>(_ body: (borrowing Value) throws(E) -> R) throws(E) -> R {
    if let slot = ReaderSlots.enter(id) {
      defer { slot.leave() }
      if !hasWriter.load(ordering: .sequentiallyConsistent) { return try body(value.pointee) }
    }
    let mutex = usableMutex()
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return try body(value.pointee)
  }
}

/// Where each thread says what it is reading, in its own cache line.
///
/// The slots are wiped in a forked child, which has none of the other threads.
enum ReaderSlots {
  /// A slot holds the ``ReadWriteLocked`` that its thread is reading, or 0.
  ///
  /// Unchecked because it is a pointer: its memory is only accessed atomically and is never
  /// released.
  struct Slot: @unchecked Sendable {
    fileprivate let holder: UnsafeMutablePointer<Atomic<UInt>>

    @inline(__always)
    fileprivate func enter(_ id: UInt) -> Bool {
      holder.pointee.compareExchange(
        expected: 0, desired: id, ordering: .sequentiallyConsistent
      ).exchanged
    }

    @inline(__always)
    fileprivate func leave() { holder.pointee.store(0, ordering: .releasing) }

    fileprivate func holds(_ id: UInt) -> Bool {
      holder.pointee.load(ordering: .sequentiallyConsistent) == id
    }
  }

  /// Processors fetch cache lines of 64 bytes in pairs.
  private static let size = 128
  private static let count = 4_096 / size
  /// The first of the slots; nil if the system has no memory for them, or cannot wipe it on fork:
  /// then readers take the mutex.
  private static let first = keepsake_wipe_on_fork_page().map { page in
    let start = UnsafeMutableRawPointer(page)
    for number in 0..<count {
      start.advanced(by: number * size).bindMemory(to: Atomic<UInt>.self, capacity: 1)
        .initialize(to: Atomic(0))
    }
    return Slot(holder: start.assumingMemoryBound(to: Atomic<UInt>.self))
  }
  /// How often a slot was given to a thread; the first ones are used first.
  private static let assignments = Atomic(0)

  private static func slot(_ number: Int) -> Slot? {
    first.map { first in
      let address = UnsafeMutableRawPointer(first.holder) + number % count * size
      return Slot(holder: address.assumingMemoryBound(to: Atomic<UInt>.self))
    }
  }

  /// Announces this thread as a reader; nil if that is not possible.
  @inline(__always)
  fileprivate static func enter(_ id: UInt) -> Slot? {
    if let holder = ThreadState.readerSlot {
      let slot = Slot(holder: holder.assumingMemoryBound(to: Atomic<UInt>.self))
      if slot.enter(id) { return slot }
    }
    return enterAnotherSlot(id)
  }

  /// For the first read of a thread, or if another thread is using the slot of this one: from then
  /// on they use different ones.
  private static func enterAnotherSlot(_ id: UInt) -> Slot? {
    let number = assignments.add(1, ordering: .sequentiallyConsistent).oldValue
    guard let slot = slot(number & .max) else { return nil }
    ThreadState.readerSlot = UnsafeMutableRawPointer(slot.holder)
    return slot.enter(id) ? slot : nil
  }

  /// Waits until no thread is announced as a reader.
  @inline(never)
  fileprivate static func waitForReaders(of id: UInt) {
    let used = assignments.load(ordering: .sequentiallyConsistent)
    guard used > 0 else { return }
    for number in 0..<(used < count ? used : count) {
      if let slot = slot(number), slot.holds(id) { wait(for: slot, id) }
    }
  }

  private static func wait(for slot: Slot, _ id: UInt) {
    var attempts = 0
    while slot.holds(id) {
      attempts += 1
      // A reader takes less than a microsecond, unless the system has paused its thread.
      if attempts > 200 { usleep(50) } else if attempts > 50 { sched_yield() }
    }
  }
}
