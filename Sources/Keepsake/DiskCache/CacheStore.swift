public import FoundationEssentials

extension DiskCache {
  /// One cache whose calls throw the errors that ``DiskCache`` reports.
  ///
  /// It has the same calls as ``DiskCache``. A missing, expired or damaged entry is nil. A
  /// directory that cannot be accessed and a value of another type are errors. All calls are safe
  /// from any thread and between processes.
  ///
  /// ```swift
  /// let images = DiskCache.named("Images")
  /// images.sizeLimit = 200_000_000
  /// do {
  ///   try images.set(png, forKey: "avatar", expiry: .days(7))
  /// } catch {
  ///   print(error.remedy)
  /// }
  /// ```
  public final class Store: Sendable {
    /// The name of this cache.
    public let name: Name

    private let firstUse: FirstUse<Result<any CacheEngine, StorageError>>
    /// The limit that was set before the first use, until it is applied.
    private let earlyLimit = Locked<Int??>(nil)
    private let scope: StorageScope
    let backoff = FetchBackoff()

    init(name: Name, scope: StorageScope) {
      self.name = name
      self.scope = scope
      let make = { @Sendable in
        Result { () throws(StorageError) in try Self.makeEngine(for: name, in: scope) }
      }
      firstUse =
        scope.isConfigured
        ? FirstUse(make()) : FirstUse(make: { StorageScope.inProcess { make() } })
    }

    private static func makeEngine(
      for name: Name, in scope: StorageScope
    ) throws(StorageError) -> any CacheEngine {
      scope.configure(firstUse: "the cache \(name.description.debugDescription)")
      if case .memory = name.location { return MemoryCache() }
      let paths = CachePaths(
        parent: try parent(of: name, in: scope), name: try name.fileName("cache"))
      let report: @Sendable (StorageError) -> Void = { [weak scope] in
        scope?.report($0.reported(by: "DiskCache"))
      }
      let files = FileCache(paths: paths, onFailure: report)
      return scope.sharedEngine(over: files, of: name, onFailure: report) ?? files
    }

    /// The directory that holds the directory of a cache.
    fileprivate static func parent(
      of name: Name, in scope: StorageScope
    ) throws(StorageError) -> StoreDirectory {
      let directory = try name.directory(in: scope.finder, .cache)
      if directory.isCallerOwned { return directory }
      return StoreDirectory(path: directory.path + "/caches", isCallerOwned: false)
    }

    /// Throws if the cache has no directory, for example because the user has no home directory.
    @inline(__always)
    var engine: any CacheEngine {
      get throws(StorageError) { try firstUse.map { $0 }.get() }
    }

    /// Hands a failure to the handler of the scope that made this store.
    @usableFromInline
    func report(_ error: StorageError) { scope.report(error.reported(by: "DiskCache")) }

    /// The directory that holds the entries; nil for a cache in memory.
    ///
    /// - Throws: ``StorageError`` if no directory can be found for the cache, for example because
    ///   the user has no home directory.
    public var folderURL: URL? {
      get throws(StorageError) { try engine.directory.map { URL(filePath: $0) } }
    }

    /// How many bytes the cache may take on disk; nil, the default, for no limit.
    ///
    /// The limit applies to this process only, so set it at each start. When a set exceeds it, the
    /// least recently used entries are removed until nine tenths of the limit are left. A value
    /// that alone exceeds the limit is refused. Other processes' reads may be recorded up to ten
    /// minutes late.
    public var sizeLimit: Int? {
      get { earlyLimit.withLock { $0 } ?? (firstUse.isMade ? (try? engine)?.sizeLimit : nil) }
      set {
        if scope.isConfigured {
          (try? engine)?.sizeLimit = newValue
        } else {
          earlyLimit.withLock { $0 = .some(newValue) }
          scope.applySizeLimit(of: self)
        }
      }
    }

    /// Applies a limit that was set before it was known where the entries are.
    func applyEarlyLimit() {
      let limit = earlyLimit.withLock { limit in
        defer { limit = nil }
        return limit
      }
      if let limit { (try? engine)?.sizeLimit = limit }
    }

