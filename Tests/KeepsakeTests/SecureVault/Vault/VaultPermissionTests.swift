import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A vault in a directory that users share.
@Suite(.quickPassphrases) struct VaultPermissionTests {
  /// A user has taken the header from the group, or the right to write it.
  @Test(arguments: ["rotateKeys", "addRecovery", "protect"], [0o600, 0o640])
  func aChangeOfKeysNeverWidensTheHeader(_ change: String, to mode: mode_t) throws {
    // The key file is not shared.
    let (directory, shared) = (
      try TemporaryDirectory(isQuick: true), try TemporaryDirectory(isQuick: true)
    )
    try shared.setMode(0o2770)
    let store = directory.secrets(SecureVault.Service("team", in: shared.url))
    try store.set("v", forKey: "k")
    let old = try #require(try FileSystem.status(shared.headerPath))
    #expect(old.mode == 0o660)
    try #require(chmod(shared.headerPath, mode) == 0)
    switch change {
    case "rotateKeys": try store.rotateKeys()
    case "addRecovery": _ = try store.addRecovery()
    default: try store.protect(with: .passphrase("horse"))
    }
    let new = try #require(try FileSystem.status(shared.headerPath))
    #expect(!new.isSameFile(as: old))
    #expect(new.mode & ~UInt32(mode) == 0)
    #expect(try store.get("k") == "v")
  }

  @Test func aNewKeyNeverWidensTheKeyFile() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    try #require(chmod(directory.keyFilePath, 0o400) == 0)
    try store.protect(with: .keyFile)
    #expect(try FileSystem.status(directory.keyFilePath)?.mode == 0o400)
    #expect(try directory.secrets().get("k") == "v")
  }
}
