// A cache at work: what this program finds out about text files it remembers, until they change.
//
//   swift run textstats README.md CHANGELOG.md     count their words; the second run looks them up
//   swift run textstats --expiry 10 README.md      remember for ten seconds only
//   swift run textstats --list                     what is remembered: sizes, ages, expiry
//   swift run textstats --limit 100000 FILE...     keep the cache below so many bytes
//   swift run textstats --sweep                    give back the space of what has expired
//   swift run textstats --clear                    forget everything

import FoundationEssentials
import Keepsake

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// What is worth remembering.
struct Statistics: Codable, Sendable {
  var lines = 0
  var words = 0
  /// The most frequent words of four letters and more.
  var frequent: [String] = []

  init(of text: String) {
    var counts: [Substring: Int] = [:]
    for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
      lines += 1
      for word in line.split(whereSeparator: { !$0.isLetter }) {
        words += 1
        if word.count > 3 { counts[word, default: 0] += 1 }
      }
    }
    let sorted = counts.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
    frequent = sorted.prefix(3).map { String($0.key) }
  }
}

struct Unreadable: Error {
  let path: String
}

enum Memory {
  /// Static, so that it is made when it is first used: by then the app has its name.
  static let cache = DiskCache.named("statistics")
}

/// The file's statistics, from the cache if the file is the one they were made of.
func statistics(of path: String, expiry: DiskCache.Expiry) async throws -> (Statistics, Bool) {
  guard let attributes = try? FileManager.default.attributesOfItem(atPath: path),
    let size = attributes[.size], let modified = attributes[.modificationDate] as? Date
  else { throw Unreadable(path: path) }
  // Another size or time is another key: what was remembered of the old file is never asked for.
  let key = "\(path) \(size) \(modified.timeIntervalSince1970)"
  var isNew = false
  let result = try await Memory.cache.fetch(key, expiry: expiry) {
    isNew = true
    guard let data = FileManager.default.contents(atPath: path),
      let text = String(data: data, encoding: .utf8)
    else { throw Unreadable(path: path) }
    return Statistics(of: text)
  }
  return (result, !isNew)
}

func list() throws {
  for key in try Memory.cache.keys().sorted() {
    guard let entry = try Memory.cache.entry(key) else { continue }
    let expires = entry.expires.map { "until \($0.ISO8601Format())" } ?? "for good"
    print("  \(key): \(entry.size) bytes, since \(entry.created.ISO8601Format()), \(expires)")
  }
  print(
    "entries: \(try Memory.cache.keys().count), \(ByteCount(try Memory.cache.totalSize)) on the disk"
  )
  if let folder = try Memory.cache.folderURL { print("in \(folder.path(percentEncoded: false))") }
}

let usage = """
  usage: textstats [--expiry SECONDS] [--limit BYTES] FILE...
         textstats --list | --sweep | --clear
  """

func main() async throws -> Int32 {
  var expiry = DiskCache.Expiry.days(7)
  var paths: [String] = []
  var arguments = CommandLine.arguments.dropFirst()
  while let argument = arguments.popFirst() {
    switch argument {
    case "--expiry":
      guard let seconds = arguments.popFirst().flatMap(Double.init) else { return fail(usage) }
      expiry = .seconds(seconds)
    case "--limit":
      guard let bytes = arguments.popFirst().flatMap(Int.init), bytes >= 0 else {
        return fail(usage)
      }
      Memory.cache.sizeLimit = bytes
    case "--list":
      try list()
      return 0
    case "--sweep":
      print("entries that had expired: \(try Memory.cache.removeExpired())")
      return 0
    case "--clear":
      try Memory.cache.removeAll()
      print("Forgotten.")
      return 0
    case "--help", "-h":
      print(usage)
      return 0
    case let option where option.hasPrefix("-"): return fail(usage)
    default: paths.append(argument)
    }
  }
  if paths.isEmpty { return fail(usage) }

  var status: Int32 = 0
  for path in paths {
    do {
      let start = ContinuousClock.now
      let (found, isHit) = try await statistics(of: path, expiry: expiry)
      let time = (ContinuousClock.now - start).formatted
      print(
        "\(isHit ? "hit " : "miss") \(path): \(found.lines) lines, \(found.words) words, "
          + "often \(found.frequent.joined(separator: ", ")) (\(time))")
    } catch let error as Unreadable {
      status = fail(
        "cannot read \"\(error.path)\": give me text files, such as README.md", status: 66)
    }
  }
  let counts = Memory.cache.statistics
  print(
    "hits: \(counts.hits), misses: \(counts.misses), evictions: \(counts.evictions); "
      + "\(ByteCount(try Memory.cache.totalSize)) on the disk")
  return status
}

extension Duration {
  fileprivate var formatted: String {
    "\(Int((self / .microseconds(1)).rounded())) us"
  }
}

func fail(_ message: String, status: Int32 = 64) -> Int32 {
  print(message)
  return status
}

try StorageSystem.bootstrap(app: "keepsake-textstats")
do {
  exit(try await main())
} catch let error as StorageError {
  exit(fail("\(error)", status: 73))
}
