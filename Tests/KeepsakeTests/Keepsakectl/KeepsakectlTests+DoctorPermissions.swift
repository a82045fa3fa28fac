import Foundation
import Testing

extension OneAtATime.KeepsakectlTests {
  @Test(.enabled(if: geteuid() == 0, "only the superuser can give a file away"))
  func theDoctorFindsAForeignOwner() throws {
    try fill()
    chown(journal, 1, 1)
    try expectOneFinding("another user") { try run("doctor", app) }
  }

  @Test(.enabled(if: geteuid() != 0, "the superuser can write to each directory"))
  func theDoctorFindsADirectoryThatItsUserCannotWrite() throws {
    try fill()
    chmod(path("config/\(app)"), 0o500)
    try expectOneFinding("cannot be written") { try run("doctor", app) }
  }

  @Test(.enabled(if: canMount, "only the superuser can mount, and not in each container"))
  func theDoctorFindsADirectoryThatNobodyCanWrite() throws {
    try fill()
    try expectOneFinding("cannot be written") {
      let child = try Child(
        "unshare",
        Self.sealing(path("config/\(app)")) + [inspector.path, "doctor", app],
        environment: inspector.environment, mergesErrors: true, startsSession: true)
      let text = child.finish()
      return Example.Run(status: child.exitStatus, text: text, errors: "")
    }
  }

  /// Words for unshare(1): a directory is read-only for the command that follows, and for nobody
  /// else.
  private static func sealing(_ directory: String) -> [String] {
    let script = #"""
      mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"
      """#
    return ["--mount", "--propagation", "private", "sh", "-c", script, directory]
  }

  private static let canMount: Bool = {
    guard geteuid() == 0, let directory = try? TemporaryDirectory(isQuick: true),
      let probe = try? Child("unshare", sealing(directory.path) + ["true"], mergesErrors: true)
    else { return false }
    withExtendedLifetime(directory) { _ = probe.finish() }
    return probe.exitStatus == 0
  }()
}
