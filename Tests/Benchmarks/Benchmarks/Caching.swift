// The disk cache: reading and writing values of four sizes, and how much that costs among many
// entries. Keepsake and the floor read the very same payload files and write into the same
// subfolders, so that both meet the same directories, inodes and pages.
import CFloor
import Foundation
import Keepsake

struct Caching {
  private let folder: String
  private let counts: [Int]

  private static let sizes = [100, 1_024, 16_384, 1 << 20]

  /// - Parameter counts: How many entries there are when the cost of one call among them is measured.
  init(folder: String, counts: [Int]) {
    self.folder = folder
    self.counts = counts
  }

  /// What deletes files comes last: ext4 is slow for minutes to make new ones after that. What was
  /// filled is synced before it is read: its write-back would take the processor from one side only.
  func measure(_ bench: inout Bench) throws {
    for size in Self.sizes { try measureNewKeys(&bench, size: size) }
    for size in Self.sizes { try measureReading(&bench, size: size) }
    try measureLooking(&bench)
    try measureListing(&bench, count: 10_000)
    for count in counts { try measureAmong(&bench, count: count) }
    for size in Self.sizes { try measureExistingKeys(&bench, size: size) }
  }

  // MARK: Writing

  private func measureNewKeys(_ bench: inout Bench, size: Int) throws {
    let cache = try EmptyCache(in: "\(folder)/new-\(size)")
    let (plain, table) = (try PlainCache(in: cache.host), try TableCache(in: cache.host))
    let value = Self.value(size)
    var next = 0
    var keys: [String] = []
    var entries: [FloorCache.Entry] = []
    try bench.measure(
      "DiskCache.set, new key", size: size, target: "<= 1.3", batch: .milliseconds(8),
      // Some hundred MB of dirty pages at most: beyond, the disk would be what is measured.
      limit: size > 100_000 ? 4 : 400,
      prepare: {
        keys = (next..<next + $0).map(Self.key)
        entries = (next..<next + $0).map(cache.floor.entry)
        next += $0
      },
      keepsake: {
        for key in keys[..<$0] { try cache.store.set(value, forKey: key, expiry: .days(7)) }
      },
      floor: { for entry in entries[..<$0] { try cache.floor.set(value, entry) } },
      peers: [
        (PlainCache.name, { for key in keys[..<$0] { try plain.set(value, forKey: key) } }),
        (TableCache.name, { for key in keys[..<$0] { try table.set(value, forKey: key) } }),
      ])
  }

  private func measureExistingKeys(_ bench: inout Bench, size: Int) throws {
    let cache = try EmptyCache(in: "\(folder)/over-\(size)")
    let (plain, table) = (try PlainCache(in: cache.host), try TableCache(in: cache.host))
    let value = Self.value(size)
    let numbers = 0..<(size > 100_000 ? 16 : 256)
    let (keys, entries) = (numbers.map(Self.key), numbers.map(cache.floor.entry))
    let keepsake: Subject = {
      try each(keys, $0) { try cache.store.set(value, forKey: $0, expiry: .days(7)) }
    }
    let floor: Subject = { try each(entries, $0) { try cache.floor.set(value, $0) } }
    let plainly: Subject = { try each(keys, $0) { try plain.set(value, forKey: $0) } }
    let inTable: Subject = { try each(keys, $0) { try table.set(value, forKey: $0) } }
    for fill in [keepsake, floor, plainly, inTable] { try fill(keys.count) }
    try bench.measure(
      "DiskCache.set, existing key", size: size, target: "<= 1.3", batch: .milliseconds(8),
      limit: 400, keepsake: keepsake, floor: floor,
      peers: [(PlainCache.name, plainly), (TableCache.name, inTable)])
  }

  // MARK: Reading

