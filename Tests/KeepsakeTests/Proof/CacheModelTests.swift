import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// A cache behaves like a dictionary, which may evict entries if it has a limit.
protocol CacheModel: StoreModel where Store == CacheUnderTest {
  static var limit: Int? { get }
  var state: CacheState { get set }

  static func cache(_ directory: TemporaryDirectory, _ failures: Failures) -> DiskCache.Store
}

struct CacheState: Sendable {
  var entries: [Int: CachedSample] = [:]
  /// Whether the total is exact: entries of a killed process are counted by the next sweep.
  var isCounted = true
  /// Whether there may be records that there is no value, which take space.
  var mayHaveNoValue = false
}

struct CachedSample: Equatable, Sendable {
  let sample: Sample
  let life: CacheUnderTest.Lifetime
  /// Whether it is kept for a day after it has expired.
  var isKept = false
}

struct EndlessCacheModel: CacheModel {
  static let name = "cache"
  static let limit: Int? = nil
  var state = CacheState()
}

struct LimitedCacheModel: CacheModel {
  static let name = "limited cache"
  static let limit: Int? = CacheUnderTest.limit
  var state = CacheState()
}

/// A cache in the directory of its app, which need not exist.
struct AppCacheModel: CacheModel {
  static let name = "cache of an app"
  static let limit: Int? = nil
  var state = CacheState()

  static func cache(_ directory: TemporaryDirectory, _ failures: Failures) -> DiskCache.Store {
    directory.cache(failures: failures)
  }
}

extension CacheModel {
  typealias Call = CacheUnderTest.Call

  /// Where another process finds it, too.
  static func cache(_ directory: TemporaryDirectory, _ failures: Failures) -> DiskCache.Store {
    directory.ownCache("x", failures: failures)
  }

  static func open(_ directory: TemporaryDirectory, _ failures: Failures) -> CacheUnderTest {
    let store = cache(directory, failures)
    if let limit { store.sizeLimit = limit }
    // A power cut does not concern it.
    let incoming = NSTemporaryDirectory() + "keepsake-incoming-" + UUID().uuidString
    return CacheUnderTest(
      store: store, fetchCalls: fetchCalls(store), incoming: URL(filePath: incoming))
  }

  private static func fetchCalls(_ store: DiskCache.Store) -> CacheUnderTest.FetchCalls {
    @Sendable func options(kept: Int64) -> WriteOptions {
      WriteOptions(
        expiry: .after(86_400 * WallClock.second), details: EntryDetails(kept: kept),
        isDurable: false)
    }
    return CacheUnderTest.FetchCalls(
      renew: { key in
        let found = try WallClock.$fixed.withValue(WallClock.now + 36 * 3_600 * WallClock.second) {
          try store.engine.find(key, noValue: true, tags: false).found
        }
        guard case .stale(let entry) = found else { return }
        _ = try store.engine.renew(
          entry, forKey: key, options(kept: .max), hook: commitDirectly)
      },
      setNoValue: { key in
        try store.engine.writeNoValue(forKey: key, options(kept: 1), hook: commitDirectly)
      })
  }

  static var simpleTexts: [String] { ["endless"] }

  static func randomCall(_ generator: inout SplitMix64) -> Call {
    let key = Int.randomKey(&generator)
    switch Int.random(in: 0..<100, using: &generator) {
    case 0..<32:
      return .set(
        key, .random(&generator), .allCases.randomElement(using: &generator) ?? .endless,
        durable: Int.random(in: 0..<4, using: &generator) == 0)
    case 32..<35:
      return .setTagged(
        key, .random(&generator), durable: Int.random(in: 0..<4, using: &generator) == 0)
    case 35..<36: return .setFile(key, Int.random(in: 0..<9_000, using: &generator), durable: false)
    case 36..<38: return Bool.random(using: &generator) ? .renew(key) : .setNoValue(key)
    case 38..<53: return .get(key, as: .allCases.randomElement(using: &generator) ?? .int)
    case 53..<56: return .size(key)
    case 56..<57: return .chunks(key)
    case 57..<58: return .path(key)
    case 58..<63: return .contains(key)
    case 63..<68: return .entry(key)
    case 68..<80: return .remove(key)
    case 80..<84: return .removeAll
    case 84..<90: return .removeExpired
    case 90..<97: return .totalSize
    default: return .keys
    }
  }

  /// Another process has no calls that only `fetch` makes.
  static func isAvailableToPeer(_ call: Call) -> Bool {
    switch call {
    case .renew, .setNoValue, .setFile: false
    default: true
    }
  }

