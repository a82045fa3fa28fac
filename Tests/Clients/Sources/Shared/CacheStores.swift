// Caches with a name, in memory and in other directories, and their stores.
import Checks
import FoundationEssentials
import Keepsake

extension Caller {
  var images: DiskCache.Store { DiskCache.named("Images") }

  func checkCaches() throws {
    DiskCache.set(1, forKey: "x", cache: .memory)
    check(DiskCache.model("x", cache: .memory), is: 1)
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    DiskCache.set(Data([1]), forKey: "x", cache: DiskCache.Name("team", in: folder))
    check(DiskCache.get("x", cache: .init("team", in: folder)), is: Data([1]))
    let file = DiskCache.fileURL("x", cache: DiskCache.Name("team", in: folder)) ?? folder
    try DiskCache.shared.set(contentsOf: file, forKey: "copy", expiry: .days(1))
    try images.set(contentsOf: file, forKey: "copy", durable: true)
    check(try Data(contentsOf: file), is: Data([1]))
    check(DiskCache.get("copy"), is: Data([1]))
    try FileManager.default.removeItem(at: folder)

    DiskCache.sizeLimit = 200_000_000
    DiskCache.sizeLimit = nil
    images.sizeLimit = nil
    check(DiskCache.named(.images).sizeLimit == nil)
    check(DiskCache.totalSize > 0 && DiskCache.totalSize(cache: "missing") == 0)
    let statistics = DiskCache.shared.statistics
    check(statistics.hits + statistics.misses > statistics.evictions + statistics.damaged)
    guard let entry = try DiskCache.shared.entry("copy") else { return check(false) }
    check(entry.size == 1 && entry.created <= Date())
    check(entry.expires.map { $0 > Date() } ?? false)
  }

  /// The calls of a store throw only `StorageError`.
  func checkCacheStore(_ store: DiskCache.Store) throws(StorageError) {
    try store.set(Data([1]), forKey: "avatar", expiry: .idle(.minutes(30)))
    try store.set(Profile(name: "Ada"), forKey: "user", durable: true)
    try store.set(nil, forKey: "nothing")
    let user: Profile? = try store.model("user")
    check(try store.model("user", type: Profile.self), is: user)
    check(try store.get("avatar")?.count, is: 1)
    check(try store.entry("avatar")?.size, is: 1)
    check(try store.fileURL("avatar") != nil)
    check(try store.folderURL != nil)
    check(try store.totalSize > 0)
    check(try store.keys().contains("avatar"))
    check(store.name.name == "Images" && store.statistics.damaged == 0)
    try store.set(Profile(), for: .archived)
    try store.set(Profile(name: "b"), for: .archived, durable: true)
    check(try store.get(.archived)?.name, is: "b")
    check(try store.contains(.archived))
    try store.remove(.archived)
    try store.removeExpired()
    check(try store.removeExpired(), is: 0)
    try store.remove("avatar")
    check(try store.contains("avatar"), is: false)
    store.sizeLimit = 10_000
    do {
      try store.set(Data(count: 100_000), forKey: "film")
      check(false)
    } catch StorageError.Code.diskFull {
      check(false)
    } catch let error where error.code == .misuse {
      check(error.key, is: "film")
    } catch {
      throw error
    }
    store.sizeLimit = nil
    try store.removeAll()
  }

  func checkCacheStores() throws {
    try checkCacheStore(images)
    do {
      try DiskCache.shared.set("text", forKey: "number")
      _ = try DiskCache.shared.model("number", type: Int.self)
      check(false)
    } catch StorageError.Code.wrongType, StorageError.Code.decodingFailed {
      check(true)
    }
  }
}
