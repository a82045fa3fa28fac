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

    // The file that is removed has another name, as after a restore.
    #expect(try FileSystem.link(lockPath, to: directory.path + "/.lock") == true)
    try FileSystem.unlink(lockPath)
    try vault.set("2", forKey: "k")
    try expectExcluded(vault)
    try vault.set("3", forKey: "k")

    // The whole vault is moved away, and another one takes its place.
    let other = try TemporaryDirectory()
    try other.secrets().set("other", forKey: "k")
    try FileSystem.rename(directory.path + "/vault", to: directory.path + "/old")
    for name in ["vault", "state/vault.key"] {
      try FileSystem.rename(other.path + "/" + name, to: directory.path + "/" + name)
    }
    try vault.lock()
    try vault.unlock(passphrase: nil)
    try vault.set("4", forKey: "k")
    try expectExcluded(vault)
    #expect(try directory.secrets().get("k") == "4")
  }

  /// As long as anything uses the keys, although nothing uses the session.
  @Test func lockWaitsUntilTheKeysAreWiped() throws {
    let vault = directory.vault(timeout: .milliseconds(50))
    try vault.set("v", forKey: "k")
    do {
      let ring = try #require(try vault.currentSession()).ring
      expectFailure(.timedOut) { try vault.lock() }
      withExtendedLifetime(ring) {}
    }
    try vault.lock()
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
