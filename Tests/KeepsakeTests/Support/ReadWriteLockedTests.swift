import Foundation
import Synchronization
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct ReadWriteLockedTests {
  /// Only threads that wait for each other need that long, however busy the machine is.
  private let deadline = DispatchTime.now() + 600

  /// Runs `body` on threads of their own; false if they do not end in time.
  private func run(threads count: Int, _ body: @escaping @Sendable (Int) -> Void) -> Bool {
    let hasEnded = DispatchSemaphore(value: 0)
    for number in 0..<count {
      Thread.detachNewThread {
        body(number)
        hasEnded.signal()
      }
    }
    return (0..<count).allSatisfy { _ in hasEnded.wait(timeout: deadline) == .success }
  }

  /// More threads than there are slots.
  @Test func readersDoNotWaitForEachOther() {
    let locked = Box(0)
    let (isReading, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    let areReading = Atomic(false)
    let count = 40
    let isDone = run(threads: count + 1) { number in
      if number < count {
        locked.value.withReadLock { _ in
          isReading.signal()
          _ = mayEnd.wait(timeout: deadline)
        }
      } else {
        // Not all: threads whose slot is in use wait for the mutex. One thread would have it.
        let inTime = (0..<8).allSatisfy { _ in isReading.wait(timeout: deadline) == .success }
        areReading.store(inTime, ordering: .relaxed)
        for _ in 0..<count { mayEnd.signal() }
      }
    }
    #expect(isDone && areReading.load(ordering: .relaxed))
  }

  @Test func noReaderSeesAHalfChangedValue() {
    let locked = Box((0, 0))
    let failures = Locked(0)
    let rounds = Coverage.count(sample: 2_000, complete: 50_000)
    let isDone = run(threads: 5) { number in
      for _ in 0..<rounds {
        if number < 2 {
          locked.value.withLock { value in
            value.0 += 1
            value.1 += 1
          }
        } else if locked.value.withReadLock({ $0.0 != $0.1 }) {
          failures.withLock { $0 += 1 }
        }
      }
    }
    #expect(isDone && failures.withLock { $0 } == 0)
    #expect(locked.value.withReadLock { $0.0 } == 2 * rounds)
  }

  @Test func writerWaitsForReaders() {
    let locked = Box(0)
    let (isReading, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    let hasReader = Atomic(true)
    let isDone = run(threads: 3) { number in
      if number == 0 {
        locked.value.withReadLock { _ in
          for _ in 0..<2 { isReading.signal() }
          _ = mayEnd.wait(timeout: deadline)
          hasReader.store(false, ordering: .sequentiallyConsistent)
        }
      } else {
        _ = isReading.wait(timeout: deadline)
        // A writer of another value does not wait for this reader.
        Box(0).value.withLock { $0 += 1 }
        // One of the two writers waits for the reader. The other returns because it does.
        _ = locked.value.withLockIfAvailable { value in
          value += 1
          let isRead = hasReader.load(ordering: .sequentiallyConsistent)
          #expect(!isRead)
        }
        mayEnd.signal()
      }
    }
    // Not even one writes if the reader has no slot of its own, and holds the lock.
    #expect(isDone && locked.value.withReadLock { $0 } <= 1)
  }

  @Test func lockIsNotAvailableToASecondWriter() {
    let locked = Box(1)
    locked.value.withLock { _ in
      let other = Locked<Int?>(0)
      _ = run(threads: 1) { _ in
        let found = locked.value.withLockIfAvailable { $0 }
        other.withLock { $0 = found }
      }
      #expect(other.withLock { $0 } == nil)
    }
    #expect(locked.value.withLockIfAvailable { $0 } == 1)
  }
}

private final class Box<Value: Sendable>: Sendable {
  let value: ReadWriteLocked<Value>

  init(_ value: Value) { self.value = ReadWriteLocked(value) }
}
