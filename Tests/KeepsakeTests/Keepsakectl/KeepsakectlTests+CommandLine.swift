import Foundation
import Testing

extension OneAtATime.KeepsakectlTests {
  @Test func explainsItsUse() throws {
    for arguments in [
      [], ["bogus"], ["settings"], ["settings", "bogus"], ["settings", "get"],
      ["settings", "get", app], ["settings", "get", app, "a", "b"], ["list", "a", "b"],
      ["settings", "get", app, "a", "--bogus"], ["vault"], ["vault", "show", app],
      ["cache", "list"], ["doctor"], ["doctor", app + "/x"], ["doctor", app, "--free"],
      ["settings", "get", "..", "x"], ["settings", "get", "", "x"], ["help", "bogus"],
      ["settings", "list", app, "--json=1"], ["--", "--help"], ["list", app + "/team"],
      ["list", "-x"], ["settings", "get", app, "-dash"], ["vault", "protect", app + "/x"],
      ["backup"], ["backup", app], ["restore", app], ["backup", app + "/team", "x"],
      ["restore", app, "x", "--bogus"],
    ] {
      let run = try inspector.run(arguments)
      #expect(run.failed(64, "keepsakectl: "), "\(arguments): \(run)")
      #expect(run.errors.split(separator: "\n").count == 1, "\(arguments): \(run)")
    }
    let help = try run("--help")
    #expect(try help.status == 0 && help.text == run("help").text)
    #expect(help.text.split(separator: "\n").allSatisfy { $0.count <= 80 })
    let commands = help.text.split(separator: "\n").filter { $0.hasPrefix("  ") }
    #expect(commands.count == 21)
    for line in commands {
      let words = line.split(separator: " ")
      let name = words.prefix { $0.allSatisfy(\.isLowercase) }.map(String.init)
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
  }
}
