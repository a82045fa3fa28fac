import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A call that needs several locks waits for all of them together no longer than for one.
///
/// The tests count the attempts to take a lock. Apart from the first few there is at most one in
/// two milliseconds, so a busy machine makes fewer of them, and never more.
@Suite(.threadPerTest) struct OneDeadlineTests {
  enum Call: CaseIterable { case secretOfKnownService, secretOfNewService, entry, expiringEntry }

  private static let timeout = Duration.seconds(1)
  /// The attempts of one whole wait, of the few milliseconds at its start, and of the tenth of a
  /// second that a cache waits at least for its sizes.
  private static let mostAttempts = 500 + 100 + 50

  /// Counts the attempts of `body`, which gets its first lock after more than half of the timeout,
  /// and no lock after it.
  private func countAttempts(at suffix: String, _ body: () throws -> Void) -> Int {
    let count = Locked(0)
    let caller = pthread_self()
    let plan = FaultPlan { event in
      // The cache also counts in the background what it could not record.
      guard event.call == .lock, event.path.hasSuffix(suffix),
        pthread_equal(caller, pthread_self()) != 0
      else { return .proceed }
      return count.increment() == 300 ? .proceed : .fail(EAGAIN)
    }
    do {
      try FaultPlan.$current.withValue(plan, operation: body)
    } catch {
      #expect((error as? StorageError)?.code == .timedOut, "\(error)")
    }
    return count.withLock { $0 }
  }

  private func countAttemptsToSetSecret(service: String) throws -> Int {
    let directory = try TemporaryDirectory(isQuick: true)
    let vault = directory.vault(timeout: Self.timeout)
    func set(_ service: String) throws {
      try Array("secret".utf8).withBytes { bytes throws(StorageError) in
        _ = try vault.write(
          NewSecret(kind: .text, value: bytes, service: service, key: "k", access: nil))
      }
    }
    try set("known")
    return countAttempts(at: "/vault/.lock") { try set(service) }
  }

  private func countAttemptsToSetEntry(expiry: StoredExpiry) throws -> Int {
    let directory = try TemporaryDirectory(isQuick: true)
    let cache = FileCache(
      paths: CachePaths(
        parent: StoreDirectory(path: directory.path, isCallerOwned: false), name: "x"),
      timeout: Self.timeout, onFailure: { _ in })
    func set(_ key: String) throws {
      try cache.write(
        Payload(bytes: Data([1]), kind: .data), forKey: key,
        WriteOptions(expiry: expiry, isDurable: false), hook: commitDirectly)
    }
    try set("k0")
    return countAttempts(at: ".ledger") { try set("k1") }
  }

  @Test(arguments: Call.allCases) func aSetWaitsOnce(_ call: Call) throws {
    let count =
      switch call {
      case .secretOfKnownService: try countAttemptsToSetSecret(service: "known")
      case .secretOfNewService: try countAttemptsToSetSecret(service: "new")
      case .entry: try countAttemptsToSetEntry(expiry: .never)
      case .expiringEntry: try countAttemptsToSetEntry(expiry: .after(300 * WallClock.second))
      }
    #expect(count > 1 && count <= Self.mostAttempts)
  }
}
