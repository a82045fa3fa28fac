// A cache at work: word counts of text files, which are computed again only when a file changes.
//
// Run it twice; the second run finds everything in the cache:
//
//   swift run keepsake-textstats README.md CHANGELOG.md
//
//   swift run keepsake-textstats --expiry 10 README.md      keep the result for ten seconds
//   swift run keepsake-textstats --limit 100000 FILE...     keep the cache below 100,000 bytes
//   swift run keepsake-textstats --list                     show entries with size, age and expiry
//   swift run keepsake-textstats --sweep                    delete expired entries
//   swift run keepsake-textstats --clear                    delete all entries

import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// The result that is worth caching.
struct Statistics: Codable, Sendable {
  var lines = 0
  var words = 0
  /// The most frequent words of at least four letters.
  var frequent: [String] = []

  init(of text: String) {
    var counts: [Substring: Int] = [:]
    lines = text.count(where: \.isNewline)
    for word in text.split(whereSeparator: { !$0.isLetter }) {
      words += 1
      if word.count > 3 { counts[word, default: 0] += 1 }
    }
    let sorted = counts.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
    frequent = sorted.prefix(3).map { String($0.key) }
  }
}

/// Ends the program with a line on standard error and an exit code from sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

enum TextCache {
  /// Created on first use, by which time `bootstrap` has named the app.
  static let shared = DiskCache.named("statistics")
}

/// The file's statistics, and whether they came from the cache.
func statistics(
  of path: String, expiry: DiskCache.Expiry
) async throws -> (result: Statistics, isHit: Bool) {
  let unreadable = Exit(
    message: "Cannot read \"\(path)\". Name text files, such as README.md.", status: 66)
  // When a link's target changes, the link itself does not.
  let file = URL(filePath: path).resolvingSymlinksInPath().path
  guard let attributes = try? FileManager.default.attributesOfItem(atPath: file),
    let size = attributes[.size], let modified = attributes[.modificationDate] as? Date
  else { throw unreadable }
  // A changed file gets a new key, so outdated statistics are never found.
  let key = "\(size) \(modified.timeIntervalSince1970) \(file)"
  var isHit = true
  let result = try await TextCache.shared.fetch(key, expiry: expiry) {
    isHit = false
    guard let data = FileManager.default.contents(atPath: file),
      let text = String(data: data, encoding: .utf8)
    else { throw unreadable }
    return Statistics(of: text)
  }
  return (result, isHit)
}

func show(_ path: String, expiry: DiskCache.Expiry) async throws {
  let start = ContinuousClock.now
  let (result, isHit) = try await statistics(of: path, expiry: expiry)
  let time = Int((ContinuousClock.now - start) / .microseconds(1))
  let frequent = result.frequent.joined(separator: ", ")
  print(
    "\(isHit ? "hit " : "miss") \(path): lines \(result.lines), words \(result.words)"
      + (frequent.isEmpty ? "" : ", often \(frequent)") + " (\(time) µs)")
}

func list() throws {
  let keys = try TextCache.shared.keys()
  for key in keys.sorted() {
    guard let entry = try TextCache.shared.entry(key) else { continue }
    let path = key.split(separator: " ", maxSplits: 2).last ?? ""
    let expires = entry.expires.map { "expires \($0.ISO8601Format())" } ?? "never expires"
    print("  \(path): \(entry.size) bytes, created \(entry.created.ISO8601Format()), \(expires)")
  }
  print("entries: \(keys.count), \(ByteCount(try TextCache.shared.totalSize)) on disk")
  if let folder = try TextCache.shared.folderURL {
    print("in \(folder.path(percentEncoded: false))")
  }
}

let usage = """
  usage: keepsake-textstats [--expiry SECONDS] [--limit BYTES] FILE...
         keepsake-textstats --list | --sweep | --clear
  """

func count(_ arguments: ArraySlice<String>) async throws {
  var expiry = DiskCache.Expiry.days(7)
  var arguments = arguments
  while let option = arguments.first, option.hasPrefix("-") {
    let value = arguments.dropFirst().first ?? ""
    switch option {
    case "--expiry":
      guard let seconds = Double(value), seconds > 0 else {
        throw Exit(message: "--expiry needs a number of seconds, such as --expiry 60.", status: 64)
      }
      expiry = .seconds(seconds)
    case "--limit":
      guard let bytes = Int(value), bytes >= 0 else {
        throw Exit(message: "--limit needs a number of bytes, such as --limit 100000.", status: 64)
      }
      TextCache.shared.sizeLimit = bytes
    default: throw Exit(message: usage, status: 64)
    }
    arguments.removeFirst(2)
  }
  if arguments.isEmpty { throw Exit(message: usage, status: 64) }

  var failures = 0
  for path in arguments {
    do {
      try await show(path, expiry: expiry)
    } catch let exit as Exit {
      // One unreadable file does not stop the rest.
      complain(exit.message)
      failures += 1
    }
  }
  let counts = TextCache.shared.statistics
  print(
    "hits: \(counts.hits), misses: \(counts.misses), evictions: \(counts.evictions); "
      + "\(ByteCount(try TextCache.shared.totalSize)) on disk")
  if failures > 0 { throw Exit(message: "Files that could not be read: \(failures).", status: 66) }
}

func run(_ arguments: [String]) async throws {
  switch (arguments.first, arguments.count) {
  case ("--list", 1): try list()
  case ("--sweep", 1): print("deleted entries: \(try TextCache.shared.removeExpired())")
  case ("--clear", 1):
    try TextCache.shared.removeAll()
    print("The cache is empty.")
  case ("--help", _), ("-h", _): print(usage)
  default: try await count(arguments[...])
  }
}

func complain(_ message: String) { fputs("\(message)\n", stderr) }

do {
  try StorageSystem.bootstrap(app: "keepsake-textstats")
  try await run(Array(CommandLine.arguments.dropFirst()))
} catch let failure as Exit {
  complain(failure.message)
  exit(failure.status)
} catch {
  complain("\(error)")
  exit(73)
}
if fflush(stdout) != 0 {
  complain("The output cannot be written.")
  exit(74)
}