    /// Hits, misses, coalesced fetches, evictions and damaged entries since this process started.
    public var statistics: Statistics {
      firstUse.isMade ? (try? engine)?.counts.current ?? Statistics() : Statistics()
    }
  }
}

// MARK: - Reading

extension DiskCache.Store {
  /// The bytes of an entry, regardless of the type it was stored as; nil if there is none.
  ///
  /// The whole value is read into memory. `entry(_:)` returns its size without reading it.
  ///
  /// - Throws: ``StorageError`` if the entry cannot be read.
  public func get(_ key: String) throws(StorageError) -> Data? {
    try withContext("get", key) { () throws(StorageError) in try engine.read(key)?.bytes }
  }

  /// The `Codable` value of an entry; nil if there is none.
  ///
  /// - Throws: ``StorageError`` of code `wrongType` or `decodingFailed` if another type is stored,
  ///   and of other codes if the entry cannot be read.
  @inlinable
  public func model<T: Codable>(
    _ key: String, type: T.Type = T.self
  ) throws(StorageError) -> T? {
    try withContext("model", key, path: directoryPath) { () throws(StorageError) in
      guard let stored = try value(key) else { return nil }
      return try Codec.decode(stored, as: T.self)
    }
  }

  /// The value of a typed key; nil if there is none.
  ///
  /// - Throws: What ``model(_:type:)`` throws.
  @inlinable
  public func get<T: Codable>(_ key: DiskCache.Key<T>) throws(StorageError) -> T? {
    try model(key.name)
  }

  @usableFromInline
  func value(_ key: String) throws(StorageError) -> StoredValue? {
    try engine.read(key).map { (payload) throws(StorageError) in try storedValue(payload, key) }
  }

  /// Throws if the bytes of an entry are not of the type that its sidecar says.
  func storedValue(_ payload: Payload, _ key: String) throws(StorageError) -> StoredValue {
    if let value = payload.value { return value }
    throw StorageError(
      .decodingFailed, operation: "model", key: key,
      reason: "the stored bytes do not match the type they were stored as",
      remedy: "Remove the entry.")
  }

  /// The directory of the entries, for error messages.
  @usableFromInline
  var directoryPath: String? { (try? engine)?.directory }

  /// Whether there is an entry; its value is not read.
  ///
  /// - Throws: ``StorageError`` if the cache cannot be read.
  public func contains(_ key: String) throws(StorageError) -> Bool {
    try withContext("contains", key) { () throws(StorageError) in try engine.contains(key) }
  }

  /// Whether there is an entry of a typed key.
  ///
  /// - Throws: ``StorageError`` if the cache cannot be read.
  public func contains<T: Codable>(_ key: DiskCache.Key<T>) throws(StorageError) -> Bool {
    try contains(key.name)
  }

  /// An entry's size, creation date and expiry; nil if there is none.
  ///
  /// - Throws: ``StorageError`` if the cache cannot be read.
  public func entry(_ key: String) throws(StorageError) -> DiskCache.Entry? {
    try withContext("entry", key) { () throws(StorageError) in try engine.entry(key) }
  }

  /// The size, creation date and expiry of a typed key's entry; nil if there is none.
  ///
  /// - Throws: ``StorageError`` if the cache cannot be read.
  public func entry<T: Codable>(_ key: DiskCache.Key<T>) throws(StorageError) -> DiskCache.Entry? {
    try entry(key.name)
  }

  /// The file that holds exactly the bytes of an entry; nil if there is none, or if the cache is in
  /// memory.
  ///
  /// See ``DiskCache/fileURL(_:cache:)`` for how to use the file.
  ///
  /// - Throws: ``StorageError`` if the cache cannot be read.
  public func fileURL(_ key: String) throws(StorageError) -> URL? {
    try withContext("fileURL", key) { () throws(StorageError) in
      try engine.path(key).map { URL(filePath: $0) }
    }
  }

