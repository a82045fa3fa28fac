public import FoundationEssentials

extension DiskCache {
  /// One cache, with errors thrown where ``DiskCache`` reports them.
  ///
  /// The calls are those of ``DiskCache``. What is missing, expired or damaged is nil; a directory
  /// that cannot be reached, and a value of another type, are errors. All calls are safe from any
  /// thread and between processes.
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
    /// Which cache this is.
    public let name: Name

    let engine: any CacheEngine
    private let scope: StorageScope

    init(name: Name, scope: StorageScope) {
      self.name = name
      self.scope = scope
      do throws(StorageError) {
        engine = try Self.makeEngine(for: name, in: scope)
      } catch {
        engine = UnavailableCache(error)
      }
    }

    private static func makeEngine(
      for name: Name, in scope: StorageScope
    ) throws(StorageError) -> any CacheEngine {
      if case .memory = name.location { return MemoryCache() }
      var host = try name.directory(in: scope.finder, .cache)
      if !host.isCallerOwned {
        host = StoreDirectory(path: host.path + "/caches", isCallerOwned: false)
      }
      let location = CachePaths(host: host, name: try name.fileName("cache"))
      return FileCache(location: location) { [weak scope] in
        scope?.report($0.reported(by: "DiskCache"))
      }
    }

    /// Hands a failure to the handler of the scope that made this store.
    @usableFromInline
    func report(_ error: StorageError) { scope.report(error.reported(by: "DiskCache")) }

    /// The directory in which the entries lie; nil for a cache in memory.
    ///
    /// - Throws: ``StorageError`` when there is no place for it, as without a home directory.
    public var folderURL: URL? {
      get throws(StorageError) { try engine.directory.map { URL(filePath: $0) } }
    }

    /// How many bytes the cache may take on the disk; nil, as at first, for no limit.
    ///
    /// Set it at each start: it holds in this process. When a set goes beyond it, the entries that
    /// were used least recently go, until nine tenths are left; a value that alone is larger is
    /// refused. Of what other processes read, the last ten minutes may not be known.
    public var sizeLimit: Int? {
      get { engine.sizeLimit }
      set { engine.sizeLimit = newValue }
    }

    /// Hits, misses, evictions and damage since this process started.
    public var statistics: Statistics { engine.counts.current }
  }
}

// MARK: - Reading

extension DiskCache.Store {
  /// The bytes of an entry, whatever type they were stored as; nil when there is none.
  ///
  /// From 4 MiB on they are mapped from the file and not read: only what is looked at is loaded.
  public func get(_ key: String) throws(StorageError) -> Data? {
    do throws(StorageError) {
      return try engine.read(key)?.bytes
    } catch {
      throw error.inContext(of: "get", key: key)
    }
  }

  /// The `Codable` value of an entry; nil when there is none.
  ///
  /// - Throws: ``StorageError`` of code `wrongType` or `decodingFailed` when another type is
  ///   stored.
  @inlinable
  public func model<T: Codable>(
    _ key: String, type: T.Type = T.self
  ) throws(StorageError) -> T? {
    do throws(StorageError) {
      guard let stored = try value(key) else { return nil }
      return try Codec.decode(stored, as: T.self)
    } catch {
      throw error.inContext(of: "model", key: key, path: place)
    }
  }

  /// The value of a typed key; nil when there is none.
  @inlinable
  public func get<T: Codable>(_ key: DiskCache.Key<T>) throws(StorageError) -> T? {
    try model(key.name)
  }

  @usableFromInline
  func value(_ key: String) throws(StorageError) -> StoredValue? {
    guard let payload = try engine.read(key) else { return nil }
    if let value = payload.value { return value }
    throw StorageError(
      .decodingFailed, operation: "model", key: key, reason: "its bytes are not what was stored",
      remedy: "Remove the entry.")
  }

  /// Where the entries lie, for errors.
  @usableFromInline
  var place: String? { try? engine.directory }

  /// Whether there is an entry; its value is not looked at.
  public func contains(_ key: String) throws(StorageError) -> Bool {
    do throws(StorageError) {
      return try engine.contains(key)
    } catch {
      throw error.inContext(of: "contains", key: key)
    }
  }

  /// Whether there is an entry of a typed key.
  public func contains<T: Codable>(_ key: DiskCache.Key<T>) throws(StorageError) -> Bool {
    try contains(key.name)
  }

  /// An entry's size, age and expiry; nil when there is none.
  public func entry(_ key: String) throws(StorageError) -> DiskCache.Entry? {
    do throws(StorageError) {
      return try engine.entry(key)
    } catch {
      throw error.inContext(of: "entry", key: key)
    }
  }

  /// The size, age and expiry of a typed key's entry; nil when there is none.
  public func entry<T: Codable>(_ key: DiskCache.Key<T>) throws(StorageError) -> DiskCache.Entry? {
    try entry(key.name)
  }

