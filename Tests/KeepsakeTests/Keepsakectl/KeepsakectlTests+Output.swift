import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  @Test func escapesControlCharactersInNames() throws {
    let names = [
      "line\nbreak", "\u{1B}[2Jclear", "quote\"}\\", "\u{202E}backwards", "caf\u{E9}",
      "cafe\u{301}", "", "a,b:{c}", "\u{85}next", "\u{E0001}tag",
    ]
    let scope = stores()
    defer { scope.close() }
    for name in names {
      try scope.defaults(.standard).set(name, forKey: name)
      try scope.vault(.init(name)).set(name, forKey: name)
      try scope.cache("strange").set(name, forKey: name)
      #expect(try run("settings", "get", app, name, "--string").text == name + "\n")
    }
    for name in ["caf\u{E9}", "cafe\u{301}"] {
      let value = try run("settings", "get", app, name).text
      #expect(value.utf8.elementsEqual("\"\(name)\"\n".utf8), "keys are compared by their bytes")
    }
    let document = try run("settings", "list", app, "--json")
    #expect(try document.json() as? [String: String] != nil)
    let keys = try run("vault", "list", app, "--json").rows().compactMap { $0["key"] as? String }
    #expect(Set(keys.map { Array($0.utf8) }) == Set(names.map { Array($0.utf8) }))
    let entries = try run("cache", "list", app, "--json").rows()
    #expect(entries.count == names.count)
    for arguments in [
      ["settings", "list", app], ["vault", "list", app], ["cache", "list", app],
    ] {
      for run in [try inspector.run(arguments), try inspector.run(arguments + ["--json"])] {
        let isEscaped = run.text.unicodeScalars.allSatisfy {
          $0 == "\n" || ![.control, .format].contains($0.properties.generalCategory)
        }
        #expect(run.status == 0 && isEscaped, "\(arguments)")
      }
      #expect(try inspector.run(arguments).text.split(separator: "\n").count == names.count + 1)
    }
    let shown = try type("settings", "get", app, "\u{1B}[2Jclear", "--string")
    #expect(shown.screen == "\\u001b[2Jclear\r\n")
    let wrong = try run("settings", "get", app, "\u{1B}[2Jmissing")
    #expect(wrong.status == 1 && !wrong.errors.contains("\u{1B}"))
  }

  @Test func fitsTablesToATerminalAndColorsThemOnlyThere() throws {
    try fill()
    let scope = stores()
    defer { scope.close() }
    let long = String(repeating: "long ", count: 100)
    try scope.defaults(.standard).set(long, forKey: "long")
    let piped = try run("settings", "list", app)
    #expect(piped.text.contains(long) && !piped.text.contains("\u{1B}"))
    let shown = try type("settings", "list", app)
    #expect(shown.screen.contains("\u{1B}[1m") && shown.screen.contains("…"))
    let plain = try type("settings", "list", app, environment: ["NO_COLOR": "1"])
    #expect(!plain.screen.contains("\u{1B}"))
    #expect(plain.screen.split(separator: "\r\n").allSatisfy { $0.count <= 80 })
    let dumb = try type("settings", "list", app, environment: ["TERM": "dumb"])
    #expect(!dumb.screen.contains("\u{1B}"))
    // Names are cut before dates.
    try scope.vault(.standard).set("x", forKey: long)
    let secrets = try type("vault", "list", app)
    #expect(secrets.screen.contains("T") && secrets.screen.split(separator: "…").count == 2)
    let narrow = try type("vault", "list", app, columns: 40, environment: ["NO_COLOR": "1"])
    #expect(narrow.screen.split(separator: "\r\n").allSatisfy { $0.count <= 40 })
    // In a pipe, a long name does not widen its column.
    let lines = try run("vault", "list", app).text.split(separator: "\n")
    #expect(lines.count == 4 && lines.filter { $0.count < 140 }.count == 3)
  }

  /// Wide characters take two columns of a terminal and combining marks none.
  @Test func alignsColumnsInEveryScript() throws {
    let scope = stores()
    defer { scope.close() }
    for key in ["plain", "日本", "e\u{301}te\u{301}", "👩‍👩‍👧", "한ﾊ", "🇩🇪", "नमस्ते"] {
      try scope.defaults(.standard).set(1, forKey: key)
    }
    #expect(
      try run("settings", "list", app).text == """
        KEY    VALUE
        plain  1
        e\u{301}te\u{301}    1
        नमस्ते   1
        日本   1
        한ﾊ    1
        🇩🇪     1
        👩‍👩‍👧     1

        """)
    try scope.defaults("wide").set(1, forKey: String(repeating: "鍵", count: 100))
    let cut = try type("settings", "list", app + "/wide", columns: 40)
    let key = String(repeating: "鍵", count: 16)
    #expect(cut.screen.contains("\r\n\(key)…  1\r\n"), "\(cut.screen)")
  }

  @Test func failsWhenOutputCannotBeWritten() throws {
    try fill()
    for arguments in [
      ["list"], ["list", app], ["settings", "list", app], ["settings", "get", app, "theme"],
      ["settings", "get", app, "theme", "--string"], ["settings", "export", app],
      ["settings", "export", app, "--plist"], ["vault", "list", app],
      ["vault", "show", app, "pin", "--reveal"], ["vault", "rotate", app],
      ["vault", "protect", app, "--key-file"], ["vault", "unlock-methods", app],
      ["cache", "list", app],
      ["cache", "sizes", app], ["cache", "expiry", app], ["cache", "stats", app],
      ["cache", "sweep", app], ["backup", app, path("backup")],
      ["restore", app, path("backup"), "--replace"], ["doctor"], ["doctor", app],
      ["doctor", "--json"], ["cache", "clear", app, "--yes"], ["completions", "zsh"], ["help"],
      ["help", "list"], ["--version"],
    ] {
      let run = try inspector.run(arguments, output: "/dev/full")
      #expect(
        run.failed(74, "cannot be written: No space left on device"), "\(arguments): \(run)")
    }
    // The first failure counts, and the rest is not written: here, of more than a pipe holds.
    let scope = stores()
    defer { scope.close() }
    let long = String(repeating: "long ", count: 100_000)
    try scope.defaults(.standard).set(long, forKey: "long")
    try scope.vault(.standard).set(long, forKey: "long")
    for arguments in [
      ["settings", "list", app], ["settings", "get", app, "long"],
      ["settings", "get", app, "long", "--string"], ["settings", "export", app],
      ["settings", "export", app, "--plist"], ["vault", "show", app, "long", "--reveal"],
    ] {
      let script = #"trap "" PIPE; { "$0" "$@"; echo $? >&2; } | head -c 9 >/dev/null"#
      let child = try Child(
        "/bin/sh", ["-c", script, inspector.path] + arguments,
        environment: inspector.environment, mergesErrors: true)
      let output = child.finish()
      #expect(
        output.hasSuffix("74\n") && output.contains("cannot be written: Broken pipe"),
        "\(arguments): \(output)")
    }
  }

  /// Each byte is written only when the one before it has been read.
  @Test(
    .enabled(if: isPythonAvailable),
    arguments: [
      ["settings", "import", "app"], ["vault", "set", "app", "pin"],
      ["vault", "protect", "app", "--passphrase-fd=0"],
    ])
  func waitsForTheWriterOfAnEmptyPipe(_ arguments: [String]) throws {
    let script = """
      import fcntl, os, subprocess, sys, termios
      reader, writer = os.pipe()
      os.set_blocking(reader, False)
      child = subprocess.Popen(sys.argv[1:], stdin=reader)
      for byte in b'{"key": "value"}\\n':
        os.write(writer, bytes([byte]))
        while any(fcntl.ioctl(reader, termios.FIONREAD, bytes(4))) and child.poll() is None:
          os.sched_yield()
      os.close(writer)
      print(child.wait())
      """
    let child = try Child(
      "python3", ["-c", script, inspector.path] + arguments, environment: inspector.environment,
      mergesErrors: true)
    let output = child.finish()
    #expect(output.hasSuffix("0\n") && !output.contains("cannot be read"), "\(output)")
  }

  /// Programs that share a pipe with others make it non-blocking at times.
  @Test(.enabled(if: isPythonAvailable))
  func waitsForTheReaderOfAFullPipe() throws {
    let scope = stores()
    defer { scope.close() }
    let long = String(repeating: "long ", count: 100_000)
    try scope.defaults(.standard).set(long, forKey: "long")
    let script = """
      import os, subprocess, sys
      reader, writer = os.pipe()
      os.set_blocking(writer, False)
      child = subprocess.Popen(sys.argv[1:], stdout=writer)
      os.close(writer)
      size = 0
      while data := os.read(reader, 1000): size += len(data)
      print(size, child.wait())
      """
    let child = try Child(
      "python3", ["-c", script, inspector.path, "settings", "get", app, "long", "--string"],
      environment: inspector.environment, mergesErrors: true)
    #expect(child.finish() == "\(long.utf8.count + 1) 0\n")
  }
}