  static func probe(of call: Call) -> Call? {
    switch call {
    case .set(let key, let sample, _, _), .setTagged(let key, let sample, _):
      .get(key, as: sample.kind)
    case .setFile(let key, _, _): .get(key, as: .bytes)
    case .remove(let key): .contains(key)
    default: nil
    }
  }

  func outcomes(of call: Call, by user: StoreUser) -> [ModelOutcome<Self>] {
    var next = self
    let answer = "done"
    switch call {
    case .set(let key, let sample, let life, _):
      next.state.entries[key] = life.lasts ? CachedSample(sample: sample, life: life) : nil
    case .setTagged(let key, let sample, _):
      next.state.entries[key] = CachedSample(sample: sample, life: .day, isKept: true)
    case .setFile(let key, let count, _):
      next.state.entries[key] = CachedSample(sample: .bytes(count), life: .endless)
    case .renew(let key):
      guard let entry = state.entries[key], entry.life != .endless else { break }
      // It looks as if a day and a half had passed. Kept again, because it is not known whether a
      // killed call has renewed the entry.
      next.state.entries[key] =
        entry.isKept ? CachedSample(sample: entry.sample, life: .day, isKept: true) : nil
    case .setNoValue(let key):
      next.state.entries[key] = nil
      next.state.mayHaveNoValue = true
    case .get(let key, let kind):
      return reading(key, "nothing") { $0.sample.summary(as: kind) }
    case .size(let key), .chunks(let key):
      return reading(key, "nothing") { "\(![.text(0), .bytes(0)].contains($0.sample))" }
    case .path(let key): return reading(key, "nothing") { _ in "a path" }
    case .contains(let key): return reading(key, "false") { _ in "true" }
    case .entry(let key):
      return reading(key, "nothing") { $0.life == .endless ? "endless" : "ends" }
    case .remove(let key): next.state.entries[key] = nil
    case .removeAll:
      next.state.entries = [:]
      (next.state.isCounted, next.state.mayHaveNoValue) = (true, false)
    case .removeExpired: next.state.isCounted = true
    case .totalSize:
      // Interrupted calls are counted by the next sweep, and eviction may be running.
      let isRight = Self.limit == nil && state.isCounted && !state.mayHaveNoValue
      return [ModelOutcome(isRight ? "right" : nil, self)]
    case .keys:
      let keys = "\(state.entries.keys.sorted())"
      return [ModelOutcome(Self.limit == nil && state.isCounted ? keys : nil, self)]
    }
    return [ModelOutcome(answer, next)]
  }

  /// The outcomes of a read: an evicted entry is missing and stays so.
  private func reading(
    _ key: Int, _ nothing: String, _ answer: (CachedSample) -> String
  ) -> [ModelOutcome<Self>] {
    var without = self
    without.state.entries[key] = nil
    guard let entry = state.entries[key] else { return [ModelOutcome(nothing, self)] }
    let present = ModelOutcome(answer(entry), self)
    return Self.limit == nil ? [present] : [present, ModelOutcome(nothing, without)]
  }

  var contents: [String: String] {
    Dictionary(uniqueKeysWithValues: state.entries.map { ("\($0)", $1.sample.summary) })
  }

  mutating func accept(_ found: [String: String]) -> Bool {
    if Self.limit != nil { keepEntries(found) }
    return found == contents
  }

  private mutating func keepEntries(_ found: [String: String]) {
    state.entries = state.entries.filter { found["\($0.key)"] != nil }
  }

  /// An entry that is being replaced may be missing. `removeAll` removes the entries of one
  /// subdirectory after the other.
  func partialStates(of call: Call, found: [String: String]) -> [Self] {
    var without = self
    switch call {
    case .set(let key, _, _, _), .setTagged(let key, _, _), .setFile(let key, _, _):
      without.state.entries[key] = nil
    case .removeAll:
      // Other stores notice an interrupted removal after a few milliseconds.
      usleep(20_000)
      without.keepEntries(found)
    default: return []
    }
    return [without]
  }

  mutating func crashed() { state.isCounted = false }

  func audit(_ directory: TemporaryDirectory, _ store: CacheUnderTest) throws -> String? {
    if let limit = Self.limit { return try audit(store.store, limit) }
    return try auditTotal(directory, store)
  }

  /// After eviction the total is within the limit, and the last entry is there.
  private func audit(_ store: DiskCache.Store, _ limit: Int) throws -> String? {
    // Later than all earlier uses, even for a clock with a resolution of some milliseconds.
    usleep(15_000)
    try store.set(Data(count: 100), forKey: "last")
    try waitUntil("entries are evicted") { try store.totalSize <= limit + limit / 10 }
    let isThere = try store.contains("last")
    try store.remove("last")
    return isThere ? nil : "the last entry is missing"
  }

