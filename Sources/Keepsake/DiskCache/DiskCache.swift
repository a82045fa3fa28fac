public import FoundationEssentials

/// A cache of re-creatable data in files.
///
/// ```swift
/// DiskCache.set(data, forKey: "image_001", expiry: .days(7))
/// let image = DiskCache.get("image_001")
/// let article: Article = try await DiskCache.fetch("article_1", expiry: .minutes(5)) {
///   try await download()
/// }
/// ```
///
/// Each entry is a file that holds exactly the bytes that were stored, and a small sidecar file
/// that says when it expires. A read returns a complete value that was stored under its key, or
/// nil, even while other processes write it, after a program was killed, or if a file is damaged.
/// Expired entries are never returned. All calls are safe from any thread and between processes,
/// and readers never wait for writers. An entry survives the end of the process. A power cut may
/// turn the newest entries into misses unless they were set with `durable`.
///
/// No call but ``fetch(_:expiry:staleIfFailing:timeout:cache:isolation:_:)`` throws: a call returns
/// nil or `false`, and reports the failure to ``StorageSystem/onFailure``. `fetch` throws what your
/// closure throws, `CancellationError` if its task is cancelled, and a ``StorageError`` if tasks
/// fetch one key at the same time as different types, if they wait for too long, or if your closure
/// returns `.unchanged` without an old value. The calls of a ``Store``, which ``shared`` and
/// ``named(_:)`` return, throw ``StorageError``.
public enum DiskCache {
  /// The name of a cache. Each cache has its own directory.
  ///
  /// See ``StoragePlace``.
  public typealias Name = StoragePlace<DiskCache>

  /// The throwing store of the standard cache, which calls use unless they name another.
  public static var shared: Store { named(.standard) }

  /// The throwing store of a cache.
  ///
  /// ```swift
  /// let images = DiskCache.named("Images")
  /// images.sizeLimit = 200_000_000
  /// ```
  ///
  /// Call this where you use the store. A store that you keep, for example in a `static let`,
  /// continues to use the directories that were in effect when it was made, even in a test with its
  /// own directories.
  public static func named(_ name: Name) -> Store {
    if case .standard = name.location, !StorageScope.hasHadTemporaryScope {
      return standardOfProcess
    }
    return StorageScope.current.cache(name)
  }

  /// Looked up once, because nearly every call uses it.
  private static let standardOfProcess = StorageScope.process.cache(.standard)
}

// MARK: - Reading

extension DiskCache {
  /// The bytes of an entry, regardless of the type it was stored as; nil if there is none.
  ///
  /// The whole value is read into memory. ``Store/entry(_:)-(String)`` has its size without reading
  /// it.
  public static func get(_ key: String, cache: Name = .standard) -> Data? {
    named(cache).attempt { store throws(StorageError) in try store.get(key) } ?? nil
  }

  /// The `Codable` value of an entry; nil if there is none, or if another type is stored, which is
  /// reported.
  ///
  /// ```swift
  /// let article: Article? = DiskCache.model("article_1")
  /// ```
  @inlinable
  public static func model<T: Codable>(
    _ key: String, type: T.Type = T.self, cache: Name = .standard
  ) -> T? {
    named(cache).attempt { store throws(StorageError) in try store.model(key, type: type) } ?? nil
  }

  /// Whether there is an entry; its value is not read.
  public static func contains(_ key: String, cache: Name = .standard) -> Bool {
    named(cache).attempt { store throws(StorageError) in try store.contains(key) } ?? false
  }

  /// The file that holds exactly the bytes of an entry; nil if there is none, or if the cache is in
  /// memory.
  ///
  /// The file's name has the extension of the key, such as `.mp4` for `film.mp4`. Other programs
  /// may read the file but must not write to it. The file never changes, but it is deleted when the
  /// entry is replaced, removed or evicted, or expires. Open it at once, and be prepared for it to
  /// be gone.
  public static func fileURL(_ key: String, cache: Name = .standard) -> URL? {
    named(cache).attempt { store throws(StorageError) in try store.fileURL(key) } ?? nil
  }

  /// The keys of all entries, in no particular order; empty if the cache cannot be read.
  public static func keys(cache: Name = .standard) -> [String] {
    named(cache).attempt { store throws(StorageError) in try store.keys() } ?? []
  }

  /// The number of bytes that the standard cache takes on disk, in whole blocks.
  ///
  /// Other caches have a ``Store/totalSize`` too: `DiskCache.named("Images").totalSize`.
  public static var totalSize: Int { totalSize(cache: .standard) }

