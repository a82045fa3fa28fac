import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Where files are if the umask or HOME is unusual.
@Suite(.multiprocess) struct ProcessEnvironmentTests {
  private func mode(_ path: String) throws -> UInt32? { try FileSystem.status(path)?.mode }

  /// The first program on a new account makes ~/.config for all others.
  @Test func directoriesAreUsableUnderAnyUmask() throws {
    let home = try TemporaryDirectory(isQuick: true)
    let directory = TemporaryDirectory("config/app", in: home)
    let peer = try Peer.start(directory, "hazards")
    if getuid() == 0 {
      // Root needs no permission. Here it also would act for the owner.
      try #require(chown(home.path, 65_534, 65_534) == 0)
      #expect(try peer.ask("become 65534") == "ok")
    }
    #expect(try peer.ask("umask \(0o177)") == "ok")
    for store in ["settings", "engine", "secrets", "cache", "file"] {
      #expect(try peer.ask("set \(store) k v") == "ok", "\(store)")
      #expect(try peer.ask("get \(store) k") == "v", "\(store)")
    }
    #expect(peer.finish() == "")
    for name in try FileManager.default.subpathsOfDirectory(atPath: home.path) {
      let status = try #require(try FileSystem.status(home.file(name).path))
      if status.isDirectory { #expect(status.mode == 0o700, "\(name)") }
    }
    #expect(try mode(home.path + "/config") == 0o700)
  }

  @Test func aHomeThatIsNotUTF8IsAnErrorThatNamesIt() throws {
    let home = try TemporaryDirectory(isQuick: true)
    let script =
      "HOME=\"$1/caf$(printf '\\351')\"; export HOME; mkdir \"$HOME\"; exec \"$0\" "
      + "settings set com.example.app size 16"
    let cleared = ["XDG_CONFIG_HOME": "", "XDG_DATA_HOME": "", "XDG_STATE_HOME": ""]
    let child = try Child(
      "/bin/sh", ["-c", script, Peer.builtProduct("keepsakectl").path, home.path],
      environment: cleared, mergesErrors: true)
    let output = child.finish()
    #expect(child.exitStatus != 0)
    #expect(output.contains("the environment variable HOME is not UTF-8"), "\(output)")
    #expect(try FileSystem.list(home.path).count == 1)
  }

  /// The caller would choose which files a program with the rights of another user or group reads
  /// and writes. Its effective user has no home.
  @Test(
    .enabled(if: geteuid() == 0, "only root can make a program of another user's"),
    arguments: [(mode: 0o4755, caller: "12345"), (0o2755, "65534")])
  func aSetIDProgramIgnoresItsCallersDirectories(_ program: (mode: mode_t, caller: String)) throws {
    let home = try TemporaryDirectory()
    let path = try home.copyProgram(Peer.builtProduct("keepsakectl").path, as: "program")
    try #require(chown(path, 65_534, 65_534) == 0 && chmod(path, program.mode) == 0)
    try #require(chmod(home.path, 0o777) == 0)
    let environment = Dictionary(
      uniqueKeysWithValues: ["HOME", "XDG_CONFIG_HOME", "CONFIGURATION_DIRECTORY"].map {
        ($0, home.path + "/planted")
      })
    let command = ["--reuid", program.caller, "--regid", "12345", "--clear-groups", path]
    let child = try Child(
      "/usr/bin/setpriv", command + ["settings", "set", "com.example.app", "size", "16"],
      environment: environment, mergesErrors: true)
    let output = child.finish()
    // On a file system without these bits, the program has the rights of its caller.
    if output.isEmpty { return }
    #expect(child.exitStatus != 0 && output.contains("/nonexistent"), "\(output)")
    #expect(try FileSystem.list(home.path) == ["program"])
  }

  @Test func storesStayWhereTheyAreWhenHomeChanges() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    for name in ["first", "second"] { try directory.makeDirectory(name) }
    let peer = try Peer.start(
      directory, "change-home", directory.path + "/first", directory.path + "/second")
    #expect(peer.finish() == "ok\n")
    let names = try FileManager.default.contentsOfDirectory(atPath: directory.path + "/first")
    #expect(names.sorted() == [".cache", ".config", ".local"])
    #expect(try FileSystem.list(directory.path + "/second") == [])
  }

  @Test func aLinkWhoseTargetIsNotUTF8IsNeverRepaired() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let target = Array(directory.path.utf8CString.dropLast()) + [0x2F, CChar(bitPattern: 0xE9), 0]
    try #require(mkdir(target, 0o700) == 0)
    let link = directory.path + "/link"
    try #require(symlink(target, link) == 0)
    #expect(throws: StorageError.self) { try FileSystem.realPath(link) }
    #expect(throws: StorageError.self) { try FileSystem.linkTarget(link) }
    // A copy has the same bytes.
    try directory.files.copy("link", to: "copy")
    #expect(try FileSystem.linkText(directory.path + "/copy") == FileSystem.linkText(link))
    // Nothing is written beside the directory.
    try #require(symlink(target, directory.path + "/standard.jsonl") == 0)
    expectFailure(.isDirectory) { try directory.store().set(1, forKey: "k") }
  }
}
