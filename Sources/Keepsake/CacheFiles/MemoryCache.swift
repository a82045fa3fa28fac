internal import FoundationEssentials

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
      for key in entries.sorted(by: { $0.value.turn < $1.value.turn }).map(\.key) {
        // What was stored last stays if it fits alone.
        guard size > limit / 10 * 9, entries.count > 1 || size > limit else { break }
        _ = remove(key)
      }
      return count - entries.count
    }
  }

  private let state = Locked(State())
  let counts = CacheCounts()
  var folder: String? { nil }
  var container: String? { nil }

  var sizeLimit: Int? {
    get { state.withLock { $0.limit } }
    set {
      let evicted = state.withLock { state in
        state.limit = newValue.map { max(0, $0) }
        return state.keepToLimit()
      }
      counts.count(\.evictions, evicted)
    }
  }

  private func find(_ key: String) -> Entry? {
    state.withLock { state in
      let key = Array(key.utf8)
      let now = WallClock.now
      guard let entry = state.entries[key] else { return nil }
      if entry.isOver(at: now) {
        _ = state.remove(key)
        return nil
      }
      state.turn += 1
      state.entries[key]?.used = now
      state.entries[key]?.turn = state.turn
      return entry
    }
  }

  func read(_ key: String) -> Payload? {
    let found = find(key)
    counts.count(found == nil ? \.misses : \.hits)
    return found?.payload
  }

  func contains(_ key: String) -> Bool { find(key) != nil }
  func path(_ key: String) -> String? { nil }

  func entry(_ key: String) -> DiskCache.Entry? {
    find(key).map { entry in
      DiskCache.Entry(
        size: entry.payload.bytes.count, created: entry.created,
        end: entry.lifespan.end(created: entry.created, used: entry.used))
    }
  }

  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, if condition: () -> Bool
  ) throws(StorageError) {
    let evicted = try state.withLock { state throws(StorageError) in
      try DiskCache.require(payload.bytes.count, toFit: state.limit, path: nil)
      guard condition() else { return 0 }
      let key = Array(key.utf8)
      let now = WallClock.now
      _ = state.remove(key)
      state.turn += 1
      state.entries[key] = Entry(
        payload: payload, lifespan: options.lifespan, created: now, used: now, turn: state.turn)
      state.size += payload.bytes.count
      return state.keepToLimit()
    }
    counts.count(\.evictions, evicted)
  }

  func startWriting(_ key: String) -> any CacheWriter { MemoryWriter(self, key) }
  func remove(_ key: String) { state.withLock { _ = $0.remove(Array(key.utf8)) } }
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

  func append(_ bytes: UnsafeRawBufferPointer) { data.withLock { $0.append(contentsOf: bytes) } }

  func append(contentsOf file: File) throws(StorageError) {
    let bytes = try file.read(from: 0, count: file.status().size)
    bytes.withUnsafeBytes { append($0) }
  }

  func finish(_ options: WriteOptions) throws(StorageError) {
    let payload = Payload(bytes: data.withLock { $0 }, kind: .data)
    try cache.write(payload, forKey: key, options, if: { true })
  }
}
