// See Defaults+KeyCompletion.swift: these let an editor complete typed keys.
//
// Unavailable overloads would be dropped in favor of those that take a string and return an
// optional. The closures never return a value, so only code that always throws fits; for such code,
// too, the compiler prefers the call that it is meant for.

extension DiskCache {
  /// Completes the keys after `try await DiskCache.fetch(.`.
  @_disfavoredOverload @_documentation(visibility: private)
  public static func fetch<T: Codable>(
    _ key: Key<T>, _ produce: () async throws -> Never
  ) async throws -> some Any {
    try await produce()
  }

  /// Completes the keys after `try await DiskCache.fetch(.`, before `staleFor:`.
  @_disfavoredOverload @_documentation(visibility: private)
  public static func fetch<T: Codable>(
    _ key: Key<T>, staleFor: Duration, _ produce: () async throws -> Never
  ) async throws -> some Any {
    try await produce()
  }
}

extension DiskCache.Store {
  /// Completes the keys after `try await cache.fetch(.`.
  @_disfavoredOverload @_documentation(visibility: private)
  public func fetch<T: Codable>(
    _ key: DiskCache.Key<T>, _ produce: () async throws -> Never
  ) async throws -> some Any {
    try await produce()
  }

  /// Completes the keys after `try await cache.fetch(.`, before `staleFor:`.
  @_disfavoredOverload @_documentation(visibility: private)
  public func fetch<T: Codable>(
    _ key: DiskCache.Key<T>, staleFor: Duration, _ produce: () async throws -> Never
  ) async throws -> some Any {
    try await produce()
  }
}
