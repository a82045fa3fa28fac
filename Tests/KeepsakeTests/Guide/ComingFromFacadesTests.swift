import Foundation
import Keepsake
import KeepsakeTesting
import Testing

private struct User: Codable, Equatable {
  var name = "Ann"
}

private struct Credentials: Codable, Equatable {
  var name = "ann"
  var password = "swordfish"
}

private struct Article: Codable, Equatable {
  var title = "News"
}

private struct Settings: Sendable {
  @Default("age", defaultValue: 18) var age: Int
  @DefaultOptional("name") var name: String?
}

@MainActor enum AppSettings { @Default("size") static var size = 16 }

@Suite(.temporaryStorage) struct ComingFromFacadesTests {
  private let data = Data([1, 2, 3])

  // MARK: Settings

  @Test func settingsAreReadByType() {
    Defaults.set(25, forKey: "age")
    Defaults.set("Ann", forKey: "name")
    Defaults.set(0.5, forKey: "ratio")
    Defaults.set(true, forKey: "isNew")
    Defaults.set(data, forKey: "icon")
    let user = User()
    Defaults.set(user, forKey: "user")
    #expect(Defaults.get("age", default: 18) == 25)
    let name: String? = Defaults.get("name")
    #expect(name == "Ann")
    #expect(Defaults.string("name") == "Ann")
    #expect(Defaults.int("age") == 25)
    #expect(Defaults.double("ratio") == 0.5)
    #expect(Defaults.bool("isNew"))
    #expect(Defaults.data("icon") == data)
    #expect(Defaults.model("user", type: User.self) == user)
  }

  @Test func settingsAreRemovedSinglyOrTogether() {
    Defaults.set(25, forKey: "age")
    Defaults.set("Ann", forKey: "name")
    Defaults.set(25, forKey: "age", suite: "team")
    #expect(Defaults.contains("age"))
    #expect(Defaults.remove("age"))
    #expect(Defaults.keys() == ["name"])
    #expect(Defaults.removeAll())
    #expect(Defaults.keys() == [])
    #expect(Defaults.int("age", suite: "team") == 25)
  }

  @Test @MainActor func wrappersReadAndWriteSettings() {
    let settings = Settings()
    #expect(settings.age == 18 && settings.name == nil && AppSettings.size == 16)
    settings.age = 25
    settings.name = "Ann"
    AppSettings.size = 18
    #expect(Defaults.int("age") == 25 && Defaults.string("name") == "Ann")
    #expect(Defaults.int("size") == 18)
    settings.name = nil
    #expect(!Defaults.contains("name"))
  }

  // MARK: Secrets

  @Test func secretsAreReadByType() {
    let credentials = Credentials()
    SecureVault.set("tok", forKey: "token")
    SecureVault.set(data, forKey: "avatar")
    SecureVault.set(credentials, forKey: "login")
    #expect(SecureVault.get("token") == "tok")
    #expect(SecureVault.getData("avatar") == data)
    #expect(SecureVault.model("login", type: Credentials.self) == credentials)
    #expect(SecureVault.contains("token"))
    #expect(SecureVault.remove("token"))
    #expect(SecureVault.get("token") == nil && SecureVault.keys() == ["avatar", "login"])
  }

  @Test func servicesAreSeparate() {
    SecureVault.set("tok", forKey: "token", service: "com.app.auth")
    #expect(SecureVault.get("token") == nil)
    #expect(SecureVault.get("token", service: "com.app.auth") == "tok")
    #expect(SecureVault.keys(service: "com.app.auth") == ["token"])
    SecureVault.set("other", forKey: "token")
    SecureVault.defaultService = "com.app.auth"
    #expect(SecureVault.get("token") == "tok")
    #expect(SecureVault.removeAll(service: "com.app.auth"))
    #expect(SecureVault.get("token") == nil)
    #expect(SecureVault.get("token", service: .standard) == "other")
  }

  // MARK: The cache

  @Test func cachedValuesExpire() throws {
    let article = Article()
    let tomorrow = Date.now + 86_400
    DiskCache.set(data, forKey: "image_001", expiry: .days(7))
    DiskCache.set(article, forKey: "front", expiry: .seconds(300))
    DiskCache.set(data, forKey: "offer", expiry: .date(tomorrow))
    #expect(DiskCache.get("image_001") == data)
    #expect(DiskCache.model("front", type: Article.self) == article)
    #expect(DiskCache.contains("front"))
    #expect(try DiskCache.shared.entry("front")?.expires.map { $0 <= Date.now + 300 } == true)
    let expires = try DiskCache.shared.entry("offer")?.expires
    #expect(abs(expires?.timeIntervalSince(tomorrow) ?? 1) < 0.001)
    #expect(DiskCache.remove("front"))
    #expect(!DiskCache.contains("front"))
    DiskCache.set(data, forKey: "over", expiry: .date(Date.now - 1))
    #expect(DiskCache.removeExpired())
    #expect(DiskCache.get("over") == nil && DiskCache.keys().count == 2)
    #expect(DiskCache.removeAll())
    #expect(DiskCache.keys() == [])
  }

  @Test func cachesAreEmptiedSeparately() {
    let png = Data(repeating: 7, count: 5_000)
    DiskCache.set(png, forKey: "avatar", cache: "Images")
    DiskCache.set(png, forKey: "image_001")
    #expect(DiskCache.totalSize >= 5_000)
    #expect(DiskCache.totalSize == DiskCache.totalSize(cache: "Images"))
    #expect(ByteCount(DiskCache.totalSize).description.hasSuffix(" kB"))
    #expect(DiskCache.removeAll(cache: "Images"))
    #expect(DiskCache.get("avatar", cache: "Images") == nil)
    #expect(DiskCache.get("image_001") == png)
  }

  @Test func cacheHasALimitFilesAndFetch() async throws {
    DiskCache.sizeLimit = 200_000_000
    #expect(DiskCache.sizeLimit == 200_000_000)
    DiskCache.set(data, forKey: "image_001")
    let file = try #require(DiskCache.fileURL("image_001"))
    #expect(try Data(contentsOf: file) == data)
    var downloads = 0
    func download() async throws -> Data {
      downloads += 1
      return Data("page".utf8)
    }
    for _ in 0..<2 {
      let page: Data = try await DiskCache.fetch("page") { try await download() }
      #expect(page == Data("page".utf8))
    }
    #expect(downloads == 1)
  }

  @Test func removeAllEmptiesEveryStore() {
    Defaults.set(25, forKey: "age", suite: "team")
    SecureVault.set("tok", forKey: "token", service: "com.app.auth")
    DiskCache.set(data, forKey: "avatar", cache: "Images")
    #expect(StorageSystem.removeAll())
    #expect(!Defaults.contains("age", suite: "team"))
    #expect(SecureVault.services() == [] && DiskCache.keys(cache: "Images") == [])
  }
}