  /// The bytes of an entry in pieces, for values that should not be in memory whole; nil if there
  /// is no entry.
  ///
  /// ```swift
  /// if let film = try cache.chunks("film") {
  ///   for try await piece in film { try await send(piece) }
  /// }
  /// ```
  ///
  /// The first pass of a process over the whole value verifies it as it is read: if the bytes have
  /// changed since they were stored, a ``StorageError`` of code `damaged` is thrown instead of the
  /// last piece, and the entry is removed. For a part of an entry that this process has not
  /// verified, the whole value is read once before the first piece.
  ///
  /// - Parameters:
  ///   - key: The key of the entry.
  ///   - size: The size of a piece in bytes.
  ///   - range: The bytes to read; nil for all.
  /// - Throws: ``StorageError`` if the entry cannot be opened.
  public func chunks(
    _ key: String, size: Int = 1 << 20, range: Range<Int>? = nil
  ) throws(StorageError) -> FileChunks? {
    try withContext("chunks", key) { () throws(StorageError) in
      try engine.openChunks(key).map { FileChunks($0, range, size: size) }
    }
  }

  /// The keys of all entries, in no particular order.
  ///
  /// Entries in a subdirectory that this process may not read are left out, which is reported to
  /// ``StorageSystem/onFailure``.
  ///
  /// - Throws: ``StorageError`` if the cache cannot be read.
  public func keys() throws(StorageError) -> [String] {
    try withContext("keys") { () throws(StorageError) in try engine.keys() }
  }

  /// The number of entries. It takes as long as listing their ``keys()``.
  ///
  /// - Throws: ``StorageError`` if the cache cannot be read.
  public var count: Int {
    get throws(StorageError) {
      try withContext("count") { () throws(StorageError) in try engine.keys().count }
    }
  }

  /// The number of bytes that the cache takes on disk, in whole blocks and including its sidecar
  /// files.
  ///
  /// All processes keep this number up to date together, so it is usually known without reading
  /// the directory. Entries that have expired do not count, even while their files remain, unless
  /// they are kept, as for `staleFor`.
  ///
  /// - Throws: ``StorageError`` if the cache cannot be read.
  public var totalSize: Int {
    get throws(StorageError) {
      try withContext("totalSize") { () throws(StorageError) in try engine.totalSize() }
    }
  }
}

// MARK: - Writing

extension DiskCache.Store {
  /// Stores `Data` as its exact bytes, or any `Codable` value; nil removes the entry.
  ///
  /// ```swift
  /// try cache.set(png, forKey: "logo", tags: ["type": "image/png", "etag": etag])
  /// let type = try cache.entry("logo")?.tags["type"]
  /// ```
  ///
  /// - Parameters:
  ///   - value: The value to store.
  ///   - key: The key of the entry.
  ///   - expiry: When the entry expires.
  ///   - keptFor: How long after its expiry the entry is kept, so that a fetch can use it.
  ///   - tags: Short texts, such as the value's type or a validator. Together they take at most
  ///     1,024 bytes, with 4 bytes for each.
  ///   - durable: Whether the entry survives a power cut once the call has returned, which costs
  ///     an `fdatasync(2)` and two `fsync(2)`. Otherwise a power cut may turn the newest entries
  ///     into misses.
  /// - Throws: ``StorageError`` if the value was not stored, of code `misuse` if the tags are too
  ///   long. The key then has its old value or no entry.
  @inlinable
  public func set<T: Codable>(
    _ value: T?, forKey key: String, expiry: DiskCache.Expiry = .never, keptFor: Duration? = nil,
    tags: [String: String] = [:], durable: Bool = false
  ) throws(StorageError) {
    try withContext("set", key) { () throws(StorageError) in
      guard let value, let stored = try Codec.encode(value) else { return try remove(key) }
      try write(stored, forKey: key, expiry, keptFor, tags, durable: durable)
    }
  }

  /// Removes the entry: the overload for a literal `nil`.
  ///
  /// - Throws: ``StorageError`` if the entry was not removed.
  @inlinable
  public func set(
    _ value: _OptionalNilComparisonType, forKey key: String, expiry: DiskCache.Expiry = .never,
    durable: Bool = false
  ) throws(StorageError) {
    try remove(key)
  }

