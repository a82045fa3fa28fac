// DiskCache in Swift 5 mode without any isolation.
import Checks
import Foundation
import Keepsake

extension DiskCache.Key<User> {
  static let reader = Self("reader", expiry: .minutes(5))
}

extension DiskCache.Key<Data> {
  static let cover = DiskCache.Key<Data>("cover", expiry: .idle(.days(1)), cache: "Images")
}

extension DiskCache.Key<Session> {
  static let session = DiskCache.Key<Session>("session")
}

extension DiskCache.Name {
  static let images: DiskCache.Name = "Images"
}

let images = DiskCache.named("Images")

func checkCachedValues() {
  let png = Data([0x89, 0x50])
  DiskCache.set(png, forKey: "image_001", expiry: .days(7))
  let image = DiskCache.get("image_001")
  check(image, is: png)
  check(DiskCache.get("image_002") == nil)
  check(DiskCache.get("image_002") ?? Data(), is: Data())
  if let image = DiskCache.get("image_001") { check(image.count, is: 2) } else { check(false) }
  guard DiskCache.set("text", forKey: "text") else { return check(false) }
  check(DiskCache.get("text").map { String(decoding: $0, as: UTF8.self) }, is: "text")
  let text: String? = DiskCache.model("text")
  check(text, is: "text")
  check(DiskCache.model("text", type: String.self) ?? "none", is: "text")
  check((DiskCache.model("none") ?? User(name: "new")).name, is: "new")
  DiskCache.set(User(name: "Ada"), forKey: "user", expiry: .hours(1), cache: "People")
  if let user: User = DiskCache.model("user", cache: "People") {
    check(user.name, is: "Ada")
  } else {
    check(false)
  }
  DiskCache.set(Session(token: "t"), forKey: "session", durable: true)
  let session: Session? = DiskCache.model("session")
  check(session?.token, is: "t")
  DiskCache.set(Theme.light, forKey: "theme")
  check(DiskCache.model("theme", type: Theme.self) == .light)
  DiskCache.set(Level.high, forKey: "level")
  check(DiskCache.model("level") == Level.high)
  DiskCache.set([1, 2, 3], forKey: "list")
  check(DiskCache.model("list") ?? [Int](), is: [1, 2, 3])
  DiskCache.set(["a": 1.5, "b": 2], forKey: "table")
  check(DiskCache.model("table") as [String: Double]?, is: ["a": 1.5, "b": 2])
  DiskCache.set(16, forKey: "int")
  check(DiskCache.model("int"), is: 16)
  DiskCache.set(2.5, forKey: "double")
  DiskCache.set(true, forKey: "bool")
  check(DiskCache.model("bool") == true)
  DiskCache.set(URL(string: "https://example.com"), forKey: "url")
  DiskCache.set(Date(), forKey: "date")
  let anything: any Codable = 7
  DiskCache.set(anything, forKey: "any")
  check(DiskCache.model("any"), is: 7)
  DiskCache.set([UInt8](png), forKey: "bytes")
  check(DiskCache.model("bytes", type: [UInt8].self)?.count, is: 2)

  var name: String? = "Ada"
  DiskCache.set(name, forKey: "name")
  check(DiskCache.contains("name"))
  name = nil
  DiskCache.set(name, forKey: "name")
  check(!DiskCache.contains("name"))
  DiskCache.set(nil, forKey: "image_001")
  DiskCache.set(nil, forKey: "image_001", expiry: .days(7), cache: "Images")
  check(DiskCache.get("image_001") == nil)
  check(DiskCache.remove("image_001"))
  DiskCache.remove("image_001", cache: "Images")
  check(Set(DiskCache.keys()).isSuperset(of: ["text", "list"]))
  check(DiskCache.keys(cache: "People"), is: ["user"])
}

