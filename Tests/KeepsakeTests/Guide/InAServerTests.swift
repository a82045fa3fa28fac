import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

/// The snippets of "In a server".
@Suite(.temporaryStorage, .timeLimit(.minutes(20))) struct InAServerTests {
  @Test func callsRunOnThreadsOfTheLibrary() async throws {
    SecureVault.set("tok", forKey: "token")
    let token = try await StorageSystem.perform { SecureVault.get("token") }
    #expect(token == "tok")
    _ = try await SecureVault.shared.perform { try $0.get("token") }

    DiskCache.set(1, forKey: "a")
    try await Defaults.shared.perform { store in
      try store.set("dark", forKey: "theme")
      try store.synchronize()
    }
    let names = try await DiskCache.shared.perform { store in try store.keys() }
    #expect(names == ["a"] && Defaults.string("theme") == "dark")
  }

  /// `PerformTests` checks what the calls do; a passphrase takes long to check.
  @Test func aVaultWithoutAPassphraseIsNotUnlocked() async {
    await #expect(throws: StorageError.self) { try await unlock(typed: "one") }
    #expect(SecureVault.protection == nil)
  }

  private func unlock(typed: String) async throws {
    try await SecureVault.shared.perform { try $0.unlock(passphrase: typed) }
    try await SecureVault.shared.perform { try $0.protect(with: .passphrase(typed)) }
  }

  @Test func aTaskFollowsASetting() async throws {
    let limits = Defaults.changes("cacheLimit", default: 50_000_000, initial: true)
    let follower = Task {
      for await limit in limits { DiskCache.sizeLimit = limit }
    }
    Defaults.set(1_000_000, forKey: "cacheLimit")
    try await eventually("the limit follows the setting") { DiskCache.sizeLimit == 1_000_000 }

    follower.cancel()
    try await Defaults.shared.perform { try $0.synchronize() }
  }
}
