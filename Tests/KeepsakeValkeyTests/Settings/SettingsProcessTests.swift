import Foundation
import Testing

@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Settings of several processes; the source of the other ones is Tests/ValkeyPeer.
@Suite(.server, .threadPerTest) struct SettingsProcessTests {
  @Test func processesLoseNothing() throws {
    let server = try TestServer()
    let increments = Coverage.count(sample: 250, complete: 1_000)
    let keys = Coverage.count(sample: 500, complete: 2_000)
    let lines = Recorder<[String]>()
    onThreads(4) { number in
      let name = "p\(number)"
      lines.append(server.runPeer(["work", name, "\(increments)", "\(keys)", "4"], as: name))
    }
    let first = lines.all.first ?? []
    #expect(first.count == 1 && first[0].hasPrefix("\(4 * increments) \(4 * keys + 1) "))
    #expect(lines.all.allSatisfy { $0 == first }, "\(lines.all)")
    let values = "keepsake:{shop:standard}:v"
    #expect(try server.command("HGET", values, "count").text == "\(4 * increments)")
    #expect(try server.command("HLEN", values) == .integer(Int64(4 * keys + 2)))
  }

  @Test(.forksBesideThreads) func forkedChildReadsAndWrites() throws {
    let server = try TestServer()
    let lines = server.runPeer(["fork-settings"])
    #expect(lines == ["parent 1", "child 1 2", "child 3 1", "parent 2 1 0"])
  }

  /// A process that ends at once has left its copy for the next one.
  @Test func nextProcessStartsWhileTheServerIsAway() throws {
    let server = try TestServer()
    try server.command("HSET", "keepsake:{shop:standard}:s", "format", "1", "id", "x", "n", "1")
    let values = "redis.call('HSET', KEYS[1], '\\255', 'x', 'a', '7')"
    try server.command("EVAL", values, "1", "keepsake:{shop:standard}:v")
    #expect(server.runPeer(["get", "a"]) == ["7"])
    server.kill()
    // The report comes from another thread.
    #expect(server.runPeer(["get", "a"]).sorted() == ["7", "report unreachable"])
    #expect(server.runPeer(["get", "a"], as: "other").contains("report unreachable"))
  }

  @Test func localSuiteStaysOnTheMachine() throws {
    let server = try TestServer()
    #expect(server.runPeer(["local"]) == ["1 1"])
    #expect(try server.command("KEYS", "*") == .array([]))
    server.kill()
    let lines = server.runPeer(["local"])
    #expect(lines.contains("1 1"), "\(lines)")
  }
}
