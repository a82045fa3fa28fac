import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

private struct Article: Codable, Equatable, Sendable {
  var title = "On Computable Numbers"
  var pages = 36
}

extension DiskCache.Key<Article> {
  fileprivate static let frontPage = Self("frontPage", expiry: .hours(5), cache: "News")
}

@Suite(.temporaryStorage) struct DiskCacheTests {
  @Test func nilRemoves() {
    DiskCache.set(Data([1]), forKey: "a")
    DiskCache.set(nil, forKey: "a")
    #expect(!DiskCache.contains("a"))
    DiskCache.set(Data([1]), forKey: "a")
    let none: Data? = nil
    #expect(DiskCache.set(none, forKey: "a") && DiskCache.get("a") == nil)
    #expect(DiskCache.remove("a"))
    #expect(DiskCache.totalSize == 0)
  }

  @Test func typedKeysCarryTypeExpiryAndCache() async throws {
    DiskCache[.frontPage] = Article()
    #expect(DiskCache[.frontPage] == Article() && DiskCache.contains(.frontPage))
    #expect(DiskCache.keys() == [] && DiskCache.keys(cache: "News") == ["frontPage"])
    #expect(try DiskCache.named("News").entry("frontPage")?.expires != nil)
    #expect(DiskCache.get(.frontPage) == Article())
    DiskCache[.frontPage] = nil
    #expect(!DiskCache.contains(.frontPage))
    #expect(try await DiskCache.fetch(.frontPage) { Article(pages: 5) }.pages == 5)
    let store = DiskCache.named("News")
    #expect(try store.get(.frontPage)?.pages == 5)
    try store.set(Article(pages: 6), for: .frontPage)
    #expect(DiskCache[.frontPage]?.pages == 6)
    #expect(DiskCache.remove(.frontPage) && DiskCache[.frontPage] == nil)
    #expect(DiskCache.set(Article(pages: 7), for: .frontPage, durable: true))
    #expect(try store.entry(.frontPage)?.expires != nil)
    let none: Article? = nil
    #expect(DiskCache.set(none, for: .frontPage) && !DiskCache.contains(.frontPage))
    try store.set(nil, for: .frontPage)
  }

