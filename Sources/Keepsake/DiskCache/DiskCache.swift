public import FoundationEssentials

/// Data that can be made again, in one line each.
///
/// ```swift
/// DiskCache.set(data, forKey: "image_001", expiry: .days(7))
/// let image = DiskCache.get("image_001")
/// let article: Article = try await DiskCache.fetch("article_1", expiry: .minutes(5)) {
///   try await download()
/// }
/// ```
///
/// Each entry is a file of its own with exactly the bytes that were stored, beside a small one that
/// says when it expires. A read returns a whole value that was stored under that key, or nil: also
/// when other processes write it, a program was killed, or a file is damaged. What has expired is
/// nowhere to be seen. All calls are safe from any thread and between processes, and no reader
/// waits for a writer. An entry survives the end of the process; a power cut may turn the newest
/// ones into misses, unless they were set `durable`.
///
/// No call throws a storage error: a call returns nil or `false`, and reports the failure to
/// ``StorageSystem/onFailure``. ``fetch(_:expiry:cache:isolation:_:)`` throws what your closure
/// throws, and `CancellationError` if its task is cancelled. The calls of a ``Store``, which
/// ``shared`` and ``named(_:)`` return, throw ``StorageError``.
public enum DiskCache {
  /// Names a cache that is kept apart from all others: a directory each.
  ///
  /// See ``StoragePlace``.
  public typealias Name = StoragePlace<DiskCache>

  /// The throwing store behind the calls that name no cache.
  public static var shared: Store { named(.standard) }

  /// The throwing store of a cache.
  ///
  /// ```swift
  /// let images = DiskCache.named("Images")
  /// images.sizeLimit = 200_000_000
  /// ```
  ///
  /// Ask for it where it is used: one that is kept, as in a `static let`, goes on with the
  /// directories of the moment when it was made, in a test as well.
  public static func named(_ name: Name) -> Store {
    if case .standard = name.location, !StorageScope.hasHadTemporaryScope {
      return standardOfProcess
    }
    return StorageScope.current.cache(name)
  }

  /// Kept, because nearly every call wants it.
  private static let standardOfProcess = StorageScope.process.cache(.standard)
}

// MARK: - Reading

extension DiskCache {
  /// The bytes of an entry, whatever type they were stored as; nil when there is none.
  ///
  /// From 4 MiB on they are mapped from the file and not read: only what is looked at is loaded.
  public static func get(_ key: String, cache: Name = .standard) -> Data? {
    named(cache).attempt { store throws(StorageError) in try store.get(key) } ?? nil
  }

  /// The `Codable` value of an entry; nil when there is none, or, reported, another type is stored.
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

  /// Whether there is an entry; its value is not looked at.
  public static func contains(_ key: String, cache: Name = .standard) -> Bool {
    named(cache).attempt { store throws(StorageError) in try store.contains(key) } ?? false
  }

  /// An entry's size, age and expiry; nil when there is none.
  public static func entry(_ key: String, cache: Name = .standard) -> Entry? {
    named(cache).attempt { store throws(StorageError) in try store.entry(key) } ?? nil
  }

  /// The file that holds the very bytes of an entry; nil when there is none, or no file.
  ///
  /// Other programs may read it, nobody may write it. It is never changed, but removed when the
  /// entry is: open it at once, or be ready for it to be gone.
  public static func fileURL(_ key: String, cache: Name = .standard) -> URL? {
    named(cache).attempt { store throws(StorageError) in try store.fileURL(key) } ?? nil
  }

  /// The keys of all entries, in no order; empty when they cannot be read.
  public static func keys(cache: Name = .standard) -> [String] {
    named(cache).attempt { store throws(StorageError) in try store.keys() } ?? []
  }

  /// The bytes that the cache named nowhere else takes on the disk, in whole blocks.
  ///
  /// See ``Store/totalSize``, which other caches have: `DiskCache.named("Images").totalSize`.
  public static var totalSize: Int { totalSize(cache: .standard) }

