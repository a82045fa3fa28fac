// Keepsake in one small program: settings that outlive it.
//
//   swift run quickstart            counts its launches and shows what it remembers
//   swift run quickstart FILE       also remembers a file of yours, such as README.md
//   swift run quickstart --reset    forgets everything
//
// Run it twice. Then look at the file it names with `cat`, or follow it with `tail -f`.

import FoundationEssentials
import Keepsake

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Any Codable type can be stored.
struct Profile: Codable, Equatable {
  var file: String
  var bytes: Int
  var words: Int
}

/// Settings as properties.
struct Settings: Sendable {
  @Default("style", defaultValue: "plain") var style: String
  @DefaultOptional("lastRun") var lastRun: Date?
}

func report(on path: String) -> Profile? {
  guard let data = try? Data(contentsOf: URL(filePath: path)) else { return nil }
  let words = String(decoding: data, as: UTF8.self).split(whereSeparator: \.isWhitespace).count
  return Profile(file: path, bytes: data.count, words: words)
}

// Once, before the first use: the name under which this program's data lies.
try StorageSystem.bootstrap(app: "keepsake-quickstart")

let arguments = CommandLine.arguments.dropFirst()
if arguments.contains("--help") || arguments.count > 1 {
  print("usage: quickstart [FILE | --reset]")
  exit(arguments.contains("--help") ? 0 : 64)
}
if arguments.first == "--reset" {
  guard StorageSystem.removeAll() else { exit(1) }
  print("Forgotten. The next run is the first one again.")
  exit(0)
}

let settings = Settings()
let launches = Defaults.update("launches", default: 0) { $0 += 1 }

if launches == 1 {
  print("This is the first run: nothing to remember yet. Run me again.")
} else {
  print("Run number \(launches). From the last run:")
  if let lastRun = settings.lastRun { print("  it was on \(lastRun.ISO8601Format())") }
  print("  the style was \(settings.style)")
  if let profile: Profile = Defaults.model("profile") {
    print("  it read \(profile.file): \(profile.bytes) bytes, \(profile.words) words")
  }
}

if let path = arguments.first {
  guard let profile = report(on: path) else {
    print("Cannot read \(path): give me a text file, such as README.md.")
    exit(66)
  }
  let before: Profile? = Defaults.model("profile")
  Defaults.set(profile, forKey: "profile")
  let isNew = before.map { $0 == profile ? " as last time" : " (changed)" } ?? ""
  print("Now read \(path): \(profile.bytes) bytes, \(profile.words) words\(isNew).")
}

settings.lastRun = Date.now
settings.style = launches.isMultiple(of: 2) ? "plain" : "fancy"

if let file = try Defaults.shared.fileURL {
  print("All of it lies in \(file.path(percentEncoded: false))")
}
