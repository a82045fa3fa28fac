import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

/// Replacements for services of Apple platforms.
@Suite(.temporaryStorage) struct ComingFromApplePlatformsTests {
  private let folder: TemporaryDirectory

  init() throws { folder = try TemporaryDirectory() }

  @Test func exportedSettingsAreImportedOnAnotherMachine() async throws {
    let synced = folder.url
    try await StorageSystem.withTemporary {
      Defaults.set(16, forKey: "size")
      Defaults.set(Date(timeIntervalSince1970: 0.5), forKey: "since")
      let sent = try Defaults.shared.export(as: .json)
      try Folder(synced).save(sent, as: "settings.json")
    }
    try await StorageSystem.withTemporary {
      Defaults.set(12, forKey: "size")
      Defaults.set("dark", forKey: "theme")
      let received: Data = try Folder(synced).load("settings.json")
      try Defaults.shared.import(received)
      #expect(Defaults.int("size") == 16 && Defaults.string("theme") == "dark")
      #expect(Defaults.get("since") == Date(timeIntervalSince1970: 0.5))
    }
  }

  @Test func appsShareADirectory() async throws {
    let shared = folder.url
    let team = Defaults.Suite("team", in: shared)
    let thumbnails = DiskCache.Name("thumbnails", in: shared)
    let accounts = SecureVault.Service("accounts", in: shared)
    let (png, note) = (Data([1, 2, 3]), "Dear Ben")
    @Sendable func teamKey() throws -> Data { Data(repeating: 7, count: 32) }
    try await StorageSystem.withTemporary(keySources: [.closure("team") { try teamKey() }]) {
      Defaults.set(16, forKey: "size", suite: team)
      DiskCache.set(png, forKey: "avatar", cache: thumbnails)
      SecureVault.set("tok", forKey: "token", service: accounts)
      try Folder(shared.appending(path: "inbox")).save(note, as: "1.txt")
    }
    try await StorageSystem.withTemporary(keySources: [.closure("team") { try teamKey() }]) {
      #expect(Defaults.int("size", suite: team) == 16)
      #expect(DiskCache.get("avatar", cache: thumbnails) == png)
      #expect(SecureVault.get("token", service: accounts) == "tok")
      let received: String = try Folder(shared.appending(path: "inbox")).load("1.txt")
      #expect(received == note)
    }
    // An app without the team's key.
    try await StorageSystem.withTemporary {
      expectFailure(.locked) { _ = try SecureVault.service(accounts).get("token") }
    }
  }

  @Test(
    .temporaryStorage(authenticate: { request in
      request.isNew || request.reason == "Unlock notes" ? "swordfish" : nil
    }), .quickPassphrases)
  func presenceIsRequiredToReadASecret() {
    let failures = Failures()
    StorageSystem.onFailure = failures.append
    SecureVault.set("1234", forKey: "pin", access: .userPresence)
    let pin = SecureVault.get("pin", reason: "Unlock notes")
    #expect(pin == "1234" && SecureVault.get("pin", reason: "Pay") == nil)
    #expect(failures.all.map(\.code) == [.locked])
  }

  @Test(.quickPassphrases) func passphraseOpensTheVaultUntilItIsLocked() {
    StorageSystem.onFailure = { _ in }
    let typed = "swordfish"
    SecureVault.set("tok", forKey: "token")
    func protect() -> Bool {
      let isProtected = SecureVault.protect(with: .passphrase(typed))
      return isProtected
    }
    #expect(protect())
    SecureVault.lock()
    #expect(SecureVault.isLocked && SecureVault.get("token") == nil)
    let isOpen = SecureVault.unlock(passphrase: typed)
    #expect(isOpen && SecureVault.get("token") == "tok")
    let isProtected = SecureVault.protect(with: .keyFile)
    #expect(isProtected && SecureVault.protection == .keyFile)
    #expect(SecureVault.get("token") == "tok")
  }

  @Test func closureProvidesTheDeviceKey() {
    @Sendable func deviceKey() throws -> Data { Data(repeating: 9, count: 32) }
    SecureVault.set("tok", forKey: "token")
    #expect(SecureVault.protect(with: .closure("device") { try deviceKey() }))
    #expect(SecureVault.protection == .closure("device"))
    #expect(SecureVault.get("token") == "tok")
  }
}
