// Settings in Swift 5 mode: top-level code without isolation, and wrappers as static variables.
import Checks
import Foundation
import Keepsake

struct User: Codable, Equatable {
  var name: String
  var birthday: Date?
  var tags = [String]()
}

final class Session: Codable {
  var token: String
  var count: Int?
  init(token: String) { self.token = token }
}

enum Theme: String, Codable {
  case light, dark
}

enum Level: Int, Codable {
  case low = 1
  case high
}

struct TooSmall: Error {}

enum Settings {
  @Default("fontSize") static var fontSize = 16
  @Default("theme", defaultValue: .light) static var theme: Theme
  @Default("recent") static var recent: [String] = []
  @Default("user", defaultValue: User(name: "guest")) static var user: User
  @Default(.volume) static var volume
  @Default("fontSize", defaultValue: 12, suite: "shared") static var sharedSize: Int
  @DefaultOptional("lastLogin") static var lastLogin: Date?
  @DefaultOptional("session") static var session: Session?
  @DefaultOptional(.nickname) static var nickname: String?
}

extension Defaults.Key<Int> {
  static let fontSize = Defaults.Key("fontSize", default: 16)
  static let launches = Defaults.Key("launches", default: 0, suite: "statistics")
}

extension Defaults.Key<Double> {
  static let volume = Defaults.Key("volume", default: 0.5)
}

extension Defaults.Key<String?> {
  static let nickname = Defaults.Key<String?>("nickname")
}

extension Defaults.Key<User> {
  static let owner = Defaults.Key("owner", default: User(name: "owner"))
}

// MARK: Setting and getting

Defaults.set("dark", forKey: "theme")
Defaults.set(16, forKey: "size", suite: "com.example.shared")
let theme: String? = Defaults.get("theme")
check(theme, is: "dark")
let size = Defaults.get("size", default: 12, suite: "com.example.shared")
check(size, is: 16)
check(Defaults.get("size", default: 12), is: 12)
let window = CommandLine.arguments.count + 2
Defaults.set(800, forKey: "width", suite: "window-\(window)")
check(Defaults.int("width", suite: "window-3"), is: 800)
check(Defaults.get("theme") ?? "light", is: "dark")
check(Defaults.get("theme") as String?, is: "dark")
if let theme: Theme = Defaults.get("theme") { check(theme == .dark) } else { check(false) }

Defaults.set("text", forKey: "a")
check(Defaults.string("a"), is: "text")
Defaults.set(3, forKey: "a")
check(Defaults.int("a"), is: 3)
Defaults.set(2.5, forKey: "a")
check(Defaults.double("a"), is: 2.5)
Defaults.set(true, forKey: "a")
check(Defaults.bool("a"))
Defaults.set(Data([0, 255]), forKey: "a")
check(Defaults.data("a"), is: Data([0, 255]))
check(Defaults.string("b") == nil && Defaults.data("b") == nil)
check(Defaults.int("b") == 0 && Defaults.double("b") == 0 && !Defaults.bool("b"))

let birthday = Date(timeIntervalSince1970: 86_400.25)
Defaults.set(User(name: "Ada", birthday: birthday), forKey: "user")
let user: User? = Defaults.model("user")
check(user?.birthday, is: birthday)
check(Defaults.model("user", type: User.self)?.name, is: "Ada")
check((Defaults.model("missing") ?? User(name: "new")).name, is: "new")
check(Defaults.get("user", default: User(name: "new")).name, is: "Ada")
Defaults.set(Session(token: "t"), forKey: "session")
let session: Session? = Defaults.model("session")
check(session?.token, is: "t")

Defaults.set(Level.high, forKey: "level")
check(Defaults.get("level", default: Level.low) == .high)
Defaults.set([1, 2, 3], forKey: "list")
check(Defaults.get("list", default: [Int]()), is: [1, 2, 3])
Defaults.set(["a": 1.5, "b": 2], forKey: "table")
check(Defaults.get("table", default: [:]), is: ["a": 1.5, "b": 2])
Defaults.set(Set(["x"]), forKey: "set")
check(Defaults.get("set", default: Set<String>()), is: ["x"])
Defaults.set(birthday, forKey: "date")
check(Defaults.get("date", default: .distantPast), is: birthday)
Defaults.set(URL(string: "https://example.com"), forKey: "url")
check(Defaults.get("url") as URL?, is: URL(string: "https://example.com"))
let id = UUID()
Defaults.set(id, forKey: "id")
check(Defaults.get("id", default: UUID()), is: id)

