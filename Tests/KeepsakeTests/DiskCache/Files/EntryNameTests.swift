import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct EntryNameTests {
  private let rules = EntryName.Rules(ignoresCase: false, longestName: 250)

  private static let keys: [String] = [
    "", "a", "A", "ab", "abc", "abcd", ".", "..", "/", "../../etc/passwd", "a/b", "a\u{0}b",
    "\u{0}",
    "é", "e\u{301}", "日本語", "👩‍👩‍👧", "h.0123456789abcdef0123456789abcdef",
    "key.meta", " ", "\n", "-",
    "~",
    String(repeating: "k", count: 187), String(repeating: "k", count: 188),
    String(repeating: "K", count: 188), String(repeating: "x", count: 65_536),
    "http://example.com/?q=1&r=2#f", "\u{FFFF}", "~~~???>>>",
    "film.mp4", "film.MP4", "a.meta", "a.META", "a.tmp", "a.trash", ".mp4", "x.", "\u{E9}.JPG",
    "a.b.c", "a..gz", "a.123456789", "a.12345678", "/a.png", "a.p\u{E9}", "h.mp4",
    String(repeating: "k", count: 180) + ".mp4", String(repeating: "k", count: 181) + ".mp4",
    String(repeating: "k", count: 200) + ".meta",
  ]

  @Test func eachKeyHasItsOwnEntry() throws {
    let directory = try TemporaryDirectory()
    let store = directory.cache()
    for key in Self.keys { try store.set(Data(key.utf8), forKey: key) }
    for store in [store, directory.cache()] {
      for key in Self.keys {
        #expect(try store.get(key) == Data(key.utf8), "\(key.prefix(40))")
      }
      // Compared as bytes, because strings with different bytes can be equal.
      let found = Set(try store.keys().map { Array($0.utf8) })
      #expect(found == Set(Self.keys.map { Array($0.utf8) }))
    }
    for key in Self.keys { try store.remove(key) }
    #expect(try directory.cache().keys() == [] && directory.cache().totalSize == 0)
  }

  @Test func eachKeyHasItsOwnEntryInMemory() throws {
    let store = try TemporaryDirectory().cache(.memory)
    for key in Self.keys { try store.set(Data(key.utf8), forKey: key) }
    for key in Self.keys { #expect(try store.get(key) == Data(key.utf8)) }
    #expect(try store.keys().count == Self.keys.count)
  }

  @Test func throwsForAKeyOfMoreThan64KiB() throws {
    let store = try TemporaryDirectory().cache()
    expectFailure(.misuse) { try store.set(1, forKey: String(repeating: "x", count: 65_537)) }
  }

  @Test func namesAreUnpaddedBase64WithTheAlphabetForFileNames() throws {
    // From RFC 4648, section 10; the last two have the letters in which the alphabets differ.
    for (key, name) in [
      ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE"),
      ("foobar", "Zm9vYmFy"), ("~~~", "fn5-"), ("???", "Pz8_"),
    ] {
      let entry = try EntryName(key: key, rules: rules)
      #expect(entry.path.hasSuffix("/" + name))
      #expect(EntryName.key(fileName: name) == Array(key.utf8))
      let back = try #require(EntryName(fileName: name))
      #expect(back.path == entry.path && back.hash == entry.hash && back.id == entry.id)
    }
  }

  @Test func namesHaveTheEndingOfTheKey() throws {
    for (key, name) in [
      ("film.mp4", "ZmlsbS5tcDQ.mp4"), ("\u{E9}.JPG", "w6kuSlBH.JPG"), ("a.b.c", "YS5iLmM.c"),
      ("a.12345678", "YS4xMjM0NTY3OA.12345678"), ("a.123456789", "YS4xMjM0NTY3ODk"),
      (".mp4", "Lm1wNA"), ("x.", "eC4"), ("a..", "YS4u"), ("a.p-g", "YS5wLWc"),
      ("a.meta", "YS5tZXRh"), ("a.Meta", "YS5NZXRh"), ("a.tmp", "YS50bXA"),
      ("a.TRASH", "YS5UUkFTSA"),
    ] {
      #expect(try EntryName(key: key, rules: rules).path.dropFirst(3) == name)
      #expect(EntryName.key(fileName: name) == Array(key.utf8))
    }
    // With the ending, the first name is as long as it may be, and the second one is too long.
    for (count, isHashed) in [(180, false), (181, true)] {
      let entry = try EntryName(key: String(repeating: "k", count: count) + ".mp4", rules: rules)
      #expect(entry.isHashed == isHashed && entry.path.hasSuffix(".mp4"))
    }
  }

  @Test func entriesWithEndingsAreEvictedSweptAndEmptied() throws {
    let directory = try TemporaryDirectory()
    let store = directory.cache()
    let long = String(repeating: "k", count: 300)
    let keys = (0..<20).map { "film\($0).mp4" } + ["a.meta", ".mp4", long + ".mp4", long + ".meta"]
    for key in keys { try store.set(key, forKey: key) }
    #expect(try Set(store.keys()) == Set(keys) && store.totalSize == keys.count * 8_192)
    #expect(try store.removeExpired() == 0 && store.totalSize == keys.count * 8_192)
    store.sizeLimit = 10 * 8_192
    try waitUntil("entries are evicted") { try store.totalSize <= 9 * 8_192 }
    #expect(try store.keys().count == 9)
    for key in try store.keys() { #expect(try directory.cache().model(key) == key) }
    store.sizeLimit = nil
    try store.removeAll()
    #expect(try store.keys() == [] && store.totalSize == 0)
    for key in keys { #expect(try directory.cache().get(key) == nil) }
  }

  @Test func namesStayInTheirDirectoryAndAreShortEnough() throws {
    for key in Self.keys {
      let entry = try EntryName(key: key, rules: rules)
      let parts = entry.path.split(separator: "/", omittingEmptySubsequences: false)
      #expect(parts.count == 2 && parts[0].count == 2, "\(entry.path)")
      #expect(parts[1].utf8.count <= 250 && !parts[1].isEmpty && parts[1].first != ".")
      let back = try #require(EntryName(fileName: String(parts[1])))
      #expect(back.path == entry.path && back.hash == entry.hash)
    }
  }

  @Test(arguments: [
    "", "a", "abcde", "ab=", "a+b", "a.b", "h.", "h.xyz", "CACHEDIR.TAG", "Zh", "h.0123",
    "h.0123456789abcdeX0123456789abcdef", "h.0123456789abcdef0123456789abcdeX",
    "h.0123456789abcdef0123456789ABCDEF", "h.0123456789abcdef0123456789abcdef.",
    "h.0123456789abcdef0123456789abcdef.meta", "h.0123456789abcdef0123456789abcdef.123456789",
    // Not what the keys `film.mp4`, `film` and `a.tmp` give.
    "ZmlsbS5tcDQ", "ZmlsbS5tcDQ.MP4", "ZmlsbS5tcDQ.mp4.mp4", "ZmlsbQ.mp4", "YS50bXA.tmp", ".mp4",
  ])
  func otherFileNamesAreNotEntries(fileName: String) {
    let entry = EntryName(fileName: fileName)
    #expect(entry == nil, "\(entry?.path ?? "")")
  }

  @Test func namesAreHashesIfCaseIsIgnored() throws {
    let rules = EntryName.Rules(ignoresCase: true, longestName: 250)
    let (lower, upper) = (
      try EntryName(key: "i", rules: rules), try EntryName(key: "I", rules: rules)
    )
    // In Base64 some keys differ only in case. These are `aQ` and `SQ`.
    #expect(lower.path.lowercased() != upper.path.lowercased())
    #expect(lower.isHashed && lower.path == lower.path.lowercased())
    let entry = try EntryName(key: "A.JPG", rules: rules)
    #expect(entry.path.hasSuffix(".jpg") && entry.path == entry.path.lowercased())
    #expect(EntryName(fileName: String(entry.path.dropFirst(3)))?.path == entry.path)
  }

  @Test func noticesADirectoryThatIgnoresCase() throws {
    // A file system that ignores case shows the same tag file under both names.
    let directory = try TemporaryDirectory()
    try directory.cache().set(1, forKey: "a")
    let path = try #require(try directory.cache().folderURL).path
    try FileManager.default.linkItem(
      atPath: path + "/CACHEDIR.TAG", toPath: path + "/cachedir.tag")
    let store = directory.cache()
    try store.set(2, forKey: "i")
    try store.set(3, forKey: "I")
    #expect(try store.payload("i").contains("/h.") && store.payload("I").contains("/h."))
    #expect(try store.model("i") == 2 && store.model("I") == 3)
    #expect(try store.keys().sorted() == ["I", "a", "i"])
  }
}
