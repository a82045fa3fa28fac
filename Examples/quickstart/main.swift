// Keepsake in one small program: settings that outlive it, a secret, and a cache.
//
//   swift run keepsake-quickstart            counts its launches and shows what it remembers
//   swift run keepsake-quickstart FILE       also remembers a file of yours, such as README.md, and
//   caches it swift run keepsake-quickstart --reset    forgets everything
//
// Run it twice. Then look at the file it names with `cat`, or follow it with `tail -f`.

import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// Any Codable type can be stored.
struct Profile: Codable, Equatable {
  var file: String
  var bytes: Int
  var words: Int
}

/// Settings as properties.
struct Settings: Sendable {
  @Default("number", defaultValue: 0) var number: Int
  @DefaultOptional("lastRun") var lastRun: Date?
}

/// What this program knows of a file; nil when it is not readable text.
func profile(of path: String) -> Profile? {
  // By its whole path: a file of that name in another folder is another one.
  let file = URL(filePath: path)
  guard let data = try? Data(contentsOf: file),
    let text = String(data: data, encoding: .utf8)
  else { return nil }
  let words = text.split(whereSeparator: \.isWhitespace).count
  return Profile(file: file.path, bytes: data.count, words: words)
}

/// A random id that nobody but this program shall know: made at the first run, and sealed.
func secretID() throws -> String {
  // Not with the facade, which returns nil also when it is there and cannot be read: no new one is
  // to take its place then. The store behind the facade throws.
  let vault = SecureVault.shared
  if let id = try vault.get("id") { return id }
  // Not a UUID: where there is no /dev/urandom, as in some containers, Foundation makes one of
  // zeros.
  let id = String(UInt64.random(in: 1 << 60 ... .max), radix: 16, uppercase: true)
  try vault.set(id, forKey: "id")
  return id
}

let usage = """
  usage: keepsake-quickstart            count this run and show what is remembered
         keepsake-quickstart FILE       also remember a text file's size, such as README.md
         keepsake-quickstart --reset    forget everything
  """

/// Says on standard error what is wrong, and returns the exit code, which is one of sysexits.h.
func complain(_ message: String, status: Int32) -> Int32 {
  fputs("\(message)\n", stderr)
  return status
}

func main() -> Int32 {
  let arguments = Array(CommandLine.arguments.dropFirst())
  switch arguments.first {
  case "--help", "-h":
    print(usage)
    return 0
  case "--reset" where arguments.count == 1:
    // False when something could not be removed; the reason is on standard error by then.
    guard StorageSystem.removeAll() else { return 73 }
    print("Forgotten. The next run is the first one again.")
    return 0
  case let option? where option.hasPrefix("-") || arguments.count > 1:
    return complain(usage, status: 64)
  default: break
  }

  guard let path = arguments.first else { return remember(nil) }
  guard let now = profile(of: path) else {
    return complain(
      "Cannot read \"\(path)\": give me a text file, such as README.md.", status: 66)
  }
  return remember(now)
}

/// Shows what the last run left, and leaves the same for the next one.
func remember(_ now: Profile?) -> Int32 {
  let settings = Settings()
  let launches = Defaults.update("launches", default: 0) { $0 += 1 }
  guard launches > 0, let file = try? Defaults.shared.fileURL else {
    return complain("Nothing could be stored: see above.", status: 73)
  }
  if launches == 1 {
    print("This is the first run: nothing to remember yet. Run me again.")
  } else {
    print("Run number \(launches). From the last run:")
    if let lastRun = settings.lastRun { print("  it was on \(lastRun.ISO8601Format())") }
    print("  it was run number \(settings.number)")
    if let profile: Profile = Defaults.model("profile") {
      print("  it knew \(profile.file): \(profile.bytes) bytes, \(profile.words) words")
    }
  }
  if let now { keep(now) }

  let (id, vault): (String, URL)
  do {
    (id, vault) = (try secretID(), try SecureVault.shared.folderURL)
  } catch {
    return complain("There is no secret: \(error)", status: 73)
  }

  settings.lastRun = Date.now
  settings.number = launches
  print("The settings lie in \(file.path(percentEncoded: false))")
  print("The secret id \(id.prefix(4))… is sealed in \(vault.path(percentEncoded: false))")
  if let now, let copy = DiskCache.fileURL(now.file) {
    print("The cached copy is \(copy.path(percentEncoded: false))")
  }
  return 0
}

func keep(_ now: Profile) {
  let before: Profile? = Defaults.model("profile")
  Defaults.set(now, forKey: "profile")
  // A copy that can be made again: the next run finds it, for a week.
  let isCached = DiskCache.contains(now.file)
  DiskCache.set(contentsOf: URL(filePath: now.file), forKey: now.file, expiry: .days(7))
  let comparison = before.map { $0 == now ? ", as before" : ", which is new" } ?? ""
  print("Now read \(now.file): \(now.bytes) bytes, \(now.words) words\(comparison).")
  let size = ByteCount(DiskCache.totalSize)
  print("\(isCached ? "It was" : "Now it is") in the cache, which takes \(size).")
}

// Once, before the first use: the name under which this program's data lies.
try StorageSystem.bootstrap(app: "keepsake-quickstart")
let status = main()
exit(fflush(stdout) == 0 ? status : complain("The output cannot be written.", status: 74))
