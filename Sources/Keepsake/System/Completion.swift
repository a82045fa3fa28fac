// What lets an editor complete the keys of calls whose result is of the key's own type.
//
// While only the dot is written, that type is not known, and a result of no known type makes the
// compiler drop the call: for the one that takes a string, or for none. A second declaration, whose
// result says nothing of the type, keeps the keys. No program calls it: it is unavailable, or,
// where a call with a string would win over that, fits nothing that the first does not fit better.

extension Defaults {
  /// Completes the keys after `let size = Defaults[.`.
  @available(*, unavailable) @_documentation(visibility: private)
  public static subscript<T: Codable>(key: Key<T>) -> some Any { key.defaultValue }

  /// Completes the keys after `Defaults.update(.`.
  @_disfavoredOverload @_documentation(visibility: private)
  public static func update<T: Codable>(
    _ key: Key<T>, _ change: (inout T) -> Void
  ) -> some Any {
    update(key, change) as T
  }

  /// Completes the keys after `for await size in Defaults.changes(.`.
  @_disfavoredOverload @_documentation(visibility: private)
  public static func changes<T: Codable>(_ key: Key<T>) -> some AsyncSequence {
    suite(key.suite).changes(key.name, default: key.defaultValue)
  }
}

extension Defaults.Store {
  /// Completes the keys after `try store.get(.`.
  @_disfavoredOverload @_documentation(visibility: private)
  public func get<T: Codable>(_ key: Defaults.Key<T>) throws(StorageError) -> some Any {
    try get(key) as T
  }

  /// Completes the keys after `try store.update(.`.
  @_disfavoredOverload @_documentation(visibility: private)
  public func update<T: Codable>(
    _ key: Defaults.Key<T>, _ change: (inout T) -> Void
  ) throws(StorageError) -> some Any {
    try update(key, change) as T
  }

  /// Completes the keys after `for await size in store.changes(.`.
  @_disfavoredOverload @_documentation(visibility: private)
  public func changes<T: Codable>(_ key: Defaults.Key<T>) -> some AsyncSequence {
    changes(key.name, default: key.defaultValue)
  }
}

extension DiskCache {
  /// Completes the keys after `try await DiskCache.fetch(.`.
  @available(*, unavailable) @_documentation(visibility: private)
  public static func fetch<T: Codable>(
    _ key: Key<T>, _ produce: () async throws -> T
  ) async throws -> some Any {
    try await produce()
  }
}

extension DiskCache.Store {
  /// Completes the keys after `try await cache.fetch(.`.
  @available(*, unavailable) @_documentation(visibility: private)
  public func fetch<T: Codable>(
    _ key: DiskCache.Key<T>, _ produce: () async throws -> T
  ) async throws -> some Any {
    try await produce()
  }
}
