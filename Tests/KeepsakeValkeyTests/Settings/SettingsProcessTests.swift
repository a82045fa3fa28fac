import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Settings of several processes; the source of the other ones is Tests/ValkeyPeer.
@Suite(.server, .threadPerTest) struct SettingsProcessTests {
  private let server: TestServer

  init() throws { server = try TestServer() }

  @Test func processesLoseNothing() throws {
    let increments = Coverage.count(sample: 250, complete: 1_000)
    let keys = Coverage.count(sample: 500, complete: 2_000)
    let lines = server.runPeers(4) {
      (["work", "p\($0)", "\(increments)", "\(keys)", "4"], "p\($0)")
    }
    let first = lines.first ?? []
    #expect(first.count == 1 && first[0].hasPrefix("\(4 * increments) \(4 * keys + 1) "))
    #expect(lines == Array(repeating: first, count: 4))
    let values = "keepsake:{shop:standard}:v"
    #expect(try server.command("HGET", values, "count").text == "\(4 * increments)")
    #expect(try server.command("HLEN", values) == .integer(Int64(4 * keys + 2)))
  }

  @Test(.forksBesideThreads) func forkedChildReadsAndWrites() throws {
    let lines = try server.runPeer(["fork-settings"])
    #expect(lines == ["parent 1", "child 1 2", "child 3 1", "parent 2 1 0"])
  }

  @Test(.forksBesideThreads) func handlerInAForkedChildReadsWhileTheServerIsAway() throws {
    let table = SettingsTable(
      TableName(app: "shop", suite: "standard"), on: server.backend(),
      cache: DiskCache.named(.memory), report: { _ in })
    try table.set(Data("7".utf8), forKey: "a")
    try waitUntil("no copy was left") {
      try server.runPeer(["get", "a"])
      return server.hasCopy(of: "peer")
    }
    server.kill()
    let lines = try server.runPeer(["fork-report", "a"])
    #expect(lines.sorted() == ["child 7", "parent 0", "report 7"])
  }

  /// As daemons do with `closefrom(3)`. A process that only reads makes no call that connects.
  @Test func closedDescriptorsAreOpenedAgain() throws {
    let table = SettingsTable(
      TableName(app: "shop", suite: "standard"), on: server.backend(),
      cache: DiskCache.named(.memory), report: { _ in })
    let lines = try server.runPeer(["take-over-settings"]) { _, output in
      for number in 1...5 {
        waitUntil("a change did not arrive") { output().contains("\(number - 1)\n") }
        try table.set(Data("\(number)".utf8), forKey: "n")
      }
    }
    #expect(lines.filter { !$0.hasPrefix("report") } == (0...5).map { "\($0)" })
  }

  /// A process that ends at once has left its copy for the next one.
  @Test func nextProcessStartsWhileTheServerIsAway() throws {
    try server.command("HSET", "keepsake:{shop:standard}:s", "format", "1", "id", "x", "n", "1")
    let values = "redis.call('HSET', KEYS[1], '\\255', 'x', 'a', '7')"
    try server.command("EVAL", values, "1", "keepsake:{shop:standard}:v")
    // A process that gets no time for a while may end before it has written its copy.
    try waitUntil("no copy was left") {
      let lines = try server.runPeer(["get", "a"])
      #expect(lines == ["7"])
      return server.hasCopy(of: "peer")
    }
    server.kill()
    // The report comes from another thread, and may be late too.
    try waitUntil("the outage was not reported") {
      let lines = try server.runPeer(["get", "a"])
      #expect(lines.contains("7"), "\(lines)")
      return lines.sorted() == ["7", "report unreachable"]
    }
    try waitUntil("the outage was not reported") {
      try server.runPeer(["get", "a"], as: "other").contains("report unreachable")
    }
  }

  @Test func localSuiteStaysOnTheMachine() throws {
    #expect(try server.runPeer(["local"]) == ["1 1"])
    #expect(try server.command("KEYS", "*") == .array([]))
    server.kill()
    let lines = try server.runPeer(["local"])
    #expect(lines.contains("1 1"), "\(lines)")
  }
}