  @Test func cachesAreSeparate() throws {
    let directory = try TemporaryDirectory()
    let names: [DiskCache.Name] = [
      .standard, "Images", "images", "a/b", "", .memory,
      DiskCache.Name("Images", in: directory.url),
      DiskCache.Name("other", in: directory.url),
    ]
    for (number, name) in names.enumerated() {
      DiskCache.set(number, forKey: "k", cache: name)
    }
    for (number, name) in names.enumerated() {
      #expect(DiskCache.model("k", cache: name) == number, "\(name)")
    }
    #expect(
      try DiskCache.shared.caches().map(\.name) == ["", "Images", "a/b", "images", "standard"])
    #expect(DiskCache.removeAll(cache: "Images"))
    #expect(DiskCache.keys(cache: "Images") == [] && DiskCache.totalSize(cache: "Images") == 0)
    #expect(
      DiskCache.keys(cache: "images") == ["k"] && DiskCache.totalSize(cache: "images") == 8_192)
    #expect(DiskCache.model("k", cache: DiskCache.Name("Images", in: directory.url)) == 6)
    #expect(StorageSystem.removeAll())
    #expect(DiskCache.keys() == [] && DiskCache.keys(cache: .memory) == [])
    // A cache in a directory of its own may also belong to other apps.
    #expect(DiskCache.keys(cache: DiskCache.Name("other", in: directory.url)) == ["k"])
  }

  @Test func eachStoreListsTheAppsCaches() throws {
    let directory = try TemporaryDirectory()
    try directory.makeDirectory("no cache")
    let names = [DiskCache.Name.memory, DiskCache.Name("own", in: directory.url), "Images"]
    for name in names { try DiskCache.named(name).set(1, forKey: "k") }
    for name in names { #expect(try DiskCache.named(name).caches() == ["Images"], "\(name)") }
  }

  @Test func filesFollowTheModeOfAnExistingDirectory() throws {
    let directory = try TemporaryDirectory()
    #expect(chmod(directory.path, 0o2770) == 0)
    let store = DiskCache.named(DiskCache.Name("team", in: directory.url))
    try store.set(Data([1]), forKey: "k")
    let payload = try store.payload("k")
    #expect(try FileSystem.status(payload)?.mode == 0o660)
    #expect(try FileSystem.status(payload + Sidecar.suffix)?.mode == 0o660)
    #expect(try FileSystem.status(FileSystem.parent(of: payload))?.mode == 0o2770)
    #expect(try FileSystem.status(directory.path + "/.team.ledger")?.mode == 0o660)
    // Likewise for a store that has only read before, and for a value that is written in pieces.
    let next = DiskCache.Store(name: store.name, scope: StorageScope.current)
    #expect(try next.get("k") == Data([1]))
    try next.set(contentsOf: URL(filePath: payload), forKey: "file")
    for path in try [next.payload("file"), next.sidecar("file")] {
      #expect(try FileSystem.status(path)?.mode == 0o660)
      #expect(try FileSystem.status(FileSystem.parent(of: path))?.mode == 0o2770)
    }
    let missing = DiskCache.named(DiskCache.Name("x", in: directory.file("missing")))
    let error = expectFailure(.notFound) { try missing.set(1, forKey: "k") }
    #expect(error?.path == directory.file("missing").path)
    #expect(try missing.get("k") == nil)
  }

  @Test func throwsForAnotherTypeAndReturnsBytesOfAnyType() throws {
    let store = DiskCache.shared
    try store.set(Data("[1]".utf8), forKey: "data")
    try store.set("25", forKey: "text")
    try store.set([1, 2], forKey: "list")
    let wrong: [() throws -> Void] = [
      { _ = try store.model("data", type: String.self) },
      { _ = try store.model("data", type: [Int].self) },
      { _ = try store.model("text", type: Int.self) },
      { _ = try store.model("text", type: Data.self) },
      { _ = try store.model("list", type: String.self) },
    ]
    for call in wrong {
      let error = #expect(throws: StorageError.self) { try call() }
      #expect(error?.code == .wrongType && error?.key != nil && error?.path != nil)
    }
    #expect(try store.get("list") == Data("[1,2]".utf8) && store.get("text") == Data("25".utf8))
    #expect(try store.model("missing", type: Int.self) == nil)
  }

  @Test func hitsAndMissesAreCounted() throws {
    let store = DiskCache.named("counted")
    try store.set(1, forKey: "k")
    _ = try store.get("k")
    _ = try store.model("k", type: Int.self)
    _ = try store.get("missing")
    _ = try store.contains("k")
    #expect(store.statistics == DiskCache.Statistics(hits: 2, misses: 1))
    #expect(DiskCache.shared.statistics == DiskCache.Statistics())
  }

  @Test(arguments: [DiskCache.Name.standard, .memory])
  func entriesAreCounted(_ name: DiskCache.Name) async throws {
    let store = DiskCache.named(name)
    #expect(try store.count == 0)
    for key in ["a", "b"] { try store.set(1, forKey: key) }
    try store.set(1, forKey: "c", expiry: .minutes(5))
    #expect(try store.count == 3)
    try await StorageSystem.withClock(advancedBy: .minutes(6)) { () async throws in
      #expect(try store.count == 2)
    }
  }

  @Test func fileURLHasExactlyTheBytes() throws {
    let (key, value) = ("film.mp4", Data([1, 2, 3]))
    DiskCache.set(value, forKey: key)
    let url = try #require(DiskCache.fileURL(key))
    #expect(try Data(contentsOf: url) == value)
    #expect(url.lastPathComponent == "ZmlsbS5tcDQ.mp4", "with the extension of the key")
    // An open file keeps its contents when the entry is replaced.
    let handle = try FileHandle(forReadingFrom: url)
    DiskCache.set(Data([9]), forKey: key)
    #expect(try handle.readToEnd() == value)
    #expect(DiskCache.fileURL("missing") == nil && DiskCache.fileURL(key, cache: .memory) == nil)
  }

  @Test func totalSizeCountsBlocksOnDisk() throws {
    for size in [0, 1, 4_096, 4_097, 100_000] {
      DiskCache.set(Data(count: size), forKey: "k\(size)")
    }
    let directory = try #require(try DiskCache.shared.folderURL)
    let sum = try blocksTaken(by: directory.path)
    #expect(DiskCache.totalSize == sum)
    // Two stores that share nothing else keep one total size.
    let other = DiskCache.Store(name: .standard, scope: StorageScope.current)
    try other.set(Data(count: 5_000), forKey: "new")
    #expect(DiskCache.totalSize == sum + 8_192 + 4_096)
    try other.set(Data(count: 1), forKey: "new")
    try other.remove("k100000")
    #expect(DiskCache.totalSize == sum + 8_192 - 102_400 - 4_096)
  }
}