// MARK: nil

Defaults.set(nil, forKey: "a")
check(!Defaults.contains("a"))
Defaults.set(nil, forKey: "width", suite: "window-\(window)")
check(!Defaults.contains("width", suite: "window-\(window)"))
var name: String? = "Ada"
Defaults.set(name, forKey: "name")
check(Defaults.string("name"), is: "Ada")
name = nil
Defaults.set(name, forKey: "name")
check(!Defaults.contains("name"))
Defaults.set(window > 2 ? "wide" : nil, forKey: "name")
check(Defaults.contains("name"))
Defaults.set(Int("seven"), forKey: "name")
check(!Defaults.contains("name"))
Defaults.set(["k": 1]["k"], forKey: "name")
check(Defaults.int("name"), is: 1)
let anything: any Codable = 7
Defaults.set(anything, forKey: "name")
check(Defaults.int("name"), is: 7)
if Defaults.remove("name") { check(!Defaults.contains("name")) }
Defaults.remove("name")
guard Defaults.set(1, forKey: "one"), Defaults.set(nil, forKey: "one") else { exit(1) }

// MARK: Updates

Defaults.update("launches", default: 0) { $0 += 1 }
let launches = Defaults.update("launches", default: 0) { $0 += 1 }
check(launches, is: 2)
Defaults.update("names", default: [String]()) { $0.append("x") }
Defaults.update("names", default: []) { $0.append("y") }
check(Defaults.get("names", default: []), is: ["x", "y"])
Defaults.update("user", default: User(name: "new")) { user in
  user.tags.append("seen")
  user.birthday = nil
}
check(Settings.user, is: User(name: "Ada", tags: ["seen"]))
do {
  try Defaults.update("launches", default: 0) { count in
    guard count > 10 else { throw TooSmall() }
    count = 0
  }
  check(false)
} catch {
  check(error is TooSmall)
}
check(Defaults.int("launches"), is: 2)

// MARK: Wrappers

check(Settings.fontSize, is: 16)
Settings.fontSize = 18
Settings.fontSize += 1
check(Settings.fontSize, is: 19)
Settings.$fontSize.update { $0 += 1 }
check(Settings.$fontSize.update { $0 += 1 }, is: 21)
check(Settings.$fontSize.key.name, is: "fontSize")
check(Settings.$fontSize.key.defaultValue, is: 16)
Settings.$fontSize.reset()
check(Settings.fontSize, is: 16)
check(Settings.theme == .dark)
Settings.theme = .light
check(Defaults.string("theme"), is: "light")
Settings.recent.append("one.txt")
Settings.recent += ["two.txt"]
check(Settings.recent.count, is: 2)
Settings.user.name = "Grace"
check(Settings.user.name, is: "Grace")
Settings.volume = 1
check(Defaults[.volume], is: 1)
Settings.sharedSize = 30
check(Defaults.suite("shared").suite.name, is: "shared")
check(Settings.fontSize, is: 16)
check(Settings.lastLogin == nil)
Settings.lastLogin = birthday
check(Settings.lastLogin, is: birthday)
Settings.$lastLogin.update { $0 = $0?.addingTimeInterval(1) }
check(Settings.lastLogin, is: birthday + 1)
Settings.lastLogin = nil
check(!Defaults.contains(Settings.$lastLogin.key))
check(Settings.session?.token, is: "t")
Settings.nickname = "Al"
check(Defaults[.nickname], is: "Al")
Settings.$nickname.reset()
check(Settings.nickname == nil)

// MARK: Typed keys

check(Defaults[.fontSize], is: 16)
Defaults[.fontSize] = 20
Defaults[.fontSize] += 1
Defaults.update(.fontSize) { $0 += 1 }
check(Defaults.update(.fontSize) { $0 += 1 }, is: 23)
check(Defaults.contains(.fontSize))
Defaults.remove(.fontSize)
check(Defaults[.fontSize], is: 16)
Defaults.update(.launches) { $0 += 1 }
check(Defaults.int("launches", suite: "statistics"), is: 1)
Defaults[.owner].tags.append("x")
check(Defaults[.owner].tags, is: ["x"])
Defaults[.nickname] = "Al"
Defaults[.nickname] = nil
check(!Defaults.contains(.nickname))

// MARK: Stores

