// Swift 6 mode with the main actor as default isolation: models, keys and settings need no
// annotations, and `nonisolated` and `@concurrent` lead off the main actor.
import Checks
import Foundation
import Keepsake
import Observation

final class Caller {
  var downloads = 0
  var progress = 0
  var signatures = 0
  var profiles: [Profile] = []
  var drafts: [Draft] = []
}

extension Defaults.Key<Draft> {
  static let draft = Defaults.Key("draft", default: Draft(text: "empty"))
}

enum Settings {
  @Default("static.size") static var size = 16
  @Default("static.theme", defaultValue: .light) static var theme: Theme
  @Default("static.profiles") static var profiles: [Profile] = []
  @Default(.draft) static var draft: Draft
  @DefaultOptional("static.profile") static var profile: Profile?
  @DefaultOptional(.nickname) static var nickname: String?
}

// Models and keys that can also be used off the main actor.
nonisolated struct Thumbnail: Codable, Equatable {
  var name: String
}

nonisolated extension Defaults.Key<Double> {
  static let volume = Defaults.Key("volume", default: 0.5)
}

nonisolated extension DiskCache.Key<Thumbnail> {
  static let thumbnail = Self("thumbnail")
}

nonisolated extension SecureVault.Key<Thumbnail> {
  static let credentials = Self("credentials", service: "com.app.auth")
}

enum Caches {
  // Computed, because a constant would stay the store of the scope in which it was first used.
  static var images: DiskCache.Store { DiskCache.named("Images") }
}

nonisolated func countOffMainActor() -> Int {
  Defaults.update("offMainActor", default: 0) { $0 += 1 }
}

@concurrent func readOffMainActor() async -> Double {
  Defaults.set(5, forKey: "offMainActor")
  SecureVault[.credentials] = Thumbnail(name: "secret")
  return Defaults[.volume] + Defaults.double("offMainActor")
}

@concurrent func thumbnailOffMainActor(_ name: String) async throws -> Thumbnail {
  try await DiskCache.fetch("thumbnail_\(name)", expiry: .hours(1)) { Thumbnail(name: name) }
}

/// Off the main actor, because a passphrase takes half a second.
@concurrent func protectOffMainActor(_ passphrase: String) async throws -> Bool {
  try SecureVault.shared.protect(with: .passphrase(passphrase))
  SecureVault.lock()
  return SecureVault.unlock(passphrase: passphrase)
}

/// A user interface that redraws after a change.
@Observable final class Drawing {
  @ObservationIgnored @Default("accent") var accent = "blue"
  @ObservationIgnored @Default(.volume) var volume
  @ObservationIgnored @DefaultOptional("static.profile") var profile: Profile?
  @ObservationIgnored private(set) var frames: [String] = []
  var note: Profile?
  var bytes = 0
  var share = 0.0

  func draw() {
    withObservationTracking {
      frames.append("\(accent) \(volume) \(profile?.name ?? "-")")
    } onChange: {
      Task { @MainActor in self.draw() }
    }
  }

  /// Whether a frame is drawn within half a minute.
  func hasDrawn(_ frame: String) async -> Bool {
    for _ in 0..<6_000 where frames.last != frame {
      try? await Task.sleep(for: .milliseconds(5))
    }
    return frames.last == frame
  }

  func load() async throws {
    note = try await DiskCache.fetch("note", expiry: .minutes(5)) {
      bytes += 1
      return try await download()
    }
    await DiskCache.set(chunks: body(4), forKey: "film", total: 4) { bytes, total in
      share = Double(bytes) / Double(total ?? 1)
    }
    try SecureVault.service("com.app.auth").withSecret("credentials") { span in
      if span.isEmpty { throw CancellationError() }
      self.bytes += span.byteCount
    }
  }
}

/// A sequence on the main actor.
struct Steps: AsyncSequence {
  var start: UInt8

  struct AsyncIterator: AsyncIteratorProtocol {
    var rest: UInt8
    mutating func next() async -> [UInt8]? {
      rest -= 1
      return rest > 0 ? [rest] : nil
    }
  }

  func makeAsyncIterator() -> AsyncIterator { AsyncIterator(rest: start) }
}

// MARK: Calls from top-level code

Settings.size += 1
check(Settings.$size.update { $0 += 1 }, is: 18)
Settings.theme = .dark
Settings.profiles.append(Profile(name: "n"))
Settings.profiles[0].tags.append("x")
check(Settings.theme == .dark && Settings.profiles[0].tags == ["x"])
Settings.draft = Draft(text: "letter")
check(Defaults[.draft].text, is: "letter")
Settings.profile = Profile(name: "first")
Settings.$profile.update { $0?.name += "!" }
check(Settings.profile?.name, is: "first!")
Settings.$profile.reset()
check(Settings.nickname == nil)
check(countOffMainActor(), is: 1)
check(await readOffMainActor(), is: 5.5)
let profileChange = Task {
  for await profile in Settings.$profile.changes { return profile?.name }
  return nil
}
let updater = Task {
  while !Task.isCancelled {
    Settings.profile = Profile(name: "changed \(Settings.$size.update { $0 += 1 })")
    try? await Task.sleep(for: .milliseconds(5))
  }
}
check(await profileChange.value?.hasPrefix("changed") == true)
updater.cancel()
await updater.value
Settings.profile = nil

let drawing = Drawing()
drawing.draw()
drawing.accent = "red"
check(await drawing.hasDrawn("red 0.5 -"))
await Task.detached { Defaults[.volume] = 1 }.value
check(await drawing.hasDrawn("red 1.0 -"))
Settings.profile = Profile(name: "drawn")
check(await drawing.hasDrawn("red 1.0 drawn"))
drawing.$accent.reset()
check(await drawing.hasDrawn("blue 1.0 drawn"))
do {
  try await drawing.load()
  check(drawing.note?.name == "loaded" && drawing.share == 1 && drawing.bytes > 1)
  var steps = 0
  try await Caches.images.set(chunks: Steps(start: 4), forKey: "count") { _, _ in steps += 1 }
  check(steps, is: 3)
  async let left = thumbnailOffMainActor("left")
  async let right: Thumbnail = DiskCache.fetch("right") { try await thumbnailOffMainActor("right") }
  check(try await left.name + right.name, is: "leftright")
  check(try await Task { try await DiskCache.fetch(.reader) { Profile() } }.value, is: Profile())
  DiskCache[.thumbnail] = Thumbnail(name: "t")
  let name = try await Task.detached {
    try await DiskCache.fetch(.thumbnail) { Thumbnail(name: "other") }.name
  }.value
  check(name, is: "t")
  let thumbnail = try await Caches.images.perform { store in
    try store.set(Thumbnail(name: "p"), for: .thumbnail)
    return try store.get(.thumbnail)
  }
  check(thumbnail?.name, is: "p")
  check(await Task.detached { SecureVault[.credentials]?.name }.value, is: "secret")
  check(try await protectOffMainActor("open sesame"))

  StorageSystem.removeAll()
  try await Caller().checkSharedCalls()
} catch {
  print(error)
  exit(1)
}
print("ok")