  private func measureReading(_ bench: inout Bench, size: Int) throws {
    var host = "\(folder)/read-\(size)"
    let value = Self.value(size)
    let keys = (0..<(size > 100_000 ? 32 : 2_000)).map(Self.key)
    let original = try EmptyCache(in: host)
    let (plain, table) = (try PlainCache(in: host), try TableCache(in: host))
    for key in keys + [Self.anyKey] {
      try original.store.set(value, forKey: key, expiry: .days(7))
      try plain.set(value, forKey: key)
      try table.set(value, forKey: key)
    }
    let (store, paths) = (original.store, try original.payloads(keys))
    sync()
    // From here on its payloads are known and summed.
    for key in keys { sink &+= try store.get(key)?.count ?? 0 }
    try bench.measure(
      "DiskCache.get, read before", size: size, target: "<= 1.3",
      keepsake: { try each(keys, $0) { sink &+= try store.get($0)?.count ?? 0 } },
      floor: { try each(paths, $0) { sink &+= try FloorCache.get($0).count } },
      peers: [
        (
          PlainCache.name, { try each(keys, $0) { sink &+= try plain.get($0)?.count ?? 0 } }
        ),
        (
          TableCache.name, { try each(keys, $0) { sink &+= try table.get($0)?.count ?? 0 } }
        ),
      ])

    // A cache is another one to a process when its folder has another name: nothing of it is known
    // then, though its files are the same ones.
    var fresh = store
    var freshPaths = paths
    var moves = 0
    try bench.measure(
      "DiskCache.get, first read", size: size, target: "<= 2", limit: keys.count,
      prepare: { _ in
        moves += 1
        let moved = "\(folder)/read-\(size)-\(moves)"
        try FileManager.default.moveItem(atPath: host, toPath: moved)
        host = moved
        fresh = DiskCache.named(DiskCache.Name(EmptyCache.name, in: URL(filePath: host)))
        // Opens it.
        guard try fresh.get(Self.anyKey) != nil else { throw SystemFailure(code: ENOENT) }
        freshPaths = try EmptyCache.payloads(keys, fresh, like: paths)
      },
      keepsake: { for key in keys[..<$0] { sink &+= try fresh.get(key)?.count ?? 0 } },
      floor: { for path in freshPaths[..<$0] { sink &+= try FloorCache.get(path).count } })
  }

  /// Whether something is there.
  private func measureLooking(_ bench: inout Bench) throws {
    let cache = try EmptyCache(in: "\(folder)/look")
    let store = cache.store
    let (keys, missing) = ((0..<2_000).map(Self.key), (2_000..<4_000).map(Self.key))
    let value = Self.value(100)
    for key in keys { try store.set(value, forKey: key, expiry: .days(7)) }
    // The facade finds its store by name first; the standard one is found at once.
    for key in keys { DiskCache.set(value, forKey: key, expiry: .days(7)) }
    sync()
    for key in keys { sink &+= try store.get(key)?.count ?? 0 }
    let paths = try cache.payloads(keys)
    let nowhere = (0..<2_000).map { cache.floor.entry($0).path }
    func looks(_ paths: [String]) -> Subject {
      { each(paths, $0) { sink &+= FloorCache.contains($0) ? 1 : 0 } }
    }
    try bench.measure(
      "DiskCache.contains", size: 100, target: "<= 1.5",
      keepsake: { try each(keys, $0) { sink &+= try store.contains($0) ? 1 : 0 } },
      floor: looks(paths))
    try bench.measure(
      "DiskCache.contains, missing", target: "<= 1.5",
      keepsake: { try each(missing, $0) { sink &+= try store.contains($0) ? 1 : 0 } },
      floor: looks(nowhere))
    try bench.measure(
      "DiskCache.get, missing", target: "<= 1.5",
      keepsake: { try each(missing, $0) { sink &+= try store.get($0)?.count ?? 0 } },
      floor: looks(nowhere))
    let standardPaths = try EmptyCache.payloads(keys, DiskCache.shared)
    for key in keys { sink &+= DiskCache.get(key)?.count ?? 0 }
    try bench.measure(
      "DiskCache.get, facade, standard", size: 100, target: "<= 1.3",
      keepsake: { each(keys, $0) { sink &+= DiskCache.get($0)?.count ?? 0 } },
      floor: { try each(standardPaths, $0) { sink &+= try FloorCache.get($0).count } })
    try bench.measure(
      "DiskCache.get, facade, named", size: 100, target: "none",
      keepsake: { each(keys, $0) { sink &+= DiskCache.get($0, cache: cache.name)?.count ?? 0 } },
      floor: { try each(paths, $0) { sink &+= try FloorCache.get($0).count } })
  }

  // MARK: Many entries

  private func measureListing(_ bench: inout Bench, count: Int) throws {
    let cache = try EmptyCache(in: "\(folder)/list-\(count)")
    try cache.fill(count, Self.value(100))
    try measureListing(&bench, cache, count: count)
  }

