// Cached values by name and by typed key.
import Checks
import FoundationEssentials
import Keepsake

extension DiskCache.Key<Profile> {
  static let reader = Self("reader", expiry: .minutes(5))
  static let archived = Self("archived", cache: "Archive")
}

extension DiskCache.Key<Data> {
  static let cover = DiskCache.Key<Data>("cover", expiry: .idle(.days(1)), cache: "Images")
}

// A key is `Sendable` even if its values are not.
extension DiskCache.Key<Draft> {
  static let draft = DiskCache.Key<Draft>("draft")
}

extension DiskCache.Key where Value == [String: Data] {
  static var thumbnails: Self { Self("thumbnails", cache: .memory) }
}

/// A key whose name is partly determined at run time.
extension DiskCache.Key<[Profile]> {
  static func section(_ number: Int) -> Self { Self("section-\(number)", expiry: .hours(1)) }
}

extension DiskCache.Name {
  static let images: DiskCache.Name = "Images"
}

extension Caller {
  func checkCachedValues() {
    let png = Data([0x89, 0x50])
    DiskCache.set(png, forKey: "image_001", expiry: .days(7))
    let image = DiskCache.get("image_001")
    check(image ?? Data(), is: png)
    if let image = DiskCache.get("image_002") { check(image.count, is: 0) }
    guard DiskCache.set("text", forKey: "text") else { return check(false) }
    check(DiskCache.get("text").map { String(decoding: $0, as: UTF8.self) }, is: "text")
    let text: String? = DiskCache.model("text")
    check(DiskCache.model("text", type: String.self) ?? "none", is: text ?? "")
    check((DiskCache.model("none") ?? Profile(name: "new")).name, is: "new")
    DiskCache.set(Profile(name: "Ada"), forKey: "user", expiry: .hours(1), cache: "People")
    if let user: Profile = DiskCache.model("user", cache: "People") { check(user.name, is: "Ada") }
    DiskCache.set(Draft(text: "d"), forKey: "plain", durable: true, cache: "Drafts")
    check(DiskCache.model("plain", type: Draft.self, cache: "Drafts")?.text, is: "d")
    DiskCache.set(Theme.light, forKey: "theme", cache: "user-\(image?.count ?? 0)")
    check(DiskCache.model("theme", cache: "user-2") == Theme.light)
    DiskCache.set(nil, forKey: "theme", cache: "user-\(image?.count ?? 0)")
    check(DiskCache.keys(cache: "user-2"), is: [])
    DiskCache.set(["a": 1.5, "b": 2], forKey: "table")
    check(DiskCache.model("table") as [String: Double]?, is: ["a": 1.5, "b": 2])
    DiskCache.set(16, forKey: "int")
    check(DiskCache.model("int"), is: 16)
    DiskCache.set([Profile?]([nil, Profile()]), forKey: "list", expiry: .date(.distantFuture))
    check(DiskCache.model("list", type: [Profile?].self)?.count, is: 2)
    let anything: any Codable = 7
    DiskCache.set(anything, forKey: "any")
    check(DiskCache.model("any"), is: 7)

    DiskCache.set(URL(string: "https://example.com"), forKey: "url")
    check(DiskCache.contains("url"))
    DiskCache.set(Optional<Profile>.none, forKey: "url")
    DiskCache.set(nil, forKey: "image_001")
    DiskCache.set(nil, forKey: "image_001", expiry: .days(7), cache: "Images")
    check(DiskCache.remove("list") && !DiskCache.contains("url"))
    DiskCache.remove("image_001", cache: "Images")
    check(Set(DiskCache.keys()).isSuperset(of: ["text", "int"]))
  }

  func checkCacheExpiry() throws {
    let expiries: [DiskCache.Expiry] = [
      .never, .seconds(90), .minutes(0.5), .hours(2), .days(7), .date(.distantFuture),
      .date(Date(timeIntervalSinceNow: 60)), .idle(.seconds(90)), .idle(.minutes(30)),
      .idle(.hours(1)), .idle(.days(7)), .minutes(5).jitter(0.1), .after(.hours(2)),
    ]
    for (number, expiry) in expiries.enumerated() {
      DiskCache.set(number, forKey: "k", expiry: expiry, cache: "expiry-\(number)")
      check(DiskCache.model("k", cache: "expiry-\(number)"), is: number)
      let entry = try DiskCache.named("expiry-\(number)").entry("k")
      // The distant future does not count as an expiry.
      check((entry?.expires == nil) == (expiry == .never || expiry == .date(.distantFuture)))
    }
    let week = expiries.isEmpty ? 1 : 7
    DiskCache.set(1, forKey: "k", expiry: .days(Double(week)))
    let lifetime: Duration = .minutes(30)
    DiskCache.set(1, forKey: "k", expiry: .idle(lifetime))
    check(lifetime == .seconds(1_801) && .hours(1) == Duration.seconds(3_600))
    let rule = week > 5 ? DiskCache.Expiry.never : .hours(1)
    DiskCache.set(1, forKey: "k", expiry: rule)
    DiskCache.set(1, forKey: "k", expiry: week > 5 ? .seconds(0) : .never)
    check(!DiskCache.contains("k"))
    for cache in try DiskCache.shared.caches() where cache.name.hasPrefix("expiry-") {
      DiskCache.removeAll(cache: cache)
      check(DiskCache.keys(cache: cache), is: [])
    }
    DiskCache.removeExpired()
    DiskCache.removeExpired(cache: .images)
  }

  func checkCacheKeys() {
    check(DiskCache[.reader] == nil)
    DiskCache[.reader] = Profile(name: "Ada")
    DiskCache[.reader]?.name = "Grace"
    DiskCache[.reader]?.tags.append("x")
    check(DiskCache[.reader] == Profile(name: "Grace", tags: ["x"]) && DiskCache.contains(.reader))
    check(DiskCache.get(.reader) == DiskCache[.reader])
    check((try? DiskCache.shared.entry(.reader))?.expires != nil)
    DiskCache[.reader] = nil
    DiskCache.remove(.reader)
    check(!DiskCache.contains(.reader))
    DiskCache[.cover] = Data([1])
    check(DiskCache.get("cover", cache: "Images"), is: Data([1]))
    DiskCache[.draft] = Draft(text: "d")
    DiskCache[.draft]?.text += "!"
    DiskCache[.thumbnails] = ["a": Data([1])]
    DiskCache[.section(3)] = [Profile()]
    DiskCache[.section(3)]?.append(Profile(name: "b"))
    check(DiskCache[.thumbnails]?.count == 1 && DiskCache[.section(3)]?.count == 2)
  }
}

/// An extension of an app's own wins over the library's of the same name.
extension Duration {
  static func minutes(_ count: Int) -> Duration { .seconds(count * 60 + 1) }
}