@Suite(.temporaryStorage) struct SizeLimitTests {
  private let value = Data(count: 4_000)  // 8,192 bytes on disk

  /// Waits for the eviction in the background.
  private func waitForEviction(
    of store: DiskCache.Store, to size: Int, count: Int = 0
  ) throws {
    try waitUntil("entries are evicted") {
      try store.totalSize <= size && store.statistics.evictions >= count
    }
  }

  @Test(arguments: [DiskCache.Name.standard, .memory])
  func leastRecentlyUsedEntriesAreEvictedFirst(name: DiskCache.Name) throws {
    let store = DiskCache.named(name)
    let unit = name == .memory ? 4_000 : 8_192
    for number in 0..<20 { try store.set(value, forKey: "k\(number)") }
    for number in [0, 3] { _ = try store.get("k\(number)") }
    store.sizeLimit = 20 * unit
    try store.set(value, forKey: "last")
    // An eviction is counted after the entry has been removed.
    try waitForEviction(of: store, to: 18 * unit, count: 3)
    let keys = try Set(store.keys())
    #expect(keys.isSuperset(of: ["k0", "k3", "last", "k19"]) && keys.count == 18, "\(keys)")
    #expect(!keys.contains("k1") && !keys.contains("k2") && !keys.contains("k4"))
    #expect(store.statistics.evictions == 3)
  }

  @Test func anEntryThatWasStoredWhileTheClockWasAheadIsUsedLikeOthers() throws {
    let store = DiskCache.shared
    try anHourLater { try store.set(value, forKey: "ahead") }
    for number in 0..<19 { try store.set(value, forKey: "k\(number)") }
    #expect(try systemCalls { _ = try store.get("ahead") }.contains(.times), "the use is recorded")
    try waitUntil("entries are evicted") {
      // Again, because the sizes are unknown for a while after the clock was set back.
      store.sizeLimit = 19 * 8_192
      return try store.totalSize <= 19 * 8_192
    }
    #expect(try store.contains("ahead"))
  }

