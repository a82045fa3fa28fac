import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct ByteRangeLockTests {
  /// A process that rotates keys without a pause must not keep out the writers.
  @Test func theHolderOfAllBytesGivesWayToThoseThatWait() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let path = directory.file("lock").path
    let isDone = Locked(false)
    let cycles = Locked(0)
    // Without turns, one of hundreds of attempts finds the byte free.
    let limit = 300
    let hasWaited = DispatchSemaphore(value: 0)
    let end = startThread {
      let all = ByteRangeLock(path)
      while !isDone.withLock({ $0 }), cycles.withLock({ $0 }) < limit {
        #expect(throws: Never.self) {
          try all.withLock(ByteRangeLock.allBytes, mode: 0o600, Wait(timeout: .seconds(600))) {
            () throws(StorageError) in
            cycles.withLock { $0 += 1 }
            hasWaited.wait()
          }
        }
      }
    }
    // The holder keeps the bytes until the other thread has found them taken.
    let plan = FaultPlan(
      decide: { _ in .proceed },
      observe: { event, result in
        if event.call == .lock, case .failure = result { hasWaited.signal() }
      })
    let one = ByteRangeLock(path)
    var count = 0
    for _ in 0..<5 {
      waitUntil("the holder has all bytes again") {
        cycles.withLock { $0 > count || $0 == limit }
      }
      try FaultPlan.$current.withValue(plan) {
        try one.withLock(7..<8, mode: 0o600, Wait(timeout: .seconds(600))) {
          count = cycles.withLock { $0 }
        }
      }
    }
    isDone.withLock { $0 = true }
    hasWaited.signal()
    end.wait()
    #expect(cycles.withLock { $0 } < limit)
  }

  /// A thread that waits for the byte of a stopped process does not block the other bytes for good.
  @Test func aByteThatIsNotReleasedBlocksNoOther() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let path = directory.file("lock").path
    let end = DispatchSemaphore(value: 0)
    try ByteRangeLock(path).withLock(1..<2, mode: 0o600, Wait(timeout: .seconds(600))) {
      () throws(StorageError) in
      Thread.detachNewThread {
        let error = #expect(throws: StorageError.self) {
          try ByteRangeLock(path).withLock(1..<2, mode: 0o600, Wait(timeout: .milliseconds(400))) {}
        }
        #expect(error?.code == .timedOut)
        end.signal()
      }
      try ByteRangeLock(path).withLock(2..<3, mode: 0o600, Wait(timeout: .seconds(600))) {
        () throws(StorageError) in
      }
      end.wait()
    }
  }
}