  /// The file that holds the very bytes of an entry; nil when there is none, or no file.
  ///
  /// Other programs may read it, nobody may write it. It is never changed, but removed when the
  /// entry is: open it at once, or be ready for it to be gone.
  public func fileURL(_ key: String) throws(StorageError) -> URL? {
    do throws(StorageError) {
      return try engine.path(key).map { URL(filePath: $0) }
    } catch {
      throw error.inContext(of: "fileURL", key: key)
    }
  }

  /// The keys of all entries, in no order.
  public func keys() throws(StorageError) -> [String] {
    do throws(StorageError) {
      return try engine.keys()
    } catch {
      throw error.inContext(of: "keys")
    }
  }

  /// The bytes that the cache takes on the disk, in whole blocks, its sidecar files among them.
  ///
  /// All processes keep count of it together, so it costs no look at the files, except at those
  /// that expired since the last one: they are removed first.
  public var totalSize: Int {
    get throws(StorageError) {
      do throws(StorageError) {
        return try engine.totalSize()
      } catch {
        throw error.inContext(of: "totalSize")
      }
    }
  }
}

// MARK: - Writing

extension DiskCache.Store {
  /// Stores `Data` as its very bytes, or any `Codable` value; nil removes.
  ///
  /// With `durable` the entry survives a power cut once this returns, which costs an `fdatasync(2)`
  /// and two `fsync(2)`. Without, a power cut may turn the newest entries into misses.
  ///
  /// - Throws: ``StorageError``; the old value is intact then, or the entry is gone, or the new one
  ///   is there where the very last step failed, which counts it.
  @inlinable
  public func set<T: Codable>(
    _ value: T?, forKey key: String, expiry: DiskCache.Expiry = .never, durable: Bool = false
  ) throws(StorageError) {
    do throws(StorageError) {
      guard let value, let stored = try Codec.encode(value) else { return try remove(key) }
      try write(stored, forKey: key, expiry, durable: durable)
    } catch {
      throw error.inContext(of: "set", key: key)
    }
  }

  /// Removes the entry: what a literal nil means.
  @inlinable
  public func set(
    _ value: Never?, forKey key: String, expiry: DiskCache.Expiry = .never, durable: Bool = false
  ) throws(StorageError) {
    try remove(key)
  }

  /// Stores the value of a typed key with the key's own expiry; nil removes.
  @inlinable
  public func set<T: Codable>(
    _ value: T?, for key: DiskCache.Key<T>, durable: Bool = false
  ) throws(StorageError) {
    try set(value, forKey: key.name, expiry: key.expiry, durable: durable)
  }

  @usableFromInline
  func write(
    _ value: StoredValue, forKey key: String, _ expiry: DiskCache.Expiry, durable: Bool
  ) throws(StorageError) {
    try write(value, forKey: key, expiry, durable: durable, within: superseding(key))
  }

  func write(
    _ value: StoredValue, forKey key: String, _ expiry: DiskCache.Expiry, durable: Bool,
    within lock: KeyLockBody
  ) throws(StorageError) {
    guard let lifespan = Lifespan(expiry, now: WallClock.now) else {
      return try engine.remove(key, within: lock)
    }
    try engine.write(
      Payload(value), forKey: key, WriteOptions(lifespan: lifespan, isDurable: durable),
      within: lock)
  }

  /// Makes what is being fetched for a key at that moment not take the place of what is done now.
  func superseding(_ key: String) -> KeyLockBody {
    { [self] goOn throws(StorageError) in
      try goOn()
      if InFlightFetches.shared.isAnyOnItsWay { InFlightFetches.shared.supersede(.init(self, key)) }
    }
  }

  /// Removes an entry; nothing happens when it is missing.
  public func remove(_ key: String) throws(StorageError) {
    do throws(StorageError) {
      try engine.remove(key, within: superseding(key))
    } catch {
      throw error.inContext(of: "remove", key: key)
    }
  }

  /// Removes the entry of a typed key.
  public func remove<T: Codable>(_ key: DiskCache.Key<T>) throws(StorageError) {
    try remove(key.name)
  }

  /// Removes what has expired, and what killed programs left behind.
  ///
  /// Reading never returns expired entries; this gives back their space. Once a day it happens by
  /// itself.
  ///
  /// - Returns: How many entries had expired.
  @discardableResult
  public func removeExpired() throws(StorageError) -> Int {
    do throws(StorageError) {
      return try engine.removeExpired()
    } catch {
      throw error.inContext(of: "removeExpired")
    }
  }

  /// Removes all entries; their files are deleted in the background.
  public func removeAll() throws(StorageError) {
    InFlightFetches.shared.supersedeAll(of: self)
    do throws(StorageError) {
      try engine.removeAll()
      InFlightFetches.shared.supersedeAll(of: self)
    } catch {
      throw error.inContext(of: "removeAll")
    }
  }

  /// The app's caches that have files, sorted by name.
  func siblings() throws(StorageError) -> [DiskCache.Name] {
    guard let container = try engine.container else { return [] }
    var names: [String] = []
    for fileName in try FileSystem.list(container) {
      guard let name = FileName.decode(fileName),
        try FileSystem.status(container + "/" + fileName)?.isDirectory == true
      else { continue }
      names.append(name)
    }
    return names.sorted().map { DiskCache.Name($0) }
  }
}
