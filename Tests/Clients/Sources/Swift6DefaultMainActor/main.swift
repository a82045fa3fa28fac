// Swift 6 mode with the main actor as default isolation: models, keys and settings need no
// annotations, and `nonisolated` and `@concurrent` lead off the main actor.
import Checks
import Foundation
import Keepsake

final class Caller {
  var count = 0
  var drafts: [Draft] = []
}

extension Defaults.Key<Draft> {
  static let draft = Defaults.Key("draft", default: Draft(text: "empty"))
}

enum Settings {
  @Default("fontSize") static var fontSize = 16
  @Default("static.theme", defaultValue: .light) static var theme: Theme
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

Settings.$fontSize.reset()
Settings.fontSize += 1
check(Settings.$fontSize.update { $0 += 1 }, is: 18)
Settings.theme = .dark
Settings.draft = Draft(text: "letter")
check(Settings.theme == .dark && Defaults[.draft].text == "letter")
check(Settings.nickname == nil)
check(countOffMainActor(), is: 1)
check(await readOffMainActor(), is: 5.5)
let changes = Settings.$profile.changes
Settings.profile = Profile(name: "changed")
for await profile in changes where profile?.name == "changed" { break }
Settings.profile = nil
await Drawing().checkFrames()
var steps = 0
try await DiskCache.shared.set(chunks: Steps(start: 4), forKey: "count") { _, _ in steps += 1 }
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
let thumbnail = try await DiskCache.shared.perform { try $0.get(.thumbnail) }
check(thumbnail?.name, is: "t")
check(await Task.detached { SecureVault[.credentials]?.name }.value, is: "secret")
check(try await protectOffMainActor("open sesame"))

StorageSystem.removeAll()
try await Caller().checkSharedCalls()
print("ok")
