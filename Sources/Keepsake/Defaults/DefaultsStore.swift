public import FoundationEssentials

extension Defaults {
  /// One suite's settings, with errors thrown where ``Defaults`` reports them.
  ///
  /// The calls are those of ``Defaults``. A missing value is nil or the default; a file that cannot
  /// be read, and a value of another type, are errors. All calls are safe from any thread and
  /// between processes. A set survives the end of the process, however it ends, once the call has
  /// returned, and a power cut about a second later; see ``synchronize()``.
  ///
  /// ```swift
  /// let team = Defaults.suite("team")
  /// do {
  ///   try team.set("dark", forKey: "theme")
  /// } catch {
  ///   print(error.remedy)
  /// }
  /// ```
  public final class Store: Sendable {
    /// Which settings these are.
    public let suite: Suite

    /// What stores the values; an error where no directory can be found for them.
    @usableFromInline let engine: Result<any ValueEngine, StorageError>
    let scope: StorageScope
    /// Tells those who track the settings by Observation.
    let observed: ObservedSettings

    init(suite: Suite, scope: StorageScope) {
      self.suite = suite
      self.scope = scope
      engine = Result { () throws(StorageError) in try Self.makeEngine(for: suite, in: scope) }
      observed = ObservedSettings(engine, scope)
    }

    private static func makeEngine(
      for suite: Suite, in scope: StorageScope
    ) throws(StorageError) -> any ValueEngine {
      if let engine = scope.engines[suite] {
        return engine as? MemoryEngine
          ?? CustomEngine(engine) { [weak scope] in scope?.report($0.reported(by: "Defaults")) }
      }
      if case .memory = suite.location { return MemoryEngine() }
      let location = try JournalPaths(
        directory: suite.directory(in: scope.finder, .configuration), name: suite.fileName("suite"))
      return Journal(location: location) { [weak scope] in
        scope?.report($0.reported(by: "Defaults"))
      }
    }

    /// Hands a failure to the handler of the scope that made this store.
    @usableFromInline
    func report(_ error: StorageError) { scope.report(error.reported(by: "Defaults")) }

    /// To be called before a read that Observation may track.
    @usableFromInline
    func noteRead(_ key: String) { observed.noteRead(key) }

    /// Where the settings lie, for errors.
    @usableFromInline
    var place: String? { try? engine.get().path }

    /// The file in which the settings lie; nil for a suite in memory.
    ///
    /// - Throws: ``StorageError`` when there is no place for it, as without a home directory.
    public var fileURL: URL? {
      get throws(StorageError) { try engine.get().path.map { URL(filePath: $0) } }
    }
  }
}

// MARK: - Reading

extension Defaults.Store {
  /// The value of a key as a `T`; nil when nothing is stored.
  ///
  /// - Throws: ``StorageError`` of code `wrongType` when another type is stored.
  @inlinable
  public func get<T: Codable>(_ key: String) throws(StorageError) -> T? {
    do throws(StorageError) {
      guard let stored = try engine.get().value(forKey: key) else { return nil }
      // Without the type it would be decoded as a `T?`, past all the short ways.
      return try Codec.decode(stored, as: T.self)
    } catch {
      throw error.inContext(of: "get", key: key, path: place)
    }
  }

  /// The value of a key, or `defaultValue` when nothing is stored.
  ///
  /// - Throws: ``StorageError`` of code `wrongType` when another type is stored.
  @inlinable
  public func get<T: Codable>(
    _ key: String, default defaultValue: @autoclosure () -> T
  ) throws(StorageError) -> T {
    try get(key) ?? defaultValue()
  }

  /// The value of a typed key, or its default when nothing is stored.
  @inlinable
  public func get<T: Codable>(_ key: Defaults.Key<T>) throws(StorageError) -> T {
    try get(key.name, keeping: key.keepsModel) ?? key.defaultValue
  }

  /// The text of a key; nil when nothing is stored.
  @inlinable
  public func string(_ key: String) throws(StorageError) -> String? { try get(key) }

  /// The integer of a key; 0 when nothing is stored.
  @inlinable
  public func int(_ key: String) throws(StorageError) -> Int { try get(key) ?? 0 }

  /// The number of a key; 0 when nothing is stored.
  @inlinable
  public func double(_ key: String) throws(StorageError) -> Double { try get(key) ?? 0 }

  /// The truth value of a key; false when nothing is stored.
  @inlinable
  public func bool(_ key: String) throws(StorageError) -> Bool { try get(key) ?? false }

  /// The bytes of a key; nil when nothing is stored.
  @inlinable
  public func data(_ key: String) throws(StorageError) -> Data? { try get(key) }

  /// The `Codable` value of a key; nil when nothing is stored.
  @inlinable
  public func model<T: Codable>(
    _ key: String, type: T.Type = T.self
  ) throws(StorageError) -> T? {
    try get(key)
  }

