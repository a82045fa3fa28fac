import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

@Suite(.ownThread, .temporaryStorage) struct ComingFromHTTPCachesTests {
  private let url: URL
  private let body = Data("page".utf8)
  private let etag = "\"1\""

  init() throws { url = try #require(URL(string: "https://example.com/page")) }

  private func download() async throws -> Data { body }

  @Test func responsesAreStoredByTheirAddress() throws {
    let key = url.absoluteString
    DiskCache.sizeLimit = 200_000_000
    try DiskCache.shared.set(body, forKey: key, expiry: .hours(1), tags: ["etag": etag])
    let response = DiskCache.get(key)
    let tags = try DiskCache.shared.entry(key)?.tags
    #expect(response == body && tags == ["etag": etag])
    let used = DiskCache.totalSize
    #expect(used > 0)
    DiskCache.remove(key)
    DiskCache.removeAll()
    #expect(!DiskCache.contains(key))
  }

  @Test func imagesAreInACacheOfTheirOwn() async throws {
    let images = DiskCache.named("Images")
    images.sizeLimit = 150_000_000
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
    #expect(size > 0)
    try images.removeAll()
  }

  @Test func valuesAreProducedAtTheRightTime() async throws {
    let body = body
    let a = try await DiskCache.fetch("a", expiry: .minutes(5)) { try await download() }
    let b = try await DiskCache.fetch("b", expiry: .minutes(5), staleIfFailing: .hours(2)) {
      try await download()
    }
    let c = try await DiskCache.fetch("c", expiry: .minutes(5), staleFor: .hours(1)) { body }
    let d = try await DiskCache.fetch("d", expiry: .minutes(5).jitter(0.1)) {
      try await download()
    }
    #expect([a, b, c, d] == [body, body, body, body])
    let e = try await DiskCache.fetch("e", expiry: .hours(1), nilExpiry: .minutes(1)) {
      (_: DiskCache.CachedValue<Data>?) in .gone
    }
    #expect(e == nil)
    let f = try await DiskCache.fetch("f", expiry: .never) { (old: DiskCache.CachedValue<Data>?) in
      if old?.tags["etag"] == etag { return .unchanged }
      return .value(body, tags: ["etag": etag], expiry: .minutes(1))
    }
    #expect(try f?.value == body && DiskCache.shared.entry("f")?.tags == ["etag": etag])
  }
}
