// The disk cache: reading and writing values of four sizes, and checking whether they exist.
// Keepsake and the floor read the same payload files and write to the same subdirectories, so that
// both find the same directories, inodes and pages.
import Foundation
import Keepsake

struct Caching {
  private let directory: String

  private static let sizes = [100, 1_024, 16_384, 1 << 20]

  init(directory: String) { self.directory = directory }

  /// Replacing files comes last, because ext4 creates files slowly for minutes afterwards. Files
  /// are synced before they are read, because their write-back would slow only one contestant.
  func measure(_ bench: inout Bench) throws {
    for size in Self.sizes { try measureNewKeys(&bench, size: size) }
    for size in Self.sizes { try measureReading(&bench, size: size) }
    try measureExistence(&bench)
    try measureModels(&bench)
    for size in Self.sizes { try measureExistingKeys(&bench, size: size) }
  }

  // MARK: Writing

  private func measureNewKeys(_ bench: inout Bench, size: Int) throws {
    let cache = try EmptyCache(in: "\(directory)/new-\(size)")
    let peers = try CachePeers(in: cache.parent)
    let value = Self.value(size)
    var next = 0
    var keys: [String] = []
    var entries: [FloorCache.Entry] = []
    try bench.measure(
      "DiskCache.set, new key", size: size, target: 1.3, batch: .milliseconds(8),
      // At most some hundred MB of dirty pages; with more, the disk would be measured.
      most: size > 100_000 ? 4 : 400,
      prepare: {
        keys = (next..<next + $0).map(Self.key)
        entries = (next..<next + $0).map(cache.floor.entry)
        next += $0
      },
      keepsake: {
        for key in keys[..<$0] { try cache.store.set(value, forKey: key, expiry: .days(7)) }
      },
      floor: { for entry in entries[..<$0] { try cache.floor.set(value, entry) } },
      peers: peers.each(isSet: true) { peer in
        { for key in keys[..<$0] { try peer.set(value, key) } }
      })
  }

  private func measureExistingKeys(_ bench: inout Bench, size: Int) throws {
    let cache = try EmptyCache(in: "\(directory)/over-\(size)")
    let peers = try CachePeers(in: cache.parent)
    let value = Self.value(size)
    let numbers = 0..<(size > 100_000 ? 16 : 256)
    let (keys, entries) = (numbers.map(Self.key), numbers.map(cache.floor.entry))
    let keepsake: Subject = {
      try each(keys, $0) { try cache.store.set(value, forKey: $0, expiry: .days(7)) }
    }
    let floor: Subject = { try each(entries, $0) { try cache.floor.set(value, $0) } }
    let others = peers.each(isSet: true) { peer in
      { try each(keys, $0) { try peer.set(value, $0) } }
    }
    for fill in [keepsake, floor] + others.map(\.work) { try fill(keys.count) }
    try bench.measure(
      "DiskCache.set, existing key", size: size, target: 1.3, batch: .milliseconds(8),
      most: 400, keepsake: keepsake, floor: floor,
      peers: others)
  }

  // MARK: Reading

  private func measureReading(_ bench: inout Bench, size: Int) throws {
    var parent = "\(directory)/read-\(size)"
    let value = Self.value(size)
    let keys = (0..<(size > 100_000 ? 32 : 2_000)).map(Self.key)
    let original = try EmptyCache(in: parent)
    let peers = try CachePeers(in: parent)
    for key in keys + [Self.anyKey] {
      try original.store.set(value, forKey: key, expiry: .days(7))
      for peer in peers.all { try peer.work.set(value, key) }
    }
    let (store, paths) = (original.store, try original.payloads(keys))
    sync()
    // From here on Keepsake remembers the payloads and has verified their checksums.
    for key in keys { sink &+= try store.get(key)?.count ?? 0 }
    try bench.measure(
      "DiskCache.get, read before", size: size, target: 1.3,
      keepsake: { try each(keys, $0) { sink &+= try store.get($0)?.count ?? 0 } },
      floor: { try each(paths, $0) { sink &+= try FloorCache.get($0).count } },
      peers: peers.each { peer in
        { try each(keys, $0) { sink &+= try peer.get($0)?.count ?? 0 } }
      })

    // A renamed directory is a new cache to the process: it remembers nothing of the files.
    var fresh = store
    var freshPaths = paths
    var moves = 0
    try bench.measure(
      "DiskCache.get, first read", size: size, target: 2, most: keys.count,
      prepare: { _ in
        moves += 1
        let moved = "\(directory)/read-\(size)-\(moves)"
        try FileManager.default.moveItem(atPath: parent, toPath: moved)
        parent = moved
        fresh = DiskCache.named(DiskCache.Name(EmptyCache.name, in: URL(filePath: parent)))
        // Open the cache.
        guard try fresh.get(Self.anyKey) != nil else { throw SystemFailure(code: ENOENT) }
        freshPaths = try EmptyCache.payloads(keys, fresh, like: paths)
      },
      keepsake: { for key in keys[..<$0] { sink &+= try fresh.get(key)?.count ?? 0 } },
      floor: { for path in freshPaths[..<$0] { sink &+= try FloorCache.get(path).count } })
  }

