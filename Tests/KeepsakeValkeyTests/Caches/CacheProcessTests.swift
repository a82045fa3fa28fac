import Foundation
import Testing

@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Caches of several processes, which call `bootstrap` and the facade as programs do; their source
/// is Tests/ValkeyPeer.
@Suite(.server, .threadPerTest) struct CacheProcessTests {
  private let server: TestServer

  init() throws { server = try TestServer() }

  private func exists(_ part: String) throws -> Bool {
    try server.command("EXISTS", "keepsake:{shop:cache:standard}:\(part):k") == .integer(1)
  }

  /// Two machines, each with two processes that share its directory.
  @Test func processesShareValues() throws {
    let keys = Coverage.count(sample: 200, complete: 1_000)
    let lines = Recorder<[String]>()
    onThreads(4) { number in
      let arguments = ["cache-work", "p\(number)", "\(keys)", "4"]
      lines.append(server.runPeer(arguments, as: "machine \(number % 2)", output: "\(number)"))
    }
    let results = lines.all.map { $0.last?.split(separator: " ") ?? [] }
    #expect(lines.all.allSatisfy { $0.count == 1 }, "\(lines.all)")
    #expect(Set(results.map(\.first)).count == 1, "\(lines.all)")
    // A process that was stopped for long may have lost its leases to another one.
    let produced = results.reduce(0) { $0 + (Int($1.last ?? "") ?? 0) }
    #expect(produced >= keys && produced < 2 * keys, "\(lines.all)")
  }

  @Test func leaseOfAKilledProcessEnds() throws {
    let peer = try server.startPeer(["cache-hold", "k"])
    waitUntil("the process has no lease") { server.peerOutput().contains("produces") }
    peer.end()
    // As if its time were over.
    try server.command("PEXPIRE", "keepsake:{shop:cache:standard}:p:k", "1")
    #expect(server.runPeer(["cache-fetch", "k"]) == ["mine"])
    #expect(server.runPeer(["cache-fetch", "k"], as: "other") == ["mine"])
  }

  @Test func leaseEndsWithItsProcess() throws {
    #expect(server.runPeer(["cache-exit", "k"]) == [])
    #expect(try !exists("p"))
    #expect(server.runPeer(["cache-fetch", "k"], as: "other") == ["mine"])
  }

  /// The parent has told the server of its change by the time at which the child uses the key.
  @Test(.forksBesideThreads) func forkedChildLeavesTheChangesOfItsParent() throws {
    let lines = Recorder<[String]>()
    onThreads(2) { thread in
      if thread == 0 { return lines.append(server.runPeer(["cache-fork", "k"])) }
      waitUntil("the process has not started") { server.peerOutput().contains("ready") }
      server.kill()
      waitUntil("the process has not forked") { server.peerOutput().contains("forked") }
      do {
        try server.start()
      } catch {
        Issue.record(error)
      }
    }
    let words = lines.all[0].filter { !$0.hasPrefix("report ") }
    #expect(words == ["ready", "forked", "child new", "parent new 0"], "\(lines.all)")
    #expect(try exists("e"))
  }
}
