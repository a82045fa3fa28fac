internal import FoundationEssentials
internal import Synchronization

/// A cache in the memory of this process.
final class MemoryCache: CacheEngine {
  struct Entry {
    /// nil for a record that there is no value.
    let payload: Payload?
    var expiry: StoredExpiry
    var details: EntryDetails?
    var created: Int64
    var lastUsed: Int64
    /// Orders the uses of entries: the clock is too coarse for that.
    var useNumber: UInt64

    func hasExpired(at now: Int64) -> Bool {
      expiry.hasPassed(created: created, lastUsed: lastUsed, now: now)
    }

    var expires: Int64 { expiry.time(created: created, lastUsed: lastUsed) }

    /// Whether it has expired and is not kept.
    func isOver(at now: Int64) -> Bool {
      guard hasExpired(at: now) else { return false }
      return now < expires || now >= expires.addingSaturated(details?.kept ?? 0)
    }

    var size: Int { payload?.bytes.count ?? 0 }

    /// nil for a record that there is no value.
    var cached: CachedEntry? {
      payload.map {
        CachedEntry(
          payload: $0, created: created, expires: expires, tags: details?.tags ?? [:])
      }
    }
  }

  struct State {
    /// By the key's bytes, because strings with different bytes can be equal.
    var entries: [[UInt8]: Entry] = [:]
    var size = 0
    var limit: Int?
    var lastUseNumber: UInt64 = 0
    /// How many entries there are when those that have expired are removed next.
    var nextSweep = 1_000

    mutating func remove(_ key: [UInt8]) -> Bool {
      guard let entry = entries.removeValue(forKey: key) else { return false }
      size -= entry.size
      return true
    }

    mutating func set(_ payload: Payload?, _ options: WriteOptions, forKey key: [UInt8]) {
      let now = WallClock.now
      _ = remove(key)
      // Whenever the number has doubled, so that it costs each entry little.
      if entries.count >= nextSweep {
        _ = removeExpired()
        nextSweep = max(1_000, 2 * entries.count)
      }
      lastUseNumber += 1
      entries[key] = Entry(
        payload: payload, expiry: options.expiry, details: options.details, created: now,
        lastUsed: now, useNumber: lastUseNumber)
      size += payload?.bytes.count ?? 0
    }

    mutating func removeExpired() -> Int {
      let now = WallClock.now
      let expired = entries.filter { $0.value.isOver(at: now) }.keys
      for key in expired { _ = remove(key) }
      return expired.count
    }

    /// Removes the least recently used entries until nine tenths of the limit are left; returns how
    /// many.
    mutating func evict() -> Int {
      guard let limit, size > limit else { return 0 }
      _ = removeExpired()
      let count = entries.count
      let oldestFirst = entries.sorted { $0.value.useNumber < $1.value.useNumber }
      let target = CacheSizeLimit.evictionTarget(of: limit)
      // The last used entry is kept even if it alone exceeds nine tenths.
      let last = oldestFirst.last?.value.size ?? 0
      let goal = last > target ? limit : target
      for (key, _) in oldestFirst {
        guard size > goal else { break }
        _ = remove(key)
      }
      return count - entries.count
    }
  }

  let state = Locked(State())
  let counts = CacheCounts()
  var directory: String? { nil }

  var sizeLimit: Int? {
    get { state.withLock { $0.limit } }
    set {
      let evicted = state.withLock { state in
        state.limit = newValue.map { max(0, $0) }
        return state.evict()
      }
      counts.evictions.add(evicted, ordering: .relaxed)
    }
  }

  /// Finds an entry, which may be stale or have no value.
  private func lookUp(_ key: String, isUse: Bool) -> (entry: Entry, isFresh: Bool)? {
    state.withLock { state in
      let key = Array(key.utf8)
      let now = WallClock.now
      guard let entry = state.entries[key] else { return nil }
      if entry.isOver(at: now) {
        _ = state.remove(key)
        return nil
      }
      if entry.hasExpired(at: now) { return (entry, false) }
      if isUse, entry.payload != nil {
        state.lastUseNumber += 1
        state.entries[key]?.lastUsed = now
        state.entries[key]?.useNumber = state.lastUseNumber
      }
      return (entry, true)
    }
  }