  /// The `Codable` value of a key; nil when nothing is stored.
  ///
  /// Reading it again does not decode it again, unless it holds an instance of a class.
  @inlinable
  public func model<T: Codable & Sendable>(
    _ key: String, type: T.Type = T.self
  ) throws(StorageError) -> T? {
    try get(key, keeping: true)
  }

  /// The value of a key; with `keeping` from or into the memory of decoded models, for which the
  /// caller must know that `T` is `Sendable`.
  @inlinable
  func get<T: Codable>(_ key: String, keeping: Bool) throws(StorageError) -> T? {
    if !keeping || Codec.isStoredAsIs(T.self) { return try get(key) }
    if case .success(let engine) = engine,
      let model = engine.cachedModel(forKey: key)?.value(as: T.self)
    {
      return model
    }
    return try decodeAndKeep(key)
  }

  @usableFromInline
  func decodeAndKeep<T: Codable>(_ key: String) throws(StorageError) -> T? {
    do throws(StorageError) {
      let engine = try engine.get()
      guard let stored = try engine.versionedValue(forKey: key) else { return nil }
      let value: T = try Codec.decode(stored.value)
      if case .json = stored.value, let model = DecodedModel.make(value) {
        engine.cache(model, forKey: key, version: stored.version)
      }
      return value
    } catch {
      throw error.inContext(of: "get", key: key, path: place)
    }
  }

  /// Whether anything is stored under a key.
  public func contains(_ key: String) throws(StorageError) -> Bool {
    do throws(StorageError) {
      return try engine.get().value(forKey: key) != nil
    } catch {
      throw error.inContext(of: "contains", key: key)
    }
  }

  /// Whether anything is stored under a typed key.
  public func contains<T: Codable>(_ key: Defaults.Key<T>) throws(StorageError) -> Bool {
    try contains(key.name)
  }

  /// The names of all stored keys, in no order.
  public func keys() throws(StorageError) -> [String] {
    try perform("keys") { try $0.keys() }
  }
}

// MARK: - Writing

extension Defaults.Store {
  /// Stores any `Codable` value; nil removes.
  ///
  /// - Throws: ``StorageError``; the old value is intact then, unless it was the very last step
  ///   that failed, which tells other processes: the new one may show then.
  @inlinable
  public func set<T: Codable>(_ value: T?, forKey key: String) throws(StorageError) {
    do throws(StorageError) {
      guard let value, let stored = try Codec.encode(value) else { return try remove(key) }
      try write(stored, forKey: key)
    } catch {
      throw error.inContext(of: "set", key: key)
    }
  }

  /// Removes the value: what a literal nil means.
  @inlinable
  public func set(_ value: Never?, forKey key: String) throws(StorageError) {
    try remove(key)
  }

  /// Stores the value of a typed key.
  @inlinable
  public func set<T: Codable>(_ value: T, for key: Defaults.Key<T>) throws(StorageError) {
    try set(value, forKey: key.name)
  }

  /// Removes the value of a key; nothing happens when it is missing.
  public func remove(_ key: String) throws(StorageError) {
    do throws(StorageError) {
      try write(nil, forKey: key)
    } catch {
      throw error.inContext(of: "remove", key: key)
    }
  }

  /// Removes the value of a typed key, which then reads as its default.
  public func remove<T: Codable>(_ key: Defaults.Key<T>) throws(StorageError) {
    try remove(key.name)
  }

  /// Removes all values, from the disk too; copies of damaged files stay.
  public func removeAll() throws(StorageError) {
    try perform("removeAll") { engine in
      try UpdateFrame.requireOutside(self)
      try observed.telling(nil) { try engine.removeAll() }
    }
  }

  @usableFromInline
  func write(_ value: StoredValue?, forKey key: String) throws(StorageError) {
    try UpdateFrame.requireOutside(self)
    try observed.telling([key]) { () throws(StorageError) in
      try engine.get().set(value, forKey: key)
    }
  }

  func write(_ changes: [ValueChange]) throws(StorageError) {
    try UpdateFrame.requireOutside(self)
    try observed.telling(changes.map(\.key)) { () throws(StorageError) in
      try engine.get().apply(changes)
    }
  }

  /// Runs one call of the engine. An error names the operation.
  private func perform<R>(
    _ operation: String, _ body: (any ValueEngine) throws -> R
  ) throws(StorageError) -> R {
    do throws(StorageError) {
      let engine = try engine.get()
      do {
        return try body(engine)
      } catch {
        throw StorageError(error, thrownBy: type(of: engine))
      }
    } catch {
      throw error.inContext(of: operation)
    }
  }

  /// Returns when all that was set before, by this process, survives a power cut.
  ///
  /// Without it that takes about a second, and happens at a normal exit. After `kill -9` nothing is
  /// lost either, unless the power fails within half a minute.
  public func synchronize() throws(StorageError) {
    try perform("synchronize") { try $0.synchronize() }
  }
}
