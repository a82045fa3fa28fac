import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite(.singleThreaded) struct TextstatsTests {
  private let textstats: Example
  private var directory: TemporaryDirectory { textstats.directory }
  private var notes: String { directory.file("notes.txt").path }

  init() throws {
    textstats = Example("keepsake-textstats", in: try TemporaryDirectory())
    try directory.write(Array("one two three three\n".utf8), to: "notes.txt")
  }

  @Test func findsStatisticsUntilTheFileChanges() async throws {
    var text = try textstats.output(notes)
    #expect(text.contains("miss \(notes): lines 1, words 4"), "\(text)")
    #expect(text.contains("hits: 0, misses: 1") && text.contains("8.19 kB"), "\(text)")
    text = try textstats.output(notes)
    #expect(text.contains("hit  \(notes): lines 1, words 4, often three"), "\(text)")
    try directory.write(Array("one".utf8), to: "notes.txt")
    text = try textstats.output(notes)
    #expect(text.contains("miss \(notes): lines 0, words 1 ("), "\(text)")
    text = try textstats.output("--list")
    #expect(
      text.contains("entries: 2, 16.4 kB") && text.contains("  \(notes): ")
        && text.contains(", expires "))
    // The limit evicts the older entry, unless the process gets no time for that before it ends.
    try await eventually("the older entry stays") {
      try textstats.output("--limit", "9000", notes)
      return try textstats.output("--list").contains("entries: 1,")
    }
    try textstats.output("--clear")
    #expect(try textstats.output("--list").contains("entries: 0, 0 bytes"))
  }

  @Test func followsSymbolicLinks() throws {
    let link = directory.file("link")
    try FileManager.default.createSymbolicLink(
      at: link, withDestinationURL: directory.file("notes.txt"))
    #expect(try textstats.output(link.path).contains("miss \(link.path): lines 1, words 4"))
    #expect(try textstats.output(notes).contains("hit "), "both paths name one file")
    try directory.write(Array("one".utf8), to: "notes.txt")
    #expect(try textstats.output(link.path).contains("lines 0, words 1 ("))
  }

  @Test func deletesExpiredEntries() throws {
    // It expires before the next process has started.
    try textstats.output("--expiry", "0.0001", notes)
    #expect(try textstats.output(notes).contains("miss"))
    // Later calls do not begin a sweep in the background then: it would delete the entry first.
    #expect(try textstats.output("--sweep").contains("deleted entries: 0"))
    let caches = directory.file("cache/keepsake-textstats/caches")
    try aSecondAgo {
      let cache = DiskCache.named(DiskCache.Name("statistics", in: caches))
      try cache.set("old", forKey: "old", expiry: .seconds(0.5))
    }
    #expect(try textstats.output("--sweep").contains("deleted entries: 1"))
  }

  @Test func explainsWrongUse() throws {
    for arguments in [[], ["--list", "x"], ["--clear", "x"], ["--expiry", "1"]] {
      #expect(try textstats.run(arguments).failed(64, "usage: keepsake-textstats"), "\(arguments)")
    }
    for time in ["", "x", "-5", "0", "nan"] {
      #expect(try textstats.run("--expiry", time, notes).failed(64, "needs a number of seconds"))
    }
    for limit in ["", "x", "-5", "1.5", "9999999999999999999"] {
      #expect(try textstats.run("--limit", limit, notes).failed(64, "needs a number of bytes"))
    }
    #expect(try textstats.run("--expiry").failed(64, "needs a number of seconds"))

    try directory.write([0xFF, 0xFE, 0], to: "binary")
    let names = ["missing", "binary", ""].map { directory.path + "/" + $0 }
    let run = try textstats.run(names + [notes])
    #expect(run.status == 66 && run.text.hasPrefix("miss \(notes)"), "\(run)")
    for name in names { #expect(run.errors.contains("Cannot read \"\(name)\""), "\(run)") }
    #expect(run.errors.hasSuffix("Files that could not be read: 3.\n"), "\(run)")

    try FileManager.default.removeItem(at: directory.file("cache"))
    try directory.write([], to: "cache")  // a file where the directory belongs
    #expect(try textstats.run("--list").failed(73, "failed"))
  }

  /// An empty file, a file without a newline at its end, and one with CRLF line endings.
  @Test(arguments: [("", "0, words 0"), ("a b", "0, words 2"), ("a\r\nb\r\n", "2, words 2")])
  func countsLinesAsWcDoes(text: String, counts: String) throws {
    try directory.write(Array(text.utf8), to: "text")
    let found = try textstats.output(directory.path + "/text")
    #expect(found.contains(": lines \(counts) ("), "\(found)")
  }
}
