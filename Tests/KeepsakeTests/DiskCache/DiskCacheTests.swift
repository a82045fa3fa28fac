import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake

private struct Article: Codable, Equatable, Sendable {
  var title = "On Computable Numbers"
  var pages = 36
}

extension DiskCache.Key<Article> {
  fileprivate static let frontPage = Self("frontPage", expiry: .minutes(5), cache: "News")
}

@Suite(.temporaryStorage) struct DiskCacheTests {
  @Test func valuesComeBack() {
    let bytes = Data([0, 1, 2, 255])
    #expect(DiskCache.set(bytes, forKey: "image"))
    #expect(DiskCache.get("image") == bytes)
    #expect(DiskCache.set(Article(), forKey: "article", expiry: .days(7)))
    #expect(DiskCache.model("article") == Article())
    #expect(DiskCache.set("text", forKey: "text") && DiskCache.model("text") == "text")
    #expect(DiskCache.get("text") == Data("text".utf8))
    #expect(DiskCache.set(25, forKey: "number") && DiskCache.model("number") == 25)
    #expect(DiskCache.set(Double.nan, forKey: "nan"))
    #expect(DiskCache.model("nan", type: Double.self)?.isNaN == true)
    let date = Date(timeIntervalSinceReferenceDate: 7e8 + 0.1)
    #expect(DiskCache.set(date, forKey: "date") && DiskCache.model("date") == date)
    #expect(DiskCache.set(Data(), forKey: "empty") && DiskCache.get("empty") == Data())
    let keys = ["article", "date", "empty", "image", "nan", "number", "text"]
    #expect(DiskCache.keys().sorted() == keys)
    #expect(DiskCache.contains("image") && !DiskCache.contains("other"))
  }

  @Test func nilRemoves() {
    DiskCache.set(Data([1]), forKey: "a")
    DiskCache.set(nil, forKey: "a")
    #expect(!DiskCache.contains("a"))
    DiskCache.set(Data([1]), forKey: "a")
    let none: Data? = nil
    #expect(DiskCache.set(none, forKey: "a") && DiskCache.get("a") == nil)
    #expect(DiskCache.remove("a"))
    #expect(DiskCache.totalSize == 0)
  }
}
