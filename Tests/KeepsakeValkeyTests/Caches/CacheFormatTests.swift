import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeValkey

/// The messages and the keys of caches.
@Suite struct CacheFormatTests {
  private func message(_ letter: String, _ number: String, _ suffix: [UInt8]) -> CacheMessage? {
    CacheMessage(Array((letter + number).utf8) + suffix)
  }

  @Test func messagesComeBack() {
    for key in TableNameTests.names + ["", "\u{0}", "n\u{E9}\n"] {
      for name in [0, 1, UInt64.max] {
        let suffix = CacheMessage.suffix(key, name: name)
        let version = EntryVersion(number: 1_234, name: name)
        #expect(message("s", "0000000000001234", suffix) == .set(key, version))
      }
      let suffix = CacheMessage.suffix(key)
      #expect(
        message("r", "9999999999999999", suffix) == .removed(key, number: 9_999_999_999_999_999))
      #expect(CacheMessage(CacheMessage.release(of: key)) == .released(key))
    }
    #expect(message("a", "0000000000000000", []) == .removedAll(number: 0))
  }

  @Test func otherBytesAreNoMessage() {
    let number = "0000000000000005"
    let long = Array("s\(number)".utf8) + CacheMessage.suffix("key", name: 5)
    for count in 0..<25 { #expect(CacheMessage(Array(long[..<count])) == nil) }
    #expect(CacheMessage(Array(long[..<25])) == .set("", EntryVersion(number: 5, name: 5)))
    for text in ["", "x", "all", "S\(number)12345678k", "x\(number)k", "a\(number)k"] {
      #expect(CacheMessage(Array(text.utf8)) == nil)
    }
    for number in ["000000000000005", "-000000000000005", "000000000000000x", " 000000000000005"] {
      #expect(message("r", number, []) == nil)
    }
    #expect(message("s", number, CacheMessage.suffix("", name: 1) + [0xFF]) == nil)
    #expect(CacheMessage([UInt8(ascii: "p"), 0xC3]) == nil)
  }

  /// Scripts count exactly up to 2^53.
  @Test func numbersBeginWithTheTime() throws {
    let first = try #require(ChangeNumber.parse(ChangeNumber.first))
    #expect(abs(Int64(first) - WallClock.now / 1_000) < 600_000_000 && first < 1 << 52)
    for time in [Int64.min, -1, 0, 1_000, .max] {
      let number = WallClock.$fixed.withValue(time) { ChangeNumber.parse(ChangeNumber.first) }
      #expect((1...1 << 52).contains(try #require(number)))
    }
  }

  @Test func keysOfDifferentCachesDiffer() {
    var keys: Set<[UInt8]> = []
    var count = 0
    let names = ["a", "b", "a:b", "a}", "cache", "cache:a", "\u{E9}", "e\u{301}"]
    for app in names {
      for cache in names {
        for database in [0, 1] {
          let found = CacheKeys(app: app, cache: cache, database: database)
          keys.insert(found.channel)
          count += 1
          if database > 0 { continue }
          for key in ["", "k", "k:g"] {
            for name in [found.entry(key), found.lease(key), found.production(key)] {
              keys.insert(Array(name.utf8))
            }
            count += 3
          }
          keys.insert(Array(found.state.utf8))
          count += 1
        }
        let table = TableName(app: app, suite: cache)
        for name in [table.values, table.state, table.channel] { keys.insert(Array(name.utf8)) }
        count += 3
      }
    }
    #expect(keys.count == count)
  }

  /// A cluster keeps the keys of one hash tag on one node.
  @Test func keysOfACacheHaveOneTag() {
    for name in TableNameTests.names + ["}", "{"] {
      let keys = CacheKeys(app: name, cache: name)
      let all = [keys.state, keys.entry("{x}"), keys.lease("}"), keys.production("{")]
      let tags = (all.map { Array($0.utf8) } + [keys.channel]).map { key in
        key.firstIndex(of: UInt8(ascii: "}")).map { Array(key[...$0]) }
      }
      #expect(Set(tags).count == 1 && tags[0]?.starts(with: "keepsake:{".utf8) == true)
    }
  }
}
