internal import FoundationEssentials
internal import Synchronization

/// A cache in files; the article on the cache format describes them.
///
/// It opens the cache when it is first used, and again after the cache was emptied or removed.
package final class FileCache: CacheEngine {
  let paths: CachePaths
  let timeout: Duration
  package let counts = CacheCounts()
  private let onFailure: @Sendable (StorageError) -> Void
  let current = CurrentCache()
  private let limit = Atomic(Int.max)
  let eviction = MaintenanceJob("evict")
  let sweep = MaintenanceJob("sweep")
  let count = MaintenanceJob("count")

  init(
    paths: CachePaths, timeout: Duration = .seconds(10),
    onFailure: @escaping @Sendable (StorageError) -> Void
  ) {
    self.paths = paths
    self.timeout = timeout
    self.onFailure = onFailure
  }

  package var directory: String? { paths.directory }

  package var sizeLimit: Int? {
    get {
      let bytes = limit.load(ordering: .relaxed)
      return bytes == .max ? nil : bytes
    }
    set {
      limit.store(newValue.map { max(0, $0) } ?? .max, ordering: .relaxed)
      if newValue != nil { evictInBackground() }
    }
  }

  /// Reports a failure that no caller can be told about.
  func report(_ error: StorageError) { onFailure(error) }

  // MARK: Opening

  // The files are opened while no lock is held: that may wait for another process.

  /// The open cache; nil if there is none yet.
  func openCache() throws(StorageError) -> OpenCache? {
    if let cache = try usableCache(forWriting: false) { return cache }
    let opened = try retryingIfRemoved { () throws(StorageError) in
      try OpenCache.openIfPresent(at: paths, timeout: timeout, counts: counts)
    }
    guard let opened else { return nil }
    return try usableCache(forWriting: false, otherwise: opened)
  }

  /// The cache, open for writing and created if it was missing.
  func openCacheForWriting() throws(StorageError) -> OpenCache {
    if let cache = try usableCache(forWriting: true) { return cache }
    let opened = try retryingIfRemoved { () throws(StorageError) in
      try OpenCache.openOrCreate(at: paths, timeout: timeout, counts: counts)
    }
    return try usableCache(forWriting: true, otherwise: opened) ?? opened
  }

  /// The open cache, if it is still the one at the path and may be used.
  ///
  /// - Parameter opened: Becomes the open cache otherwise.
  private func usableCache(
    forWriting: Bool, otherwise opened: OpenCache? = nil
  ) throws(StorageError) -> OpenCache? {
    let result = try current.cache.withLock(timeout: timeout) {
      current throws(StorageError) -> OpenCache? in
      if let open = current, !forWriting || open.ledger != nil,
        try open.isCurrent(forWriting: forWriting)
      {
        return open
      }
      // Also if it is nil: a second check within this tick of the clock would not look again.
      current = opened
      return opened
    }
    guard let cache = result else {
      throw StorageError(
        .timedOut, operation: "open", path: paths.directory,
        reason: "another thread has been opening the cache for more than \(timeout)",
        remedy: "Find the blocked thread in this program.")
    }
    if let opened, cache === opened {
      OpenStores.shared.add(current)
      countInBackground(opened)
      if !current.takeIsClosedAsIdle() { cleanUpInBackground(opened, forWriting: forWriting) }
      try opened.ledger?.waiting(forWriting ? timeout : .zero).checkClock()
    }
    return cache
  }

  /// Runs `body` with the cache open for writing; repeats it with the cache opened again if its
  /// directory was removed in the meantime.
  @inline(__always)
  func withOpenCacheForWriting<R>(
    _ body: (OpenCache) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    var attempts = 0
    while true {
      let cache = try openCacheForWriting()
      do throws(StorageError) {
        return try body(cache)
      } catch {
        attempts += 1
        guard error.code == .notFound || !cache.isOpen, attempts < Self.maximumAttempts else {
          throw error
        }
        // A temporary file may be missing alone, as after a clean-up of old files.
        if try !cache.isCurrent(usingRecentCheck: false) { close(cache) }
      }
    }
  }

  /// Runs `body` with the open cache; repeats it if the program has closed the cache's descriptors.
  ///
  /// - Returns: nil if there is no cache.
  private func withOpenCache<R>(
    _ body: (OpenCache) throws(StorageError) -> R
  ) throws(StorageError) -> R? {
    guard let cache = try openCache() else { return nil }
    do throws(StorageError) {
      return try body(cache)
    } catch {
      if cache.isOpen { throw error }
      close(cache)
      guard let cache = try openCache() else { return nil }
      return try body(cache)
    }
  }

  private func lookUp(
    _ key: String, _ options: LookupOptions
  ) throws(StorageError) -> LookupResult {
    try withOpenCache { cache throws(StorageError) in try cache.lookUp(key, options) } ?? .missing
  }

  private func close(_ cache: OpenCache) {
    current.cache.withLock { if $0 === cache { $0 = nil } }
  }

  private static let maximumAttempts = 100

  /// Runs `body` again if a directory was removed in the meantime; but not endlessly, because the
  /// missing directory may be one that the library does not create.
  func retryingIfRemoved<R>(
    _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    for _ in 1..<Self.maximumAttempts {
      do throws(StorageError) {
        return try body()
      } catch  where error.code == .notFound {}
    }
    return try body()
  }

  // MARK: Reading

  package func read(_ key: String) throws(StorageError) -> Payload? {
    guard case .found(let entry, let data?) = try lookUp(key, [.readPayload, .recordUse]) else {
      counts.misses.add(1, ordering: .relaxed)
      return nil
    }
    counts.hits.add(1, ordering: .relaxed)
    return Payload(bytes: data, kind: entry.kind)
  }

  package func find(
    _ key: String, noValue: Bool, tags: Bool
  ) throws(StorageError) -> CacheLookup {
    CacheLookup(try lookUp(key, noValue: noValue, tags: tags).found)
  }

  /// Finds an entry without counting that.
  package func lookUp(
    _ key: String, noValue: Bool, tags: Bool
  ) throws(StorageError) -> (found: FoundEntry, present: PresentEntry?) {
    let options: LookupOptions = [.readPayload, .recordUse, .acceptStale]
    let result = try lookUp(key, tags ? options.union(.details) : options)
    if case .stale(let entry, let data?, let details) = result {
      let found = CachedEntry(
        payload: Payload(bytes: data, kind: entry.kind), created: entry.created,
        expires: entry.expires, tags: details.tags, version: details.version)
      return (.stale(found), PresentEntry(entry, version: details.version))
    }
    if case (let entry, let data?, let details)? = result.fresh {
      let found = CachedEntry(
        payload: Payload(bytes: data, kind: entry.kind), created: entry.created,
        tags: details?.tags ?? [:])
      return (.fresh(found), PresentEntry(entry))
    }
    if noValue, let present = try recordOfNoValue(key) { return (.noValue, present) }
    return (.missing, nil)
  }

  /// The record that there is no value, unless it has expired.
  private func recordOfNoValue(_ key: String) throws(StorageError) -> PresentEntry? {
    guard let cache = try openCache() else { return nil }
    let name = try EntryName(key: key, rules: cache.rules)
    guard let record = try cache.recordOfNoValue(name, key: key), record.expires > .min else {
      return nil
    }
    return PresentEntry(stamp: nil, version: record.sidecar.details?.version)
  }

  /// The entry of a key, without its version; nil if there is none that has not expired.
  package func freshEntry(_ key: String) throws(StorageError) -> PresentEntry? {
    guard case .found(let entry, _) = try lookUp(key, []) else { return nil }
    return PresentEntry(entry)
  }

  /// The entry of a key, also one that has expired and is kept, or the record that it has no value.
  package func presentEntry(_ key: String) throws(StorageError) -> PresentEntry? {
    switch try lookUp(key, .details) {
    case .found(let entry, _): return PresentEntry(entry)
    case .detailed(let entry, _, let details), .stale(let entry, _, let details):
      return PresentEntry(entry, version: details.version)
    default: return try recordOfNoValue(key)
    }
  }

  /// The same for an entry that was found before.
  package func withVersion(
    _ found: PresentEntry, _ key: String
  ) throws(StorageError) -> PresentEntry {
    guard found.version == nil, let stamp = found.stamp,
      let fresh = try lookUp(key, .details).fresh, EntryStamp(fresh.entry) == stamp
    else { return found }
    return PresentEntry(stamp: stamp, version: fresh.details?.version)
  }

  /// Throws for a key that no entry can have.
  package func requireKey(_ key: String) throws(StorageError) {
    if key.utf8.count > EntryName.longestKey { throw EntryName.tooLong }
  }

  package func openChunks(_ key: String) throws(StorageError) -> ChunkSource? {
    let source = try findChunks(key)
    counts.add(isHit: source != nil)
    return source
  }

  /// Opens an entry without counting a hit or a miss.
  package func findChunks(_ key: String) throws(StorageError) -> ChunkSource? {
    try withOpenCache { cache throws(StorageError) in try cache.openChunks(key) } ?? nil
  }

  package func contains(_ key: String) throws(StorageError) -> Bool {
    if case .found = try lookUp(key, []) { return true }
    return false
  }

  package func path(_ key: String) throws(StorageError) -> String? {
    // The caller is going to read the file.
    guard case .found = try lookUp(key, .recordUse), let cache = try openCache() else {
      return nil
    }
    let name = try EntryName(key: key, rules: cache.rules)
    return cache.directory.path(of: name.path)
  }

  package func entry(_ key: String) throws(StorageError) -> DiskCache.Entry? {
    guard let (entry, _, details) = try lookUp(key, .details).fresh else { return nil }
    return DiskCache.Entry(
      size: entry.size, created: entry.created, expires: entry.expires, details)
  }

  package func keys() throws(StorageError) -> [String] {
    let listing = try withOpenCache { cache throws(StorageError) in try cache.keys() }
    guard let (keys, failure) = listing else { return [] }
    if let failure { report(failure.inContext(of: "keys", path: paths.directory)) }
    return keys
  }

  package func totalSize() throws(StorageError) -> Int {
    let total = try withOpenCache { cache throws(StorageError) in try cache.totalSize() }
    guard let (size, failure) = total else { return 0 }
    if let failure { report(failure.inContext(of: "totalSize", path: paths.directory)) }
    return size
  }

  // MARK: Writing

  package func write(
    _ payload: Payload, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    let cache = try withOpenCacheForWriting { cache throws(StorageError) in
      try requireSize(payload.bytes.count, key, cache)
      try cache.write(payload, forKey: key, options, hook: hook)
      return cache
    }
    maintain(cache, added: payload.bytes.count)
  }

  package func writeNoValue(
    forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) {
    let cache = try withOpenCacheForWriting { cache throws(StorageError) in
      try cache.writeNoValue(forKey: key, options, hook: hook)
      return cache
    }
    maintain(cache, added: 0)
  }

  package func renew(
    _ stale: CachedEntry, forKey key: String, _ options: WriteOptions, hook: CommitHook
  ) throws(StorageError) -> Bool {
    try withOpenCacheForWriting { cache throws(StorageError) in
      try cache.renew(stale, forKey: key, options, hook: hook)
    }
  }

  /// Throws for an entry that exceeds the size limit alone, before anything is stored.
  package func requireSize(_ size: Int, _ key: String) throws(StorageError) {
    guard sizeLimit != nil else { return }
    try withOpenCacheForWriting { cache throws(StorageError) in try requireSize(size, key, cache) }
  }

  /// Throws for an entry that exceeds the size limit alone.
  func requireSize(_ size: Int, _ key: String, _ cache: OpenCache) throws(StorageError) {
    guard let sizeLimit else { return }
    try CacheSizeLimit.check(
      cache.footprint(size: size, sidecar: Sidecar.headerSize + key.utf8.count),
      within: sizeLimit, path: paths.directory)
  }

  package func startWriting(_ key: String) throws(StorageError) -> any CacheWriter {
    try startWritingFile(key)
  }

  package func startWritingFile(_ key: String) throws(StorageError) -> FileEntryWriter {
    try withOpenCacheForWriting { cache throws(StorageError) in
      try FileEntryWriter(self, cache, key)
    }
  }

  package func remove(
    _ key: String, by production: SharedProduction?, hook: CommitHook
  ) throws(StorageError) {
    try remove(key, if: { true }, hook: hook)
  }

  /// - Parameter condition: Asked while the key is locked: if false, nothing is removed.
  package func remove(
    _ key: String, if condition: @escaping () -> Bool, hook: CommitHook
  ) throws(StorageError) {
    if try isMissing(key) {
      try hook {}
      // A fetch may have stored the value before the hook ended it.
      if try isMissing(key) { return }
    }
    try withOpenCacheForWriting { cache throws(StorageError) in
      let name = try EntryName(key: key, rules: cache.rules)
      let entry = try cache.lock(name, timeout: timeout)
      defer { entry.unlock() }
      try hook { () throws(StorageError) in if condition() { try entry.remove() } }
    }
  }

  /// Whether there is no cache, or no file of an entry in one without a ledger.
  private func isMissing(_ key: String) throws(StorageError) -> Bool {
    guard let cache = try openCache() else { return true }
    if cache.ledger != nil { return false }
    let name = try EntryName(key: key, rules: cache.rules)
    if try FileSystem.status(name.path, in: cache.directory) != nil { return false }
    return try FileSystem.status(name.sidecarPath, in: cache.directory) == nil
  }

  package func removeExpired() throws(StorageError) -> Int {
    if try openCache() == nil { return 0 }
    return try openCacheForWriting().sweep(from: 0)
  }

  package func removeAll() throws(StorageError) {
    guard let old = try openCache() else { return }
    let cache = try openCacheForWriting()
    guard let ledger = cache.ledger else { return }
    var unmoved: [Int] = []
    try ledger.reset { () throws(StorageError) in
      unmoved = try cache.moveSubdirectoriesToTrash()
      return unmoved.isEmpty
    }
    close(old)
    close(cache)
    defer { cleanUpInBackground(cache) }
    if unmoved.isEmpty { return }
    try withOpenCacheForWriting { cache throws(StorageError) in
      try cache.removeEntries(inSubdirectories: unmoved)
    }
  }
}
