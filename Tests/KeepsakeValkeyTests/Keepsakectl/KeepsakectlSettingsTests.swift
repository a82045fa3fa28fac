import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// The commands of `keepsakectl` for settings, with `--server`.
@Suite(.server, .threadPerTest) struct KeepsakectlSettingsTests {
  private let inspector: Keepsakectl
  private let server: TestServer

  init() throws {
    inspector = try Keepsakectl()
    server = try TestServer(["--appendonly", "yes"])
  }

  private func run(_ words: String..., input: String = "") throws -> ProgramRun {
    try inspector.run(words + ["--server=" + server.url], input: input)
  }

  @Test func readsAndWrites() throws {
    let app = TestClient(server)
    #expect(try app.all() == [:])
    for (key, value) in [
      ("theme", #""dark""#), ("size", "16"), ("ratio", "1.5"), ("bytes", #"{"$data": "AQI="}"#),
    ] {
      let set = try run("settings", "set", "app/suite", key, value)
      #expect(set.status == 0 && set.text.isEmpty && set.errors.isEmpty, "\(set)")
      #expect(try run("settings", "get", "app/suite", key).text == value + "\n")
    }
    app.expectEventually("theme", #""dark""#)
    try app.set("size", "17")
    #expect(try run("settings", "get", "app/suite", "size").text == "17\n")
    #expect(try run("settings", "get", "app/suite", "theme", "--string").text == "dark\n")
    let list = try run("settings", "list", "app/suite")
    #expect(list.status == 0 && list.text.contains("\nsize   17\n"), "\(list)")
    #expect(try run("settings", "list", "app/suite", "--json").json()["ratio"] as? Double == 1.5)

    #expect(try run("settings", "delete", "app/suite", "theme").status == 0)
    app.expectEventually("theme", nil)
    #expect(
      try run("settings", "get", "app/suite", "theme").failed(1, "has no setting \"theme\""))
    #expect(
      try run("settings", "delete", "app/suite", "theme").failed(1, "has no setting \"theme\""))

    let document = try run("settings", "export", "app/suite").text
    #expect(try run("settings", "import", "app", input: document).status == 0)
    #expect(try run("settings", "export", "app").text == document)
    #expect(try run("settings", "export", "app", "--plist").text.contains("<integer>17</integer>"))
    #expect(try run("settings", "import", "app", input: "{").status == 65)

    // None of it stays on this machine.
    #expect(!FileManager.default.fileExists(atPath: inspector.home))
  }

  /// 0.0.0.0 stands for another machine, and reaches this one.
  @Test func warnsOfAConnectionThatIsNotEncrypted() throws {
    let server = try TLSServer(hosts: "IP:0.0.0.0", ["--appendonly", "yes"])
    for (host, isWarned) in [("0.0.0.0", true), ("127.0.0.1", false)] {
      let url = "valkey://\(host):\(server.plainPort)?timeout=60s&connect-timeout=60s"
      // A process that gets no time for a while may end before it has printed the warning.
      try waitUntil("there was no warning") {
        let set = try inspector.run("settings", "set", "app", "a", "1", "--server=" + url)
        #expect(set.status == 0 && set.text.isEmpty, "\(set)")
        let warnings = set.errors.split(separator: "\n")
        #expect(warnings.count <= (isWarned ? 1 : 0), "\(set)")
        #expect(warnings.allSatisfy { $0.contains("warning: ") && $0.contains("not encrypted") })
        return !warnings.isEmpty || !isWarned
      }
    }
  }

