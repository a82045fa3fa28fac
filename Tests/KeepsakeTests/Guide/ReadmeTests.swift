import Foundation
import Keepsake
import KeepsakeTesting
import Observation
import Testing

/// The snippets of README.md, in their order; `SnippetTests` compares.
@Suite(.temporaryStorage) struct ReadmeTests {
  @Test func theFirstScreen() async throws {
    let data = Data("image".utf8)
    func download() async throws -> Article { Article(title: "News") }

    Defaults.set("dark", forKey: "theme")
    let size = Defaults.get("fontSize", default: 16)
    Defaults.update("launches", default: 0) { $0 += 1 }
    struct Settings { @Default("fontSize", defaultValue: 16) var fontSize: Int }
    SecureVault.set("tok", forKey: "accessToken")
    let token = SecureVault.get("accessToken")
    DiskCache.set(data, forKey: "image_001", expiry: .days(7))
    let page: Article = try await DiskCache.fetch("page", expiry: .minutes(5)) {
      try await download()
    }

    #expect(Defaults.string("theme") == "dark" && size == 16 && Defaults.int("launches") == 1)
    #expect(Settings().fontSize == 16 && token == "tok")
    #expect(DiskCache.get("image_001") == data && page == Article(title: "News"))
    #expect(DiskCache.model("page") == page)
  }