  /// Stores the value of a typed key with the key's own expiry; nil removes the entry.
  ///
  /// - Throws: ``StorageError`` if the value was not stored. The key then has its old value or no
  ///   entry.
  @inlinable
  public func set<T: Codable>(
    _ value: T?, for key: DiskCache.Key<T>, durable: Bool = false
  ) throws(StorageError) {
    try set(
      value, forKey: key.name, expiry: key.expiry, keptFor: key.staleIfFailing, durable: durable)
  }

  @usableFromInline
  func write(
    _ value: StoredValue, forKey key: String, _ expiry: DiskCache.Expiry, _ keptFor: Duration?,
    _ tags: [String: String], durable: Bool
  ) throws(StorageError) {
    var details: EntryDetails?
    if keptFor != nil || !tags.isEmpty {
      try EntryDetails.check(tags: tags, path: directoryPath)
      details = EntryDetails(kept: keptFor?.positiveNanoseconds ?? 0, tags: tags)
    }
    try write(value, forKey: key, expiry, details, durable: durable) {
      commit throws(StorageError) in
      try invalidateFetch(of: key, after: commit)
    }
  }

  func write(
    _ value: StoredValue, forKey key: String, _ expiry: DiskCache.Expiry,
    _ details: EntryDetails?, durable: Bool, by production: SharedProduction? = nil,
    hook: CommitHook
  ) throws(StorageError) {
    let options = WriteOptions(expiry, details, isDurable: durable, by: production)
    guard let options else { return try engine.remove(key, by: production, hook: hook) }
    try engine.write(Payload(value), forKey: key, options, hook: hook)
  }

  /// The body of a ``CommitHook``: keeps a fetch that is running at the time of a change from
  /// overwriting it.
  @inline(__always)
  func invalidateFetch(
    of key: String, after commit: () throws(StorageError) -> Void
  ) throws(StorageError) {
    try commit()
    if !InFlightFetches.shared.isEmpty { InFlightFetches.shared.invalidate(.init(self, key)) }
  }

  /// Removes an entry; does nothing if there is none.
  ///
  /// - Throws: ``StorageError`` if the entry was not removed.
  public func remove(_ key: String) throws(StorageError) {
    try withContext("remove", key) { () throws(StorageError) in
      try engine.remove(key, by: nil) { commit throws(StorageError) in
        try invalidateFetch(of: key, after: commit)
      }
    }
  }

  /// Removes the entry of a typed key.
  ///
  /// - Throws: ``StorageError`` if the entry was not removed.
  public func remove<T: Codable>(_ key: DiskCache.Key<T>) throws(StorageError) {
    try remove(key.name)
  }

  /// Removes expired entries, and files that killed programs left behind.
  ///
  /// See ``DiskCache/removeExpired(cache:)``.
  ///
  /// - Returns: The number of expired entries.
  /// - Throws: ``StorageError`` if an entry was not removed.
  @discardableResult
  public func removeExpired() throws(StorageError) -> Int {
    try withContext("removeExpired") { () throws(StorageError) in try engine.removeExpired() }
  }

  /// Removes all entries; their files are deleted in the background.
  ///
  /// See ``DiskCache/removeAll(cache:)``.
  ///
  /// - Throws: ``StorageError`` if the cache was not emptied.
  public func removeAll() throws(StorageError) {
    InFlightFetches.shared.invalidateAll(of: self)
    try withContext("removeAll") { () throws(StorageError) in
      try engine.removeAll()
      InFlightFetches.shared.invalidateAll(of: self)
    }
  }

  /// The app's caches that have a directory, sorted by name.
  ///
  /// They are the same for every store of the app. Caches in memory, and caches in a directory that
  /// the caller chose, are not included.
  ///
  /// - Throws: ``StorageError`` if the directory of all caches cannot be read.
  public func caches() throws(StorageError) -> [DiskCache.Name] {
    try withContext("caches") { () throws(StorageError) in
      let parent = try Self.parent(of: .standard, in: scope).path
      var names: [String] = []
      for fileName in try FileSystem.list(parent) {
        guard let name = FileName.decode(fileName),
          try FileSystem.status(parent + "/" + fileName)?.isDirectory == true
        else { continue }
        names.append(name)
      }
      return names.sorted().map { DiskCache.Name($0) }
    }
  }
}
