import Foundation
import Testing

@testable import Keepsake

/// Files and folders that this user may not use. The peer gives its rights up, so this needs root.
@Suite(.enabled(if: getuid() == 0, "giving up rights needs root")) struct PermissionTests {
  static let nobody = "65534"

  func asNobody(_ folder: TemporaryFolder, _ request: String...) throws -> String {
    try Child(Peer.executable, [folder.path, "as-user", Self.nobody, Self.nobody] + request)
      .finish()
  }

  func setMode(_ mode: Int, _ path: String) throws {
    try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: path)
  }

  @Test func anotherUsersFileIsAnErrorThatNamesIt() throws {
    let folder = try TemporaryFolder()
    try folder.store().set(1, forKey: "a")
    try setMode(0o777, folder.path)
    let path = folder.file(TemporaryFolder.journal).path
    let answer = try asNobody(folder, "get", "a")
    #expect(answer.contains("access denied") && answer.contains(path), "\(answer)")
    let refused = try asNobody(folder, "set", "a", "2")
    #expect(refused.contains("access denied") && refused.contains(folder.path), "\(refused)")
    #expect(try folder.store().int("a") == 1)
  }

  @Test func aReadOnlyFolderCanBeRead() throws {
    let folder = try TemporaryFolder()
    try folder.store().set(1, forKey: "a")
    try setMode(0o644, folder.file(TemporaryFolder.journal).path)
    try setMode(0o644, folder.file(".standard.lock").path)
    try setMode(0o755, folder.path)
    #expect(try asNobody(folder, "get", "a") == "1\n")
    let refused = try asNobody(folder, "set", "a", "2")
    #expect(refused.contains("access denied"), "\(refused)")
    #expect(try folder.store().int("a") == 1)
    #expect(try folder.names() == [".standard.lock", TemporaryFolder.journal])
  }

  @Test func damageInAReadOnlyFolderIsReadAround() throws {
    let folder = try TemporaryFolder()
    try folder.store().set(1, forKey: "a")
    let handle = try FileHandle(forWritingTo: folder.file(TemporaryFolder.journal))
    try handle.seekToEnd()
    try handle.write(contentsOf: Data("noise\n".utf8))
    try setMode(0o644, folder.file(TemporaryFolder.journal).path)
    try setMode(0o755, folder.path)
    #expect(try asNobody(folder, "get", "a") == "1\n")
    #expect(try folder.names().count == 2)
  }

  @Test func aMissingFolderThatCannotBeMadeIsAnError() throws {
    let folder = try TemporaryFolder()
    try setMode(0o755, folder.path)
    let inner = folder.path + "/inner/deeper"
    let answer = try Child(
      Peer.executable, [inner, "as-user", Self.nobody, Self.nobody, "set", "a", "1"]
    ).finish()
    #expect(answer.contains("access denied") && answer.contains(folder.path + "/inner"))
  }

  @Test func modesAreForTheUserAlone() throws {
    let outer = try TemporaryFolder()
    let inner = outer.url.appending(path: "a/b")
    let scope = StorageScope(
      finder: DirectoryFinder(app: "test", chosen: .init(configuration: inner)))
    let store = scope.defaults(.standard)
    try store.set(1, forKey: "a")
    func mode(_ path: String) throws -> UInt32 { try #require(try FileSystem.status(path)).mode }
    #expect(try mode(outer.path + "/a") == 0o700)
    #expect(try mode(inner.path) == 0o700)
    for name in ["standard.jsonl", ".standard.lock"] {
      #expect(try mode(inner.path + "/" + name) == 0o600)
    }
    try store.removeAll()
    #expect(try mode(inner.path + "/standard.jsonl") == 0o600)
  }

  @Test func aSharedFoldersModeGoesForItsFiles() throws {
    let folder = try TemporaryFolder()
    try setMode(0o770, folder.path)
    let store = folder.store(Defaults.Suite("team", in: folder.url))
    try store.set(1, forKey: "a")
    #expect(try #require(try FileSystem.status(folder.path + "/team.jsonl")).mode == 0o660)
    #expect(try #require(try FileSystem.status(folder.path + "/.team.lock")).mode == 0o660)
    let missing = Defaults.Suite("team", in: folder.url.appending(path: "missing"))
    #expect(throws: StorageError.self) { try folder.store(missing).set(1, forKey: "a") }
  }
}
