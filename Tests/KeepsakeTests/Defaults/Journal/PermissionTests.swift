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

  func setMode(_ mode: Int, _ path: String) throws {
    try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: path)
  }

  @Test func throwsWhenAnotherUserOwnsTheFile() throws {
    let directory = try TemporaryDirectory()
    try directory.store().set(1, forKey: "a")
    try setMode(0o777, directory.path)
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
    try setMode(0o644, directory.file(TemporaryDirectory.journal).path)
    try setMode(0o755, directory.path)
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
      let copy = directory.file("..\(value)")
      try FileManager.default.createDirectory(at: copy, withIntermediateDirectories: false)
      let journal = copy.appending(path: TemporaryDirectory.journal)
      try Data(version.bytes(of: TemporaryDirectory.journal)).write(to: journal)
      try setMode(0o755, copy.path)
      try setMode(0o644, journal.path)
      let link = directory.file("..new").path
      try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: "..\(value)")
      try #require(rename(link, directory.file("..data").path) == 0)
    }
    try publish("first")
    try FileManager.default.createSymbolicLink(
      atPath: directory.file(TemporaryDirectory.journal).path,
      withDestinationPath: "..data/\(TemporaryDirectory.journal)")
    try setMode(0o755, directory.path)
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
    let path = directory.file(TemporaryDirectory.journal).path
    let last = try directory.bytes(of: TemporaryDirectory.journal).count - 5
    try Bytes.write(0, at: last, of: path)
    try setMode(0o644, directory.file(TemporaryDirectory.journal).path)
    try setMode(0o755, directory.path)
    #expect(try asOtherUser(directory, "get", "a") == "1\n")
    #expect(try directory.names().count == 1)
  }

  /// Everybody may add files to a directory of mode 1777, and nobody may change another user's.
  @Test func aVaultInADirectoryForEverybodyIsWritableByItsUserOnly() throws {
    let directory = try TemporaryDirectory()
    try setMode(0o1777, directory.path)
    let service = SecureVault.Service("team", in: directory.url)
    let scope = StorageScope(
      finder: DirectoryFinder(
        app: "test", chosen: .init(state: directory.url.appending(path: "state")),
        environment: { _ in nil }))
    defer { scope.close() }
    let store = scope.vault(service)
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
    try setMode(0o755, directory.path)
    let inner = directory.path + "/inner/deeper"
    let answer = try Child(
      Peer.executable, [inner, "as-user", Self.otherUser, Self.otherUser, "set", "a", "1"]
    ).finish()
    #expect(answer.contains("access denied") && answer.contains(directory.path + "/inner"))
  }

  @Test func onlyTheUserMayReadTheFiles() throws {
    let outer = try TemporaryDirectory()
    let inner = outer.url.appending(path: "a/b")
    let scope = StorageScope(
      finder: DirectoryFinder(app: "test", chosen: .init(configuration: inner)))
    let store = scope.defaults(.standard)
    try store.set(1, forKey: "a")
    func mode(_ path: String) throws -> UInt32 { try #require(try FileSystem.status(path)).mode }
    #expect(try mode(outer.path + "/a") == 0o700)
    #expect(try mode(inner.path) == 0o700)
    #expect(try mode(inner.path + "/standard.jsonl") == 0o600)
    try store.removeAll()
    #expect(try mode(inner.path + "/standard.jsonl") == 0o600)
  }

  @Test func filesHaveTheModeOfASharedDirectory() throws {
    let directory = try TemporaryDirectory()
    try setMode(0o770, directory.path)
    let store = directory.store(Defaults.Suite("team", in: directory.url))
    try store.set(1, forKey: "a")
    #expect(try #require(try FileSystem.status(directory.path + "/team.jsonl")).mode == 0o660)
    let missing = Defaults.Suite("team", in: directory.url.appending(path: "missing"))
    #expect(throws: StorageError.self) { try directory.store(missing).set(1, forKey: "a") }
  }
}
