import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// `keepsakectl doctor --server`, with servers that have one problem each.
@Suite(.server, .threadPerTest) struct KeepsakectlDoctorTests {
  private let inspector: Keepsakectl

  init() throws { inspector = try Keepsakectl() }

  private func examine(_ url: String) throws -> ProgramRun {
    try inspector.run("doctor", "app", "--server=" + url)
  }

  /// Expects one problem, which has these words.
  private func expectProblem(
    _ words: String, _ url: String, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let run = try examine(url)
    #expect(
      run.status == 1 && run.errors.isEmpty && run.text.contains(words)
        && run.text.contains(": 1 problem. Checked "), "\(run)", sourceLocation: sourceLocation)
  }

  @Test func findsNothingWrongWithAGoodServer() throws {
    let server = try TestServer(["--appendonly", "yes"])
    for suite in ["one", "two"] { try TestClient(server, suite: suite).set("a", "1") }
    let run = try examine(server.url)
    #expect(run.status == 0 && run.errors.isEmpty, "\(run)")
    let expected = #/unix://(.+): no problems. Checked 2 suites on \w+ [\d.]+ with 0 replicas.\n/#
    #expect(try expected.wholeMatch(in: run.text)?.1 == Substring(server.socketPath), "\(run)")
    #expect(!FileManager.default.fileExists(atPath: inspector.home))

    let report = try inspector.run("doctor", "app", "--json", "--server", server.url).json()
    #expect(
      report.keys.sorted()
        == ["app", "findings", "replicas", "server", "skipped", "suites", "version"])
    #expect(report["suites"] as? Int == 2 && report["replicas"] as? Int == 0)
    #expect((report["findings"] as? [Any])?.isEmpty == true)
    #expect((report["skipped"] as? [Any])?.isEmpty == true)
  }

  @Test(arguments: [
    (["--appendonly", "no"], "appendonly no"),
    (["--appendfsync", "no"], "appendfsync no"),
    (["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"], "maxmemory-policy allkeys-lru"),
    (["--maxmemory", "300kb"], "(maxmemory)"),
    (["--client-output-buffer-limit", "pubsub", "1mb", "100kb", "60"], "102 kB of messages"),
  ])
  func findsABadSetting(_ arguments: [String], _ words: String) throws {
    let server = try TestServer(["--appendonly", "yes"] + arguments)
    try expectProblem(words, server.url)
    let run = try inspector.run("doctor", "app", "--json", "--server", server.url)
    let findings = try #require(try run.json()["findings"] as? [[String: Any]])
    #expect(run.status == 1 && findings.count == 1)
    #expect(findings.first?.keys.sorted() == ["key", "path", "problem", "remedy"])
    #expect(findings.first?["path"] as? String == "unix://\(server.socketPath)")
  }

  @Test func findsAReplica() throws {
    let servers = try Failover(["--appendonly", "yes"])
    try expectProblem("it is a replica", servers.replica.url)
    let primary = try examine(servers.primary.url)
    #expect(primary.status == 0 && primary.text.contains("with 1 replica."), "\(primary)")
  }

  /// 0.0.0.0 stands for another machine, and reaches this one.
  @Test func findsAnOpenServer() throws {
    let server = try TLSServer(hosts: "IP:0.0.0.0,IP:127.0.0.1", ["--appendonly", "yes"])
    let times = "timeout=60s&connect-timeout=60s"
    let (plain, secure) = ("0.0.0.0:\(server.plainPort)?", "0.0.0.0:\(server.port)?")
    let ca = "&ca=" + server.certificates.path("authority.pem")
    let open = try examine("valkey://" + plain + times)
    #expect(open.status == 1 && open.text.contains(": 2 problems."), "\(open)")
    #expect(open.text.contains("is not encrypted") && open.text.contains("asks for no password"))
    try expectProblem("asks for no password", "valkeys://" + secure + times + ca)
    let local = try examine("valkey://127.0.0.1:\(server.plainPort)?" + times)
    #expect(local.status == 0, "\(local)")
    // The app has a user of its own, and the user default is as it was.
    try server.server.command("ACL", "SETUSER", "shop", "on", ">tuna", "~*", "&*", "+@all")
    try expectProblem(
      "also answers without a password", "valkeys://shop:tuna@" + secure + times + ca)
    try server.server.command("CONFIG", "SET", "requirepass", "tuna")
    try expectProblem("is not encrypted", "valkey://:tuna@" + plain + times)
    let good = try examine("valkeys://:tuna@" + secure + times + ca)
    #expect(good.status == 0 && !good.text.contains("tuna"), "\(good)")
  }

  @Test func saysWhatItMayNotAsk() throws {
    let server = try TestServer(["--appendonly", "yes"])
    let rules = ["on", ">pw", "~*", "&*", "+@all"]
    for (right, words) in [
      ("info", "version, memory and persistence"), ("config", "appendfsync"), ("time", "the clock"),
      ("scan", "suites"),
    ] {
      try server.command(["ACL", "SETUSER", "zelda", "reset"] + rules + ["-" + right])
      let run = try examine(server.url(login: "zelda:pw"))
      #expect(run.status == 0 && run.errors.isEmpty, "\(run)")
      let skipped = run.text.split(separator: "\n").filter { $0.hasPrefix("skipped  ") }
      #expect(skipped.count == 1 && skipped[0].hasPrefix("skipped  \(words)"), "\(run)")
      #expect(!run.text.contains("zelda"))
    }
  }

  // MARK: What only a server in trouble says

  /// A server that says so about itself.
  private func server(
    _ information: String, clockDifference: Int = 0
  ) throws -> FakeServer {
    try FakeServer { connection, _ in
      while let words = connection.command() {
        switch words[0] {
        case "INFO": connection.send("$\(information.utf8.count)\r\n\(information)\r\n")
        case "CONFIG": connection.send("*2\r\n$1\r\nx\r\n$0\r\n\r\n")
        case "TIME":
          let seconds = String(Int(Date.now.timeIntervalSince1970) + clockDifference)
          connection.send("*2\r\n$\(seconds.utf8.count)\r\n\(seconds)\r\n$1\r\n0\r\n")
        case "HLEN": connection.send(":0\r\n")
        case "SCAN": connection.send("*2\r\n$1\r\n0\r\n*0\r\n")
        default: connection.send("-ERR unknown command\r\n")
        }
      }
    }
  }

  @Test(arguments: [
    ("redis_version:6.0.16\r\n", "its version 6.0.16 is too old"),
    ("redis_version:5.0\r\n", "its version 5.0 is too old"),
    ("aof_last_write_status:err\r\n", "could not write its log of changes"),
    ("aof_last_bgrewrite_status:err\r\n", "could not rewrite its log of changes"),
    ("rdb_last_bgsave_status:err\r\n", "could not save its data"),
    ("maxmemory:1000000\r\nused_memory:950000\r\n", "it uses 950 kB of the 1 MB"),
  ])
  func findsATrouble(_ information: String, _ words: String) throws {
    let fake = try server(information)
    try expectProblem(words, fake.url)
  }

  @Test(arguments: [
    "redis_version:6.2.0\r\n", "redis_version:10.0\r\n", "redis_version:x\r\n", "", "\r\n:\r\n\r\n",
    "maxmemory:1000000\r\nused_memory:850000\r\n", "maxmemory:0\r\nused_memory:950000\r\n",
    "maxmemory:-5\r\nused_memory:x\r\nconnected_slaves:99999999999999999999\r\n",
    "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n",
    "maxmemory:1000000\r\nused_memory:990000\r\nmaxmemory_policy:volatile-lru\r\n",
  ])
  func findsNoTrouble(_ information: String) throws {
    let fake = try server(information)
    let run = try examine(fake.url)
    #expect(run.status == 0 && run.text.contains("no problems."), "\(run)")
  }

  @Test(arguments: [(-3_600, "behind"), (3_600, "ahead of")])
  func findsAWrongClock(_ difference: Int, _ words: String) throws {
    let fake = try server("redis_version:7.0.0\r\n", clockDifference: difference)
    try expectProblem("seconds \(words) this machine's", fake.url)
  }

  @Test func clockDifferenceIsTheLeastPossible() {
    func time(_ seconds: String, _ microseconds: String) -> Reply {
      .array([.bytes(Array(seconds.utf8)), .bytes(Array(microseconds.utf8))])
    }
    func difference(_ reply: Reply?) -> Double? {
      ServerFacts.clockDifference(reply, between: 100, and: 102)
    }
    #expect(difference(time("101", "0")) == 0)
    #expect(difference(time("99", "500000")) == -0.5)
    #expect(difference(time("103", "250000")) == 1.25)
    #expect(difference(time("x", "0")) == nil && difference(time("1", "-")) == nil)
    #expect(difference(nil) == nil && difference(.null) == nil && difference(.array([])) == nil)
  }
}