  /// The total matches the files once work in the background has removed some of them.
  private func auditTotal(
    _ directory: TemporaryDirectory, _ store: CacheUnderTest
  ) throws -> String? {
    let root = directory.path + "/x"
    guard state.isCounted, FileManager.default.fileExists(atPath: root) else { return nil }
    let total = try store.store.totalSize
    try waitUntil("the files take the \(total) bytes of totalSize") {
      if try Self.blocks(root) == total { return true }
      try store.store.removeExpired()
      return false
    }
    return nil
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

extension EndlessCacheModel: SweptModel {
  static var sweeps: [Sweep<Call>] {
    let (old, new) = (Sample.marked(1), Sample.marked(2))
    let start: [Call] = [
      .set(0, old, .endless, durable: false), .set(1, old, .endless, durable: false),
      .set(2, old, .endless, durable: false), .setTagged(3, old, durable: false),
      .set(4, old, .moment, durable: false),
      // Otherwise opening the cache would clean it up in the background during the call.
      .removeExpired,
    ]
    let calls: [Call] = [
      .set(0, new, .day, durable: false), .set(7, new, .endless, durable: false),
      .set(0, new, .endless, durable: true), .setTagged(0, new, durable: false),
      .setTagged(0, new, durable: true), .set(3, new, .endless, durable: false), .renew(3),
      .setNoValue(0), .remove(0), .removeAll, .removeExpired, .get(0, as: .text), .size(3),
      .chunks(0), .path(0), .contains(0), .entry(3), .keys, .totalSize,
      .setFile(0, 5_000, durable: false),
    ]
    return calls.map { Sweep(call: $0, start: start) }
  }

  /// A damaged or unreadable entry is a miss, and removed.
  func faultStates(of call: Call) -> [Self] {
    let named: Int? =
      switch call {
      case .set(let key, _, _, _), .setTagged(let key, _, _), .setFile(let key, _, _),
        .renew(let key), .setNoValue(let key), .get(let key, _), .size(let key), .chunks(let key),
        .path(let key), .contains(let key), .entry(let key), .remove(let key):
        key
      case .removeAll, .removeExpired, .totalSize, .keys: nil
      }
    guard let named else { return [] }
    var without = self
    without.state.entries[named] = nil
    return [without]
  }

  /// A store's background work may continue for a while after the store was released.
  static func leftovers(
    _ directory: TemporaryDirectory, _ store: CacheUnderTest, _ call: FailedCall
  ) throws -> [String] {
    var left: [String] = []
    try waitUntil("abandoned files are removed") {
      try directory.ownCache("x").removeExpired()
      left = try directory.temporaries()
      return left.isEmpty
    }
    // It may be a record that there is no value, which the total includes.
    _ = try store.perform(.remove(0))
    let size = try store.perform(.totalSize)
    return size == "right" ? left : left + [size]
  }
}

extension AppCacheModel: DamagedModel {
  static let filling: [Call] = [
    .set(0, .marked(1), .endless, durable: false), .set(3, .bytes(300), .day, durable: false),
    .setTagged(1, .marked(1), durable: false),
    // Or each of the copies of the cache would be swept.
    .removeExpired,
  ]
  static let newValue = Call.set(4, .marked(2), .endless, durable: false)

  static func nameStored(by call: Call) -> String? {
    switch call {
    case .set(let key, _, _, _), .setTagged(let key, _, _): "\(key)"
    default: nil
    }
  }

  static let kinds: Set = ["ledger", "tag", "record", "record with tags", "payload"]

  static func kind(of file: Snapshot.File) -> String? {
    switch file.name {
    case "caches/.standard.ledger": return "ledger"
    case "caches/standard/CACHEDIR.TAG": return "tag"
    default:
      guard file.name.hasSuffix(Sidecar.suffix) else { return "payload" }
      // The key "b".
      return file.name.hasSuffix("/Yg.meta") ? "record with tags" : "record"
    }
  }

  static func owners(in directory: TemporaryDirectory) throws -> [String: String] {
    var owners: [String: String] = [:]
    let cache = directory.cache()
    for name in ["0", "1", "3"] {
      let key = ModelKeys.key(named: name)
      for path in [try cache.payload(key), try cache.sidecar(key)] {
        owners[String(path.dropFirst(directory.path.count + 1))] = name
      }
    }
    return owners
  }

  /// A miss, but of no entry whose own files are as they were.
  static func mayFind(_ found: String?, named name: String, in scene: DamagedFiles) -> Bool {
    found == nil && scene.names.contains { scene.owners[$0] == name }
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
