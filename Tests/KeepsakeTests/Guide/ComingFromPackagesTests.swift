import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

private struct User: Codable, Equatable, Sendable {
  var name = "Ann"
}

extension Defaults.Key<Double> {
  fileprivate static let quality = Self("quality", default: 0.8)
  fileprivate static let teamQuality = Self("quality", default: 0.8, suite: "team")
}

extension Defaults.Key<Double?> {
  fileprivate static let zoom = Self("zoom")
}

private struct Picture {
  @Default(.quality) var quality: Double
}

private struct Settings: Sendable {
  @Default("size") var size = 16
  @Default("user") var user = User()
  @Default("age", defaultValue: 18) var age: Int
}

private struct Draft {
  @Default("size", suite: .memory) var size = 16
}

@MainActor enum AppSettings { @Default("size") static var size = 16 }

@Suite(.temporaryStorage) struct ComingFromPackagesTests {
  @Test func typedKeysAreNamedInFull() {
    Keepsake.Defaults[.quality] = 0.5
    Defaults[.quality] = 0.5
    #expect(Picture().quality == 0.5)
    #expect(Defaults[.zoom] == nil && Defaults[.teamQuality] == 0.8)
    Defaults.remove(.quality)
    #expect(Defaults[.quality] == 0.8)
    Defaults[.teamQuality] = 0.5
    Defaults.removeAll()
    #expect(Defaults[.teamQuality] == 0.5)
  }

  @Test(.timeLimit(.minutes(20))) func loopsReceiveChanges() async {
    let first = await firstShown { _ in
    } in: { record in
      func show(_ quality: Double) { record(Int(quality * 10)) }
      for await quality in Defaults.changes(.quality, initial: true) { show(quality) }
    }
    #expect(first == 8)
    let settings = Settings()
    let changed = await firstShown {
      settings.size = 100 + $0
    } in: { show in
      for await size in settings.$size.changes { show(size) }
    }
    #expect(changed ?? 0 > 100)
  }

  @Test(.temporaryStorage(authenticate: { _ in "swordfish" }), .quickPassphrases)
  func secretsOfAService() throws {
    let keychain = SecureVault.service("com.app.auth")
    SecureVault.set("tok", forKey: "token", service: "com.app.auth")
    #expect(try keychain.get("token") == "tok")
    try keychain.set("tok", forKey: "token")
    #expect(try keychain.getData("avatar") == nil)
    #expect(try keychain.keys() == ["token"])
    #expect(try keychain.contains("token"))
    try keychain.remove("token")
    #expect(try !keychain.contains("token"))
    try keychain.set("tok", forKey: "token", access: .whenUnlocked)
    try keychain.set("1234", forKey: "pin", access: .userPresence)
    #expect(try keychain.get("pin", reason: "Unlock notes") == "1234")
    try keychain.removeAll()
    #expect(try keychain.keys() == [])
  }

  @Test func theDefaultServiceIsUsedWhereNoneIsNamed() {
    SecureVault.set("tok", forKey: "token", service: "com.app.auth")
    SecureVault.set("other", forKey: "token")
    SecureVault.defaultService = "com.app.auth"
    #expect(SecureVault.get("token") == "tok")
    #expect(SecureVault.removeAll(service: "com.app.auth"))
    #expect(SecureVault.get("token") == nil)
    #expect(SecureVault.get("token", service: .standard) == "other")
  }

  @Test @MainActor func wrappersShareValues() throws {
    let (settings, draft) = (Settings(), Draft())
    settings.$size.update { $0 += 1 }
    #expect(Settings().size == 17 && draft.size == 16 && AppSettings.size == 17)
    draft.$size.update { $0 += 2 }
    #expect(Draft().size == 18 && settings.size == 17 && settings.age == 18)
    settings.user.name = "Ben"
    let user = Settings().user
    #expect(user == User(name: "Ben"))
    try Folder.documents.save(user, as: "user.json")
    #expect(try Folder.documents.load("user.json", type: User.self) == user)
  }
}
