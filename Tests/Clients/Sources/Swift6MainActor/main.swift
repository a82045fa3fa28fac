// Swift 6 mode: top-level code and view models on the main actor, and calls off it.
import Checks
import Foundation
import Keepsake
import Observation

@MainActor final class Caller {
  var count = 0
  var drafts: [Draft] = []
}

@MainActor enum Settings {
  @Default("fontSize") static var fontSize = 16
  @Default("static.theme", defaultValue: .light) static var theme: Theme
  @Default("static.draft") static var draft = Draft(text: "untitled")
  @Default(.owner) static var owner: Profile
  @DefaultOptional("static.server", suite: "network") static var server: URL?
  @DefaultOptional(.nickname) static var nickname: String?
}

extension Defaults.Key<Double> {
  static let volume = Defaults.Key("volume", default: 0.5)
}

@MainActor func downloadOnMain() async throws -> Profile { Profile(name: "main") }

/// A view model whose state is changed in closures.
@MainActor @Observable final class Screen {
  @ObservationIgnored let images = DiskCache.named("Images")
  var profile: Profile?
  var draft: Draft?
  var count = 0

  func load() async throws {
    profile = try await DiskCache.fetch("screen") {
      count += 1
      return try await downloadOnMain()
    }
    draft = try await images.fetch("screen") { Draft(text: "made \(self.count)") }
    _ = try await DiskCache.fetch("passed.main", downloadOnMain)
  }

  func loadTogether() async throws -> Int {
    async let first: Profile = DiskCache.fetch("first") { try await download() }
    async let second = DiskCache.fetch("second") { try await downloadOnMain() }
    return try await first.name.count + second.name.count
  }

  func receive() async throws {
    let lines = Lines(["a", "b"], seen: { self.count += 1 })
    try await DiskCache.shared.set(chunks: lines, forKey: "lines") { bytes, _ in count += bytes }
    check(DiskCache.get("lines"), is: Data("ab".utf8))
  }

  func send() async throws {
    // A draft of the main actor may be sent to another thread if it is not used afterwards.
    let letter = Draft(text: "letter")
    try await images.perform { try $0.set(letter, forKey: "letter") }
  }
}

/// A sequence that is not `Sendable`, because it holds a main-actor closure.
struct Lines: AsyncSequence, AsyncIteratorProtocol {
  var rest: [String]
  var seen: @MainActor () -> Void
  init(_ rest: [String], seen: @escaping @MainActor () -> Void) {
    self.rest = rest
    self.seen = seen
  }
  func makeAsyncIterator() -> Lines { self }

  mutating func next() async throws -> [UInt8]? {
    if rest.isEmpty { return nil }
    await seen()
    return Array(rest.removeFirst().utf8)
  }
}

func countOffTheMainActor() async -> Int {
  await withTaskGroup { group in
    for _ in 0..<4 { group.addTask { Defaults.update("parallel", default: 0) { $0 += 1 } } }
  }
  return Defaults.int("parallel")
}

// MARK: Calls from top-level code, which is on the main actor

Settings.$fontSize.reset()
Settings.fontSize += 1
check(Settings.$fontSize.update { $0 += 1 }, is: 18)
Settings.theme = .dark
Settings.draft = Draft(text: "letter")
Settings.owner.tags.append("x")
check(Settings.theme == .dark && Settings.draft.text == "letter")
Settings.server = URL(string: "https://example.com/a?b=c")
check(Settings.server?.host, is: "example.com")
Settings.$server.reset()
check(Settings.server == nil && Settings.nickname == nil)
let changes = Defaults.changes(.fontSize)
Defaults[.fontSize] = 20
for await size in changes {
  check(size, is: 20)
  break
}
var calls = 0
SecureVault.set("secret", forKey: "k")
SecureVault.withSecret("k") { calls = $0.byteCount }
let fetched: Profile = try await DiskCache.fetch("top") {
  calls += 1
  return try await download()
}
check(fetched.name == "loaded" && calls == 7)
calls = try await StorageSystem.withTemporary { try await DiskCache.fetch("top") { calls + 1 } }
check(try await DiskCache.shared.perform { try $0.keys() }, is: ["top"])

let screen = Screen()
try await screen.load()
check(screen.profile?.name == "main" && screen.draft?.text == "made 1")
check(try await screen.loadTogether(), is: 10)
try await screen.receive()
check(screen.count, is: 6)
try await screen.send()
check(await countOffTheMainActor(), is: 4)
let owner = await Task.detached { () -> Profile in
  Defaults.update(.owner) { $0.name = "Grace" }
  return Defaults[.owner]
}.value
check(owner.name, is: "Grace")
let detached = try await Task.detached {
  try await DiskCache.fetch(.reader) { try await downloadOnMain() }.name
}.value
check(detached, is: "main")

await Drawing().checkFrames()
StorageSystem.removeAll()
try await Caller().checkSharedCalls()
print("ok")