  /// The bytes that a cache takes on the disk, in whole blocks; 0 when they cannot be counted.
  public static func totalSize(cache: Name) -> Int {
    named(cache).attempt { store throws(StorageError) in try store.totalSize } ?? 0
  }

  /// How many bytes the standard cache may take on the disk; nil, as at first, for no limit.
  ///
  /// See ``Store/sizeLimit``, which other caches have: `DiskCache.named("Images").sizeLimit`.
  public static var sizeLimit: Int? {
    get { shared.sizeLimit }
    set { shared.sizeLimit = newValue }
  }

  /// Hits, misses, evictions and damage in the standard cache since this process started.
  public static var statistics: Statistics { shared.statistics }
}

// MARK: - Writing

extension DiskCache {
  /// Stores `Data` as its very bytes, or any `Codable` value; nil removes.
  ///
  /// ```swift
  /// DiskCache.set(data, forKey: "image_001", expiry: .days(7))
  /// DiskCache.set(png, forKey: "avatar", cache: "Images")
  /// ```
  ///
  /// With `durable` the entry survives a power cut once this returns.
  ///
  /// - Returns: Whether it is stored; if not, the old value is intact, or the entry is gone.
  @inlinable @discardableResult
  public static func set<T: Codable>(
    _ value: T?, forKey key: String, expiry: Expiry = .never, durable: Bool = false,
    cache: Name = .standard
  ) -> Bool {
    named(cache).attempt { store throws(StorageError) in
      try store.set(value, forKey: key, expiry: expiry, durable: durable)
    } != nil
  }

  /// Removes the entry: what a literal nil means.
  @inlinable @discardableResult
  public static func set(
    _ value: Never?, forKey key: String, expiry: Expiry = .never, durable: Bool = false,
    cache: Name = .standard
  ) -> Bool {
    remove(key, cache: cache)
  }

  /// Stores the contents of a file; where the file system can, the two share them until one
  /// changes.
  ///
  /// - Returns: Whether they are stored; if not, the old value is intact.
  @discardableResult
  public static func set(
    contentsOf file: URL, forKey key: String, expiry: Expiry = .never, durable: Bool = false,
    cache: Name = .standard
  ) -> Bool {
    named(cache).attempt { store throws(StorageError) in
      try store.set(contentsOf: file, forKey: key, expiry: expiry, durable: durable)
    } != nil
  }

  /// Stores what a sequence of chunks yields, such as a download, once it has ended.
  ///
  /// ```swift
  /// await DiskCache.set(chunks: body, forKey: "film", total: length) { done, total in
  ///   print(done, "of", total ?? 0)
  /// }
  /// ```
  ///
  /// See ``Store/set(chunks:forKey:expiry:durable:total:isolation:progress:)``, which throws the
  /// sequence's own error.
  ///
  /// - Returns: Whether all is stored; if not, also when the task was cancelled, the old value is
  ///   intact and nothing is left behind.
  @discardableResult
  public static func set<Chunks: AsyncSequence>(
    chunks: Chunks, forKey key: String, expiry: Expiry = .never, durable: Bool = false,
    cache: Name = .standard, total: Int? = nil, isolation: isolated (any Actor)? = #isolation,
    progress: (_ bytes: Int, _ total: Int?) -> Void = { _, _ in }
  ) async -> Bool where Chunks.Element: Sequence<UInt8> {
    let store = named(cache)
    do {
      try await store.set(
        chunks: chunks, forKey: key, expiry: expiry, durable: durable, total: total,
        isolation: isolation, progress: progress)
      return true
    } catch is CancellationError {
      return false
    } catch {
      store.report(
        error as? StorageError
          ?? StorageError(
            .encodingFailed, operation: "set", key: key,
            reason: "its source failed with \(type(of: error))",
            remedy: "Nothing was stored, and the old value stays; see the underlying error.",
            underlyingError: error))
      return false
    }
  }

  /// Removes an entry.
  ///
  /// - Returns: Whether there is none now; true also when there was none.
  @discardableResult
  public static func remove(_ key: String, cache: Name = .standard) -> Bool {
    named(cache).attempt { store throws(StorageError) in try store.remove(key) } != nil
  }

