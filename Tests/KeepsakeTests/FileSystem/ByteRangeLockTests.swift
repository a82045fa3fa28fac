import Foundation
import Testing

@testable import Keepsake
@testable import TestSupport

@Suite struct ByteRangeLockTests {
  /// A process that rotates keys without a pause must not keep out the writers.
  @Test func theHolderOfAllBytesGivesWayToThoseThatWait() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let path = directory.file("lock").path
    let isDone = Locked(false)
    let cycles = Locked(0)
    let end = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      let all = ByteRangeLock(path)
      while !isDone.withLock({ $0 }) {
        #expect(throws: Never.self) {
          try all.withLock(ByteRangeLock.allBytes, mode: 0o600, timeout: .seconds(600)) {
            () throws(StorageError) in
            cycles.withLock { $0 += 1 }
            usleep(20_000)
          }
        }
      }
      end.signal()
    }
    let one = ByteRangeLock(path)
    for _ in 0..<5 {
      try one.withLock(7..<8, mode: 0o600, timeout: .seconds(600)) {}
      // It is not the last one's turn any more.
      usleep(1_000)
    }
    isDone.withLock { $0 = true }
    end.wait()
    // Without turns, one of hundreds of attempts finds the byte free.
    #expect(cycles.withLock { $0 } < 300)
  }

  /// A thread that waits for the byte of a stopped process does not block the other bytes for good.
  @Test func aByteThatIsNotReleasedBlocksNoOther() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let path = directory.file("lock").path
    let end = DispatchSemaphore(value: 0)
    try ByteRangeLock(path).withLock(1..<2, mode: 0o600, timeout: .seconds(600)) {
      () throws(StorageError) in
      Thread.detachNewThread {
        let error = #expect(throws: StorageError.self) {
          try ByteRangeLock(path).withLock(1..<2, mode: 0o600, timeout: .milliseconds(400)) {}
        }
        #expect(error?.code == .timedOut)
        end.signal()
      }
      try ByteRangeLock(path).withLock(2..<3, mode: 0o600, timeout: .seconds(600)) {
        () throws(StorageError) in
      }
      end.wait()
    }
  }
}
