import Foundation
import Keepsake
import KeepsakeTesting
import Testing

/// The snippets of the article on caches; `SnippetTests` compares them.
@Suite(.temporaryStorage) struct WorkingWithCachesTests {
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

  @Test func sizeLimitIsKept() {
    DiskCache.sizeLimit = 200_000_000
    print(DiskCache.totalSize)
    #expect(DiskCache.sizeLimit == 200_000_000)
  }

  @Test func largeValuesAreStoredFromFilesAndChunks() async throws {
    try Folder.temporary.save(Data("film".utf8), as: "film.mp4")
    let file = try Folder.temporary.url("film.mp4")
    let (body, length) = (AsyncStream { Data("other".utf8) }.prefix(1), 5)

    DiskCache.set(contentsOf: file, forKey: "film")
    #expect(DiskCache.get("film") == Data("film".utf8))
    await DiskCache.set(chunks: body, forKey: "film", total: length) { done, total in
      print(done, "of", total ?? 0)
    }
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
    for cache in DiskCache.caches() { print(cache, DiskCache.totalSize(cache: cache)) }

    #expect(DiskCache.get("avatar", cache: "Images") == png)
    #expect(DiskCache.get("page", cache: .memory) == page && DiskCache.keys() == [])
    #expect(
      DiskCache.set(png, forKey: "a", cache: shared) && DiskCache.contains("a", cache: shared))
  }
}

extension DiskCache.Key<Article> {
  fileprivate static let frontPage = Self("frontPage", expiry: .minutes(5), cache: "News")
}

extension WorkingWithCachesTests {
  @Test func typedKeysSetAndFetch() async throws {
    let article = Article(title: "Front")

    DiskCache[.frontPage] = article
    let page = try await DiskCache.fetch(.frontPage) { try await download() }

    #expect(page == article)
  }

  @Test func performRunsOnAQueue() async throws {
    DiskCache.set(Data(), forKey: "a")
    let names = try await DiskCache.shared.perform { store in try store.keys() }
    #expect(names == ["a"])
  }
}

private func download() async throws -> Article { Article(title: "News") }

private struct Article: Codable, Equatable { var title: String }
