import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

private struct User: Codable, Equatable {
  var name = "Ann"
  var since = Date(timeIntervalSince1970: 0)
}

private struct Login: Codable, Equatable {
  var name = "ann"
  var password = "swordfish"
}

/// The article has two names for it.
private typealias Credentials = Login

extension Defaults.Key<String> {
  fileprivate static let name = Self("name", default: "nobody")
}

protocol SettingsStorage {
  func set<T: Codable>(_ value: T?, forKey key: String) throws
  func get<T: Codable>(_ key: String) throws -> T?
}

extension Defaults.Store: SettingsStorage {}

protocol ReadableStorage {
  func load<T: Codable>(_ path: String, type: T.Type) throws -> T
}

extension Folder: ReadableStorage {}

private struct ViewModel {
  let storage: any SettingsStorage

  var name: String { get throws { try storage.get("name") ?? "nobody" } }
  func rename(_ name: String) throws { try storage.set(name, forKey: "name") }
}

private typealias BrokenEngine = FailingEngine

@Suite(.temporaryStorage) struct ComingFromProtocolsTests {
  @Test func settingsAreSavedAndLoaded() throws {
    let user = User()
    try Defaults.shared.set(user, forKey: "user")
    #expect(try Defaults.shared.model("user", type: User.self) == user)
    #expect(try Defaults.shared.contains("user"))
    try Defaults.shared.remove("user")
    #expect(try !Defaults.shared.contains("user"))
    try Defaults.shared.set(user, forKey: "user")
    try Defaults.shared.removeAll()
    #expect(try Defaults.shared.keys() == [])
  }

  @Test func secretsAreSavedAndLoaded() throws {
    let login = Login()
    try SecureVault.shared.set("tok", forKey: "token")
    try SecureVault.shared.set(login, forKey: "login")
    #expect(try SecureVault.shared.get("token") == "tok")
    #expect(try SecureVault.shared.model("login", type: Login.self) == login)
    #expect(SecureVault.model("login", type: Credentials.self) == login)
    #expect(try SecureVault.shared.contains("token"))
    try SecureVault.shared.remove("token")
    #expect(try !SecureVault.shared.contains("token"))
    try SecureVault.shared.removeAll()
    #expect(try SecureVault.shared.keys() == [])
  }

  @Test(.temporaryStorage(authenticate: { _ in "swordfish" }), .quickPassphrases)
  func authenticatorUnlocksASecret() throws {
    let pin = "1234"
    try SecureVault.shared.set(pin, forKey: "pin", access: .userPresence)
    #expect(try SecureVault.shared.get("pin", reason: "Unlock notes") == "1234")
  }

  @Test func throwsWithoutAnAuthenticator() {
    expectFailure(.locked) {
      try SecureVault.shared.set("1234", forKey: "pin", access: .userPresence)
    }
  }

  @Test func filesAreSavedMovedAndDeleted() throws {
    let image = Data(repeating: 7, count: 100)
    func save(_ png: Data) throws { try Folder.documents.save(png, as: "ann.png") }
    try save(image)
    let png: Data = try Folder.documents.load("ann.png")
    let none: Data? = try Folder.documents.load("ben.png")
    #expect(png == image && none == nil)
    #expect(try Folder.documents.exists("ann.png"))
    let url = try Folder.documents.url("ann.png")
    #expect(try Data(contentsOf: url) == image)
    #expect(try Folder.documents.size("ann.png") == 100)
    try Folder.documents.copy("ann.png", to: "old/ann.png")
    #expect(try Folder.documents.list() == ["ann.png", "old/"])
    #expect(try Folder.documents.totalSize() == 200)
    try Folder.documents.move("ann.png", to: "ann.png", in: .temporary)
    #expect(try Folder.temporary.exists("ann.png") && !Folder.documents.exists("ann.png"))
    try Folder.documents.delete("old/ann.png")
    #expect(try Folder.documents.list("old") == [])
    try Folder.documents.clear()
    #expect(try Folder.documents.list() == [])
    let drafts = try Folder.documents.subfolder("drafts").create()
    #expect(FileManager.default.fileExists(atPath: drafts.path))
  }

  @Test func objectsAreSavedAndLoaded() throws {
    func save(_ user: User) throws { try Folder.caches.save(user, as: "user.json") }
    try save(User())
    let user: User = try Folder.caches.load("user.json")
    #expect(user == User())
    Defaults.set(user, forKey: "user")
    let kept: User? = Defaults.model("user")
    #expect(kept == user)
  }

  @Test func customEncodersMakeTheBytes() throws {
    let encoder = JSONEncoder()
    encoder.dateEncodingStrategy = .iso8601
    let decoder = JSONDecoder()
    decoder.dateDecodingStrategy = .iso8601
    func save(_ user: User) throws {
      try Folder.documents.save(encoder.encode(user), as: "user.json")
      try Defaults.shared.set(encoder.encode(user), forKey: "user")
    }
    try save(User())
    let text: String = try Folder.documents.load("user.json")
    #expect(text.contains("1970-01-01T00:00:00Z"))
    func loadFile() throws -> User {
      let user = try decoder.decode(User.self, from: Folder.documents.load("user.json"))
      return user
    }
    func loadSetting() throws -> User? {
      let user = try Defaults.data("user").map { try decoder.decode(User.self, from: $0) }
      return user
    }
    #expect(try loadFile() == User() && loadSetting() == User())
  }

  @Test func storeConformsToTheAppsProtocol() throws {
    let app = ViewModel(storage: Defaults.shared)
    let mock = ViewModel(storage: Defaults.suite(.memory))
    try mock.rename("Ben")
    #expect(try app.name == "nobody" && Defaults[.name] == "nobody" && mock.name == "Ben")
    Defaults[.name] = "Ann"
    #expect(try app.name == "Ann" && Defaults.string("name") == "Ann" && mock.name == "Ben")
  }

  @Test func folderConformsToTheAppsProtocol() async throws {
    let reader: any ReadableStorage = Folder.documents
    try Folder.documents.save(User(), as: "user.json")
    #expect(try reader.load("user.json", type: User.self) == User())
    let loaded = await withCheckedContinuation { continuation in
      let completion: @Sendable (Result<User, any Error>) -> Void = {
        continuation.resume(returning: $0)
      }
      Task { completion(Result { try Folder.documents.load("user.json") as User }) }
    }
    #expect(try loaded.get() == User())
  }

  @Test(.temporaryStorage(engines: ["team": BrokenEngine()]))
  func throwsWhenTheEngineFails() throws {
    expectFailure(.diskFull) { try Defaults.suite("team").set("Ann", forKey: "name") }
    try Defaults.shared.set("Ann", forKey: "name")
  }
}
