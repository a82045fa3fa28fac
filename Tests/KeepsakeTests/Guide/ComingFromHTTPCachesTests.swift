import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

@Suite(.ownThread, .temporaryStorage) struct ComingFromHTTPCachesTests {
  private let body = Data("page".utf8)

  @Test func responsesAreStoredByTheirAddress() throws {
    let (key, etag) = ("https://example.com/page", "\"1\"")
    DiskCache.sizeLimit = 200_000_000
    try DiskCache.shared.set(body, forKey: key, expiry: .hours(1), tags: ["etag": etag])
    let response = DiskCache.get(key)
    let tags = try DiskCache.shared.entry(key)?.tags
    #expect(response == body && tags == ["etag": etag])
    let used = DiskCache.totalSize
    #expect(used > 0 && ByteCount(DiskCache.totalSize).description.hasSuffix(" kB"))
    DiskCache.remove(key)
    #expect(!DiskCache.contains(key))
  }

  @Test func imagesAreInACacheOfTheirOwn() async throws {
    var downloads = 0
    func download() async throws -> Data {
      downloads += 1
      return body
    }
    let images = DiskCache.named("Images")
    try images.set(body, forKey: "logo")
    #expect(try images.contains("logo"))
    let logo = try images.get("logo")
    let photo = try await images.fetch("photo") { try await download() }
    #expect(logo == body && photo == body)
    try images.set(body, forKey: "avatar", expiry: .idle(.days(7)))
    let file = try images.fileURL("avatar")
    #expect(file != nil)
    try images.removeExpired()
    let size = try images.totalSize
    #expect(size > 0 && DiskCache.totalSize(cache: "Images") == size && DiskCache.keys() == [])
    for _ in 0..<2 {
      let page: Data = try await DiskCache.fetch("page") { try await download() }
      #expect(page == body)
    }
    #expect(downloads == 2)
    DiskCache.set(body, forKey: "image_001")
    #expect(try Data(contentsOf: #require(DiskCache.fileURL("image_001"))) == body)
    try images.removeAll()
    #expect(try images.keys() == [] && DiskCache.keys().count == 2)
  }
}
