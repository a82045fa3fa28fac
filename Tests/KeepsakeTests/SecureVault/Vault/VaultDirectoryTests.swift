import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// An open vault keeps its directory open, and other programs may move or replace that.
@Suite(.singleThreaded) struct VaultDirectoryTests {
  private let directory: TemporaryDirectory
  private let store: SecureVault.Store

  init() throws {
    directory = try TemporaryDirectory(isQuick: true)
    store = directory.secrets()
    try store.set("1", forKey: "k")
    try store.set("1", forKey: "l")
  }

  private func move(_ name: String, to newName: String) throws {
    try FileManager.default.moveItem(at: directory.file(name), to: directory.file(newName))
  }

  /// Moves the vault away, and puts a copy in its place.
  private func moveAndCopyVault() throws {
    try move("vault", to: "old")
    try FileManager.default.copyItem(at: directory.file("old"), to: directory.file("vault"))
  }

  private func expect(_ value: String, _ comment: Comment) throws {
    for store in [store, directory.secrets()] {
      #expect(try store.get("k") == value && store.get("l") == "1", comment)
    }
    #expect(try directory.temporaries() == [], comment)
  }

  @Test func writesGoToTheVaultThatReplacedTheOpenOne() throws {
    try moveAndCopyVault()
    let old = try directory.contents().filter { $0.key.hasPrefix("old/") }
    try store.set("2", forKey: "k")
    try expect("2", "set")
    try store.rotateKeys()
    try expect("2", "rotate")
    #expect(try directory.contents().filter { $0.key.hasPrefix("old/") } == old)
  }

  /// The other vault takes its place while the new value is sealed.
  @Test(arguments: [SystemCall.write, .fdatasync, .lock])
  func aVaultThatIsReplacedDuringASetGetsTheValue(call: SystemCall) throws {
    try interrupt(before: call) {
      try moveAndCopyVault()
    } in: {
      try store.set("2", forKey: "k")
    }
    // The copy has the temporary file, which is no longer of use.
    for name in try directory.temporaries() { try FileSystem.unlink(directory.file(name).path) }
    try expect("2", "\(call)")
  }

  /// Its header is the same file. It takes the vault's place before the set or during it.
  @Test(arguments: [nil, SystemCall.write, .fdatasync, .lock])
  func aSetGoesToAVaultOfHardLinks(call: SystemCall?) throws {
    try FileManager.default.linkItem(at: directory.file("vault"), to: directory.file("copy"))
    // The links have changed the times of the header.
    try store.set("0", forKey: "k")
    let old = try directory.contents().filter { $0.key.hasPrefix("vault/") }
    let directory = directory
    @Sendable func replace() throws {
      try FileSystem.rename(directory.file("vault").path, to: directory.file("old").path)
      try FileSystem.rename(directory.file("copy").path, to: directory.file("vault").path)
    }
    if let call {
      try interrupt(before: call, replace) { try store.set("2", forKey: "k") }
    } else {
      try replace()
      try store.set("2", forKey: "k")
    }
    try expect("2", "set")
    try store.rotateKeys()
    try expect("2", "rotate")
    let kept = try directory.contents().filter { $0.key.hasPrefix("old/") }
    #expect(Set(kept.values) == Set(old.values))
  }

  @Test func aServiceWhoseDirectoryWasMovedGetsANewOne() throws {
    let path = try directory.openVault().entryPath(service: "standard", key: "k")
    let name = "vault/" + path.directoryName
    try move(name, to: "old")
    try store.set("2", forKey: "k")
    #expect(try store.get("k") == "2" && directory.secrets().get("k") == "2")
    #expect(try store.get("l") == nil)
  }

  /// The secret is removed already.
  @Test func aServiceMayBeGoneWhenItsSecretIsRemoved() throws {
    let path = try directory.openVault().entryPath(service: "standard", key: "k")
    let directory = directory
    try interrupt(before: .open, at: path.directoryName) {
      try directory.secrets().eraseVault()
    } in: {
      try store.remove("k")
    }
    #expect(try store.get("k") == nil)
  }

  @Test func theVaultMayBeALink() throws {
    try move("vault", to: "elsewhere")
    try directory.link("vault", to: directory.path + "/elsewhere")
    try store.set("2", forKey: "k")
    try expect("2", "the open vault")
    try directory.secrets().set("3", forKey: "k")
    try expect("3", "another store")
    #expect(try directory.status("vault")?.isSymbolicLink == true)
  }

  @Test(arguments: ["set", "remove", "removeAll"], [false, true])
  func aLinkInsteadOfADirectoryIsNotFollowed(_ call: String, hasUsedDirectory: Bool) throws {
    let path = try directory.openVault().entryPath(service: "standard", key: "k")
    let name = "vault/" + path.directoryName
    try move(name, to: "elsewhere")
    try directory.link(name, to: directory.path + "/elsewhere")
    let before = try directory.contents()
    let store = hasUsedDirectory ? store : directory.secrets()
    let error = expectFailure(.accessDenied) {
      switch call {
      case "set": try store.set("2", forKey: "k")
      case "remove": try store.remove("k")
      default: try store.removeAll()
      }
    }
    #expect(error?.path == FileSystem.parent(of: path.path))
    #expect(try directory.contents() == before)
    try FileSystem.unlink(directory.path + "/" + name)
    try move("elsewhere", to: name)
    try expect("1", "moved back")
  }
}
