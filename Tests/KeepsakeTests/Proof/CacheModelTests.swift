import Foundation
import Testing

@testable import Keepsake
@testable import keepsake_peer

/// A cache behaves like a dictionary, which may evict entries if it has a limit.
protocol CacheModel: StoreModel where Store == ScriptedCache {
  static var limit: Int? { get }
  var entries: [Int: CachedSample] { get set }
  /// Whether the total is exact: entries of a killed process are counted by the next sweep.
  var isCounted: Bool { get set }
}

struct CachedSample: Equatable, Sendable {
  let sample: Sample
  let life: ScriptedCache.Lifetime
}

struct EndlessCacheModel: CacheModel {
  static let name = "cache"
  static let limit: Int? = nil
  var entries: [Int: CachedSample] = [:]
  var isCounted = true
}

struct LimitedCacheModel: CacheModel {
  static let name = "limited cache"
  static let limit: Int? = ScriptedCache.limit
  var entries: [Int: CachedSample] = [:]
  var isCounted = true
}

extension CacheModel {
  typealias Call = ScriptedCache.Call

  static func open(_ directory: TemporaryDirectory) -> ScriptedCache {
    let store = directory.cache(DiskCache.Name("x", in: directory.url))
    if let limit { store.sizeLimit = limit }
    return ScriptedCache(store: store)
  }

  static func randomCall(_ generator: inout SplitMix64) -> Call {
    let key = Int.randomKey(&generator)
    switch Int.random(in: 0..<100, using: &generator) {
    case 0..<38:
      return .set(
        key, .random(&generator), .allCases.randomElement(using: &generator) ?? .endless,
        durable: Int.random(in: 0..<4, using: &generator) == 0)
    case 38..<53: return .get(key, as: .allCases.randomElement(using: &generator) ?? .int)
    case 53..<58: return .size(key)
    case 58..<63: return .contains(key)
    case 63..<68: return .entry(key)
    case 68..<80: return .remove(key)
    case 80..<84: return .removeAll
    case 84..<90: return .removeExpired
    case 90..<97: return .totalSize
    default: return .keys
    }
  }

  static func simpler(_ call: Call) -> [Call] {
    switch call {
    case .set(let key, let sample, let life, let isDurable):
      sample.simpler.map { .set(key, $0, life, durable: isDurable) }
        + key.simpler.map { .set($0, sample, life, durable: isDurable) }
        + (life == .endless ? [] : [.set(key, sample, .endless, durable: isDurable)])
        + (isDurable ? [.set(key, sample, life, durable: false)] : [])
    case .get(let key, let kind): key.simpler.map { .get($0, as: kind) }
    case .size(let key): key.simpler.map { .size($0) }
    case .contains(let key): key.simpler.map { .contains($0) }
    case .entry(let key): key.simpler.map { .entry($0) }
    case .remove(let key): key.simpler.map { .remove($0) }
    case .removeAll, .removeExpired, .totalSize, .keys: []
    }
  }

  static func probe(of call: Call) -> Call? {
    switch call {
    case .set(let key, let sample, _, _): .get(key, as: sample.kind)
    case .remove(let key): .contains(key)
    default: nil
    }
  }

  func outcomes(of call: Call, by user: StoreUser) -> [ModelOutcome<Self>] {
    var next = self
    let answer = "done"
    switch call {
    case .set(let key, let sample, let life, _):
      next.entries[key] = life.lasts ? CachedSample(sample: sample, life: life) : nil
    case .get(let key, let kind):
      return reading(key, "nothing") { $0.sample.summary(as: kind) }
    case .size(let key): return reading(key, "nothing") { "\($0.sample.byteCount > 0)" }
    case .contains(let key): return reading(key, "false") { _ in "true" }
    case .entry(let key):
      return reading(key, "nothing") { $0.life == .endless ? "endless" : "ends" }
    case .remove(let key): next.entries[key] = nil
    case .removeAll:
      next.entries = [:]
      next.isCounted = true
    case .removeExpired: next.isCounted = true
    case .totalSize:
      // Interrupted calls are counted by the next sweep, and eviction may be running.
      return [ModelOutcome(Self.limit == nil && isCounted ? "right" : nil, self)]
    case .keys:
      let keys = "\(entries.keys.sorted())"
      return [ModelOutcome(Self.limit == nil && isCounted ? keys : nil, self)]
    }
    return [ModelOutcome(answer, next)]
  }

