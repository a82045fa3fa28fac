#if os(Linux)
import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  /// In a sandbox like that of ``SandboxTests``.
  @Test func movesNothingIntoOtherDirectories() throws {
    try fill()
    let backup = path("backup")
    let commands = [
      ["backup", app, backup], ["settings", "set", app, "theme", "\"light\""],
      ["vault", "delete", app, "pin"], ["vault", "rotate", app],
      ["restore", app, backup, "--replace"], ["cache", "sweep", app],
      ["cache", "clear", app, "--yes"],
    ]
    for command in commands {
      let child = try Child(
        Peer.executable, [directory.path, "confined-run", inspector.path] + command,
        environment: inspector.environment, mergesErrors: true, startsSession: true)
      let output = child.finish()
      if output.hasPrefix("unavailable") { return }
      #expect(child.exitStatus == 0, "\(command): \(output)")
    }
    #expect(try run("settings", "get", app, "theme").text == "\"dark\"\n")
    #expect(try run("vault", "show", app, "pin", "--reveal").text == "7734")
    #expect(try run("cache", "list", app, "--json").rows().isEmpty)
  }
}
#endif
