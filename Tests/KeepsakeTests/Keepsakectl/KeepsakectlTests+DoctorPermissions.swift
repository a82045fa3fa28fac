import Foundation
import Testing

@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  @Test(.enabled(if: geteuid() == 0, "only root can give a file away"))
  func doctorFindsAFileOfAnotherOwner() throws {
    try fill()
    chown(journal, 1, 1)
    try expectOneFinding("its owner differs") { try run("doctor", app) }
  }

  @Test(.enabled(if: geteuid() != 0, "root can write to every directory"))
  func doctorFindsADirectoryWithoutWritePermission() throws {
    try fill()
    chmod(path("config/\(app)"), 0o500)
    try expectOneFinding("not writable") { try run("doctor", app) }
  }

  @Test(.enabled(if: canMount, "only root can mount, and not in every container"))
  func doctorFindsAReadOnlyFileSystem() throws {
    try fill()
    try expectOneFinding("not writable") {
      let child = try Child(
        "unshare",
        Self.mountingReadOnly(path("config/\(app)")) + [inspector.path, "doctor", app],
        environment: inspector.environment, mergesErrors: true, startsSession: true)
      let text = child.finish()
      return Example.Run(status: child.exitStatus, text: text, errors: "")
    }
  }

  /// Arguments for unshare(1) that make a directory read-only for the command that follows, and
  /// only for that command.
  private static func mountingReadOnly(_ directory: String) -> [String] {
    let script = #"""
      mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"
      """#
    return ["--mount", "--propagation", "private", "sh", "-c", script, directory]
  }

  private static let canMount: Bool = {
    guard geteuid() == 0, let directory = try? TemporaryDirectory(isQuick: true),
      let probe = try? Child(
        "unshare", mountingReadOnly(directory.path) + ["true"], mergesErrors: true)
    else { return false }
    withExtendedLifetime(directory) { _ = probe.finish() }
    return probe.exitStatus == 0
  }()
}
