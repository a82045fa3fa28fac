import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct MemoryCacheTests {
  private let cache = MemoryCache()

  /// A server stores sessions under keys that it never asks for again.
  @Test func expiredEntriesAreFreedWithoutASizeLimit() throws {
    let start = WallClock.now
    let options = try #require(WriteOptions(.seconds(1), isDurable: false))
    let payload = Payload(bytes: Data([1]), kind: .data)
    var most = 0
    for number in 0..<10_000 {
      // Ten entries live at any time.
      try WallClock.$fixed.withValue(start + Int64(number) * WallClock.second / 10) {
        try cache.write(payload, forKey: "\(number)", options, hook: commitDirectly)
      }
      most = max(most, cache.state.withLock { $0.entries.count })
    }
    #expect(most < 3_000)
  }

  /// The files of the system have no size until they are read.
  @Test(.temporaryStorage) func aFileThatSeemsEmptyIsStoredWhole() throws {
    let file = "/proc/self/status"
    for cache in [DiskCache.Name.standard, .memory] {
      try DiskCache.named(cache).set(contentsOf: URL(filePath: file), forKey: "k")
      #expect(try DiskCache.named(cache).get("k")?.starts(with: Data("Name:".utf8)) == true)
    }
  }

  @Test func aFileThatExceedsTheLimitIsNotReadWhole() throws {
    let directory = try TemporaryDirectory()
    try Data(count: 4 << 20).write(to: directory.file("large"))
    cache.sizeLimit = 1_000
    let sizes = readSizes {
      let writer = cache.startWriting("k")
      expectFailure(.misuse) {
        try writer.append(contentsOf: try File(directory.file("large").path, .read))
      }
    }
    #expect(sizes == [1 << 20])
  }
}
