import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Files and directories that the user may not access. The peer process gives up its privileges,
/// which requires root.
@Suite(.singleThreaded, .enabled(if: getuid() == 0, "giving up privileges requires root"))
struct PermissionTests {
  static let otherUser = "65534"

  func asOtherUser(_ directory: TemporaryDirectory, _ request: String...) throws -> String {
    try Child(
      Peer.executable, [directory.path, "as-user", Self.otherUser, Self.otherUser] + request
    )
    .finish()
  }

  @Test func throwsWhenAnotherUserOwnsTheFile() throws {
    let directory = try TemporaryDirectory()
    try directory.store().set(1, forKey: "a")
    try directory.setMode(0o777)
    let path = directory.file(TemporaryDirectory.journal).path
    let answer = try asOtherUser(directory, "get", "a")
    #expect(answer.contains("access denied") && answer.contains(path), "\(answer)")
    let refused = try asOtherUser(directory, "set", "a", "2")
    #expect(refused.contains("access denied") && refused.contains(directory.path), "\(refused)")
    #expect(try directory.store().int("a") == 1)
  }

  @Test func readOnlyDirectoryCanBeRead() throws {
    let directory = try TemporaryDirectory()
    try directory.store().set(1, forKey: "a")
    try directory.setMode(0o644, TemporaryDirectory.journal)
    try directory.setMode(0o755)
    #expect(try asOtherUser(directory, "get", "a") == "1\n")
    let refused = try asOtherUser(directory, "set", "a", "2")
    #expect(refused.contains("access denied"), "\(refused)")
    #expect(try directory.store().int("a") == 1)
    #expect(try directory.names() == [TemporaryDirectory.journal])
  }

  /// As in a container whose ConfigMap gets another version: each is a directory, to which a link
  /// of the directory leads.
  @Test(.multiprocess) func aFollowerThatMayNotWriteReportsNoLoss() throws {
    let directory = try TemporaryDirectory()
    func publish(_ value: String) throws {
      let version = try TemporaryDirectory(isQuick: true)
      try version.store().set(value, forKey: "k")
      let journal = "..\(value)/\(TemporaryDirectory.journal)"
      try directory.makeDirectory("..\(value)")
      try directory.write(version.bytes(of: TemporaryDirectory.journal), to: journal)
      try directory.setMode(0o755, "..\(value)")
      try directory.setMode(0o644, journal)
      try directory.link("..new", to: "..\(value)")
      try FileSystem.rename(directory.file("..new").path, to: directory.file("..data").path)
    }
    try publish("first")
    try directory.link(TemporaryDirectory.journal, to: "..data/\(TemporaryDirectory.journal)")
    try directory.setMode(0o755)
    let follower = try Child(
      "setpriv",
      ["--reuid=65534", "--regid=65534", "--clear-groups"]
        + [Peer.executable, directory.path, "hazards"])
    #expect(try follower.ask("get settings k") == "first")
    #expect(try follower.ask("follow k") == "ok")
    var lines: [String] = []
    for value in ["second", "third"] {
      try publish(value)
      while let line = follower.line() {
        lines.append(line)
        if line == "changed \(value)" { break }
      }
    }
    #expect(follower.finish() == "")
    #expect(lines == ["changed second", "changed third"])
  }

  @Test func intactRecordsOfADamagedReadOnlyFileAreRead() throws {
    let directory = try TemporaryDirectory()
    try directory.store().set(1, forKey: "a")
    try directory.store().set(2, forKey: "b")
    let last = try directory.bytes(of: TemporaryDirectory.journal).count - 5
    try Bytes.write(0, at: last, of: directory.file(TemporaryDirectory.journal).path)
    try directory.setMode(0o644, TemporaryDirectory.journal)
    try directory.setMode(0o755)
    #expect(try asOtherUser(directory, "get", "a") == "1\n")
    #expect(try directory.names().count == 1)
  }

  /// Everybody may add files to a directory of mode 1777, and nobody may change another user's.
  @Test func aVaultInADirectoryForEverybodyIsWritableByItsUserOnly() throws {
    let directory = try TemporaryDirectory()
    try directory.setMode(0o1777)
    let store = directory.secrets(SecureVault.Service("team", in: directory.url))
    try store.set("v", forKey: "k")
    try store.rotateKeys()
    let vault = directory.path + "/vault"
    let names = try FileManager.default.subpathsOfDirectory(atPath: vault)
    #expect(names.count == 4)
    for path in [vault] + names.map({ vault + "/" + $0 }) {
      let status = try #require(try FileSystem.status(path))
      #expect(status.mode & 0o002 == 0, "\(path)")
      if status.isDirectory { #expect(status.mode == 0o1775, "\(path)") }
    }
    // As another user: write to the files, replace them, and add to the directory.
    let script = """
      for f in "$0"/vault.hdr "$0"/.lock "$0"/*/*; do echo x 2>/dev/null >>"$f" && echo wrote "$f"
        rm -f "$f" 2>/dev/null; [ -e "$f" ] || echo removed "$f"; done
      touch "$0"/new 2>/dev/null && echo added
      true
      """
    let child = try Child(
      "setpriv", ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script, vault])
    #expect(child.finish() == "" && child.exitStatus == 0)
    #expect(try store.get("k") == "v")
  }

  @Test func throwsWhenTheDirectoryCannotBeMade() throws {
    let directory = try TemporaryDirectory()
    try directory.setMode(0o755)
    let inner = TemporaryDirectory("inner/deeper", in: directory)
    let answer = try asOtherUser(inner, "set", "a", "1")
    #expect(answer.contains("access denied") && answer.contains(directory.path + "/inner"))
  }

  @Test func onlyTheUserMayReadTheFiles() throws {
    let outer = try TemporaryDirectory()
    let inner = TemporaryDirectory("a/b", in: outer)
    let store = inner.store()
    try store.set(1, forKey: "a")
    #expect(try outer.status("a")?.mode == 0o700 && inner.status("")?.mode == 0o700)
    #expect(try inner.status(TemporaryDirectory.journal)?.mode == 0o600)
    try store.removeAll()
    #expect(try inner.status(TemporaryDirectory.journal)?.mode == 0o600)
  }

  @Test func filesHaveTheModeOfASharedDirectory() throws {
    let directory = try TemporaryDirectory()
    try directory.setMode(0o770)
    let store = directory.store(Defaults.Suite("team", in: directory.url))
    try store.set(1, forKey: "a")
    #expect(try directory.status("team.jsonl")?.mode == 0o660)
    let missing = Defaults.Suite("team", in: directory.url.appending(path: "missing"))
    #expect(throws: StorageError.self) { try directory.store(missing).set(1, forKey: "a") }
  }
}
