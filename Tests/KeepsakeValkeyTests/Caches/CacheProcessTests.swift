import Foundation
import Testing

@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Caches of several processes, which call `bootstrap` and the facade as programs do; their source
/// is Tests/ValkeyPeer.
@Suite(.server, .threadPerTest) struct CacheProcessTests {
  private let server: TestServer

  init() throws { server = try TestServer() }

  private func exists(_ part: String, _ key: String = "k") throws -> Bool {
    try server.command("EXISTS", "keepsake:{shop:cache:standard}:\(part):\(key)") == .integer(1)
  }

  /// Two machines, each with two processes that share its directory.
  @Test func processesShareValues() throws {
    let keys = Coverage.count(sample: 200, complete: 1_000)
    let lines = server.runPeers(4) {
      (["cache-work", "p\($0)", "\(keys)", "4"], "machine \($0 % 2)")
    }
    let results = lines.map { $0.last?.split(separator: " ") ?? [] }
    #expect(lines.count == 4 && lines.allSatisfy { $0.count == 1 }, "\(lines)")
    #expect(Set(results.map(\.first)).count == 1, "\(lines)")
    // A process that was stopped for long may have lost its leases to another one.
    let produced = results.reduce(0) { $0 + (Int($1.last ?? "") ?? 0) }
    #expect(produced >= keys && produced < 2 * keys, "\(lines)")
  }

  @Test func leaseOfAKilledProcessEnds() throws {
    try server.runPeer(["cache-hold", "k"], status: 128 + SIGKILL) { process, output in
      waitUntil("the process has no lease") { output().contains("produces\n") }
      kill(process, SIGKILL)
    }
    // As if its time were over.
    try server.command("PEXPIRE", "keepsake:{shop:cache:standard}:p:k", "1")
    #expect(try server.runPeer(["cache-fetch", "k"]) == ["mine"])
    #expect(try server.runPeer(["cache-fetch", "k"], as: "other") == ["mine"])
  }

  @Test func leaseEndsWithItsProcess() throws {
    var key = "k"
    // A process that gets no time for a while may end before it has given up its lease.
    try waitUntil("the lease did not end") {
      key += "k"
      #expect(try server.runPeer(["cache-exit", key]) == [])
      return try !exists("p", key)
    }
    #expect(try server.runPeer(["cache-fetch", key], as: "other") == ["mine"])
  }

  /// The parent has told the server of its change by the time at which the child uses the key.
  @Test(.forksBesideThreads) func forkedChildLeavesTheChangesOfItsParent() throws {
    let lines = try server.runPeer(["cache-fork", "k"]) { _, output in
      waitUntil("the process has not started") { output().contains("ready\n") }
      server.kill()
      waitUntil("the process has not forked") { output().contains("forked\n") }
      try server.start()
    }
    let words = lines.filter { !$0.hasPrefix("report ") }
    #expect(words == ["ready", "forked", "child new", "parent new 0"], "\(lines)")
    #expect(try exists("e"))
  }
}
