// Swift 6 mode without a main actor: Sendable structs, actors, task groups, dispatch queues.
import Checks
import Dispatch
import FoundationEssentials
import Keepsake

/// Not `Sendable`; its asynchronous calls run where their caller runs.
final class Caller {
  var count = 0
  var drafts: [Draft] = []
}

struct Settings: Sendable {
  static let shared = Settings()
  @Default("size") var size = 16
  @Default("static.theme", defaultValue: .light) var theme: Theme
  @Default(.retries) var retries
  @DefaultOptional("static.login") var lastLogin: Date?
  @DefaultOptional(.nickname) var nickname: String?
}

// MARK: Typed errors

enum Overflow: Error { case full }

/// `update` throws the closure's error type.
func addTyped(_ amount: Int) throws(Overflow) -> Int {
  try Defaults.update("limited", default: 0) { (sum: inout Int) throws(Overflow) in
    guard sum + amount <= 10 else { throw .full }
    sum += amount
  }
}

// MARK: Generic code

func make<T: Codable & Sendable>(_ key: String, or make: @Sendable () async -> T) async -> T {
  if let value: T = Defaults.model(key) { return value }
  let value = await make()
  Defaults.set(value, forKey: key)
  return value
}

func cached<T: Codable & Sendable>(
  _ key: DiskCache.Key<T>, or make: @Sendable () async throws -> T
) async throws -> T {
  if let value = DiskCache[key] { return value }
  return try await DiskCache.fetch(key, make)
}

// MARK: Sendable structs and actors

/// A client with its own cache, which reads its token from the vault for each request.
struct Client: Sendable {
  let cache = DiskCache.named("Client")
  let auth = SecureVault.service(.auth)
  var expiry = DiskCache.Expiry.minutes(5)

  func signature() throws(StorageError) -> Int? {
    guard try auth.contains(.token(of: 1)) else { return nil }
    return try auth.withSecret("token-1") { (bytes: RawSpan) in bytes.byteCount }
  }

  func profiles() async throws -> [Profile] {
    try await withThrowingTaskGroup(of: Profile.self) { group in
      for number in 0..<20 {
        group.addTask {
          try await cache.fetch("profile_\(number % 2)", expiry: expiry) { try await download() }
        }
      }
      return try await group.reduce(into: []) { $0.append($1) }
    }
  }
}

/// An actor with settings among its properties.
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

@main struct Program {
  static func main() async throws {
    try StorageSystem.bootstrap(app: "com.example.client")
    try await checkCalls()
    print("ok")
  }

  /// Not isolated, unlike `main`.
  static func checkCalls() async throws {
    let settings = Settings.shared
    settings.$size.reset()
    DispatchQueue.concurrentPerform(iterations: 50) { number in
      settings.$size.update { $0 += 1 }
      Settings.shared.theme = .dark
      DiskCache.set(number, forKey: "n\(number)", expiry: .idle(.minutes(30)))
      check(DiskCache.model("n\(number)"), is: number)
      SecureVault[.token(of: number % 4)] = "\(number)"
    }
    Settings.shared.size += 4
    check(settings.size == 70 && settings.theme == .dark)
    settings.lastLogin = Date()
    settings.$lastLogin.reset()
    settings.retries += 1
    check(settings.lastLogin == nil && settings.nickname == nil && Defaults[.retries] == 4)

    do {
      check(try addTyped(7), is: 7)
      _ = try addTyped(7)
      check(false)
    } catch .full {
      check(Defaults.int("limited"), is: 7)
    }
    let made = await make("made") { Profile(name: "new") }
    check(await make("made") { Profile() }, is: made)
    check(try await cached(.reader) { made }, is: made)

    let retries = Defaults.changes(.retries)
    let waiting = Task { await retries.first { $0 > 200 } }
    Defaults[.retries] = 201
    check(await waiting.value, is: 201)
    let meter = Meter()
    check(await meter.step(), is: 2)
    check(await meter.reading, is: 2)
    let client = Client()
    check(try await client.profiles().count, is: 20)
    check(try client.signature() ?? 0 > 0)
    async let left: Profile = DiskCache.fetch("left") { try await download() }
    async let right = DiskCache.fetch(.archived) { try await download() }
    check(try await left == right)
    let detached = try await Task.detached {
      try await DiskCache.fetch("detached", cache: "Detached") { try await download().name }
    }.value
    check(detached, is: "loaded")
    // A value that is not used afterwards may be sent to the closure.
    let draft = try await client.cache.perform { _ in Draft(text: "draft") }
    let stored = try await client.cache.perform { store in
      try store.set(draft, forKey: "draft")
      return try store.model("draft", type: Draft.self)
    }
    stored?.text += "!"
    check(stored?.text, is: "draft!")
    async let size = Settings.shared.size
    check(await size, is: 70)

    check(StorageSystem.removeAll())
    try await Caller().checkSharedCalls()
  }
}
