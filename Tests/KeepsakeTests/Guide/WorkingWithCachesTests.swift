import Foundation
import Keepsake
import KeepsakeTesting
import Testing

/// The snippets of the article on caches; `SnippetTests` compares.
@Suite(.temporaryStorage) struct WorkingWithCachesTests {
  @Test func readAndWrite() {
    let data = Data("image".utf8)
    DiskCache.set(Article(title: "News"), forKey: "article_1")

    DiskCache.set(data, forKey: "image_001", expiry: .days(7))
    let image = DiskCache.get("image_001")
    let article: Article? = DiskCache.model("article_1")
    DiskCache.remove("image_001")

    #expect(image == data && article?.title == "News" && !DiskCache.contains("image_001"))
  }

  @Test func fetching() async throws {
    let article: Article = try await DiskCache.fetch("article_1", expiry: .minutes(5)) {
      try await download()
    }
    #expect(article.title == "News" && DiskCache.model("article_1") == article)
  }

  @Test func size() {
    DiskCache.sizeLimit = 200_000_000
    print(DiskCache.totalSize)
    #expect(DiskCache.sizeLimit == 200_000_000)
  }

  @Test func largeValues() async throws {
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

  @Test func caches() throws {
    let (png, page) = (Data("p".utf8), Data("page".utf8))
    let sharedFolder = try Folder.temporary.subfolder("shared").create()

    DiskCache.set(png, forKey: "avatar", cache: "Images")
    DiskCache.named("Images").sizeLimit = 50_000_000
    DiskCache.set(page, forKey: "page", cache: .memory)
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
  @Test func typedKeys() async throws {
    let article = Article(title: "Front")

    DiskCache[.frontPage] = article
    let page = try await DiskCache.fetch(.frontPage) { try await download() }

    #expect(page == article)
  }

  @Test func offTheThreadsOfTasks() async throws {
    DiskCache.set(Data(), forKey: "a")
    let names = try await DiskCache.shared.perform { store in try store.keys() }
    #expect(names == ["a"])
  }
}

private func download() async throws -> Article { Article(title: "News") }

private struct Article: Codable, Equatable { var title: String }
