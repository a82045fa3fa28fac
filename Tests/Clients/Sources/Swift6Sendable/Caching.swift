// DiskCache from any thread, task and actor: Swift 6 mode without a main actor.
import Checks
import Dispatch
import FoundationEssentials
import Keepsake

struct Article: Codable, Equatable, Sendable {
  var id = 1
  var title = "new"
}

/// A class that is not `Sendable`.
final class Draft: Codable {
  var text: String
  init(text: String) { self.text = text }
}

extension DiskCache.Key<Article> {
  static let frontPage = Self("frontPage", expiry: .minutes(5))
  static let archived = Self("archived", cache: "Archive")
}

// A key is `Sendable` even if its values are not.
extension DiskCache.Key<Draft> {
  static let draft = Self("draft", expiry: .idle(.days(1)))
}

extension DiskCache.Key where Value == [String: Data] {
  static var thumbnails: Self { Self("thumbnails", cache: .memory) }
}

/// A key whose name is partly determined at run time.
extension DiskCache.Key<[Article]> {
  static func section(_ number: Int) -> Self { Self("section-\(number)", expiry: .hours(1)) }
}

struct Offline: Error {}

func download(_ id: Int = 1) async throws -> Article { Article(id: id, title: "loaded") }

/// A downloader with its own cache.
struct Library: Sendable {
  let cache = DiskCache.named("Library")
  var expiry = DiskCache.Expiry.minutes(5)

  func article(_ id: Int) async throws -> Article {
    try await cache.fetch("article_\(id)", expiry: expiry) { try await download(id) }
  }

  func articles() async throws -> [Article] {
    try await withThrowingTaskGroup(of: Article.self) { group in
      for number in 0..<20 { group.addTask { try await article(number % 2) } }
      return try await group.reduce(into: []) { $0.append($1) }
    }
  }
}

actor Newsroom {
  private var downloads = 0
  private var open: [String: Draft] = [:]

  func article(_ id: Int) async throws -> Article {
    try await DiskCache.fetch("news_\(id)", expiry: .minutes(5)) {
      downloads += 1
      return try await download(id)
    }
  }

  func frontPage() async throws -> Article {
    try await DiskCache.fetch(.frontPage) {
      self.downloads += 1
      return Article(id: self.downloads)
    }
  }

  /// A value that is not `Sendable` and stays on this actor.
  func text(_ name: String) async throws -> String {
    let draft = try await DiskCache.fetch(name) { Draft(text: "made \(self.downloads)") }
    open[name] = draft
    try DiskCache.shared.set(draft, forKey: name, expiry: .never)
    return draft.text
  }

  func save(_ name: String) throws {
    if let draft = open[name] { try DiskCache.shared.set(draft, forKey: name) }
  }

  func receive(_ chunks: AsyncStream<Data>) async throws -> Int {
    var received = 0
    try await DiskCache.shared.set(chunks: chunks, forKey: "received") { bytes, _ in
      received = bytes
      downloads += 1
    }
    return received + downloads
  }

  func keys() async throws -> [String] {
    try await DiskCache.shared.perform { try $0.keys() }
  }
}

/// A sequence that is not `Sendable`.
final class Countdown: AsyncSequence, AsyncIteratorProtocol {
  private var rest: [UInt8]
  init(_ rest: [UInt8]) { self.rest = rest }
  func makeAsyncIterator() -> Countdown { self }

  func next() async throws -> [UInt8]? {
    await Task.yield()
    if rest.last == 0 { throw Offline() }
    return rest.popLast().map { [$0] }
  }
}

func body(_ count: Int) -> AsyncStream<Data> {
  AsyncStream { continuation in
    for _ in 0..<count { continuation.yield(Data([7])) }
    continuation.finish()
  }
}

func checkCachedValues() throws {
  DiskCache.set(Article(), forKey: "article")
  let article: Article? = DiskCache.model("article")
  check(article, is: Article())
  DiskCache.set(Draft(text: "d"), forKey: "plain")
  check(DiskCache.model("plain", type: Draft.self)?.text, is: "d")
  let number = article?.id ?? 0
  DiskCache.set(Mode.loud, forKey: "mode", cache: "user-\(number)")
  check(DiskCache.model("mode", cache: "user-1") == Mode.loud)
  DiskCache.set(nil, forKey: "mode", cache: "user-\(number)")
  check(DiskCache.keys(cache: "user-1"), is: [])
  DiskCache.set("text", forKey: "x", cache: .memory)
  DiskCache.set([Article?]([nil, Article()]), forKey: "list", expiry: .date(.distantFuture))
  check(DiskCache.model("list", type: [Article?].self)?.count, is: 2)

  DiskCache[.frontPage] = Article(title: "front")
  check(DiskCache[.frontPage]?.title, is: "front")
  DiskCache[.frontPage] = nil
  DiskCache[.draft] = Draft(text: "d")
  check(DiskCache[.draft]?.text, is: "d")
  DiskCache[.thumbnails] = ["a": Data([1])]
  DiskCache[.thumbnails]?["b"] = Data([2])
  check(DiskCache[.thumbnails]?.count, is: 2)
  DiskCache[.section(3)] = [Article()]
  DiskCache[.section(3)]?.append(Article(id: 2))
  check(DiskCache[.section(3)]?.count, is: 2)
  check(DiskCache.contains(.section(4)), is: false)
  DiskCache.remove(.section(3))

  DiskCache.sizeLimit = 200_000_000
  DiskCache.named("Archive").sizeLimit = nil
  check(DiskCache.totalSize > 0 && DiskCache.totalSize(cache: "Archive") == 0)
  let hits = DiskCache.statistics.hits
  check(DiskCache.contains("article") && DiskCache.statistics.hits >= hits)
  DispatchQueue.concurrentPerform(iterations: 20) { number in
    DiskCache.set(number, forKey: "n\(number)", expiry: .idle(.minutes(30)))
    check(DiskCache.model("n\(number)"), is: number)
  }
}