func checkCacheExpiry() {
  let expiries: [DiskCache.Expiry] = [
    .never, .seconds(90), .minutes(0.5), .hours(2), .days(7), .date(.distantFuture),
    .date(Date(timeIntervalSinceNow: 60)), .idle(.seconds(90)), .idle(.minutes(30)),
    .idle(.hours(1)), .idle(.days(7)),
  ]
  for (number, expiry) in expiries.enumerated() {
    DiskCache.set(number, forKey: "k", expiry: expiry, cache: "expiry-\(number)")
    check(DiskCache.model("k", cache: "expiry-\(number)"), is: number)
    let entry = DiskCache.entry("k", cache: "expiry-\(number)")
    // The distant future does not count as an expiry.
    check((entry?.expires == nil) == (expiry == .never || expiry == .date(.distantFuture)))
  }
  let week = DiskCache.keys().isEmpty ? 1 : 7
  DiskCache.set(1, forKey: "k", expiry: .days(Double(week)))
  let lifetime: DiskCache.Expiry.Lifetime = .minutes(30)
  DiskCache.set(1, forKey: "k", expiry: .idle(lifetime))
  let rule = week > 5 ? DiskCache.Expiry.never : .hours(1)
  DiskCache.set(1, forKey: "k", expiry: rule)
  DiskCache.set(1, forKey: "k", expiry: week > 5 ? .seconds(0) : .never)
  check(!DiskCache.contains("k"))
  check(DiskCache.caches().contains("expiry-2"))
  for cache in DiskCache.caches() where cache.name.hasPrefix("expiry-") {
    DiskCache.removeAll(cache: cache)
    check(DiskCache.keys(cache: cache), is: [])
  }
  DiskCache.removeExpired()
  DiskCache.removeExpired(cache: .images)
}

func checkNamedCaches() throws {
  DiskCache.set(1, forKey: "x", cache: .memory)
  check(DiskCache.model("x", cache: .memory), is: 1)
  check(DiskCache.fileURL("x", cache: .memory) == nil)
  let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
  try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  DiskCache.set(Data([1]), forKey: "x", cache: DiskCache.Name("team", in: folder))
  check(DiskCache.get("x", cache: .init("team", in: folder)), is: Data([1]))
  let file = DiskCache.fileURL("x", cache: DiskCache.Name("team", in: folder))
  check(try Data(contentsOf: file ?? folder), is: Data([1]))
  if let file {
    check(DiskCache.set(contentsOf: file, forKey: "copy", expiry: .days(1)))
    DiskCache.set(contentsOf: file, forKey: "copy", durable: true, cache: "Images")
  }
  check(DiskCache.get("copy"), is: Data([1]))
  try FileManager.default.removeItem(at: folder)

  DiskCache.sizeLimit = 200_000_000
  check(DiskCache.sizeLimit, is: 200_000_000)
  DiskCache.sizeLimit = nil
  check(DiskCache.totalSize > 0)
  check(DiskCache.totalSize(cache: "Images") > 0)
  check(DiskCache.totalSize(cache: "missing"), is: 0)
  DiskCache.named("Images").sizeLimit = 1_000_000
  images.sizeLimit = nil
  check(DiskCache.named(.images).sizeLimit == nil)
  let statistics = DiskCache.statistics
  check(statistics.hits > 0 && statistics.misses > 0)
  check(statistics.evictions + statistics.damaged, is: 0)
  if let entry = DiskCache.entry("copy") {
    check(entry.size, is: 1)
    check(entry.created <= Date())
    check(entry.expires.map { $0 > Date() } ?? false)
  } else {
    check(false)
  }
}

func checkCacheKeys() throws {
  check(DiskCache[.reader] == nil)
  DiskCache[.reader] = User(name: "Ada")
  check(DiskCache[.reader]?.name, is: "Ada")
  DiskCache[.reader]?.name = "Grace"
  DiskCache[.reader]?.tags.append("x")
  check(DiskCache[.reader], is: User(name: "Grace", tags: ["x"]))
  check(DiskCache.contains(.reader))
  check(DiskCache.entry(DiskCache.Key<User>.reader.name)?.expires != nil)
  DiskCache[.reader] = nil
  DiskCache.remove(.reader)
  check(!DiskCache.contains(.reader))
  DiskCache[.cover] = Data([1])
  check(DiskCache.get("cover", cache: "Images"), is: Data([1]))
  DiskCache[.session] = Session(token: "a")
  check(DiskCache[.session]?.token, is: "a")

  try images.set(Data([2]), for: .cover)
  check(try images.get(.cover), is: Data([2]))
  check(try images.contains(.cover))
  try images.remove(.cover)
}

