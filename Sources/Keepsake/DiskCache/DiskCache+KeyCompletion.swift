// See Defaults+KeyCompletion.swift: these let an editor complete typed keys.

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
