// Declarations that let an editor complete typed keys.
//
// While only the dot is typed, the result type of calls such as `Defaults[.` is unknown, and the
// compiler drops overloads whose result is the key's value type. These overloads return an opaque
// type, so completion keeps them. Programs never call them: they are unavailable, or disfavored
// where an unavailable one would win over the overload that takes a string.

extension Defaults {
  /// Completes the keys after `let size = Defaults[.`.
  @available(*, unavailable) @_documentation(visibility: private)
  public static subscript<T: Codable>(key: Key<T>) -> some Any { key.defaultValue }

  /// Completes the keys after `Defaults.get(.`.
  @_disfavoredOverload @_documentation(visibility: private)
  public static func get<T: Codable>(_ key: Key<T>) -> some Any { get(key) as T }

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
