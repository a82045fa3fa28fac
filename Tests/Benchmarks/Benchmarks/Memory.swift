// The memory of a store for each key or entry after all were read. Each figure comes from a new
// process, because a process that did something before would reuse freed memory.
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
      {
        try Child(task: ChildTask.memory.rawValue, [kind.rawValue, directory, "\(count)"]).number()
      }
    }
    try bench.compare(
      "memory of a setting", count: count, unit: .bytes, rounds: 5,
      keepsake: holds(.defaults),
      base: Peer("Dictionary", target: .infinity, holds(.dictionary)),
      peers: [
        Peer(Settings.foundation, holds(.foundation)),
        Peer(
          PeerTable.name, weaker: "reads the file each time", holds(.table)),
      ])
    try bench.compare(
      "memory of a cache entry read", size: 100, count: count, unit: .bytes, rounds: 5,
      keepsake: holds(.cache),
      base: Peer("Dictionary", target: .infinity, holds(.cachedDictionary)),
      peers: [
        Peer(
          PeerTable.name, weaker: "reads the file each time", holds(.cachedTable))
      ])
  }

  /// The kinds of values that a child keeps in memory.
  enum Kind: String {
    case defaults
    case dictionary
    case foundation
    case table
    case cache
    case cachedDictionary
    case cachedTable
  }

  /// Stores all values, and a few under another name for the warm-up.
  private func prepare() throws {
    for (name, count) in [("all", count), ("few", Self.few)] {
      let parent = try makeDirectory("\(directory)/memory-\(name)")
      let values = (0..<count).map { (key: Settings.key($0), value: Settings.value($0)) }
      let suite = Defaults.Suite(name, in: parent)
      for (key, value) in values { value.store(forKey: key, suite: suite) }
      guard Defaults.synchronize(suite: suite) else { throw Failure("a suite cannot be written") }
      let objects = Dictionary(uniqueKeysWithValues: values.map { ($0.key, $0.value.object) })
      UserDefaults.standard.setPersistentDomain(objects, forName: "com.example.memory-\(name)")
      UserDefaults.standard.synchronize()
      let path = parent.path(percentEncoded: false)
      try PeerTable(at: "\(path)/table.sqlite").fill(values)
      let cache = DiskCache.named(DiskCache.Name(Self.cacheName, in: parent))
      let value = Caching.value(100)
      for number in 0..<count {
        try cache.set(value, forKey: Caching.key(number), expiry: .days(7))
      }
      try PeerTable(at: "\(path)/cached.sqlite").fill(
        (0..<count).lazy.map { (Caching.key($0), value) }, lifetime: lifetime)
    }
  }

  /// The task of a child: prints how many bytes of memory each value takes.
  static func run(_ kind: Kind, _ directory: String, _ count: Int) throws {
    // Loads code, and makes all allocations that happen once.
    let warm = try held(kind, directory, "few", few)
    let before = floor_anonymous_bytes()
    let all = try held(kind, directory, "all", count)
    let after = floor_anonymous_bytes()
    guard before >= 0, after >= 0 else { throw Failure("/proc/self does not report memory") }
    withExtendedLifetime((warm, all)) {
      print(max(0, Double(after - before)) / Double(count))
    }
  }

  /// Reads all keys of a store; returns the object that keeps them in memory.
  private static func held(
    _ kind: Kind, _ directory: String, _ name: String, _ count: Int
  ) throws -> Any {
    let path = "\(directory)/memory-\(name)"
    let parent = URL(filePath: path, directoryHint: .isDirectory)
    switch kind {
    case .defaults:
      let suite = Defaults.Suite(name, in: parent)
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
      let cache = DiskCache.named(DiskCache.Name(cacheName, in: parent))
      for number in 0..<count {
        guard try cache.get(Caching.key(number)) != nil else { throw lost }
      }
      return cache
    case .cachedDictionary:
      // All values in memory, as in a program without a cache on disk.
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

  private static var lost: Failure { Failure("a stored value is missing") }
}