func checkCacheStores() throws {
  do {
    try images.set(Data([1]), forKey: "avatar", expiry: .days(7))
    try images.set(User(name: "Ada"), forKey: "user", durable: true)
    try images.set(nil, forKey: "nothing")
    let user: User? = try images.model("user")
    check(user?.name, is: "Ada")
    check(try images.model("user", type: User.self)?.name, is: "Ada")
    check(try images.get("avatar")?.count, is: 1)
    check(try images.entry("avatar")?.size, is: 1)
    check(try images.fileURL("avatar") != nil)
    check(try images.folderURL != nil)
    check(try images.totalSize > 0)
    check(try images.keys().contains("avatar"))
    check(images.name.name, is: "Images")
    check(images.statistics.damaged, is: 0)
    try images.removeExpired()
    check(try images.removeExpired(), is: 0)
    try images.remove("avatar")
    check(try images.contains("avatar"), is: false)
    try images.removeAll()
  } catch StorageError.Code.diskFull {
    return check(false)
  } catch {
    print(error.remedy)
    throw error
  }
  do {
    try DiskCache.shared.set("text", forKey: "number")
    _ = try DiskCache.shared.model("number", type: Int.self)
    check(false)
  } catch StorageError.Code.wrongType, StorageError.Code.decodingFailed {
    check(true)
  }
  images.sizeLimit = 10_000
  do {
    try images.set(Data(count: 100_000), forKey: "film")
    check(false)
  } catch let error where error.code == .misuse {
    check(error.key, is: "film")
  }
  images.sizeLimit = nil
}

func download() async throws -> User { User(name: "loaded") }

func checkCacheInTasks() async throws {
  var count = 0

  let user: User = try await DiskCache.fetch("fetched", expiry: .minutes(5)) {
    count += 1
    return try await download()
  }
  check(user.name, is: "loaded")
  let again = try await DiskCache.fetch("fetched") { () -> User in
    count += 1
    return User(name: "again")
  }
  check(again.name, is: "loaded")
  check(count, is: 1)
  let passed = try await DiskCache.fetch("passed", expiry: .days(1), cache: "Images", download)
  check(passed.name, is: "loaded")
  let page = try await DiskCache.fetch(.reader) { try await download() }
  check(page, is: user)
  check(try await DiskCache.fetch(.session) { Session(token: "b") }.token, is: "a")
  check(try await images.fetch("raw") { Data([1, 2]) }.count, is: 2)
  check(try await images.fetch(.cover) { Data([3]) }, is: Data([3]))
  let nothing: User? = try await DiskCache.fetch("nothing") { nil }
  check(nothing == nil)
  let quick = try? await DiskCache.fetch("text") { "other" }
  check(quick, is: "text")
  async let slow: User = DiskCache.fetch("slow") { try await download() }
  check(try await slow, is: user)

  let keys = try await DiskCache.shared.perform { try $0.keys() }
  check(keys.contains("fetched"))
  let session = try await images.perform { store -> Session in
    try store.set(Session(token: "made"), forKey: "session")
    return try store.model("session") ?? Session(token: "")
  }
  check(session.token, is: "made")
  try await images.perform { try $0.removeAll() }

  let body = AsyncStream<Data> { continuation in
    for byte in 0..<3 as Range<UInt8> { continuation.yield(Data([byte])) }
    continuation.finish()
  }
  var done = 0
  await DiskCache.set(chunks: body, forKey: "film", total: 3) { bytes, total in
    done = bytes
    check(total, is: 3)
  }
  check(done, is: 3)
  check(DiskCache.get("film"), is: Data([0, 1, 2]))
  let text = AsyncThrowingStream<[UInt8], Error> { $0.finish() }
  try await images.set(chunks: text, forKey: "text", expiry: .idle(.minutes(30)))
  check(try images.get("text"), is: Data())
}
