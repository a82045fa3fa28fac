// Values that are fetched if the cache does not have them.
import Checks
import FoundationEssentials
import Keepsake

func download() async throws -> Profile { Profile(name: "loaded") }

extension Caller {
  func cached<T: Codable>(_ key: String, or make: () async throws -> T) async throws -> T {
    try await DiskCache.fetch(key, expiry: .minutes(5), cache: "generic") { try await make() }
  }

  /// Fetches with closures that change a local variable or the caller.
  func checkFetches() async throws {
    self.count = 0
    var count = 0
    let profile: Profile = try await DiskCache.fetch("fetched", expiry: .minutes(5)) {
      count += 1
      return try await download()
    }
    check(profile.name == "loaded" && count == 1)
    let passed = try await DiskCache.fetch("passed", expiry: .days(1), cache: "Images", download)
    check(passed.name, is: "loaded")
    DiskCache[.reader] = nil
    let reader = try await DiskCache.fetch(.reader) {
      self.count += 1
      return try await download()
    }
    check(reader.name == "loaded" && self.count == 1)
    // A value that is not `Sendable` stays where the caller is.
    let made = try await DiskCache.fetch("made") { Draft(text: "made \(self.count)") }
    made.text += "!"
    drafts.append(made)
    DiskCache[.draft] = nil
    check(try await DiskCache.fetch(.draft) { made }.text, is: "made 1!")
    _ = try await images.fetch("raw", expiry: .idle(.minutes(30))) { Data([1]) }
    check(try await images.fetch(.cover) { Data([3]) }, is: Data([3]))
    let nothing: Profile? = try await DiskCache.fetch("nothing") { nil }
    check(nothing == nil)
    let nested = try? await DiskCache.fetch("nested") {
      [1: try await DiskCache.fetch("inner") { try await download() }.name]
    }
    check(nested, is: [1: "loaded"])
    check(try await cached("generic") { 3 }, is: 3)
    do {
      _ = try await DiskCache.fetch("failing") { () -> Profile in throw Refusal() }
      check(false)
    } catch is Refusal {
      check(!DiskCache.contains("failing"))
    }
  }

  /// Fetches whose closures change a property without `self`.
  func checkFetchesInTasks() async throws {
    let profile = try await DiskCache.fetch("profile", expiry: .hours(1)) {
      count += 1
      return try await download()
    }
    check(profile.name == "loaded" && count == 2)
    async let left: Int = DiskCache.fetch("left") { 1 }
    async let right = DiskCache.fetch("right", cache: "Right") { 2 }
    check(try await left + right, is: 3)
    check(try await Task { try await DiskCache.fetch("left") { 5 } }.value, is: 1)
    let detached = try await Task.detached {
      try await DiskCache.fetch("detached", cache: "Detached") { "x" }
    }.value
    check(detached, is: "x")
  }

  /// Work on a thread that may wait.
  func checkPerform() async throws {
    check(try await DiskCache.shared.perform { try $0.keys() }.contains("fetched"))
    let store = DiskCache.named("performed")
    let keys = try await store.perform { store in
      try store.set("a", forKey: "name", durable: true)
      return try store.keys()
    }
    check(keys, is: ["name"])
    try await store.perform { try $0.removeAll() }
    do {
      try await store.perform { _ in throw Refusal() }
    } catch is Refusal {
      check(try store.keys(), is: [])
    }
  }
}
