import Checks
import Foundation
import Keepsake

// MARK: Calls from top-level code, which is on the main actor

Defaults.set(Theme.dark, forKey: "theme")
let theme: Theme? = Defaults.get("theme")
check(theme == .dark)
check(Settings.theme == .dark && Defaults[.theme] == .dark)
Settings.theme = .light
check(Defaults.get("theme", default: Theme.dark) == .light)
let count = Theme.allCases.count
Defaults.set(count, forKey: "count", suite: "themes-\(count)")
check(Defaults.int("count", suite: "themes-2"), is: 2)
Defaults.set(nil, forKey: "count", suite: "themes-\(count)")
check(Defaults.keys(suite: "themes-2"), is: [])

Settings.fontSize = 18
Settings.fontSize += 1
Settings.$fontSize.update { $0 += 1 }
check(Settings.$fontSize.update { $0 += 1 }, is: 21)
check(Defaults.int(Settings.$fontSize.key.name), is: 21)
Settings.$fontSize.reset()
check(Settings.fontSize, is: 16)
Settings.recent.insert("a.txt", at: 0)
check(Settings.recent, is: ["a.txt"])
Settings.profile.scores["chess", default: []].append(7)
check(Settings.profile.scores["chess"], is: [7])
Settings.document = Document(title: "letter")
check(Settings.document.title, is: "letter")
Settings.zoom = 2
check(Defaults[.zoom], is: 2)
Settings.lastLogin = .now
check(Settings.lastLogin != nil)
Settings.lastLogin = nil
Settings.server = URL(string: "https://example.com/a?b=c")
check(Settings.server?.host, is: "example.com")
Settings.$server.reset()
check(Settings.server == nil)
Defaults[.token] = Data([1, 2])
check(Settings.token?.count, is: 2)

let preferences = Preferences()
preferences.accent = "red"
preferences.birthday = Date(timeIntervalSince1970: 0)
check(Defaults.string("accent"), is: "red")
preferences.reset()
check(preferences.accent, is: "blue")
check(preferences.birthday == nil && !preferences.isOpen)
let counters = Counters()
counters.opened += 1
counters.$opened.update { $0 += 1 }
check(Defaults.int("opened"), is: 2)

// MARK: Generic code that passes values through

struct Setting<Value: Codable> {
  let key: Defaults.Key<Value>

  init(_ name: String, default value: Value) { key = Defaults.Key(name, default: value) }

  var value: Value {
    get { Defaults[key] }
    nonmutating set { Defaults[key] = newValue }
  }
}

func bump<T: Codable & Numeric>(_ key: Defaults.Key<T>) -> T { Defaults.update(key) { $0 += 1 } }

func roundTrip<T: Codable & Equatable>(_ value: T, in store: Defaults.Store) throws -> Bool {
  try store.set(value, forKey: "trip")
  let model: T? = try store.model("trip")
  let plain: T? = try store.get("trip")
  return model == value && plain == value
}

let pages = Setting("pages", default: 1)
pages.value += 1
check(pages.value, is: 2)
check(bump(pages.key), is: 3)
check(bump(.zoom), is: 3)
let store = Defaults.suite("generic")
do {
  check(try roundTrip("text", in: store))
  check(try roundTrip(Data([1]), in: store))
  check(try roundTrip(Profile(name: "Ada"), in: store))
  check(try roundTrip([Theme.dark: 1], in: store))
  check(try roundTrip(UUID(), in: store))
  check(try roundTrip([Date.distantPast], in: store))
  check(try roundTrip(Optional(3), in: store))
} catch {
  print(error)
  exit(1)
}

// MARK: Asynchronous callers on the main actor and off it

@MainActor func login() async -> Bool {
  Settings.lastLogin = .now
  await Task.yield()
  return Settings.lastLogin != nil
}

func countOffTheMainActor() async -> Int {
  await withTaskGroup { group in
    for _ in 0..<4 {
      group.addTask {
        for _ in 0..<25 { Defaults.update("parallel", default: 0) { $0 += 1 } }
      }
    }
  }
  return Defaults.int("parallel")
}

check(await login())
check(await countOffTheMainActor(), is: 100)
let profile = await Task.detached { () -> Profile in
  Defaults[.profile].name = "Grace"
  Defaults.update(.profile) { $0.scores["go"] = [1] }
  return Defaults[.profile]
}.value
check(profile, is: Profile(name: "Grace", scores: ["go": [1]]))

let change = Task {
  for await size in Settings.$fontSize.changes where size > 16 { return size }
  return 0
}
let firstToken = Task { @MainActor in
  for await token in Defaults.changes("token", type: Data.self) {
    if let token { return token.count }
  }
  return 0
}
let changes = Defaults.changes(.theme)
Settings.theme = .dark
for await theme in changes {
  check(theme == .dark)
  break
}
let updater = Task {
  while !Task.isCancelled {
    Settings.$fontSize.update { $0 += 1 }
    Settings.$token.update { $0 = ($0 ?? Data()) + [1] }
    try? await Task.sleep(for: .milliseconds(5))
  }
}
check(await change.value > 16)
check(await firstToken.value > 0)
updater.cancel()

await checkObservation()

// MARK: Failures, and stores of one's own

StorageSystem.onFailure = { error in check(error.code == .wrongType) }
Defaults.set("text", forKey: "number")
check(Defaults.int("number"), is: 0)
do {
  let number: Int? = try Defaults.shared.get("number")
  check(number == nil && false)
} catch StorageError.Code.wrongType {
  check(true)
} catch {
  check(false)
}
do {
  let inside = try await StorageSystem.withTemporary {
    check(Defaults.keys(), is: [])
    Settings.fontSize = 99
    await Task.yield()
    return Settings.fontSize
  }
  check(inside, is: 99)
  check(Settings.fontSize != 99)
} catch {
  print(error)
  exit(1)
}
// MARK: The cache

// Calls from top-level code.
DiskCache.set(Profile(name: "top"), forKey: "top", expiry: .minutes(5))
let cachedProfile: Profile? = DiskCache.model("top")
check(cachedProfile?.name, is: "top")
var fetches = 0
do {
  let fetched: Profile = try await DiskCache.fetch("fetched", expiry: .minutes(5)) {
    fetches += 1
    return try await download()
  }
  check(fetched.name == "loaded" && fetches == 1)
  let keys = try await DiskCache.shared.perform { try $0.keys() }
  check(keys.sorted(), is: ["fetched", "top"])
  try checkCachedValues()
  try await checkCacheInTasks()
  try await StorageSystem.withTemporary {
    check(DiskCache.keys(), is: [])
    try checkCachedValues()
    fetches = try await DiskCache.fetch("number") { fetches + 1 }
  }
  check(fetches, is: 2)
} catch {
  print(error)
  exit(1)
}

// MARK: Secrets

SecureVault[.identity] = Profile(name: "top")
check(SecureVault.get(.identity)?.name, is: "top")
var secretBytes = 0
SecureVault.withSecret("identity", service: "com.app.auth") { secretBytes = $0.byteCount }
check(secretBytes > 0)
SecureVault[.identity] = nil
do {
  try checkSecrets()
  try await checkSecretsInTasks()
  try await checkEngines()
  try await StorageSystem.withTemporary {
    check(SecureVault.services(), is: [])
    try checkSecrets()
  }
} catch {
  print(error)
  exit(1)
}
Defaults.synchronize()
StorageSystem.removeAll()
check(DiskCache.caches(), is: [])
check(SecureVault.protection == nil)
print("ok")
