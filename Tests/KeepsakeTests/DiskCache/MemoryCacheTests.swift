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
}