  /// The number of bytes that a cache takes on disk, in whole blocks; 0 if it cannot be read.
  public static func totalSize(cache: Name) -> Int {
    named(cache).attempt { store throws(StorageError) in try store.totalSize } ?? 0
  }

  /// How many bytes the standard cache may take on disk; nil, the default, for no limit.
  ///
  /// Other caches have a ``Store/sizeLimit`` too: `DiskCache.named("Images").sizeLimit`.
  public static var sizeLimit: Int? {
    get { shared.sizeLimit }
    set { shared.sizeLimit = newValue }
  }
}

// MARK: - Writing

extension DiskCache {
  /// Stores `Data` as its exact bytes, or any `Codable` value; nil removes the entry.
  ///
  /// ```swift
  /// DiskCache.set(data, forKey: "image_001", expiry: .days(7))
  /// DiskCache.set(png, forKey: "avatar", cache: "Images")
  /// ```
  ///
  /// With `durable` the entry survives a power cut once the call has returned.
  ///
  /// - Returns: Whether the value was stored. If not, the key has its old value or no entry; if
  ///   only updating ``totalSize`` failed, it has the new value.
  @inlinable @discardableResult
  public static func set<T: Codable>(
    _ value: T?, forKey key: String, expiry: Expiry = .never, durable: Bool = false,
    cache: Name = .standard
  ) -> Bool {
    named(cache).attempt { store throws(StorageError) in
      try store.set(value, forKey: key, expiry: expiry, durable: durable)
    } != nil
  }

  /// Removes the entry: the overload for a literal `nil`.
  ///
  /// - Returns: Whether there is no entry now; true even if there was none before.
  @inlinable @discardableResult
  public static func set(
    _ value: _OptionalNilComparisonType, forKey key: String, expiry: Expiry = .never,
    durable: Bool = false, cache: Name = .standard
  ) -> Bool {
    remove(key, cache: cache)
  }

  /// Removes an entry.
  ///
  /// - Returns: Whether there is no entry now; true even if there was none before.
  @discardableResult
  public static func remove(_ key: String, cache: Name = .standard) -> Bool {
    named(cache).attempt { store throws(StorageError) in try store.remove(key) } != nil
  }

  /// Removes expired entries, and files that killed programs left behind.
  ///
  /// Expired entries are never returned, whether or not they have been removed; this frees their
  /// disk space. It also happens automatically once a day.
  ///
  /// - Returns: Whether all expired entries were removed.
  @discardableResult
  public static func removeExpired(cache: Name = .standard) -> Bool {
    named(cache).attempt { store throws(StorageError) in try store.removeExpired() } != nil
  }

  /// Removes all entries of one cache; their files are deleted in the background.
  ///
  /// The cache's directory stays, and so does whatever else is in it. In a directory that is a link
  /// or a mount point, the files are deleted before this returns.
  ///
  /// - Returns: Whether the cache was emptied.
  @discardableResult
  public static func removeAll(cache: Name = .standard) -> Bool {
    named(cache).attempt { store throws(StorageError) in try store.removeAll() } != nil
  }
}

// MARK: - Typed keys

extension DiskCache {
  /// The value of a typed key; nil if there is none. Setting nil removes the entry.
  ///
  /// ```swift
  /// DiskCache[.frontPage] = article
  /// ```
  @inlinable
  public static subscript<T: Codable>(key: Key<T>) -> T? {
    get { get(key) }
    set { set(newValue, for: key) }
  }

  /// The value of a typed key; nil if there is none, or if another type is stored, which is
  /// reported.
  @inlinable
  public static func get<T: Codable>(_ key: Key<T>) -> T? { model(key.name, cache: key.cache) }

  /// Stores the value of a typed key with the key's own expiry; nil removes the entry.
  ///
  /// With `durable` the entry survives a power cut once the call has returned.
  ///
  /// - Returns: Whether the value was stored. If not, the key has its old value or no entry; if
  ///   only updating ``totalSize`` failed, it has the new value.
  @inlinable @discardableResult
  public static func set<T: Codable>(_ value: T?, for key: Key<T>, durable: Bool = false) -> Bool {
    named(key.cache).attempt { store throws(StorageError) in
      try store.set(value, for: key, durable: durable)
    } != nil
  }

  /// Removes the entry of a typed key.
  ///
  /// - Returns: Whether there is no entry now; true even if there was none before.
  @discardableResult
  public static func remove<T: Codable>(_ key: Key<T>) -> Bool {
    remove(key.name, cache: key.cache)
  }

  /// Whether there is an entry of a typed key.
  public static func contains<T: Codable>(_ key: Key<T>) -> Bool {
    contains(key.name, cache: key.cache)
  }
}
