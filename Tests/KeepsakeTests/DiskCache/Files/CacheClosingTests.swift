import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// A cache that closes its files, because other stores need the descriptors, while it is in use.
@Suite struct CacheClosingTests {
  @Test func closingDuringUseLosesNothing() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.ownCache("x")
    let files = try store.files
    let count = Coverage.count(sample: 100, complete: 2_000)
    let faults = Locked<[String]>([])
    let isOver = Locked(false)
    let threads = (0..<3).map { number in
      startThread {
        for round in 1...count {
          do {
            let value = SelfCheckingValue(key: number, writer: number, number: round, size: 500)
            try store.set(value.bytes, forKey: "\(number)")
            if try store.get("\(number)") != value.bytes { faults.withLock { $0.append("lost") } }
          } catch {
            faults.withLock { $0.append("\(error)") }
          }
        }
      }
    }
    let closer = startThread {
      while !isOver.withLock({ $0 }) {
        _ = files.current.closeIdleFiles()
        sched_yield()
      }
    }
    for thread in threads { thread.wait() }
    isOver.withLock { $0 = true }
    closer.wait()
    #expect(faults.withLock { Array($0.prefix(3)) } == [])
    #expect(store.statistics.damaged == 0)
    #expect(try Set(store.keys()) == ["0", "1", "2"])
    let size = try store.totalSize
    try store.removeExpired()
    #expect(try store.totalSize == size)
  }

  /// A program that closes descriptors that are not its own, and whose next file gets the number.
  @Test func aReaderWithoutALedgerNoticesThatItsDirectoryWasClosed() throws {
    let directory = try TemporaryDirectory()
    for name in ["x", "y"] { try directory.ownCache(name).set(name, forKey: "k") }
    try FileSystem.unlink(directory.file(".x.ledger").path)
    let reader = directory.ownCache("x")
    #expect(try reader.model("k") == "x")
    let number = try #require(try reader.files.openCache()?.directory.descriptor)
    let other = try DirectoryHandle(directory.file("y").path)
    #expect(dup2(other.descriptor, number) == number)
    defer { close(number) }
    waitForTick()
    #expect(try reader.model("k") == "x")
  }
}
