// DiskCache in Swift 6 mode, from the main actor and off it.
import Checks
import Foundation
import Keepsake
import Observation

extension DiskCache.Key<Profile> {
  static let profile = Self("profile", expiry: .minutes(5))
}

extension DiskCache.Key<Document> {
  static let document = DiskCache.Key<Document>("document", cache: "Documents")
}

func download() async throws -> Profile { Profile(name: "loaded") }

@MainActor func downloadOnMain() async throws -> Profile { Profile(name: "main") }

func length(of name: String) async throws -> Int {
  let profile = try await DiskCache.fetch("profile_\(name)", expiry: .hours(1)) {
    try await download()
  }
  return profile.name.count
}

/// A view model whose state is changed in closures.
@MainActor @Observable final class Screen {
  var profile: Profile?
  var document: Document?
  var downloads = 0
  var progress = 0
  @ObservationIgnored let images = DiskCache.named("Images")

  func load() async throws {
    profile = try await DiskCache.fetch("screen", expiry: .minutes(5)) {
      downloads += 1
      return try await download()
    }
    profile = try await DiskCache.fetch(.profile) {
      self.downloads += 1
      return try await downloadOnMain()
    }
    document = try await DiskCache.fetch(.document) { Document(title: "made \(downloads)") }
    _ = try await images.fetch("raw", expiry: .idle(.minutes(30))) {
      downloads += 1
      return Data([1])
    }
  }

  func passFunctions() async throws {
    profile = try await DiskCache.fetch("passed", expiry: .days(1), download)
    profile = try await DiskCache.fetch("passed.main", downloadOnMain)
  }

  func loadTogether() async throws -> Int {
    async let first: Profile = DiskCache.fetch("first") { try await download() }
    async let second = DiskCache.fetch("second") { try await downloadOnMain() }
    return try await first.name.count + second.name.count
  }

  func receive(_ count: Int) async {
    let body = AsyncStream<Data> { continuation in
      for _ in 0..<count { continuation.yield(Data([1, 2])) }
      continuation.finish()
    }
    let isStored = await DiskCache.set(chunks: body, forKey: "film", total: 2 * count) {
      bytes, total in
      progress = 100 * bytes / (total ?? 1)
    }
    check(isStored && progress == 100)
    await DiskCache.set(chunks: Lines(["a", "b"], seen: { self.progress += 1 }), forKey: "lines")
    check(DiskCache.get("lines"), is: Data("ab".utf8))
  }

  func save() async throws -> [String] {
    if let document { try images.set(document, forKey: "document") }
    guard let profile else { return [] }
    return try await images.perform { store in
      try store.set(profile, forKey: "profile", durable: true)
      return try store.keys().sorted()
    }
  }

  func makeDocument() async throws {
    document = try await images.perform { try $0.model("document", type: Document.self) }
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

@MainActor func checkCachedValues() throws {
  DiskCache.set(Theme.dark, forKey: "theme", expiry: .days(7))
  let theme: Theme? = DiskCache.model("theme")
  check(theme == .dark)
  DiskCache.set(Document(title: "d"), forKey: "document", cache: "Documents")
  check(DiskCache[.document]?.title, is: "d")
  DiskCache[.document]?.title = "mutated in place"
  DiskCache[.document] = nil
  DiskCache[.profile] = Profile(name: "Ada")
  DiskCache[.profile]?.scores["chess", default: []].append(7)
  check(DiskCache[.profile]?.scores["chess"], is: [7])
  DiskCache.remove(.profile)
  let count = Theme.allCases.count
  DiskCache.set(Data([1]), forKey: "data", expiry: .idle(.hours(1)), cache: "themes-\(count)")
  check(DiskCache.get("data", cache: "themes-2")?.count, is: 1)
  DiskCache.set(nil, forKey: "data", cache: "themes-\(count)")
  check(DiskCache.keys(cache: "themes-2"), is: [])
  check(DiskCache.fileURL("theme") != nil)
  check(DiskCache.entry("theme")?.expires != nil)
  DiskCache.sizeLimit = 200_000_000
  DiskCache.named("Images").sizeLimit = nil
  check(DiskCache.totalSize > 0 && DiskCache.totalSize(cache: "Images") >= 0)
  check(DiskCache.statistics.misses >= 0)
  do {
    try DiskCache.shared.set(Profile(), for: .profile)
    try DiskCache.shared.remove(.profile)
  } catch StorageError.Code.diskFull {
    check(false)
  } catch {
    // Without this clause the Swift 6.3 compiler crashes.
    throw error
  }
}

@MainActor func checkCacheInTasks() async throws {
  let screen = Screen()
  try await screen.load()
  try await screen.load()
  check(screen.downloads, is: 3)
  check(screen.profile?.name, is: "main")
  check(screen.document?.title, is: "made 2")
  try await screen.passFunctions()
  check(screen.profile?.name, is: "main")
  check(try await screen.loadTogether(), is: 10)
  await screen.receive(5)
  check(screen.progress, is: 102)
  check(try await screen.save(), is: ["document", "profile", "raw"])
  try await screen.makeDocument()
  check(screen.document?.title, is: "made 2")
  check(try await length(of: "Ada"), is: 6)
  check(try await Task.detached { try await length(of: "Ada") }.value, is: 6)
  let detached = try await Task.detached {
    try await DiskCache.fetch("detached") {
      try await DiskCache.fetch(.profile) { try await downloadOnMain() }.name
    }
  }.value
  check(detached, is: "main")
  // A main-actor document may be sent to another thread if it is not used afterwards.
  let letter = Document(title: "letter")
  try await screen.images.perform { try $0.set(letter, forKey: "letter") }
  check(try await DiskCache.shared.perform { try $0.keys() }.contains("film"))
}
