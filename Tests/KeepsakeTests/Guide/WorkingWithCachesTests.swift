import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

/// The snippets of the article on caches; `SnippetTests` compares them.
@Suite(.ownThread, .temporaryStorage) struct WorkingWithCachesTests {
  @Test func entriesAreSetReadAndRemoved() {
    let (data, article) = (Data("image".utf8), Article(title: "News"))
    DiskCache.set(data, forKey: "other", cache: "Images")

    DiskCache.set(data, forKey: "image_001", expiry: .days(7))
    let image = DiskCache.get("image_001")
    DiskCache.set(article, forKey: "article_1")
    let stored: Article? = DiskCache.model("article_1")
    #expect(image == data && stored == article)
    if DiskCache.contains("image_001") { DiskCache.remove("image_001") }
    for key in DiskCache.keys() { print(key) }
    DiskCache.removeExpired()
    #expect(DiskCache.keys() == ["article_1"])
    DiskCache.removeAll()
    #expect(DiskCache.keys() == [] && DiskCache.contains("other", cache: "Images"))
  }

  @Test func fetchStoresWhatIsProduced() async throws {
    let article: Article = try await DiskCache.fetch("article_1", expiry: .minutes(5)) {
      try await download()
    }
    #expect(article.title == "News" && DiskCache.model("article_1") == article)
  }

  @Test func oldValuesAreReturned() async throws {
    let page = try await DiskCache.fetch("page", expiry: .minutes(5), staleFor: .hours(1)) {
      try await download()
    }
    let rates: Rates = try await DiskCache.fetch(
      "rates", expiry: .minutes(5), staleIfFailing: .hours(2)
    ) {
      try await downloadRates()
    }
    let forecast = try await DiskCache.fetch(
      "forecast", expiry: .minutes(5), staleIfFailing: .hours(2)
    ) {
      (_: DiskCache.CachedValue<Rates>?) in .value(try await downloadRates())
    }
    if forecast?.isStale == true { print("no connection") }
    #expect(forecast?.value == rates && forecast?.isStale == false)
    let headline = try await DiskCache.fetch(.headline, staleFor: .hours(1)) {
      try await download()
    }
    let second = try await DiskCache.fetch(.page(2)) { try await download() }
    #expect(DiskCache[.page(2)] == second && DiskCache[.page(3)] == nil)
    #expect(page.title == "News" && rates == ["EUR": 1] && headline == page)
    #expect(try DiskCache.shared.entry("rates")?.keptUntil != nil)
  }

  @Test func valuesAreRevalidated() async throws {
    let (png, etag) = (Data("png".utf8), "\"1\"")
    try DiskCache.shared.set(png, forKey: "logo", tags: ["type": "image/png", "etag": etag])
    let type = try DiskCache.shared.entry("logo")?.tags["type"]
    #expect(type == "image/png")
    let day = Duration.days(1)
    for (status, expected) in [(200, png), (304, png), (404, nil)] {
      // An entry that has expired and is kept.
      if status != 200 {
        let tags = ["etag": etag]
        try DiskCache.shared.set(
          png, forKey: "logo", expiry: .seconds(0), keptFor: day, tags: tags)
      } else {
        DiskCache.remove("logo")
      }
      func get(_ path: String, ifNoneMatch tag: String?) async throws -> Response {
        #expect(tag == (status == 200 ? nil : etag))
        return Response(status: status, body: png, etag: etag)
      }
      let logo = try await DiskCache.fetch("logo", expiry: .minutes(5)) {
        (old: DiskCache.CachedValue<Data>?) in
        let response = try await get("/logo.png", ifNoneMatch: old?.tags["etag"])
        switch response.status {
        case 304: return .unchanged
        case 404: return .gone
        default: return .value(response.body, tags: ["etag": response.etag])
        }
      }
      #expect(logo?.value == expected && DiskCache.get("logo") == expected)
    }
  }

  @Test func missingValuesAreStored() async throws {
    func findUser(_ number: Int) async throws -> User? { nil }
    let user = try await DiskCache.fetch("user_7", expiry: .hours(1), nilExpiry: .minutes(1)) {
      (_: DiskCache.CachedValue<User>?) in .value(try await findUser(7))
    }
    #expect(user?.value == nil && !DiskCache.contains("user_7"))
    #expect(DiskCache.set(1, forKey: "k", expiry: .minutes(5).jitter(0.1)))
  }

  @Test func sizeLimitIsKept() {
    DiskCache.sizeLimit = 200_000_000
    print(DiskCache.totalSize)
    #expect(DiskCache.sizeLimit == 200_000_000)
  }

  @Test func largeValuesAreStoredFromFilesAndChunks() async throws {
    try Folder.temporary.save(Data("film".utf8), as: "film.mp4")
    let file = try Folder.temporary.url("film.mp4")
    let (body, length) = (AsyncStream { Data("other".utf8) }.prefix(1), 5)

    try DiskCache.shared.set(contentsOf: file, forKey: "film")
    #expect(DiskCache.get("film") == Data("film".utf8))
    try await DiskCache.shared.set(chunks: body, forKey: "film", total: length) { done, total in
      print(done, "of", total ?? 0)
    }
    var sent = Data()
    func send(_ piece: Data) async throws { sent += piece }
    if let film = try DiskCache.shared.chunks("film") {
      for try await piece in film { try await send(piece) }
    }
    #expect(sent == Data("other".utf8))
    let url = DiskCache.fileURL("film")
    #expect(try Data(contentsOf: #require(url)) == Data("other".utf8))
  }

  @Test func cachesAreSeparate() throws {
    let (png, page) = (Data("p".utf8), Data("page".utf8))
    let sharedFolder = try Folder.temporary.subfolder("shared").create()

    DiskCache.set(png, forKey: "avatar", cache: "Images")
    DiskCache.named("Images").sizeLimit = 50_000_000
    DiskCache.set(page, forKey: "page", expiry: .idle(.minutes(30)), cache: .memory)
    let shared = DiskCache.Name("thumbnails", in: sharedFolder)
    for cache in try DiskCache.shared.caches() { print(cache, DiskCache.totalSize(cache: cache)) }

    #expect(DiskCache.get("avatar", cache: "Images") == png)
    #expect(DiskCache.get("page", cache: .memory) == page && DiskCache.keys() == [])
    #expect(
      DiskCache.set(png, forKey: "a", cache: shared) && DiskCache.contains("a", cache: shared))
  }
}

private struct Response {
  let status: Int
  let body: Data
  let etag: String
}

private typealias Rates = [String: Double]
private typealias User = String

private func downloadRates() async throws -> Rates { ["EUR": 1] }

extension DiskCache.Key<Article> {
  fileprivate static let headline = Self(
    "headline", expiry: .minutes(5), staleIfFailing: .days(1))
  fileprivate static func page(_ number: Int) -> Self {
    Self("page/\(number)", expiry: .minutes(5))
  }
  fileprivate static let frontPage = Self("frontPage", expiry: .minutes(5), cache: "News")
}

extension WorkingWithCachesTests {
  @Test func typedKeysSetAndFetch() async throws {
    let article = Article(title: "Front")

    DiskCache[.frontPage] = article
    let page = try await DiskCache.fetch(.frontPage) { try await download() }

    #expect(page == article)
  }
}

private func download() async throws -> Article { Article(title: "News") }

private struct Article: Codable, Equatable { var title: String }
