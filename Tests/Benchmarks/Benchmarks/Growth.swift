// The cost of a call in growing stores: from 10 settings, and from 1,000 cache entries.
import CFloor
import Foundation
import Keepsake

struct Growth {
  let directory: String
  let settingCounts: [Int]
  let entryCounts: [Int]

  func measure(_ bench: inout Bench) throws {
    var settings = try Settings(directory: directory)
    for count in settingCounts {
      try settings.fill(to: count)
      try settings.measureReading(&bench)
      try settings.measureWriting(&bench)
    }
    for count in entryCounts { try measureEntries(&bench, count: count) }
  }

  private func measureEntries(_ bench: inout Bench, count: Int) throws {
    let cache = try EmptyCache(in: "\(directory)/among-\(count)")
    let value = Caching.value(100)
    try cache.fill(count, value)
    let table = try PeerTable(at: "\(cache.parent)/table.sqlite")
    try table.fill((0..<count).lazy.map { (Caching.key($0), value) }, lifetime: lifetime)
    // Listing a million entries takes many seconds.
    if count <= 100_000 { try measureListing(&bench, cache, count: count) }
    let keys = (0..<count).shuffled().prefix(10_000).map(Caching.key)
    let paths = try cache.payloads(keys)
    for key in keys { sink &+= try cache.store.get(key)?.count ?? 0 }
    try bench.measure(
      "DiskCache.get", size: 100, count: count, target: 1.3, batch: .milliseconds(8),
      keepsake: { try each(keys, $0) { sink &+= try cache.store.get($0)?.count ?? 0 } },
      floor: { try each(paths, $0) { sink &+= try FloorCache.get($0).count } },
      peers: [
        Peer(PeerTable.name) {
          try each(keys, $0) { sink &+= try table.get($0, Data.self)?.count ?? 0 }
        }
      ])
    var next = count
    var newKeys: [String] = []
    var entries: [FloorCache.Entry] = []
    try bench.measure(
      "DiskCache.set, new key", size: 100, count: count, target: 1.3, batch: .milliseconds(8),
      // Few, so that the number of entries stays about the same.
      most: max(20, min(400, count / 200)),
      prepare: {
        newKeys = (next..<next + $0).map(Caching.key)
        entries = (next..<next + $0).map(cache.floor.entry)
        next += $0
      },
      keepsake: {
        for key in newKeys[..<$0] { try cache.store.set(value, forKey: key, expiry: .days(7)) }
      },
      floor: { for entry in entries[..<$0] { try cache.floor.set(value, entry) } },
      peers: [
        Peer(PeerTable.name) {
          for key in newKeys[..<$0] { try table.set(value, forKey: key, lifetime: lifetime) }
        }
      ])
  }

  private func measureListing(_ bench: inout Bench, _ cache: EmptyCache, count: Int) throws {
    let store = cache.store
    let surveys: Subject = { for _ in 0..<$0 { sink &+= floor_walk(cache.base) } }
    try bench.measure(
      "DiskCache.totalSize", count: count,
      keepsake: { for _ in 0..<$0 { sink &+= try store.totalSize } }, floor: nil)
    try bench.measure(
      "DiskCache.keys", count: count, batch: .milliseconds(1), rounds: 5,
      keepsake: { for _ in 0..<$0 { sink &+= try store.keys().count } }, floor: surveys)
    try bench.measure(
      "DiskCache.removeExpired", count: count, batch: .milliseconds(1), rounds: 5,
      keepsake: { for _ in 0..<$0 { sink &+= try store.removeExpired() } }, floor: surveys)
  }
}