  /// Removes what has expired, and what killed programs left behind.
  ///
  /// Reading never returns expired entries; this gives back their space. Once a day it happens by
  /// itself.
  ///
  /// - Returns: Whether none is left.
  @discardableResult
  public static func removeExpired(cache: Name = .standard) -> Bool {
    named(cache).attempt { store throws(StorageError) in try store.removeExpired() } != nil
  }

  /// Removes all entries of one cache; their files are deleted in the background.
  ///
  /// - Returns: Whether the cache is empty now.
  @discardableResult
  public static func removeAll(cache: Name = .standard) -> Bool {
    named(cache).attempt { store throws(StorageError) in try store.removeAll() } != nil
  }

  /// The app's caches that have files, sorted by name; those with a directory of their own are not
  /// among them.
  public static func caches() -> [Name] {
    shared.attempt { store throws(StorageError) in try store.storedCaches() } ?? []
  }
}

// MARK: - Fetching

extension DiskCache {
  /// The entry's value, or else what `produce` returns, which is stored for the next time.
  ///
  /// ```swift
  /// let article: Article = try await DiskCache.fetch("article_1", expiry: .minutes(5)) {
  ///   try await download()
  /// }
  /// ```
  ///
  /// However many tasks of this process ask for the key at once, one produces, in its own
  /// isolation, and the others wait for what it gets. If that one is cancelled the next takes over;
  /// if it fails all who wait get its error, and nothing is stored. What is set or removed
  /// meanwhile is newer and stays. See ``Store/fetch(_:expiry:isolation:_:)``.
  ///
  /// - Throws: What `produce` throws, and `CancellationError`.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: String, expiry: Expiry = .never, cache: Name = .standard,
    isolation: isolated (any Actor)? = #isolation, _ produce: () async throws -> T
  ) async throws -> T {
    try await named(cache).fetch(key, expiry: expiry, isolation: isolation, produce)
  }

  /// The value of a typed key, or else what `produce` returns, which is stored for the next time.
  ///
  /// See ``fetch(_:expiry:cache:isolation:_:)``.
  @discardableResult
  public static func fetch<T: Codable>(
    _ key: Key<T>, isolation: isolated (any Actor)? = #isolation,
    _ produce: () async throws -> T
  ) async throws -> T {
    try await named(key.cache).fetch(key, isolation: isolation, produce)
  }
}

// MARK: - Typed keys

extension DiskCache {
  /// The value of a typed key; nil when there is none, and setting it to nil removes it.
  ///
  /// ```swift
  /// DiskCache[.frontPage] = article
  /// ```
  @inlinable
  public static subscript<T: Codable>(key: Key<T>) -> T? {
    get { model(key.name, cache: key.cache) }
    set { set(newValue, forKey: key.name, expiry: key.expiry, cache: key.cache) }
  }

  /// Stores the value of a typed key with the key's own expiry; nil removes.
  ///
  /// With `durable` the entry survives a power cut once this returns.
  ///
  /// - Returns: Whether it is stored; if not, the old value is intact, or the entry is gone.
  @inlinable @discardableResult
  public static func set<T: Codable>(_ value: T?, for key: Key<T>, durable: Bool = false) -> Bool {
    set(value, forKey: key.name, expiry: key.expiry, durable: durable, cache: key.cache)
  }

  /// The size, age and expiry of a typed key's entry; nil when there is none.
  public static func entry<T: Codable>(_ key: Key<T>) -> Entry? {
    entry(key.name, cache: key.cache)
  }

  /// Removes the entry of a typed key.
  @discardableResult
  public static func remove<T: Codable>(_ key: Key<T>) -> Bool {
    remove(key.name, cache: key.cache)
  }

  /// Whether there is an entry of a typed key.
  public static func contains<T: Codable>(_ key: Key<T>) -> Bool {
    contains(key.name, cache: key.cache)
  }
}