  /// A scan looks at every file, so evicting a few entries must not need one each time.
  @Test func oneScanFindsTheEntriesOfManyEvictions() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let store = directory.cache()
    for number in 0..<100 { try store.set(value, forKey: "k\(number)") }
    store.sizeLimit = 100 * 8_192
    let scanned = Locked(0)
    let plan = FaultPlan(
      decide: { _ in .proceed },
      observe: { event, _ in if event.call == .list { scanned.withLock { $0 += 1 } } })
    try FaultPlan.$current.withValue(plan) {
      for round in 0..<5 {
        // Entries that are used after the scan stay, like those that are stored after it.
        for number in 95..<100 { _ = try store.get("k\(number)") }
        // The first entry begins an eviction, which leaves nine tenths. The others wait for its
        // end: if they exceeded the limit by more, they would begin another one.
        try store.set(value, forKey: "r\(round).0")
        try waitForEviction(of: store, to: 90 * 8_192, count: 11 * (round + 1))
        for number in 1..<11 { try store.set(value, forKey: "r\(round).\(number)") }
      }
    }
    let keys = try Set(store.keys())
    #expect(keys.isSuperset(of: (95..<100).map { "k\($0)" }))
    #expect(keys.isSuperset(of: (0..<5).flatMap { round in (0..<11).map { "r\(round).\($0)" } }))
    #expect(keys.isDisjoint(with: (0..<40).map { "k\($0)" }))
    // A scan lists about a hundred subdirectories with seven calls each, and there were five.
    #expect(scanned.withLock { $0 } <= 1_500)
  }

  @Test func usesAreKnownAfterARestart() throws {
    let directory = try TemporaryDirectory()
    for number in 0..<10 { try directory.cache().set(value, forKey: "k\(number)") }
    // As if the entries were stored an hour ago, one after the other.
    let hour = WallClock.now - 3_600 * WallClock.second
    for number in 0..<10 {
      let path = try directory.cache().sidecar("k\(number)")
      var sidecar = try Sidecar(Bytes.read(path))
      sidecar.created = hour
      let file = try File(path, .readWrite)
      try sidecar.write(key: "k\(number)", to: file)
      let time = hour + Int64(number) * WallClock.second
      try file.setTimes(accessed: time, modified: time)
    }
    _ = try directory.cache().get("k0")
    let store = directory.cache()
    store.sizeLimit = 8 * 8_192
    try waitForEviction(of: store, to: 8 * 8_192 / 10 * 9)
    #expect(try Set(store.keys()) == ["k0", "k4", "k5", "k6", "k7", "k8", "k9"])
  }

  @Test func writersEvictFarBeyondTheLimit() throws {
    let store = DiskCache.shared
    for number in 0..<300 { try store.set(value, forKey: "k\(number)") }
    try store.files.openCache()?.evict(bytes: 2 * 8_192, toFit: 30 * 8_192)
    #expect(try store.totalSize == 298 * 8_192)
    store.sizeLimit = 30 * 8_192
    for number in 0..<300 {
      try store.set(value, forKey: "k\(number)")
      #expect(try store.contains("k\(number)"))
    }
    try waitForEviction(of: store, to: 30 * 8_192)
    store.sizeLimit = 8_192 * 5
    try waitForEviction(of: store, to: 8_192 * 5)
    #expect(try store.totalSize <= 8_192 * 5)
    store.sizeLimit = nil
    // Once this lock is available, an eviction that has begun has ended.
    let hasEnded = try store.files.eviction.lock.withLock(timeout: .seconds(600)) { _ in true }
    try #require(hasEnded == true)
    for number in 0..<50 { try store.set(value, forKey: "k\(number)") }
    #expect(try store.keys().count >= 50)
  }

  @Test func refusesAValueThatIsTooLargeWithItsSidecar() throws {
    let store = DiskCache.shared
    store.sizeLimit = 8_191
    expectFailure(.misuse) { try store.set(value, forKey: "k") }
    store.sizeLimit = 8_192
    try store.set(value, forKey: "k")
    #expect(try store.get("k") == value)
  }

  /// A file system that clones files writes none of their bytes.
  @Test func refusesAClonedFileThatIsTooLarge() throws {
    let (directory, store) = (try TemporaryDirectory(), DiskCache.shared)
    let bytes = [UInt8](repeating: 7, count: 20_000)
    try directory.write(bytes, to: "source")
    let plan = FaultPlan(decide: { event in
      guard event.call == .clone, let descriptor = event.descriptor else { return .proceed }
      #expect(pwrite(descriptor, bytes, bytes.count, 0) == bytes.count)
      return .succeed(0)
    })
    try FaultPlan.$current.withValue(plan) {
      try store.set(contentsOf: directory.file("source"), forKey: "k")
      #expect(try store.get("k") == Data(bytes))
      store.sizeLimit = 30_000
      try store.set(contentsOf: directory.file("source"), forKey: "k")
      store.sizeLimit = 20_000
      try store.set("old", forKey: "k")
      expectFailure(.misuse) {
        try store.set(contentsOf: directory.file("source"), forKey: "k")
      }
    }
    #expect(try store.model("k") == "old")
  }

  @Test func expiredEntriesInMemoryDoNotCountAsEvicted() throws {
    let store = DiskCache.named(.memory)
    store.sizeLimit = 8_000
    try aSecondAgo { try store.set(value, forKey: "over", expiry: .seconds(0.01)) }
    for key in ["a", "b"] { try store.set(value, forKey: key) }
    #expect(try store.keys() == ["b"] && store.statistics.evictions == 1)
  }

  @Test(arguments: [DiskCache.Name.standard, .memory])
  func refusesAValueThatIsTooLargeAlone(name: DiskCache.Name) async throws {
    let store = DiskCache.named(name)
    try store.set("old", forKey: "k")
    store.sizeLimit = 10_000
    let error = expectFailure(.misuse) { try store.set(Data(count: 10_001), forKey: "k") }
    #expect(error?.key == "k")
    let stream = FolderNameTests.chunks([Array(repeating: 0, count: 10_001)])
    await #expect(throws: StorageError.self) { try await store.set(chunks: stream, forKey: "k") }
    #expect(try store.model("k") == "old")
    // A value that fits is kept, even if it exceeds nine tenths of the limit.
    store.sizeLimit = name == .memory ? 4_100 : 8_200
    try store.set(value, forKey: "k")
    try waitForEviction(of: store, to: 8_200)
    #expect(try store.get("k") == value)
    store.sizeLimit = -5
    #expect(store.sizeLimit == 0)
  }
}