  @Test func theAppsName() async {
    await #expect(processExitsWith: .success) {
      try StorageSystem.bootstrap(app: "com.example.notes")
      #expect(try Defaults.shared.fileURL?.path.contains("com.example.notes") == true)
    }
  }

  @Test func settings() throws {
    Defaults.set(User(name: "Ann"), forKey: "user")
    Defaults.set("dark", forKey: "theme")
    let oldSettings = Data(#"{"volume": 11}"#.utf8)

    Defaults.set(16, forKey: "size", suite: "com.example.shared")
    Defaults.set(16, forKey: "size", suite: .memory)
    let user: User? = Defaults.model("user")
    #expect(user?.name == "Ann" && Defaults.int("size", suite: "com.example.shared") == 16)
    Defaults.set(nil, forKey: "theme")
    #expect(!Defaults.contains("theme") && Defaults.set("light", forKey: "theme"))
    if Defaults.contains("theme") { Defaults.remove("theme") }
    #expect(!Defaults.contains("theme"))
    for key in Defaults.keys() { print(key) }
    Defaults.removeAll()
    #expect(Defaults.keys() == [] && Defaults.int("size", suite: .memory) == 16)
    Defaults.synchronize()
    Defaults.import(oldSettings)
    let backup = Defaults.export(as: .json)
    let copy = try JSONDecoder().decode([String: Int].self, from: #require(backup))
    #expect(Defaults.int("volume") == 11 && copy == ["volume": 11])
  }

  @Test func aLoopOverChanges() async {
    let set: @Sendable (Int) -> Void = { Defaults.set($0, forKey: "fontSize") }
    let shown = await firstShown(whileSetting: set) { show in
      for await size in Defaults.changes("fontSize", default: 16) { show(size) }
    }
    #expect((shown ?? 0) > 0)
  }
}

extension Defaults.Key<Int> {
  fileprivate static let fontSize = Self("fontSize", default: 16)
}
extension SecureVault.Key<Token> {
  fileprivate static let accessToken = Self("accessToken", service: "com.app.auth")
}
extension DiskCache.Key<Article> {
  fileprivate static let frontPage = Self("frontPage", expiry: .minutes(5), cache: "News")
}

extension ReadmeTests {
  @Test func typedKeys() {
    let (token, article) = (Token(text: "t"), Article(title: "News"))

    Defaults[.fontSize] = 18
    Defaults.update(.fontSize) { $0 += 1 }
    SecureVault[.accessToken] = token
    DiskCache[.frontPage] = article

    #expect(Defaults.int("fontSize") == 19)
    #expect(SecureVault.model("accessToken", service: "com.app.auth") == token)
    #expect(DiskCache.model("frontPage", cache: "News") == article)
    SecureVault[.accessToken] = nil
    #expect(!SecureVault.contains("accessToken", service: "com.app.auth"))
  }

  /// The ways to live with the compiler's isolation checks are programs of Tests/Clients, which
  /// `ClientTests` runs.
  @Test func settingsAsPropertiesAreInTheClients() throws {
    let folders = [
      "Swift 6, anywhere": "Swift6Sendable",
      "Swift 6, on the main actor": "Swift6MainActor",
      "Swift 6, default isolation MainActor": "Swift6DefaultMainActor",
      "Swift 5 mode": "Swift5",
    ]
    let rows = try Document.readme.text().matches(of: /(?m)^\| (Swift [^|]+) \| `([^`]+)` \|$/)
    #expect(rows.count == folders.count)
    for row in rows {
      let folder = Repository.url.appending(
        path: "Tests/Clients/Sources/\(try #require(folders[String(row.1)]))")
      let files = try FileManager.default.contentsOfDirectory(
        at: folder, includingPropertiesForKeys: nil)
      let sources = try files.map { Code(source: try String(contentsOf: $0, encoding: .utf8)) }
      let start = Code(row.2.dropLast())  // the type has more members there
      #expect(sources.contains { $0.contains(start) }, "\(row.1)")
    }
  }

  @Test func secrets() {
    func sign(with bytes: RawSpan) -> Int { bytes.byteCount }
    SecureVault.set("key", forKey: "apiKey")
    SecureVault.set(Data([1]), forKey: "avatar")
    SecureVault.set(Credentials(name: "ann"), forKey: "credentials")

    SecureVault.set("tok", forKey: "refreshToken", service: "com.app.auth")
    let token = SecureVault.get("refreshToken", service: "com.app.auth")
    #expect(token == "tok")
    SecureVault.set(nil, forKey: "refreshToken", service: "com.app.auth")
    #expect(!SecureVault.contains("refreshToken", service: "com.app.auth"))
    let avatar = SecureVault.getData("avatar")
    let credentials: Credentials? = SecureVault.model("credentials")
    #expect(avatar == Data([1]) && credentials?.name == "ann")
    for key in SecureVault.keys() { print(key) }
    let signature =
      SecureVault.withSecret("apiKey") { (bytes: RawSpan) in sign(with: bytes) }
    #expect(signature == 3 && SecureVault.keys() == ["apiKey", "avatar", "credentials"])
  }

  @Test func aPassphrase() {
    let typed = "correct horse"
    SecureVault.set("tok", forKey: "accessToken")

    let isProtected = SecureVault.protect(with: .passphrase(typed))
    let isOpen = !SecureVault.isLocked || SecureVault.unlock(passphrase: typed)
    #expect(isProtected && isOpen && SecureVault.get("accessToken") == "tok")
    SecureVault.lock()
    #expect(SecureVault.isLocked)
  }

  @Test func aSecretThatNeedsAPerson() async {
    await #expect(processExitsWith: .success) {
      // Without a terminal: nobody is to be asked.
      #expect(setsid() != -1)
      let pin = "1234"

      try StorageSystem.bootstrap(app: "com.example.notes", authenticate: SecureVault.askTerminal)
      SecureVault.set(pin, forKey: "pin", access: .userPresence)
      let storedPIN = SecureVault.get("pin", reason: "Unlock notes")
      #expect(storedPIN == nil)
    }
  }

  @Test func aCache() throws {
    let (data, png, page) = (Data("i".utf8), Data("p".utf8), Data("page".utf8))
    let article = Article(title: "News")

    DiskCache.set(data, forKey: "image_001", expiry: .days(7))
    let image = DiskCache.get("image_001")
    DiskCache.set(article, forKey: "article_1")
    let stored: Article? = DiskCache.model("article_1")
    #expect(image == data && stored == article)
    DiskCache.set(png, forKey: "avatar", cache: "Images")
    DiskCache.set(page, forKey: "page", expiry: .idle(.minutes(30)))
    #expect(DiskCache.get("avatar", cache: "Images") == png && DiskCache.get("page") == page)
    if DiskCache.contains("page") { DiskCache.remove("page") }
    #expect(!DiskCache.contains("page"))
    for key in DiskCache.keys() { print(key) }
    DiskCache.sizeLimit = 200_000_000
    print(DiskCache.totalSize)
    #expect(DiskCache.sizeLimit == 200_000_000 && DiskCache.totalSize > 0)
    DiskCache.removeExpired()
    #expect(Set(DiskCache.keys()) == ["image_001", "article_1"])
    DiskCache.removeAll()
    #expect(DiskCache.keys() == [] && DiskCache.contains("avatar", cache: "Images"))
  }

  @Test func fetching() async throws {
    func download() async throws -> Article { Article(title: "News") }

    let article: Article = try await DiskCache.fetch("article_1", expiry: .minutes(5)) {
      try await download()
    }
    #expect(article.title == "News" && DiskCache.model("article_1") == article)
  }

  @Test func largeValues() async throws {
    let file = try Folder.temporary.url("film.mp4")
    try Folder.temporary.save(Data("film".utf8), as: "film.mp4")
    let (body, length) = (AsyncStream { Data("other".utf8) }.prefix(1), 5)

    DiskCache.set(contentsOf: file, forKey: "film")
    #expect(DiskCache.get("film") == Data("film".utf8))
    await DiskCache.set(chunks: body, forKey: "film", total: length) { done, total in print(done) }
    let url = DiskCache.fileURL("film")
    #expect(try Data(contentsOf: #require(url)) == Data("other".utf8))
  }

  @Test func files() throws {
    let user = User(name: "Ann")
    try Folder.temporary.save(Data("film".utf8), as: "download")
    let downloaded = try Folder.temporary.url("download")

    try Folder.documents.save(user, as: "users/1.json")
    let ann: User = try Folder.documents.load("users/1.json")
    #expect(ann == user)
    for name in try Folder.documents.list("users") { print(name) }
    try Folder.documents.move("users/1.json", to: "1.json", in: .temporary)
    #expect(try Folder.temporary.load("1.json") == user)
    try Folder.caches.adopt(downloaded, as: "film.mp4")
    try Folder.temporary.clear()
    #expect(try Folder.temporary.list() == [])
    print(ByteCount(try Folder.caches.totalSize()))
    #expect(try Folder.caches.load("film.mp4") == Data("film".utf8))
  }

  @Test func failures() throws {
    let png = Data("p".utf8)

    StorageSystem.onFailure = { failure in log("\(failure)") }
    let isStored = Defaults.set("dark", forKey: "theme")
    #expect(isStored)

    do {
      try Defaults.suite("team").set("dark", forKey: "theme")
      try SecureVault.service("com.app.auth").set("tok", forKey: "refreshToken")
      try DiskCache.named("Images").set(png, forKey: "avatar")
    } catch StorageError.Code.diskFull {
      print("free some space first")
    } catch {
      print(error)
    }
    #expect(Defaults.string("theme", suite: "team") == "dark")
    #expect(SecureVault.get("refreshToken", service: "com.app.auth") == "tok")
    #expect(DiskCache.get("avatar", cache: "Images") == png)
  }
}

@Suite(.temporaryStorage) struct SettingsTests {
  @Test func startsWithDefaults() { #expect(Defaults.int("launches") == 0) }
}

private func log(_ text: String) { print(text) }

private struct Article: Codable, Equatable { var title: String }
private struct User: Codable, Equatable { var name: String }
private struct Token: Codable, Equatable { var text: String }
private struct Credentials: Codable { var name: String }
