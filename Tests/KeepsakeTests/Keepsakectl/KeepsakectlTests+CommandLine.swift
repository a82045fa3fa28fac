import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  @Test func explainsItsUse() throws {
    for arguments in [
      [], ["bogus"], ["settings"], ["settings", "bogus"], ["settings", "get"],
      ["settings", "get", app], ["settings", "get", app, "a", "b"], ["list", "a", "b"],
      ["settings", "get", app, "a", "--bogus"], ["vault"], ["vault", "show", app],
      ["cache", "list"], ["completions"], ["completions", "tcsh"], ["doctor", app + "/x"],
      ["doctor", app, "--free"],
      ["settings", "get", "..", "x"], ["settings", "get", "", "x"], ["help", "bogus"],
      ["settings", "list", app, "--json=1"], ["--", "--help"], ["list", app + "/team"],
      ["list", "-x"], ["settings", "get", app, "-dash"], ["vault", "protect", app + "/x"],
      ["backup"], ["backup", app], ["restore", app], ["backup", app + "/team", "x"],
      ["restore", app, "x", "--bogus"], ["push", app], ["adopt"], ["list", app, "--server"],
      ["settings", "get", app, "a", "--server", "--string"], ["list", "--server=valkey://host"],
      ["settings", "list", app, "--server="], ["settings", "list", app, "--server=http://host"],
      ["cache", "list", app, "--server=valkey://host"], ["doctor", "--server=valkey://host"],
      ["doctor", app, "--server=valkey://host", "--free=1"],
      ["push", app + "/team", "--vault", "--server=valkey://host"],
      ["settings", "import", app, "--except=NS*", "--except=Apple*"],
    ] {
      let run = try inspector.run(arguments)
      #expect(run.failed(64, "keepsakectl: "), "\(arguments): \(run)")
      #expect(run.errors.split(separator: "\n").count == 1, "\(arguments): \(run)")
    }
    let help = try run("--help")
    #expect(try help.status == 0 && help.text == run("help").text)
    #expect(help.text.split(separator: "\n").allSatisfy { $0.count <= 80 })
    let commands = help.text.split(separator: "\n").filter { $0.hasPrefix("  ") }
    #expect(commands.count == 30)
    for line in commands {
      let words = line.split(separator: " ")
      let name = words.prefix { $0.allSatisfy { $0.isLowercase || $0 == "-" } }
        .map(String.init)
      let usage = try inspector.run(["help"] + name)
      #expect(
        usage.status == 0
          && usage.text.hasPrefix("usage: keepsakectl \(name.joined(separator: " "))"))
      #expect(try inspector.run(name + ["--help"]).text == usage.text)
      #expect(try inspector.run(name + ["-h"]).text == usage.text)
      #expect(usage.text.contains("example: keepsakectl \(name.joined(separator: " ")) "))
    }
    #expect(try run("help", "vault").text.contains("vault rotate"))
    #expect(try directory.names().isEmpty, "help creates no files")
  }

  @Test func printsItsVersion() throws {
    let changelog = try String(contentsOf: Repository.file("CHANGELOG.md"), encoding: .utf8)
    let newest = try #require(changelog.firstMatch(of: /(?m)^## \[(.+?)\]/)?.1)
    let run = try run("--version")
    #expect(run.status == 0 && run.text == "keepsakectl \(newest.lowercased())\n")
    #expect(try self.run("list", "--version").status == 64)
  }

  /// Sources the script in bash, and completes command lines as the shell would.
  @Test func completesCommandsOptionsAndApps() throws {
    try fill()
    let mail = stores(of: "com.example.mail")
    defer { mail.close() }
    for key in ["k", "key:a=1", "key:a=2", "key:b"] {
      try mail.defaults(.standard).set(1, forKey: key)
    }
    let script = """
      PATH="${0%/*}:$PATH"
      eval "$(keepsakectl completions bash)"
      while IFS= read -r COMP_LINE; do
        COMP_LINE=${COMP_LINE%.}
        read -r -a COMP_WORDS <<< "$(sed -E 's/[:=]+/ & /g' <<< "$COMP_LINE")"
        [[ $COMP_LINE != *" " ]] || COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        COMPREPLY=()
        _keepsakectl
        echo "${COMPREPLY[@]}"
      done
      """
    let child = try Child(
      "bash", ["--norc", "-c", script, inspector.path], environment: inspector.environment)
    func complete(_ line: String) throws -> [Substring] {
      try #require(try child.ask("keepsakectl \(line)")).split(separator: " ")
    }
    #expect(try complete(".").contains("settings"))
    #expect(try complete("se") == ["settings"])
    #expect(try complete("vault r") == ["remove-recovery", "rotate"])
    #expect(try complete("vault rotate com.example.notes --p") == ["--passphrase-fd="])
    #expect(try complete("vault unlock-methods com.example.n") == ["com.example.notes"])
    #expect(try complete("doctor .") == ["com.example.mail", "com.example.notes"])
    #expect(try complete("settings get com.example.n") == ["com.example.notes"])
    #expect(try complete("settings get com.example.notes --st") == ["--string"])
    #expect(
      try complete("doctor --")
        == ["--json", "--free=", "--passphrase-fd=", "--server=", "--help"])
    #expect(try complete("pu") == ["push"])
    #expect(try complete("adopt com.example.n") == ["com.example.notes"])
    #expect(try complete("adopt com.example.notes --s") == ["--server="])
    #expect(try complete("completions .") == ["bash", "fish", "zsh"])
    #expect(
      try complete("settings list com.example.notes/")
        == ["com.example.notes/standard", "com.example.notes/team"])
    #expect(try complete("vault list com.example.notes/c") == ["com.example.notes/com.app.auth"])
    #expect(try complete("cache clear com.example.notes/I") == ["com.example.notes/Images"])
    #expect(try complete("settings get com.example.notes .") == ["size", "theme"])
    #expect(try complete("settings set --string com.example.notes/team n") == ["numbers"])
    #expect(try complete("settings set com.example.notes size .").isEmpty)
    #expect(try complete("vault show com.example.notes/com.app.auth .") == ["accessToken"])
    // bash replaces only what follows the last colon or equals sign.
    #expect(try complete("settings get com.example.mail key:") == ["a=1", "a=2", "b"])
    #expect(try complete("settings get com.example.mail key:a") == ["a=1", "a=2"])
    #expect(try complete("settings get com.example.mail key:a=") == ["1", "2"])
    #expect(try complete("doctor --passphrase-fd=3 com.example.n") == ["com.example.notes"])
    #expect(try complete("settings get --server=valkey://a:1 app --st") == ["--string"])
    #expect(try complete("help settings g") == ["get"])
    #expect(try complete("settings get com.example.missing .").isEmpty)
    #expect(child.finish() == "" && child.exitStatus == 0)
    let zsh = try run("completions", "zsh")
    #expect(try zsh.status == 0 && zsh.text.hasSuffix(run("completions", "bash").text))
  }

  /// Completes as at the prompt of fish.
  @Test(.enabled(if: isInstalled(fish), "fish is not installed"))
  func completesInFish() throws {
    try fill()
    let script = """
      set -x PATH (path dirname $argv[1]) $PATH
      keepsakectl completions fish | source
      complete -C 'keepsakectl sett'
      complete -C 'keepsakectl settings get com.example.notes th'
      complete -C 'keepsakectl vault list com.example.notes/c'
      complete -C 'keepsakectl completions '
      """
    let child = try Child(
      Self.fish, ["--no-config", "-c", script, inspector.path],
      environment: inspector.environment, mergesErrors: true)
    #expect(
      child.finish() == """
        settings
        theme
        com.example.notes/com.app.auth
        bash
        fish
        zsh

        """)
  }

  private static let fish = "/usr/bin/fish"
  private static let zsh = "/bin/zsh"

  private static func isInstalled(_ path: String) -> Bool {
    FileManager.default.isExecutableFile(atPath: path)
  }

  @Test(
    .enabled(if: isInstalled(zsh), "zsh is not installed"),
    arguments: [true, false])
  func completesInZsh(isPrepared: Bool) throws {
    let script = """
      \(isPrepared ? "autoload -Uz compinit && compinit -D" : "")
      source <("$0" completions zsh) && print $_comps[keepsakectl]
      """
    let directory = try TemporaryDirectory(isQuick: true)  // zsh keeps a file in it
    var environment = inspector.environment
    environment["HOME"] = directory.path
    let child = try Child(
      Self.zsh, ["-f", "-c", script, inspector.path], environment: environment, mergesErrors: true)
    #expect(child.finish() == "_bash_complete -o default -F _keepsakectl\n")
  }

  @Test func worksWithoutHOME() throws {
    try fill()
    let without = try run("settings", "get", app, "theme", environment: ["HOME": ""])
    #expect(without.status == 0 && without.text == "\"dark\"\n")
    // The home directory of the password database counts; no file is created in it.
    let name = "keepsakectl-test-" + UUID().uuidString
    let withoutDirectories = [
      "HOME": "", "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": "", "XDG_CACHE_HOME": "",
    ]
    for command in [
      ["settings", "list"], ["vault", "list"], ["cache", "list"], ["doctor"], ["list"],
    ] {
      let run = try inspector.run(command + [name], environment: withoutDirectories)
      #expect(run.failed(1, name), "\(run)")
    }
    for (home, problem) in [("/dev/null", "is not a directory"), ("/none/home", "does not exist")] {
      let run = try inspector.run(
        ["settings", "list", app], environment: withoutDirectories.merging(["HOME": home]) { $1 })
      #expect(run.status == 1 && run.errors.contains("\(home): the home directory \(problem)"))
      #expect(run.errors.contains("Set HOME or the XDG variables;"), "\(run)")
    }
  }
}