  /// Its value may be the next word, and it may come first.
  @Test func optionMayStandAnywhere() throws {
    #expect(
      try inspector.run("--server", server.url, "settings", "set", "app", "a", "1").status == 0)
    #expect(
      try inspector.run("settings", "--server", server.url, "get", "app", "a").text == "1\n")
    #expect(
      try inspector.run("settings", "get", "app", "a", "--server", server.url).text == "1\n")
  }

  @Test func listsSuites() throws {
    #expect(try run("list", "app").failed(1, "app has no settings or secrets on unix://"))
    #expect(try run("settings", "list", "app").failed(1, "app has no settings on unix://"))
    try TestClient(server).set("a", "1")
    let team = TestClient(server, suite: "team")
    for key in ["a", "b"] { try team.set(key, "1") }
    // What is on this machine is not on the server.
    let scope = inspector.stores()
    defer { scope.close() }
    try scope.defaults("local").set(1, forKey: "a")
    #expect(
      try run("list", "app").text == """
        KIND      NAME   CONTENTS
        settings  suite  1 key
        settings  team   2 keys

        """)
    let list = try run("list", "app", "--json").json()
    #expect(list.keys.sorted() == ["app", "caches", "services", "suites", "vault"])
    let suites = try #require(list["suites"] as? [[String: Any]])
    #expect(suites.map { $0["name"] as? String } == ["suite", "team"])
    #expect(suites.map { $0["keys"] as? Int } == [1, 2])
    #expect(list["vault"] is NSNull && (list["caches"] as? [Any])?.isEmpty == true)
    #expect(
      try run("settings", "list", "app/local").failed(1, "no suite \"local\". It has: suite, team"))
    #expect(try inspector.run("list", "app").text.contains("local"))
  }

  @Test func watchPrintsChangesOfOtherProcesses() throws {
    let app = TestClient(server)
    try app.set("n", "0")
    try app.set("gone", "1")
    var number = 0
    let run = try inspector.run(
      ["settings", "watch", "app/suite", "--json", "--server=" + server.url]
    ) { process, output in
      defer { kill(process, SIGTERM) }
      waitUntil("no change was printed") {
        number += 1
        try? app.set("n", "\(number)")
        return output().contains(#"{"n":"#)
      }
      try app.set("gone", nil)
      waitUntil("the removal was not printed") { output().contains("{\"gone\":null}\n") }
    }
    #expect(run.status == 128 + SIGTERM && run.errors.isEmpty, "\(run)")
    let numbers = run.text.matches(of: /\{"n":(\d+)\}/).compactMap { Int($0.1) }
    #expect(!numbers.isEmpty && numbers == numbers.sorted() && numbers.allSatisfy { $0 > 0 })
  }

  /// As redis-cli writes it.
  @Test func aValueThatIsNotJSONHidesNoOther() throws {
    let app = TestClient(server)
    for (key, value) in [("bad", "{"), ("theme", #""dark""#), ("a/b", "1")] {
      try app.set(key, value)
    }
    let problem = "key bad: the engine returned bytes that are not JSON"
    #expect(try run("settings", "get", "app/suite", "theme").text == "\"dark\"\n")
    #expect(try run("settings", "get", "app/suite", "bad").failed(1, problem))
    #expect(try run("settings", "set", "app/suite", "theme", "light").status == 0)
    for command in ["list", "export"] {
      let run = try run("settings", command, "app/suite")
      #expect(run.status == 1 && run.errors.contains(problem), "\(run)")
      #expect(run.text.contains("theme") && run.text.contains("a/b"), "\(run)")
    }
    let watch = try inspector.run(
      ["settings", "watch", "app/suite", "--json", "--server=" + server.url]
    ) { process, output in
      defer { kill(process, SIGTERM) }
      var number = 0
      waitUntil("no change was printed") {
        number += 1
        try? app.set("bad", "{\(number)")
        try? app.set("a/b", "\(number)")
        return output().contains(#"{"a/b":"#)
      }
    }
    #expect(watch.status == 128 + SIGTERM, "\(watch)")
    #expect(try run("settings", "set", "app/suite", "bad", "word").status == 0)
    app.expectEventually("bad", "\"word\"")
    try app.set("bad", "{")
    #expect(try run("settings", "delete", "app/suite", "bad").status == 0)
    app.expectEventually("bad", nil)
  }

  // MARK: Servers that cannot be used

  private static let commands = [
    ["list", "app"], ["settings", "list", "app"], ["settings", "get", "app", "a"],
    ["settings", "set", "app", "a", "1"], ["settings", "delete", "app", "a"],
    ["settings", "watch", "app"], ["settings", "export", "app"], ["settings", "import", "app"],
    ["doctor", "app"], ["vault", "list", "app"], ["vault", "show", "app", "k", "--reveal"],
    ["vault", "rotate", "app"], ["vault", "unlock-methods", "app"], ["vault", "lock", "app"],
    ["vault", "delete", "app", "k"],
  ]

  @Test(arguments: commands) func serverThatIsAway(_ words: [String]) throws {
    let server = try TestServer()
    server.kill()
    let run = try inspector.run(words + ["--server=" + server.url], input: #"{"a": 1}"#)
    #expect(run.status == 75 && run.text.isEmpty, "\(run)")
    #expect(run.errors.contains("Check the address and that the server runs."), "\(run)")
    #expect(!FileManager.default.fileExists(atPath: inspector.home))
  }

  @Test(.manyPrograms) func passwordIsNeverPrinted() throws {
    let server = try TestServer(["--requirepass", "tuna"])
    let name = "KEEPSAKE_SERVER_PASSWORD"
    for words in Self.commands + [["push", "app"], ["adopt", "app"]] {
      for login in ["", ":swordfish", "zelda:swordfish", "zelda"] {
        let run = try inspector.run(
          words + ["--server", server.url(login: login)], input: #"{"a": 1}"#,
          environment: [name: "swordfish"])
        // Without a copy, these two ask the server for nothing.
        let isLocal = ["push", "adopt"].contains(words[0])
        #expect(run.status == (isLocal ? 1 : 77) && run.text.isEmpty, "\(words) \(run)")
        #expect(!run.errors.contains("swordfish") && !run.errors.contains("zelda"), "\(run)")
      }
      for url in ["http://zelda:swordfish@host", "valkey://zelda:sword#fish@host", "swordfish"] {
        let run = try inspector.run(words + ["--server", url])
        #expect(run.status == 64 && !run.errors.contains("fish"), "\(run)")
      }
    }
    for (login, password) in [("", "tuna"), (":tuna", ""), (":tuna", "swordfish")] {
      let run = try inspector.run(
        "settings", "set", "app", "a", "1", "--server", server.url(login: login),
        environment: [name: password])
      #expect(run.status == 0, "\(run)")
    }
  }

  /// Another program deletes settings, or has a newer format: nothing is changed.
  @Test func refusedServersAreExplained() throws {
    let full = try TestServer(["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"])
    let run = try inspector.run("settings", "set", "app", "a", "1", "--server", full.url)
    #expect(run.failed(64, "Set maxmemory-policy on the server to noeviction"), "\(run)")
    try TestClient(server).set("a", "1")
    try server.command("HSET", "keepsake:{app:suite}:s", "format", "2")
    let list = try self.run("settings", "list", "app/suite")
    #expect(list.failed(1, "newer format"), "\(list)")
  }
}