  /// Checks whether a key exists.
  private func measureExistence(_ bench: inout Bench) throws {
    let cache = try EmptyCache(in: "\(directory)/look")
    let store = cache.store
    let (keys, missing) = ((0..<2_000).map(Self.key), (2_000..<4_000).map(Self.key))
    let value = Self.value(100)
    for key in keys { try store.set(value, forKey: key, expiry: .days(7)) }
    // The facade looks stores up by name, except the standard one.
    for key in keys { DiskCache.set(value, forKey: key, expiry: .days(7)) }
    sync()
    for key in keys { sink &+= try store.get(key)?.count ?? 0 }
    let paths = try cache.payloads(keys)
    let nowhere = (0..<2_000).map { cache.floor.entry($0).path }
    func looks(_ paths: [String]) -> Subject {
      { each(paths, $0) { sink &+= FloorCache.contains($0) ? 1 : 0 } }
    }
    let peers = try CachePeers(in: cache.parent)
    for key in keys { for peer in peers.all { try peer.work.set(value, key) } }
    func peerLooks(_ keys: [String]) -> [Peer<Subject>] {
      peers.each { peer in { try each(keys, $0) { sink &+= try peer.contains($0) ? 1 : 0 } } }
    }
    try bench.measure(
      "DiskCache.contains", size: 100, target: 1.5,
      keepsake: { try each(keys, $0) { sink &+= try store.contains($0) ? 1 : 0 } },
      floor: looks(paths), peers: peerLooks(keys))
    try bench.measure(
      "DiskCache.contains, missing", target: 1.5,
      keepsake: { try each(missing, $0) { sink &+= try store.contains($0) ? 1 : 0 } },
      floor: looks(nowhere), peers: peerLooks(missing))
    try bench.measure(
      "DiskCache.get, missing", target: 1.5,
      keepsake: { try each(missing, $0) { sink &+= try store.get($0)?.count ?? 0 } },
      floor: looks(nowhere), peers: peerLooks(missing))
    let standardPaths = try EmptyCache.payloads(keys, DiskCache.shared)
    for key in keys { sink &+= DiskCache.get(key)?.count ?? 0 }
    try bench.measure(
      "DiskCache.get, facade, standard", size: 100, target: 1.3,
      keepsake: { each(keys, $0) { sink &+= DiskCache.get($0)?.count ?? 0 } },
      floor: { try each(standardPaths, $0) { sink &+= try FloorCache.get($0).count } })
    try bench.measure(
      "DiskCache.get, facade, named", size: 100,
      keepsake: { each(keys, $0) { sink &+= DiskCache.get($0, cache: cache.name)?.count ?? 0 } },
      floor: { try each(paths, $0) { sink &+= try FloorCache.get($0).count } })
  }

  /// Measures models, which Keepsake stores as JSON.
  private func measureModels(_ bench: inout Bench) throws {
    let cache = try EmptyCache(in: "\(directory)/models")
    let (documents, table) = (
      try PeerDocuments(in: cache.parent), try PeerTable(at: "\(cache.parent)/table.sqlite")
    )
    let keys = (0..<256).map(Self.key)
    let entries = keys.indices.map(cache.floor.entry)
    let contents = try JSONEncoder().encode(Profile())
    let keepsake: Subject = {
      try each(keys, $0) { try cache.store.set(Profile(), forKey: $0, expiry: .days(7)) }
    }
    let floor: Subject = { try each(entries, $0) { try cache.floor.set(contents, $0) } }
    let asDocument: Subject = { try each(keys, $0) { try documents.set(Profile(), forKey: $0) } }
    let inTable: Subject = {
      try each(keys, $0) { try table.setModel(Profile(), forKey: $0, lifetime: lifetime) }
    }
    for fill in [keepsake, floor, asDocument, inTable] { try fill(keys.count) }
    let paths = try cache.payloads(keys)
    try bench.measure(
      "DiskCache.model, read before", batch: .milliseconds(8),
      keepsake: {
        try each(keys, $0) { sink &+= try cache.store.model($0, type: Profile.self)?.age ?? 0 }
      },
      floor: { try each(paths, $0) { sink &+= try FloorCache.get($0).count } },
      peers: [
        Peer(PeerDocuments.name) {
          try each(keys, $0) { sink &+= try documents.get($0, Profile.self)?.age ?? 0 }
        },
        Peer(PeerTable.name) {
          try each(keys, $0) { sink &+= try table.model($0, Profile.self)?.age ?? 0 }
        },
      ])
    try bench.measure(
      "DiskCache.set, a model", batch: .milliseconds(8), most: 400,
      keepsake: keepsake, floor: floor,
      peers: [
        Peer(PeerDocuments.name, stronger: Atomic.isStronger, asDocument),
        Peer(PeerTable.name, inTable),
      ])
  }

  // MARK: Keys and values

  /// 16 bytes, short enough for a readable file name on all file systems.
  static func key(_ number: Int) -> String { "article.\(10_000_000 + number)" }

  private static let anyKey = "any"

  static func value(_ size: Int) -> Data {
    Data((0..<size).map { _ in UInt8.random(in: .min ... .max) })
  }
}