/// The calls of a store throw only `StorageError`.
func checkCacheStore(_ store: DiskCache.Store) throws(StorageError) {
  try store.set(Article(), for: .archived)
  try store.set(Article(), for: .archived, durable: true)
  check(try store.get(.archived), is: Article())
  check(try store.contains(.archived))
  try store.remove(.archived)
  try store.removeExpired()
  check(try store.keys(), is: [])
  store.sizeLimit = 1 << 20
  do {
    try store.set(Data(count: 2 << 20), forKey: "big")
    check(false)
  } catch StorageError.Code.diskFull {
    check(false)
  } catch {
    check(error.code == .misuse)
  }
  store.sizeLimit = nil
}

/// Generic code of an app.
func cached<T: Codable & Sendable>(
  _ key: DiskCache.Key<T>, or make: @Sendable () async throws -> T
) async throws -> T {
  if let value = DiskCache[key] { return value }
  return try await DiskCache.fetch(key, make)
}

func cached<T: Codable>(_ key: String, or make: () async throws -> T) async throws -> T {
  try await DiskCache.fetch(key, expiry: .minutes(5), cache: "generic") { try await make() }
}

func checkCacheInTasks() async throws {
  // A local variable, mutated in the closure.
  var count = 0
  let article: Article = try await DiskCache.fetch("article_1", expiry: .minutes(5)) {
    count += 1
    return try await download()
  }
  check(article.title == "loaded" && count == 1)
  let draft = try await DiskCache.fetch("draft_1") { Draft(text: "\(count)") }
  draft.text += "!"
  check(draft.text, is: "1!")
  check(try await DiskCache.fetch(.draft) { draft }.text, is: "d")
  check(try await DiskCache.fetch("raw") { Data([1]) }, is: Data([1]))
  let mapped = try await DiskCache.fetch("nested") {
    let inner: Article = try await DiskCache.fetch("inner") { try await download(9) }
    return [inner.id: inner.title]
  }
  check(mapped, is: [9: "loaded"])
  do {
    _ = try await DiskCache.fetch("failing") { () -> Article in throw Offline() }
    check(false)
  } catch is Offline {
    check(!DiskCache.contains("failing"))
  }
  let detached = try await Task.detached {
    try await DiskCache.fetch("detached", cache: "Detached") { try await download(5).id }
  }.value
  check(detached, is: 5)
  async let left: Article = DiskCache.fetch("left") { try await download(1) }
  async let right = DiskCache.fetch(.archived) { try await download(2) }
  check(try await left.id + right.id, is: 3)
  check(try await Task { try await DiskCache.fetch("left") { Article() } }.value.id, is: 1)

  let library = Library()
  check(try await library.articles().count, is: 20)
  let newsroom = Newsroom()
  check(try await newsroom.article(3).id, is: 3)
  check(try await newsroom.article(3).id, is: 3)
  check(try await newsroom.frontPage().id, is: 2)
  check(try await newsroom.text("letter"), is: "made 2")
  try await newsroom.save("letter")
  check(try await newsroom.receive(body(4)), is: 10)
  check(try await newsroom.keys().contains("letter"))
  check(try await cached(.frontPage) { Article() }.id, is: 2)
  check(try await cached("generic") { 3 }, is: 3)
}

func cacheChunks() async throws {
  var done = 0
  let isStored = await DiskCache.set(chunks: body(3), forKey: "film", total: 3) { done = $0 + $1! }
  check(isStored && done == 6)
  await DiskCache.set(chunks: body(1), forKey: "film", expiry: .hours(1), cache: "Films")
  var steps: [Int] = []
  let countdown = Countdown([3, 2, 1])
  try await DiskCache.shared.set(chunks: countdown, forKey: "count") { bytes, total in
    steps.append(bytes)
    check(total == nil)
  }
  check(steps, is: [1, 2, 3])
  check(DiskCache.get("count"), is: Data([1, 2, 3]))
  do {
    try await DiskCache.shared.set(chunks: Countdown([0, 9]), forKey: "count")
    check(false)
  } catch is Offline {
    check(DiskCache.get("count")?.count, is: 3)
  }
  let upper = body(2).map { $0.map { $0 + 1 } }
  try await DiskCache.shared.set(chunks: upper, forKey: "upper", durable: true)
  check(DiskCache.get("upper"), is: Data([8, 8]))
}

func cachePerform() async throws {
  let keys = try await DiskCache.shared.perform { try $0.keys() }
  check(keys.contains("film"))
  let store = DiskCache.named("performed")
  let draft = try await store.perform { store in
    try store.set(Draft(text: "stored"), forKey: "draft")
    return try store.model("draft", type: Draft.self)
  }
  draft?.text += "!"
  check(draft?.text, is: "stored!")
  let made = try await store.perform { _ in Draft(text: "made") }
  let text = try await store.perform { store in
    // A value that is not used afterwards may be sent to the closure.
    try store.set(made, forKey: "made")
    return made.text
  }
  check(text, is: "made")
  try await store.perform { try $0.removeAll() }
  do {
    try await store.perform { _ in throw Offline() }
  } catch is Offline {
    check(true)
  }
}
