internal import FoundationEssentials
internal import Synchronization

/// A cache that is kept in the process and gone with it.
final class MemoryCache: CacheEngine {
  private struct Entry {
    let payload: Payload
    let lifespan: Lifespan
    let created: Int64
    var used: Int64
    /// Grows with each use: the clock is too coarse to tell two apart.
    var turn: UInt64

    func isOver(at now: Int64) -> Bool { lifespan.isOver(created: created, used: used, now: now) }
  }

  private struct State {
    /// By the key's bytes: equal texts may be spelt differently.
    var entries: [[UInt8]: Entry] = [:]
    var size = 0
    var limit: Int?
    var turn: UInt64 = 0

    mutating func remove(_ key: [UInt8]) -> Bool {
      guard let entry = entries.removeValue(forKey: key) else { return false }
      size -= entry.payload.bytes.count
      return true
    }

    mutating func set(_ payload: Payload, _ lifespan: Lifespan, forKey key: [UInt8]) {
      let now = WallClock.now
      _ = remove(key)
      turn += 1
      entries[key] = Entry(
        payload: payload, lifespan: lifespan, created: now, used: now, turn: turn)
      size += payload.bytes.count
    }

    mutating func removeExpired() -> Int {
      let now = WallClock.now
      let expired = entries.filter { $0.value.isOver(at: now) }.keys
      for key in expired { _ = remove(key) }
      return expired.count
    }

    /// Removes the least recently used until nine tenths of the limit are left; returns how many.
    mutating func keepToLimit() -> Int {
      guard let limit, size > limit else { return 0 }
      let count = entries.count
      _ = removeExpired()
      let oldestFirst = entries.sorted { $0.value.turn < $1.value.turn }
      let target = limit / 10 * 9
      // What was used last stays, also if it alone is more than nine tenths.
      let last = oldestFirst.last?.value.payload.bytes.count ?? 0
      let goal = last > target ? limit : target
      for (key, _) in oldestFirst {
        guard size > goal else { break }
        _ = remove(key)
      }
      return count - entries.count
    }
  }

  private let state = Locked(State())
  let counts = CacheCounts()
  var directory: String? { nil }
  var container: String? { nil }

  var sizeLimit: Int? {
    get { state.withLock { $0.limit } }
    set {
      let evicted = state.withLock { state in
        state.limit = newValue.map { max(0, $0) }
        return state.keepToLimit()
      }
      counts.evictions.add(evicted, ordering: .relaxed)
    }
  }

  private func find(_ key: String, isUse: Bool) -> Entry? {
    state.withLock { state in
      let key = Array(key.utf8)
      let now = WallClock.now
      guard let entry = state.entries[key] else { return nil }
      if entry.isOver(at: now) {
        _ = state.remove(key)
        return nil
      }
      if isUse {
        state.turn += 1
        state.entries[key]?.used = now
        state.entries[key]?.turn = state.turn
      }
      return entry
    }
  }

  func read(_ key: String) -> Payload? {
    let found = find(key, isUse: true)
    guard let found else {
      counts.misses.add(1, ordering: .relaxed)
      return nil
    }
    counts.hits.add(1, ordering: .relaxed)
    return found.payload
  }

  func contains(_ key: String) -> Bool { find(key, isUse: false) != nil }
  func path(_ key: String) -> String? { nil }

  func entry(_ key: String) -> DiskCache.Entry? {
    find(key, isUse: false).map { entry in
      DiskCache.Entry(
        size: entry.payload.bytes.count, created: entry.created,
        end: entry.lifespan.end(created: entry.created, used: entry.used))
    }
  }

  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, within lock: KeyLockBody
  ) throws(StorageError) {
    let evicted = try state.withLock { state throws(StorageError) in
      try DiskCache.require(payload.bytes.count, toFit: state.limit, path: nil)
      try lock { () throws(StorageError) in
        state.set(payload, options.lifespan, forKey: Array(key.utf8))
      }
      return state.keepToLimit()
    }
    counts.evictions.add(evicted, ordering: .relaxed)
  }

  func startWriting(_ key: String) -> any CacheWriter { MemoryWriter(self, key) }

  func remove(_ key: String, within lock: KeyLockBody) throws(StorageError) {
    try state.withLock { state throws(StorageError) in
      try lock { () throws(StorageError) in _ = state.remove(Array(key.utf8)) }
    }
  }

  func removeExpired() -> Int { state.withLock { $0.removeExpired() } }

  func removeAll() {
    state.withLock { state in
      state.entries = [:]
      state.size = 0
    }
  }

  func keys() -> [String] {
    state.withLock { state in
      _ = state.removeExpired()
      return state.entries.keys.map { String(decoding: $0, as: UTF8.self) }
    }
  }

  func totalSize() -> Int {
    state.withLock { state in
      _ = state.removeExpired()
      return state.size
    }
  }
}

private final class MemoryWriter: CacheWriter {
  private let cache: MemoryCache
  private let key: String
  private let data = Locked(Data())

  init(_ cache: MemoryCache, _ key: String) {
    self.cache = cache
    self.key = key
  }

  var count: Int { data.withLock { $0.count } }

  func append(_ bytes: UnsafeRawBufferPointer) throws(StorageError) {
    try DiskCache.require(count + bytes.count, toFit: cache.sizeLimit, path: nil)
    data.withLock { $0.append(contentsOf: bytes) }
  }

  func append(contentsOf file: File) throws(StorageError) {
    let bytes = try file.read(from: 0, count: file.status().size)
    try bytes.span.bytes.withUnsafeBytes { (bytes) throws(StorageError) in try append(bytes) }
  }

  func finish(_ options: WriteOptions, within lock: KeyLockBody) throws(StorageError) {
    let payload = Payload(bytes: data.withLock { $0 }, kind: .data)
    try cache.write(payload, forKey: key, options, within: lock)
  }
}
