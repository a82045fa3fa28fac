// What a store holds in memory for each key or entry, once all have been read. Each figure is taken
// in a process of its own: in one that has done something before, freed memory would be used again.
import CFloor
import Foundation
import Keepsake

struct Memory {
  let directory: String
  let count: Int

  private static let cacheName = "cache"
  private static let few = 16

  func measure(_ bench: inout Bench) throws {
    try prepare()
    func holds(_ kind: Kind) -> Probe {
      { try Child(task: Duty.memory.rawValue, [kind.rawValue, directory, "\(count)"]).number() }
    }
    try bench.compare(
      "memory of a setting", count: count, unit: .bytes, rounds: 5,
      keepsake: holds(.defaults),
      base: Peer("Dictionary", target: .infinity, holds(.dictionary)),
      peers: [
        Peer(Settings.foundation, holds(.foundation)),
        Peer(
          PeerTable.name, weaker: "reads from the file again and again", holds(.table)),
      ])
    try bench.compare(
      "memory of a cache entry read", size: 100, count: count, unit: .bytes, rounds: 5,
      keepsake: holds(.cache),
      base: Peer("Dictionary", target: .infinity, holds(.cachedDictionary)),
      peers: [
        Peer(
          PeerTable.name, weaker: "reads from the file again and again", holds(.cachedTable))
      ])
  }

  /// What a child fills itself with, and how.
  enum Kind: String {
    case defaults
    case dictionary
    case foundation
    case table
    case cache
    case cachedDictionary
    case cachedTable
  }

  /// Stores everything, and a little of each under another name to warm up with.
  private func prepare() throws {
    for (name, count) in [("all", count), ("few", Self.few)] {
      let host = try makeDirectory("\(directory)/memory-\(name)")
      let values = (0..<count).map { (key: Settings.key($0), value: Settings.value($0)) }
      let suite = Defaults.Suite(name, in: host)
      for (key, value) in values { value.store(forKey: key, suite: suite) }
      guard Defaults.synchronize(suite: suite) else { throw Failure("a suite cannot be written") }
      let objects = Dictionary(uniqueKeysWithValues: values.map { ($0.key, $0.value.object) })
      UserDefaults.standard.setPersistentDomain(objects, forName: "com.example.memory-\(name)")
      UserDefaults.standard.synchronize()
      let path = host.path(percentEncoded: false)
      try PeerTable(at: "\(path)/table.sqlite").fill(values)
      let cache = DiskCache.named(DiskCache.Name(Self.cacheName, in: host))
      let value = Caching.value(100)
      for number in 0..<count {
        try cache.set(value, forKey: Caching.key(number), expiry: .days(7))
      }
      try PeerTable(at: "\(path)/cached.sqlite").fill(
        (0..<count).lazy.map { (Caching.key($0), value) }, lifetime: lifetime)
    }
  }

  /// What a child does: prints how many bytes each of `count` takes.
  static func run(_ kind: Kind, _ directory: String, _ count: Int) throws {
    // Brings in the code, and what is allocated once.
    let warm = try held(kind, directory, "few", few)
    let before = floor_anonymous_bytes()
    let all = try held(kind, directory, "all", count)
    let after = floor_anonymous_bytes()
    guard before >= 0, after >= 0 else { throw Failure("/proc/self does not tell the memory") }
    withExtendedLifetime((warm, all)) {
      print(max(0, Double(after - before)) / Double(count))
    }
  }

  /// Reads all keys of a store; returns what has to live for them to stay read.
  private static func held(
    _ kind: Kind, _ directory: String, _ name: String, _ count: Int
  ) throws -> Any {
    let path = "\(directory)/memory-\(name)"
    let host = URL(filePath: path, directoryHint: .isDirectory)
    switch kind {
    case .defaults:
      let suite = Defaults.Suite(name, in: host)
      for number in 0..<count {
        guard Defaults.contains(Settings.key(number), suite: suite) else { throw lost }
      }
      return suite
    case .dictionary:
      let table = FloorTable()
      for number in 0..<count { table.set(Settings.value(number), forKey: Settings.key(number)) }
      return table
    case .foundation:
      guard let peer = UserDefaults(suiteName: "com.example.memory-\(name)") else { throw lost }
      for number in 0..<count {
        guard peer.object(forKey: Settings.key(number)) != nil else { throw lost }
      }
      return peer
    case .table:
      let table = try PeerTable(at: "\(path)/table.sqlite")
      for number in 0..<count {
        guard try table.contains(Settings.key(number)) else { throw lost }
      }
      return table
    case .cache:
      let cache = DiskCache.named(DiskCache.Name(cacheName, in: host))
      for number in 0..<count {
        guard try cache.get(Caching.key(number)) != nil else { throw lost }
      }
      return cache
    case .cachedDictionary:
      // All values, as a program keeps them that has no cache on the disk.
      return Dictionary(
        uniqueKeysWithValues: (0..<count).map { (Caching.key($0), Caching.value(100)) })
    case .cachedTable:
      let table = try PeerTable(at: "\(path)/cached.sqlite")
      for number in 0..<count {
        guard try table.get(Caching.key(number), Data.self) != nil else { throw lost }
      }
      return table
    }
  }

  private static var lost: Failure { Failure("what was stored is not there") }
}
