import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  @Test func readsAndWritesSettings() throws {
    for (key, value) in [
      ("theme", #""dark""#), ("size", "16"), ("offset", "-5"), ("ratio", "1.5"),
      ("list", #"[1,{"a":[]},"]"]"#), ("bytes", #"{"$data": "AQI="}"#),
    ] {
      #expect(try run("settings", "set", app, key, value).status == 0)
      #expect(try run("settings", "get", app, key).text == value + "\n")
    }
    #expect(try run("settings", "set", app, "plain", "true", "--string").status == 0)
    #expect(try run("settings", "get", app, "plain").text == "\"true\"\n")
    #expect(try run("settings", "get", app, "plain", "--string").text == "true\n")
    #expect(try run("settings", "set", app, "--string", "--", "dashes", "--x").status == 0)
    #expect(try run("settings", "get", app, "dashes").text == "\"--x\"\n")
    let scope = stores()
    defer { scope.close() }
    #expect(try scope.defaults(.standard).data("bytes") == Data([1, 2]))
    #expect(try scope.defaults(.standard).int("offset") == -5)

    let list = try #require(
      try run("settings", "list", app, "--json").json() as? [String: Any])
    #expect(list.count == 8 && list["size"] as? Int == 16)
    #expect(try run("settings", "list", app).text.contains("\noffset  -5\n"))

    #expect(try run("settings", "set", app + "/team/sub", "x", "1").status == 0)
    #expect(try scope.defaults("team/sub").int("x") == 1)

    #expect(try run("settings", "delete", app, "theme").status == 0)
    try expectFailure(1, "has no setting \"theme\"", "settings", "get", app, "theme")
    try expectFailure(1, "has no setting \"theme\"", "settings", "delete", app, "theme")
    try expectFailure(65, "wrong type", "settings", "get", app, "size", "--string")
    try expectFailure(
      1, "has no suite \"tema\". It has: standard", "settings", "list", app + "/tema")
    try expectFailure(1, "no settings here", "settings", "list", "com.example.missing")
    #expect(!FileManager.default.fileExists(atPath: path("config/com.example.missing")))
  }

  @Test func exportsAndImportsDocuments() throws {
    let settings = #"{"theme":"dark","size":16,"bytes":{"$data":"AQI="}}"#
    #expect(try run("settings", "import", app, input: settings).status == 0)
    let exported = try run("settings", "export", app)
    #expect(
      try run("settings", "import", "com.example.copy", input: exported.text).status == 0)
    #expect(try run("settings", "export", "com.example.copy").text == exported.text)
    let list = try run("settings", "export", app, "--plist")
    try directory.write(Array(list.text.utf8), to: "list.plist")
    #expect(try run("settings", "import", app + "/third", path("list.plist")).status == 0)
    #expect(
      try run("settings", "get", app + "/third", "bytes").text == #"{"$data": "AQI="}"# + "\n")

    try expectFailure(66, "cannot be read", "settings", "import", app, path("missing"))
    #expect(try run("settings", "import", app, input: "{").status == 65)
    try directory.write([0xFF, 0, 0xFE], to: "garbage")
    try expectFailure(
      65, "\(path("garbage")): the document is neither", "settings", "import", app, path("garbage"))
    try expectFailure(66, "Is a directory", "settings", "import", app, directory.path)
    let script = "echo '{\"piped\": 1}' | \"$0\" settings import \(app) /dev/stdin"
    let piped = try Child(
      "/bin/sh", ["-c", script, inspector.path], environment: inspector.environment)
    #expect(piped.finish().isEmpty && piped.exitStatus == 0)
    #expect(try run("settings", "get", app, "piped").text == "1\n")
    #expect(try run("settings", "import", app, "-", input: "{\"dash\": 1}").status == 0)
  }

  @Test func leavesOutWhatCannotBeImported() throws {
    let text = """
      {"theme": "dark",
       "color": "\\ud800", "NSLanguages": ["en"], "AppleLocale": "en_GB"}
      """
    try directory.write(Array(text.utf8), to: "old.json")
    let problem = "\(path("old.json")), key color: line 2, column 12: half of a surrogate pair"
    try expectFailure(
      65, "\(problem). Correct it, or add --skip-invalid", "settings", "import", app,
      path("old.json"))
    try expectFailure(1, "no settings here", "settings", "list", app)
    let rest = try run("settings", "import", app, path("old.json"), "--skip-invalid")
    #expect(rest.status == 0 && rest.errors == "keepsakectl: left out: \(problem)\n")
    #expect(try run("settings", "export", app).text.split(separator: "\n").count == 5)
    let other = app + "/other"
    let filter = try run(
      "settings", "import", other, path("old.json"), "--except=NS*,Apple*,color")
    #expect(filter.status == 0 && filter.errors.isEmpty, "what is filtered need not be valid")
    #expect(try run("settings", "list", other).text == "KEY    VALUE\ntheme  \"dark\"\n")
    let only = try run("settings", "import", other, path("old.json"), "--only", "*Locale")
    #expect(only.status == 0)
    #expect(try run("settings", "get", other, "AppleLocale").text == "\"en_GB\"\n")
    #expect(try run("settings", "get", other, "NSLanguages").status == 1)
    // Other characters stand for themselves.
    let names = #"{"items[0]": 1, "items0": 2, "items?": 3, "a\\b": 4}"#
    for pattern in ["items[0]", "items?", #"a\b"#] {
      let suite = app + "/" + pattern
      #expect(try run("settings", "import", suite, "--only", pattern, input: names).status == 0)
      let lines = try run("settings", "list", suite).text.split(separator: "\n")
      #expect(lines.count == 2 && lines.last?.hasPrefix(pattern) == true, "\(lines)")
    }
  }

  @Test func refusesValuesThatCannotBeStored() throws {
    #expect(try run("settings", "set", app, "x", "1").status == 0)
    let invalid = try Child(
      "/bin/sh", ["-c", "\"$0\" settings set \(app) \"$(printf '\\377')\" 1", inspector.path],
      environment: inspector.environment, mergesErrors: true)
    #expect(invalid.finish().contains("not UTF-8") && invalid.exitStatus == 64)
    for value in [#"{"$data": "%"}"#, "1e400", "[1,]"] {
      try expectFailure(65, "cannot be stored", "settings", "set", app, "y", value)
    }
    for value in ["{", "1, \"y\": 2", "1}", "", "[1", "1}{\"y\":2"] {
      try expectFailure(65, "not JSON", "settings", "set", app, "y", value)
    }
    try expectFailure(65, "null cannot be stored", "settings", "set", app, "y", " null ")
    try expectFailure(1, "has no setting \"y\"", "settings", "get", app, "y")
  }

  @Test func storesWordsAsTextWhereTextBelongs() throws {
    for (key, value, stored) in [
      ("units", "imperial", #""imperial""#), ("units", "metric", #""metric""#),
      ("units", "16", #""16""#), ("units", "true", #""true""#), ("units", #""si""#, #""si""#),
      ("path", "~/Notes", #""~/Notes""#), ("size", "16", "16"), ("flag", "true", "true"),
      ("size", "-5", "-5"), ("units", "[1]", "[1]"),
    ] {
      let run = try run("settings", "set", app, key, value)
      #expect(run.status == 0 && run.errors.isEmpty, "\(run)")
      #expect(try self.run("settings", "get", app, key).text == stored + "\n")
    }
    try expectFailure(65, "not JSON", "settings", "set", app, "size", "large")
    try expectFailure(65, "not JSON", "settings", "set", app, "new", "12px")
    #expect(try run("settings", "get", app, "size").text == "-5\n")
  }

  @Test func timesHaveTheirZone() throws {
    try fill()
    for (zone, end) in [("UTC", "Z"), ("IST-5:30", "+05:30"), ("NST3:30", "-03:30")] {
      let list = try run("vault", "list", app, environment: ["TZ": zone]).text
      let times = list.matches(of: /\d\dT\d\d:\d\d:\d\d(\S+)/)
      #expect(times.count == 4 && times.allSatisfy { $0.1 == end }, "\(list)")
    }
  }

  @Test func watchPrintsChangesOfOtherProcesses() throws {
    try fill()
    let terminal = try PseudoTerminal()
    let watcher = try inspector.run("settings", "watch", app, "--json", at: terminal)
    try terminal.expect("Press Control-C to stop.")
    #expect(try run("settings", "set", app, "size", "17").status == 0)
    #expect(watcher.line() == #"{"size":17}"#)
    #expect(try run("settings", "delete", app, "theme").status == 0)
    #expect(watcher.line() == #"{"theme":null}"#)
    kill(watcher.identifier, SIGINT)
    #expect(watcher.exitStatus == 128 + SIGINT)
  }

  @Test func watchEndsWhenOutputCannotBeWritten() throws {
    try fill()
    let terminal = try PseudoTerminal()
    let watcher = try Child(
      "/bin/sh",
      [
        "-c", "exec timeout --foreground 600 \"$0\" \"$@\" >/dev/full", inspector.path, "settings",
        "watch", app,
      ],
      environment: inspector.environment, terminal: terminal, isInteractive: true)
    try terminal.expect("Press Control-C to stop.")
    #expect(try run("settings", "set", app, "size", "17").status == 0)
    #expect(watcher.exitStatus == 74)
    let screen = terminal.finish()
    #expect(
      screen.components(separatedBy: "the output cannot be written").count == 2, "\(screen)")
  }

  @Test func printsDatesAsPeopleReadThem() throws {
    // Years before 1 and tiny fractions stay numbers.
    let dates = [
      Date(timeIntervalSinceReferenceDate: 785_549_608.125), .distantPast,
      Date(timeIntervalSinceReferenceDate: -0.1), Date(timeIntervalSinceReferenceDate: 1e-7),
      Date(timeIntervalSinceReferenceDate: 785_549_608.123_456_7),
    ]
    let scope = stores()
    defer { scope.close() }
    let store = scope.defaults(.standard)
    for (number, date) in dates.enumerated() { try store.set(date, forKey: "date\(number)") }
    let first = #"{"$date": "2025-11-23T00:13:28.125Z"}"#
    #expect(try run("settings", "get", app, "date0").text == first + "\n")
    #expect(try run("settings", "get", app, "date1").text.contains(": -63114076800"))
    #expect(try run("settings", "get", app, "date2").text.contains("2000-12-31T23:59:59.9Z"))
    #expect(try run("settings", "get", app, "date3").text == "{\"$date\": 1e-07}\n")
    #expect(try run("settings", "list", app).text.contains(first))
    let document = try run("settings", "export", app).text
    #expect(document.contains("\n  \"date0\": \(first),\n"))
    let copy = "com.example.copy/team"
    #expect(try run("settings", "import", copy, input: document).status == 0)
    let copies = stores(of: "com.example.copy")
    defer { copies.close() }
    for (number, date) in dates.enumerated() {
      #expect(try copies.defaults("team").get("date\(number)") == date)
    }
    let number = #"{"$date": 785549608.125}"#
    #expect(try run("settings", "set", copy, "old", number).status == 0)
    #expect(try run("settings", "get", copy, "old").text == first + "\n")
    let later = #"{"$date": "2025-11-23T01:13:28.125+01:00"}"#
    #expect(try run("settings", "set", copy, "later", later).status == 0)
    #expect(try run("settings", "get", copy, "later").text == first + "\n")
    for wrong in ["2025-02-29T00:00:00Z", "2025-11-22", "2025-11-22T24:00:00Z", "soon", ""] {
      #expect(try run("settings", "set", copy, "k", "{\"$date\": \"\(wrong)\"}").status == 65)
    }
  }
}
