// Swift 6 mode, settings for any thread: a Sendable struct, an actor, dispatch queues.
import Checks
import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

struct Account: Codable, Equatable, Sendable {
  var id = UUID()
  var homepage: URL?
  var roles: Set<String> = []
}

enum Mode: Int, Codable, Sendable {
  case quiet
  case loud
}

struct Settings: Sendable {
  static let shared = Settings()

  @Default("size") var size = 16
  @Default("mode", defaultValue: .quiet) var mode: Mode
  @Default("account", defaultValue: Account()) var account: Account
  @Default("weights", defaultValue: [:]) var weights: [String: Double]
  @Default(.retries) var retries
  @DefaultOptional("lastLogin") var lastLogin: Date?
  @DefaultOptional("account", suite: "guests") var guest: Account?
}

extension Defaults.Key<UInt8> {
  static let retries = Defaults.Key<UInt8>("retries", default: 3)
}

extension Defaults.Key<Account> {
  static let account = Defaults.Key("account", default: Account(), suite: "keys")
}

extension Defaults.Key<Date?> {
  static let lastLogin = Defaults.Key<Date?>("lastLogin")
}

extension Defaults.Suite {
  static let team: Defaults.Suite = "team"
}

enum Refusal: Error { case full }

// MARK: Asynchronous callers

actor Meter {
  @Default("meter") var reading = 0
  @DefaultOptional("meter.seen") var seen: Date?

  func step() -> Int {
    reading += 1
    seen = Date()
    $seen.reset()
    return $reading.update { $0 += 1 }
  }
}

func add(_ amount: Int) async throws -> Int {
  try Defaults.update("sum", default: 0) { sum throws(Refusal) in
    guard sum + amount <= 10 else { throw .full }
    sum += amount
  }
}

/// `update` throws the closure's error type.
func addTyped(_ amount: Int) throws(Refusal) -> Int {
  try Defaults.update("sum", default: 0) { (sum: inout Int) throws(Refusal) in
    guard sum + amount <= 10 else { throw .full }
    sum += amount
  }
}

func fetch<T: Codable & Sendable>(_ key: String, orMake make: @Sendable () async -> T) async -> T {
  if let value: T = Defaults.model(key) { return value }
  let value = await make()
  Defaults.set(value, forKey: key)
  return value
}

/// The values of a setting as a stream.
func counts() -> AsyncStream<Int> {
  AsyncStream { continuation in
    let task = Task {
      for await count in Defaults.changes("count", default: 0) { continuation.yield(count) }
      continuation.finish()
    }
    continuation.onTermination = { _ in task.cancel() }
  }
}

func checkStore() throws(StorageError) {
  let store = Defaults.suite(.team)
  try store.set(Mode.loud, forKey: "mode")
  try store.set(5, for: .retries)
  try store.set(nil, forKey: "nothing")
  let mode: Mode? = try store.get("mode")
  check(mode == .loud)
  check(try store.get(.retries), is: 5)
  check(try store.get(.lastLogin) == nil)
  check(try store.contains(.lastLogin), is: false)
  check(try store.model("missing", type: Account.self) == nil)
  check(try store.bool("missing"), is: false)
  check(try store.double("missing"), is: 0)
  check(try store.data("missing") == nil)
  try store.update(.retries) { $0 -= 1 }
  let count = try store.update("count", default: 0) { $0 += 1 }
  check(count, is: 1)
  try store.remove(.retries)
  try store.synchronize()
}

func readWrongType() throws {
  do {
    _ = try Defaults.suite(.team).get("mode") as String?
    check(false)
  } catch StorageError.Code.wrongType {
    check(Defaults.suites().contains(.team))
  }
}

@main struct Program {
  static func main() async throws {
    try StorageSystem.bootstrap(app: "com.example.client")
    onAnyThread()
    typedKeys()
    try await asynchronously()
    try checkStore()
    try readWrongType()
    try await checkObservation()
    Defaults.removeAll(suite: .team)
    Defaults.removeAll()

    try checkCachedValues()
    try checkCacheStore(DiskCache.named("Archive"))
    try await checkCacheInTasks()
    try await cacheChunks()
    try await cachePerform()
    try await StorageSystem.withTemporary {
      check(DiskCache.keys(), is: [])
      try await cacheChunks()
      try await cachePerform()
    }
    DiskCache.removeAll()
    check(DiskCache.caches().map(\.name).contains("Films"))
    for cache in DiskCache.caches() { DiskCache.removeAll(cache: cache) }

    try checkSecrets()
    try await checkSecretsInTasks()
    try await checkEngines()
    try checkPassphrase()
    try await checkUserPresence()
    check(StorageSystem.removeAll())
    print("ok")
  }

  static func onAnyThread() {
    let settings = Settings.shared
    DispatchQueue.concurrentPerform(iterations: 50) { _ in
      settings.$size.update { $0 += 1 }
      Settings.shared.mode = .loud
    }
    check(Settings.shared.size, is: 66)
    Settings.shared.size += 4
    check(Settings.shared.size, is: 70)
    check(settings.mode == .loud)
    settings.weights["a"] = 0.25
    check(Defaults.get("weights", default: [:]), is: ["a": 0.25])
    settings.account.roles.insert("admin")
    check(settings.account.roles, is: ["admin"])
    check(settings.guest == nil)
    settings.guest = settings.account
    check(settings.guest, is: settings.account)
    settings.$guest.update { $0?.homepage = URL(string: "https://example.com") }
    check(settings.guest?.homepage != nil)
    settings.guest = nil
    settings.retries += 1
    check(Defaults.get("retries", default: 0), is: 4)
    settings.$size.reset()
    check(settings.$size.key.suite, is: .standard)
  }

  static func typedKeys() {
    check(Defaults[.retries], is: 4)
    Defaults[.retries] += 1
    Defaults.update(.retries) { $0 *= 2 }
    check(Defaults[.retries], is: 10)
    check(Defaults.contains(.lastLogin), is: false)
    Defaults[.lastLogin] = Date()
    check(Settings.shared.lastLogin == Defaults[.lastLogin])
    Defaults[.lastLogin] = nil
    Defaults.update(.lastLogin) { $0 = nil }
    Defaults[.account].roles = ["guest"]
    check(Defaults.model("account", type: Account.self, suite: "keys")?.roles, is: ["guest"])
    Defaults.remove(.account)
    check(Defaults.contains(.account), is: false)
  }

  static func asynchronously() async throws {
    let meter = Meter()
    check(await meter.step(), is: 2)
    check(await meter.reading, is: 2)

    check(try await add(7), is: 7)
    do {
      _ = try addTyped(7)
      check(false)
    } catch .full {
      check(Defaults.int("sum"), is: 7)
    }
    let made = await fetch("made") { Account(roles: ["new"]) }
    check(await fetch("made") { Account() }, is: made)

    let changes = Defaults.changes(.retries)
    let waiting = Task { await changes.first { $0 > 200 } }
    async let count = counts().first { $0 > 0 }
    let updater = Task {
      while !Task.isCancelled {
        Defaults[.retries] = 201
        Defaults.update("count", default: 0) { $0 += 1 }
        try? await Task.sleep(for: .milliseconds(5))
      }
    }
    check(await waiting.value, is: 201)
    check(await count != nil)
    updater.cancel()

    let inside = try await StorageSystem.withTemporary { () -> [String] in
      async let size = Settings.shared.size
      check(await size, is: 16)
      return Defaults.keys()
    }
    check(inside, is: [])
  }
}
