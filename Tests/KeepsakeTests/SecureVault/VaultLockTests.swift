import Dispatch
import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// The vault's lock file, which a process keeps open between calls.
@Suite struct VaultLockTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory() }

  private var lockPath: String { directory.path + "/vault/.lock" }

  /// Expects calls to time out while all bytes of the current lock file are locked.
  private func expectExcluded(_ vault: Vault) throws {
    try ByteRangeLock(lockPath).withLock(
      ByteRangeLock.allBytes, mode: 0o600, Wait(timeout: .seconds(1))
    ) {
      () throws(StorageError) in
      expectFailure(.timedOut) { try vault.set("late", forKey: "k") }
      expectFailure(.timedOut) { try vault.remove("standard", "k") }
      expectFailure(.timedOut) { try vault.rotateKeys() }
    }
    #expect(try directory.temporaries() == [])
  }

  /// The header is replaced under all bytes, of which the writers lock one each.
  @Test(.slow) func rotatesBesideManyWriters() async throws {
    let vault = directory.vault()
    let isOver = Locked(false)
    let counts = Locked((started: 0, ended: 0))
    let writerCount = 48
    let errors = Locked<[StorageError]>([])
    for number in 0..<writerCount {
      Thread.detachNewThread { [directory] in
        let store = directory.secrets()
        var isFirst = true
        while !isOver.withLock({ $0 }) {
          do throws(StorageError) {
            try store.set("value", forKey: "k\(number)")
          } catch {
            errors.withLock { $0.append(error) }
          }
          if isFirst { counts.withLock { $0.started += 1 } }
          isFirst = false
        }
        counts.withLock { $0.ended += 1 }
      }
    }
    try await eventually("all write") { counts.withLock { $0.started } == writerCount }
    for _ in 0..<3 { try vault.rotateKeys() }
    isOver.withLock { $0 = true }
    try await eventually("all have ended") { counts.withLock { $0.ended } == writerCount }
    #expect(errors.withLock { $0 }.isEmpty)
    #expect(try directory.secrets().keys().count == writerCount)
  }

  @Test func locksTheNewFileAfterTheLockFileIsReplaced() throws {
    let vault = directory.vault(timeout: .milliseconds(50))
    try vault.set("1", forKey: "k")
    try expectExcluded(vault)

    try FileSystem.unlink(lockPath)
    try vault.set("2", forKey: "k")
    try expectExcluded(vault)

    _ = try FileSystem.replace(lockPath, with: [], mode: 0o600, durable: false)
    try expectExcluded(vault)
    try vault.set("3", forKey: "k")
    #expect(try directory.secrets().get("k") == "3")

    // The whole vault is moved away, and another one takes its place.
    let other = try TemporaryDirectory()
    try other.secrets().set("other", forKey: "k")
    try FileSystem.rename(directory.path + "/vault", to: directory.path + "/old")
    try FileManager.default.copyItem(
      atPath: other.path + "/vault", toPath: directory.path + "/vault")
    try FileManager.default.removeItem(atPath: directory.keyFilePath)
    try FileManager.default.copyItem(atPath: other.keyFilePath, toPath: directory.keyFilePath)
    try vault.lock()
    try vault.unlock(passphrase: nil)
    try vault.set("4", forKey: "k")
    try expectExcluded(vault)
    #expect(try directory.secrets().get("k") == "4")
  }

  @Test func excludesThreadsOfTheSameProcess() throws {
    let path = directory.path + "/.lock"
    let lock = ByteRangeLock(path)
    let (threads, rounds) = (8, 300)
    let inside = Locked([0, 0])
    let count = Locked(0)
    let failures = Failures()
    DispatchQueue.concurrentPerform(iterations: threads) { thread in
      for round in 0..<rounds {
        let byte = (thread + round) % 2
        func enter() throws(StorageError) {
          let otherCount = inside.withLock { inside in
            defer { inside[byte] += 1 }
            return inside[byte]
          }
          count.withLock { $0 += otherCount == 0 ? 1 : 0 }
          // Another thread that gets in as well may do so now.
          if round % 16 == 0 { sched_yield() }
          inside.withLock { $0[byte] -= 1 }
        }
        let bytes = UInt64(byte)..<UInt64(byte + 1)
        do throws(StorageError) {
          if round % 3 == 0 {
            try ByteRangeLock(path).withLock(
              bytes, mode: 0o600, Wait(timeout: .seconds(600)), enter)
          } else {
            try lock.withLock(bytes, mode: 0o600, Wait(timeout: .seconds(600)), enter)
          }
        } catch {
          failures.append(error)
        }
      }
    }
    #expect(failures.all.isEmpty, "\(failures.all)")
    #expect(count.withLock { $0 } == threads * rounds)
  }
}