do {
  let team = Defaults.suite("team")
  try team.set("dark", forKey: "theme")
  try team.set(nil, forKey: "size")
  try team.set(4, for: .fontSize)
  check(try team.get(.fontSize), is: 4)
  check(try team.get("fontSize", default: 0), is: 4)
  check(try team.string("theme"), is: "dark")
  try team.update("count", default: 0) { $0 += 1 }
  try team.update(.fontSize) { $0 += 1 }
  check(try team.keys().sorted(), is: ["count", "fontSize", "theme"])
  try team.remove(.fontSize)
  try team.remove("theme")
  check(try team.contains("theme"), is: false)
  try team.synchronize()
  check(try team.fileURL?.pathExtension, is: "jsonl")
  let document = try team.export(as: .json)
  try team.removeAll()
  try team.import(document)
  check(try team.int("count"), is: 1)
} catch {
  print(error)
  exit(1)
}
do {
  try Defaults.suite("other").set(1, forKey: "count")
  try Defaults.suite("other").update("count", default: 0) { $0 += 1 }
} catch {
  print(error.code, error.remedy)
  exit(1)
}
do {
  try Defaults.shared.set("text", forKey: "number")
  let number: Int? = try Defaults.shared.get("number")
  check(number == nil && false)
} catch StorageError.Code.wrongType {
  check(true)
} catch {
  check(false)
}

// MARK: Generic code

func save<T: Codable>(_ value: T, as key: String) { Defaults.set(value, forKey: key) }
func load<T: Codable>(_ key: String, as type: T.Type) -> T? { Defaults.model(key) }
func load<T: Codable>(_ key: String, or value: T) -> T { Defaults.get(key, default: value) }
save(Data([1]), as: "generic")
check(Defaults.data("generic"), is: Data([1]))
check(load("generic", as: Data.self), is: Data([1]))
check(load("missing", or: 3), is: 3)

// MARK: The whole suite

StorageSystem.onFailure = { error in print("failed:", error) }
check(Defaults.suites().contains("com.example.shared"))
let document = Defaults.export(as: .propertyList, suite: "com.example.shared")
Defaults.removeAll(suite: "com.example.shared")
check(Defaults.keys(suite: "com.example.shared"), is: [])
if let document { Defaults.import(document, suite: "com.example.shared") }
check(Defaults.keys(suite: "com.example.shared"), is: ["size"])
Defaults.set(1, forKey: "x", suite: .memory)
check(Defaults.int("x", suite: .memory), is: 1)
let folder = FileManager.default.temporaryDirectory.appendingPathComponent(id.uuidString)
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
Defaults.set(1, forKey: "x", suite: Defaults.Suite("team", in: folder))
check(Defaults.int("x", suite: .init("team", in: folder)), is: 1)
try FileManager.default.removeItem(at: folder)
Defaults.synchronize()

// MARK: A view model

checkObservation()

// MARK: Changes, from a thread without Swift concurrency

let change = DispatchSemaphore(value: 0)
let watch = Task.detached {
  for await size in Defaults.changes("watched", default: 16) where size > 16 {
    change.signal()
    break
  }
}
while change.wait(timeout: .now() + .milliseconds(5)) == .timedOut {
  Defaults.update("watched", default: 16) { $0 += 1 }
}
watch.cancel()
let naming = Task.detached {
  for await names in changedNames() where names == ["named"] {
    change.signal()
    break
  }
}
while change.wait(timeout: .now() + .milliseconds(5)) == .timedOut {
  Defaults.update("named", default: 0, suite: "named") { $0 += 1 }
}
naming.cancel()

// MARK: The cache and secrets

checkCachedValues()
checkCacheExpiry()
try checkNamedCaches()
try checkCacheKeys()
try checkCacheStores()
checkSecrets()
checkSecretKeys()
try checkServices()
try checkVaultStore()
try checkPassphrase()
let cached = DispatchSemaphore(value: 0)
Task.detached {
  do {
    try await checkCacheInTasks()
    try await checkSecretsInTasks()
    try await checkEngines()
  } catch {
    print(error)
    exit(1)
  }
  cached.signal()
}
cached.wait()
DiskCache.removeAll()
check(DiskCache.keys().isEmpty)

Defaults.removeAll()
check(Defaults.keys().isEmpty)
StorageSystem.removeAll()
check(DiskCache.caches(), is: [])
print("ok")