  /// Finds an entry that has a value and has not expired.
  private func find(_ key: String, isUse: Bool) -> Entry? {
    lookUp(key, isUse: isUse).flatMap { $0.isFresh && $0.entry.payload != nil ? $0.entry : nil }
  }

  func read(_ key: String) -> Payload? {
    guard let payload = find(key, isUse: true)?.payload else {
      counts.misses.add(1, ordering: .relaxed)
      return nil
    }
    counts.hits.add(1, ordering: .relaxed)
    return payload
  }

  func find(_ key: String, noValue: Bool, tags: Bool) -> CacheLookup {
    guard let (entry, isFresh) = lookUp(key, isUse: true) else { return CacheLookup(.missing) }
    guard let found = entry.cached else { return CacheLookup(noValue ? .noValue : .missing) }
    return CacheLookup(isFresh ? .fresh(found) : .stale(found))
  }

  func openChunks(_ key: String) -> ChunkSource? {
    read(key).map { ChunkSource(contents: .data($0.bytes), size: $0.bytes.count) }
  }

  func contains(_ key: String) -> Bool { find(key, isUse: false) != nil }
  func path(_ key: String) -> String? { nil }

  func entry(_ key: String) -> DiskCache.Entry? {
    find(key, isUse: false).map { entry in
      DiskCache.Entry(
        size: entry.size, created: entry.created, expires: entry.expires, entry.details)
    }
  }

  func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    // Values of other kinds were encoded for this call.
    let isCallers = payload.kind == .data
    try store(
      isCallers ? Payload(bytes: payload.bytes.copied, kind: .data) : payload, forKey: key,
      options, hook: hook)
  }

  /// - Parameter payload: Its bytes must be its own.
  fileprivate func store(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    let evicted = try state.withLock { state throws(StorageError) in
      try CacheSizeLimit.check(payload.bytes.count, within: state.limit, path: nil)
      try hook { () throws(StorageError) in
        state.set(payload, options, forKey: Array(key.utf8))
      }
      return state.evict()
    }
    counts.evictions.add(evicted, ordering: .relaxed)
  }

  func writeNoValue(
    forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    try state.withLock { state throws(StorageError) in
      try hook { () throws(StorageError) in state.set(nil, options, forKey: Array(key.utf8)) }
    }
  }

  func renew(
    _ stale: CachedEntry, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) -> Bool {
    try state.withLock { state throws(StorageError) in
      let key = Array(key.utf8)
      guard let entry = state.entries[key], entry.created == stale.created else { return false }
      try hook { () throws(StorageError) in state.set(entry.payload, options, forKey: key) }
      return true
    }
  }

  func startWriting(_ key: String) -> any CacheWriter { MemoryWriter(self, key) }

  func remove(_ key: String, by production: SharedProduction?, hook: CommitHook)
    throws(StorageError)
  {
    try state.withLock { state throws(StorageError) in
      try hook { () throws(StorageError) in _ = state.remove(Array(key.utf8)) }
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
      let now = WallClock.now
      return state.entries.compactMap { key, entry in
        if entry.payload == nil || entry.hasExpired(at: now) { return nil }
        return String(decoding: key, as: UTF8.self)
      }
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
    try CacheSizeLimit.check(count + bytes.count, within: cache.sizeLimit, path: nil)
    data.withLock { $0.append(contentsOf: bytes) }
  }

  func append(contentsOf file: File) throws(StorageError) {
    try file.readInPieces { (bytes) throws(StorageError) in try append(bytes) }
  }

  func finish(_ options: WriteOptions, hook: CommitHook) throws(StorageError) {
    let payload = Payload(bytes: data.withLock { $0 }, kind: .data)
    try cache.store(payload, forKey: key, options, hook: hook)
  }
}