  private func measureListing(_ bench: inout Bench, _ cache: EmptyCache, count: Int) throws {
    let store = cache.store
    let surveys: Subject = { for _ in 0..<$0 { sink &+= floor_survey(cache.root) } }
    try bench.measure(
      "DiskCache.totalSize", keys: count, target: "none",
      keepsake: { for _ in 0..<$0 { sink &+= try store.totalSize } }, floor: nil)
    try bench.measure(
      "DiskCache.keys", keys: count, target: "none", batch: .milliseconds(1), rounds: 5,
      keepsake: { for _ in 0..<$0 { sink &+= try store.keys().count } }, floor: surveys)
    try bench.measure(
      "DiskCache.removeExpired", keys: count, target: "none", batch: .milliseconds(1), rounds: 5,
      keepsake: { for _ in 0..<$0 { sink &+= try store.removeExpired() } }, floor: surveys)
  }

  /// What single calls cost among so many entries.
  private func measureAmong(_ bench: inout Bench, count: Int) throws {
    let cache = try EmptyCache(in: "\(folder)/among-\(count)")
    let value = Self.value(100)
    try cache.fill(count, value)
    if count == 100_000 { try measureListing(&bench, cache, count: count) }
    let keys = (0..<count).shuffled().prefix(10_000).map(Self.key)
    let paths = try cache.payloads(keys)
    for key in keys { sink &+= try cache.store.get(key)?.count ?? 0 }
    try bench.measure(
      "DiskCache.get among many", keys: count, size: 100, target: "<= 1.3",
      batch: .milliseconds(8),
      keepsake: { try each(keys, $0) { sink &+= try cache.store.get($0)?.count ?? 0 } },
      floor: { try each(paths, $0) { sink &+= try FloorCache.get($0).count } })
    var next = count
    var newKeys: [String] = []
    var entries: [FloorCache.Entry] = []
    try bench.measure(
      "DiskCache.set among many", keys: count, size: 100, target: "<= 1.3",
      batch: .milliseconds(8),
      // So that it is still about that many entries at the end.
      limit: max(20, min(400, count / 200)),
      prepare: {
        newKeys = (next..<next + $0).map(Self.key)
        entries = (next..<next + $0).map(cache.floor.entry)
        next += $0
      },
      keepsake: {
        for key in newKeys[..<$0] { try cache.store.set(value, forKey: key, expiry: .days(7)) }
      },
      floor: { for entry in entries[..<$0] { try cache.floor.set(value, entry) } })
  }

  // MARK: Keys and values

  /// Sixteen bytes, which no file system takes for a file name that is too long.
  static func key(_ number: Int) -> String { "article.\(10_000_000 + number)" }

  private static let anyKey = "any"

  private static func value(_ size: Int) -> Data {
    Data((0..<size).map { _ in UInt8.random(in: .min ... .max) })
  }
}

/// A cache in a folder of its own, with all subfolders made, so that no set has to.
struct EmptyCache {
  static let name = "cache"

  let host: String
  let root: String
  let name: DiskCache.Name
  let store: DiskCache.Store
  let floor: FloorCache

  init(in host: String) throws {
    // For the user alone: in any other a set has to give its files the folder's mode.
    try FileManager.default.createDirectory(
      atPath: host, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    self.host = host
    name = DiskCache.Name(Self.name, in: URL(filePath: host))
    store = DiskCache.named(name)
    try store.set(Data(), forKey: "")
    root = "\(host)/\(Self.name)"
    for number in 0..<FloorCache.folderCount {
      try FileManager.default.createDirectory(
        atPath: "\(root)/\(FloorCache.folderName(number))", withIntermediateDirectories: true,
        attributes: [.posixPermissions: 0o700])
    }
    floor = try FloorCache(in: root, lockFile: "\(host)/floor.lock")
  }

  func fill(_ count: Int, _ value: Data) throws {
    for number in 0..<count {
      try store.set(value, forKey: Caching.key(number), expiry: .days(7))
    }
    sync()
  }

  /// Where the values of these keys lie.
  func payloads(_ keys: [String]) throws -> [String] { try Self.payloads(keys, store) }

  static func payloads(_ keys: [String], _ store: DiskCache.Store) throws -> [String] {
    try keys.map { key in
      guard let url = try store.fileURL(key) else { throw SystemFailure(code: ENOENT) }
      return url.path(percentEncoded: false)
    }
  }

  /// The same for a cache whose files have moved, which is not asked: it would know them after that.
  static func payloads(
    _ keys: [String], _ store: DiskCache.Store, like paths: [String]
  ) throws -> [String] {
    guard let root = try store.folderURL?.path(percentEncoded: false) else {
      throw SystemFailure(code: ENOENT)
    }
    return paths.map { root + "/" + $0.split(separator: "/").suffix(2).joined(separator: "/") }
  }
}
