import Foundation
import Testing

extension OneAtATime.KeepsakectlTests {
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
    try expect(1, "has no setting \"theme\"", "settings", "get", app, "theme")
    try expect(1, "has no setting \"theme\"", "settings", "delete", app, "theme")
    try expect(65, "wrong type", "settings", "get", app, "size", "--string")
    try expect(1, "has no suite \"tema\". It has: standard", "settings", "list", app + "/tema")
    try expect(1, "no settings here", "settings", "list", "com.example.nobody")
    #expect(!FileManager.default.fileExists(atPath: path("config/com.example.nobody")))
  }

  @Test func movesSettingsThroughADocument() throws {
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

    try expect(66, "cannot be read", "settings", "import", app, path("nowhere"))
    #expect(try run("settings", "import", app, input: "{").status == 65)
    try directory.write([0xFF, 0, 0xFE], to: "garbage")
    try expect(65, "\(path("garbage")): neither", "settings", "import", app, path("garbage"))
    try expect(66, "Is a directory", "settings", "import", app, directory.path)
    let script = "echo '{\"piped\": 1}' | \"$0\" settings import \(app) /dev/stdin"
    let piped = try Child(
      "/bin/sh", ["-c", script, inspector.path], environment: inspector.environment)
    #expect(piped.finish().isEmpty && piped.exitStatus == 0)
    #expect(try run("settings", "get", app, "piped").text == "1\n")
    #expect(try run("settings", "import", app, "-", input: "{\"dash\": 1}").status == 0)
  }

  @Test func refusesWhatCannotBeStored() throws {
    #expect(try run("settings", "set", app, "x", "1").status == 0)
    let repaired = try Child(
      "/bin/sh", ["-c", "\"$0\" settings set \(app) \"$(printf '\\377')\" 1", inspector.path],
      environment: inspector.environment, mergesErrors: true)
    #expect(repaired.finish().contains("not UTF-8") && repaired.exitStatus == 64)
    for value in [#"{"$data": "%"}"#, "1e400", "[1,]"] {
      try expect(65, "none that can be stored", "settings", "set", app, "y", value)
    }
    for value in ["dark", "{", "1, \"y\": 2", "1}", "", "[1", "1}{\"y\":2"] {
      try expect(65, "not JSON", "settings", "set", app, "y", value)
    }
    try expect(65, "null is no value", "settings", "set", app, "y", " null ")
    try expect(1, "has no setting \"y\"", "settings", "get", app, "y")
  }

  @Test func watchesWhatOthersSet() throws {
    try fill()
    let terminal = try PseudoTerminal()
    let watcher = try inspector.run("settings", "watch", app, "--json", at: terminal)
    try terminal.expect("Control-C ends it.")
    #expect(try run("settings", "set", app, "size", "17").status == 0)
    #expect(watcher.line() == #"{"size":17}"#)
    #expect(try run("settings", "delete", app, "theme").status == 0)
    #expect(watcher.line() == #"{"theme":null}"#)
    kill(watcher.identifier, SIGINT)
    #expect(watcher.exitStatus == 128 + SIGINT)
  }

  @Test func aWatcherWhoseLinesAreLostEnds() throws {
    try fill()
    let terminal = try PseudoTerminal()
    let watcher = try Child(
      "/bin/sh",
      [
        "-c", "exec timeout --foreground 60 \"$0\" \"$@\" >/dev/full", inspector.path, "settings",
        "watch", app,
      ],
      environment: inspector.environment, terminal: terminal, isInteractive: true)
    try terminal.expect("Control-C ends it.")
    #expect(try run("settings", "set", app, "size", "17").status == 0)
    #expect(watcher.exitStatus == 74)
    let screen = terminal.finish()
    #expect(
      screen.components(separatedBy: "the output cannot be written").count == 2, "\(screen)")
  }
}