  /// The outcomes of a read: an evicted entry is missing and stays so.
  private func reading(
    _ key: Int, _ nothing: String, _ answer: (CachedSample) -> String
  ) -> [ModelOutcome<Self>] {
    var without = self
    without.entries[key] = nil
    guard let entry = entries[key] else { return [ModelOutcome(nothing, self)] }
    let present = ModelOutcome(answer(entry), self)
    return Self.limit == nil ? [present] : [present, ModelOutcome(nothing, without)]
  }

  mutating func accept(_ found: [Int: String]) -> Bool {
    if Self.limit != nil { entries = entries.filter { found[$0.key] != nil } }
    return entries.mapValues(\.sample.summary) == found
  }

  /// The old value, the new one, or none.
  mutating func accept(_ found: [Int: String], interrupting call: Call) -> Bool {
    var models = [self, outcomes(of: call, by: .first)[0].model]
    if case .set(let key, _, _, _) = call {
      var without = self
      without.entries[key] = nil
      models.append(without)
    }
    if case .removeAll = call {
      // It removes the entries of one subdirectory after the other. Other stores notice an
      // interrupted removal after a few milliseconds.
      usleep(20_000)
      var rest = self
      rest.entries = entries.filter { found[$0.key] != nil }
      models.append(rest)
    }
    for var model in models where model.accept(found) {
      self = model
      return true
    }
    return false
  }

  mutating func crashed() { isCounted = false }

  func audit(_ directory: TemporaryDirectory, _ store: ScriptedCache) throws -> String? {
    if let limit = Self.limit { return try audit(store.store, limit) }
    return try auditTotal(directory, store)
  }

  /// After eviction the total is within the limit, and the last entry is there.
  private func audit(_ store: DiskCache.Store, _ limit: Int) throws -> String? {
    // Later than all earlier uses, even for a clock with a resolution of some milliseconds.
    usleep(15_000)
    try store.set(Data(count: 100), forKey: "last")
    var total = 0
    let deadline = ContinuousClock.now + .seconds(20)
    repeat {
      total = try store.totalSize
      if total <= limit + limit / 10 { break }
      usleep(1_000)
    } while ContinuousClock.now < deadline
    defer { _ = try? store.remove("last") }
    if total > limit + limit / 10 { return "totalSize is \(total) with a limit of \(limit)" }
    return try store.contains("last") ? nil : "the last entry is missing"
  }

  /// The total matches the files once work in the background has removed some of them.
  private func auditTotal(_ directory: TemporaryDirectory, _ store: ScriptedCache) throws -> String?
  {
    let root = directory.path + "/x"
    guard isCounted, FileManager.default.fileExists(atPath: root) else {
      return nil
    }
    let total = try store.store.totalSize
    var found = 0
    let deadline = ContinuousClock.now + .seconds(20)
    repeat {
      found = try Self.blocks(root)
      if found == total { return nil }
      try store.store.removeExpired()
      usleep(2_000)
    } while ContinuousClock.now < deadline
    return "totalSize was \(total), the files take \(found) bytes"
  }

  private static func blocks(_ root: String) throws -> Int {
    var sum = 0
    // Unlike FileManager, it continues if work in the background removes files at the same time.
    try ConfinedPath(base: root).walk { visit in
      guard visit.kind == .file, visit.path.name != "CACHEDIR.TAG" else { return }
      var status = stat()
      if lstat(visit.path.path, &status) == 0 { sum += Int(status.st_blocks) * 512 }
    }
    return sum
  }
}

extension Sample {
  /// The size of text and bytes; 1 for other types, which are never empty.
  fileprivate var byteCount: Int {
    switch self {
    case .text(let number): Sample.text(of: number).utf8.count
    case .bytes(let number): number
    default: 1
    }
  }
}

extension OneAtATime {
  @Suite(.singleThreaded) struct CacheModelTests {
    @Test func aCacheBehavesLikeADictionary() {
      ModelCheck<EndlessCacheModel>().run(sequences: 30, length: 80)
    }

    @Test func aCacheWithALimitEvictsAndNeverMixesUpValues() {
      ModelCheck<LimitedCacheModel>().run(sequences: 15, length: 80)
    }
  }
}
