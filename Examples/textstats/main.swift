// A cache at work: what this program finds out about text files it remembers, until they change.
//
//   swift run keepsake-textstats README.md CHANGELOG.md     count their words; the second run looks
//   them up swift run keepsake-textstats --expiry 10 README.md      remember for ten seconds only
//   swift run keepsake-textstats --list                     what is remembered: sizes, ages, expiry
//   swift run keepsake-textstats --limit 100000 FILE...     keep the cache below so many bytes
//   swift run keepsake-textstats --sweep                    give back the space of what has expired
//   swift run keepsake-textstats --clear                    forget everything

import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// What is worth remembering.
struct Statistics: Codable, Sendable {
  var lines = 0
  var words = 0
  /// The most frequent words of four letters and more.
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

/// What ends the program: a line on standard error, and an exit code of sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

enum Memory {
  /// Static, so that it is made when it is first used: by then the app has its name.
  static let cache = DiskCache.named("statistics")
}

/// The file's statistics, from the cache if the file is the one they were made of.
func statistics(of path: String, expiry: DiskCache.Expiry) async throws -> (Statistics, Bool) {
  let unreadable = Exit(
    message: "Cannot read \"\(path)\": give me text files, such as README.md.", status: 66)
  // The file that a link leads to is the one that may change.
  let file = URL(filePath: path).resolvingSymlinksInPath().path
  guard let attributes = try? FileManager.default.attributesOfItem(atPath: file),
    let size = attributes[.size], let modified = attributes[.modificationDate] as? Date
  else { throw unreadable }
  // Another size or time is another key: what was remembered of the old file is never asked for.
  let key = "\(size) \(modified.timeIntervalSince1970) \(file)"
  var isNew = false
  let result = try await Memory.cache.fetch(key, expiry: expiry) {
    isNew = true
    guard let data = FileManager.default.contents(atPath: file),
      let text = String(data: data, encoding: .utf8)
    else { throw unreadable }
    return Statistics(of: text)
  }
  return (result, !isNew)
}

func show(_ path: String, expiry: DiskCache.Expiry) async throws {
  let start = ContinuousClock.now
  let (found, isHit) = try await statistics(of: path, expiry: expiry)
  let time = Int((ContinuousClock.now - start) / .microseconds(1))
  let frequent = found.frequent.isEmpty ? "" : ", often \(found.frequent.joined(separator: ", "))"
  print(
    "\(isHit ? "hit " : "miss") \(path): lines \(found.lines), words \(found.words)\(frequent) "
      + "(\(time) us)")
}

func list() throws {
  let keys = try Memory.cache.keys()
  for key in keys.sorted() {
    guard let entry = try Memory.cache.entry(key) else { continue }
    let path = key.split(separator: " ", maxSplits: 2).last ?? ""
    let expires = entry.expires.map { "until \($0.ISO8601Format())" } ?? "for good"
    print("  \(path): \(entry.size) bytes, since \(entry.created.ISO8601Format()), \(expires)")
  }
  print("entries: \(keys.count), \(ByteCount(try Memory.cache.totalSize)) on the disk")
  if let folder = try Memory.cache.folderURL { print("in \(folder.path(percentEncoded: false))") }
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
        throw Exit(message: "--expiry needs a number of seconds, such as 60", status: 64)
      }
      expiry = .seconds(seconds)
    case "--limit":
      guard let bytes = Int(value), bytes >= 0 else {
        throw Exit(message: "--limit needs a number of bytes, such as 100000", status: 64)
      }
      Memory.cache.sizeLimit = bytes
    default: throw Exit(message: usage, status: 64)
    }
    arguments.removeFirst(2)
  }
  if arguments.isEmpty { throw Exit(message: usage, status: 64) }

  var unread = 0
  for path in arguments {
    do {
      try await show(path, expiry: expiry)
    } catch let exit as Exit {
      // The others can be counted all the same.
      complain(exit.message)
      unread += 1
    }
  }
  let counts = Memory.cache.statistics
  print(
    "hits: \(counts.hits), misses: \(counts.misses), evictions: \(counts.evictions); "
      + "\(ByteCount(try Memory.cache.totalSize)) on the disk")
  if unread > 0 { throw Exit(message: "Files that were not counted: \(unread)", status: 66) }
}

func run(_ arguments: [String]) async throws {
  switch (arguments.first, arguments.count) {
  case ("--list", 1): try list()
  case ("--sweep", 1): print("entries that had expired: \(try Memory.cache.removeExpired())")
  case ("--clear", 1):
    try Memory.cache.removeAll()
    print("Forgotten.")
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
