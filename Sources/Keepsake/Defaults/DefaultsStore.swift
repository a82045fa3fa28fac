public import FoundationEssentials

extension Defaults {
  /// The settings of one suite, with calls that throw.
  ///
  /// The calls have the same names as the calls of ``Defaults``, but throw a ``StorageError``
  /// instead of reporting it and returning a fallback. A key without a value is not an error: it
  /// reads as nil or the default. A file that cannot be read, and a value of another type, are
  /// errors.
  ///
  /// All calls are safe from any thread and any process. When a call that writes returns, the
  /// change survives a crash or a kill of the process; it survives a power cut about a second
  /// later, or when ``synchronize()`` returns.
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
    /// The suite that this store reads and writes.
    public let suite: Suite

    // Two properties, and not a `Result`: taking the engine out of that would retain it, which is a
    // tenth of the cost of a read.

    /// What stores the values; an empty `MemoryEngine` if there is a ``lateEngine``.
    @usableFromInline let valueEngine: any ValueEngine
    /// The engine of a store that was taken before `bootstrap`, found when it is first used; or why
    /// nothing can be stored, if no directory can be found for the values. nil for other stores.
    private let lateEngine: FirstUse<Result<any ValueEngine, StorageError>>?
    let scope: StorageScope
    let observation: SettingsObservation

    /// - Parameters:
    ///   - given: The engine that the app gave the suite, if any.
    ///   - observation: That of another store of the suite; nil if there is none.
    init(
      suite: Suite,
      engine given: Result<(any StorageEngines.Engine)?, StorageError> = .success(nil),
      observation: SettingsObservation? = nil, scope: StorageScope
    ) {
      self.suite = suite
      self.scope = scope
      let engine = Result { () throws(StorageError) in
        try Self.makeEngine(for: suite, given: given.get(), in: scope)
      }
      switch engine {
      case .success(let engine): (valueEngine, lateEngine) = (engine, nil)
      case .failure: (valueEngine, lateEngine) = (MemoryEngine(), FirstUse(engine))
      }
      self.observation = observation ?? SettingsObservation(engine, scope)
    }

    /// A store of the process that is taken before its scope has its configuration. When it is
    /// first used, it finds the engine of the store that all other calls use.
    init(suite: Suite, before scope: StorageScope) {
      self.suite = suite
      self.scope = scope
      let engine = FirstUse { StorageScope.inProcess { scope.defaults(suite).engine } }
      (valueEngine, lateEngine) = (MemoryEngine(), engine)
      observation = SettingsObservation(engine.value, scope)
    }

    /// What stores the values, or the reason why there is none.
    var engine: Result<any ValueEngine, StorageError> {
      lateEngine?.value ?? .success(valueEngine)
    }

    private static func makeEngine(
      for suite: Suite, given: (any StorageEngines.Engine)?, in scope: StorageScope
    ) throws(StorageError) -> any ValueEngine {
      if let engine = given {
        let report: @Sendable (StorageError) -> Void = { [weak scope] in
          scope?.report($0.reported(by: "Defaults"))
        }
        return switch engine {
        case let engine as MemoryEngine: engine
        case let engine as any StorageEngines.MirroredEngine:
          StorageEngines.Mirror(engine, report: report)
        default: CustomEngine(engine, report: report)
        }
      }
      if case .memory = suite.location { return MemoryEngine() }
      let location = JournalPaths(
        directory: try suite.directory(in: scope.finder, .configuration),
        name: try suite.fileName("suite"))
      return Journal(location: location) { [weak scope] in
        scope?.report($0.reported(by: "Defaults"))
      }
    }

    /// Passes an error to the handler of the scope that made this store.
    @usableFromInline
    func report(_ error: StorageError) { scope.report(error.reported(by: "Defaults")) }

    /// Lets Observation track the value of a key that is about to be read.
    @usableFromInline
    func registerAccess(to key: String) { observation.registerAccess(to: key) }

    /// The path of the file that holds the settings, for errors; nil if there is none.
    @usableFromInline
    var path: String? { try? engine.get().path }

    /// The file that holds the settings; nil for a suite in memory.
    ///
    /// - Throws: ``StorageError`` if no directory can be found for it, for example because the user
    ///   has no home directory.
    public var fileURL: URL? {
      get throws(StorageError) { try engine.get().path.map { URL(filePath: $0) } }
    }

    /// Runs one call on the engine, and adds the call's name, key and path to its errors.
    ///
    /// `get`, `set` and `update` do the same by hand: the first two are inlined into the module
    /// that calls them, where this would be a call with a closure, and `update` is generic, so that
    /// its closure would cost 5 % of the call.
    func perform<R>(
      _ operation: String, _ key: String? = nil, _ body: (any ValueEngine) throws -> R
    ) throws(StorageError) -> R {
      try withContext(operation, key, path: path) { () throws(StorageError) in
        let engine = try engine.get()
        do {
          return try body(engine)
        } catch {
          throw StorageError(error, thrownBy: type(of: engine), key: key)
        }
      }
    }
  }
}

// MARK: - Reading

extension Defaults.Store {
  /// The value of a key; nil if it has none.
  ///
  /// See ``Defaults/get(_:suite:)`` for conversions between types and for the cost of decoding.
  ///
  /// - Throws: ``StorageError`` with the code `wrongType` if the value has another type.
  @inlinable
  public func get<T: Codable>(_ key: String) throws(StorageError) -> T? {
    try value(forKey: key, operation: "get")
  }

  /// The value of a key.
  ///
  /// - Parameter operation: The call that errors name.
  @inlinable @inline(__always)
  func value<T: Codable>(forKey key: String, operation: String) throws(StorageError) -> T? {
    do throws(StorageError) {
      guard let stored = try storedValue(forKey: key) else { return nil }
      // With an inferred type it would be decoded as `T?`, which takes the slow path.
      return try Codec.decodeSetting(stored, as: T.self)
    } catch {
      throw error.inContext(of: operation, key: key, path: path)
    }
  }

  @usableFromInline
  func storedValue(forKey key: String) throws(StorageError) -> StoredValue? {
    if lateEngine != nil { return try lateValue(forKey: key) }
    return try valueEngine.value(forKey: key)
  }

  /// Inlined, this would cost every read.
  @inline(never)
  private func lateValue(forKey key: String) throws(StorageError) -> StoredValue? {
    try engine.get().value(forKey: key)
  }

  /// The value of a key; `defaultValue` if it has none.
  ///
  /// - Throws: ``StorageError`` with the code `wrongType` if the value has another type.
  @inlinable
  public func get<T: Codable>(
    _ key: String, default defaultValue: @autoclosure () -> T
  ) throws(StorageError) -> T {
    try get(key) ?? defaultValue()
  }

  /// The value of a typed key; the key's default if it has none.
  @inlinable
  public func get<T: Codable>(_ key: Defaults.Key<T>) throws(StorageError) -> T {
    if key.allowsCaching {
      return try cachedValue(forKey: key.name, operation: "get") ?? key.defaultValue
    }
    return try get(key.name) ?? key.defaultValue
  }

  /// The value of a key as a string; nil if it has none.
  @inlinable
  public func string(_ key: String) throws(StorageError) -> String? {
    try value(forKey: key, operation: "string")
  }

  /// The value of a key as an integer; `defaultValue` if it has none.
  ///
  /// - Throws: ``StorageError`` with the code `wrongType` if the value has another type.
  @inlinable
  public func int(
    _ key: String, default defaultValue: @autoclosure () -> Int = 0
  ) throws(StorageError) -> Int {
    try value(forKey: key, operation: "int") ?? defaultValue()
  }

  /// The value of a key as a floating-point number; `defaultValue` if it has none.
  ///
  /// - Throws: ``StorageError`` with the code `wrongType` if the value has another type.
  @inlinable
  public func double(
    _ key: String, default defaultValue: @autoclosure () -> Double = 0
  ) throws(StorageError) -> Double {
    try value(forKey: key, operation: "double") ?? defaultValue()
  }

  /// The value of a key as a Boolean; `defaultValue` if it has none.
  ///
  /// - Throws: ``StorageError`` with the code `wrongType` if the value has another type.
  @inlinable
  public func bool(
    _ key: String, default defaultValue: @autoclosure () -> Bool = false
  ) throws(StorageError) -> Bool {
    try value(forKey: key, operation: "bool") ?? defaultValue()
  }

  /// The value of a key as bytes; nil if it has none.
  @inlinable
  public func data(_ key: String) throws(StorageError) -> Data? {
    try value(forKey: key, operation: "data")
  }

  /// The `Codable` value of a key; nil if it has none.
  ///
  /// - Throws: ``StorageError`` with the code `wrongType` or `decodingFailed` if the value has
  ///   another type.
  @inlinable
  public func model<T: Codable>(
    _ key: String, type: T.Type = T.self
  ) throws(StorageError) -> T? {
    try value(forKey: key, operation: "model")
  }

  /// The `Codable` value of a key; nil if it has none.
  ///
  /// The decoded value is cached, as `Defaults.model` describes.
  ///
  /// - Throws: ``StorageError`` with the code `wrongType` or `decodingFailed` if the value has
  ///   another type.
  @inlinable
  public func model<T: Codable & Sendable>(
    _ key: String, type: T.Type = T.self
  ) throws(StorageError) -> T? {
    try cachedValue(forKey: key, operation: "model")
  }

  /// The value of a key, from the cache of decoded models if it is there. `T` must be `Sendable`.
  @inlinable
  func cachedValue<T: Codable>(
    forKey key: String, operation: String
  ) throws(StorageError) -> T? {
    if Codec.isStoredAsIs(T.self) { return try value(forKey: key, operation: operation) }
    if let model = valueEngine.cachedModel(forKey: key)?.value(as: T.self) { return model }
    return try decodeAndCache(key, operation)
  }

  @usableFromInline
  func decodeAndCache<T: Codable>(
    _ key: String, _ operation: String
  ) throws(StorageError) -> T? {
    try perform(operation, key) { engine in
      // The caller has looked in `valueEngine`, which such a store does not use.
      if lateEngine != nil, let model = engine.cachedModel(forKey: key)?.value(as: T.self) {
        return model
      }
      guard let stored = try engine.value(forKey: key) else { return nil }
      let value = try Codec.decodeSetting(stored, as: T.self)
      if case .json = stored, let model = DecodedModel.make(value) {
        engine.cache(model, of: stored, forKey: key)
      }
      return value
    }
  }

  /// Whether a key has a value, of any type.
  public func contains(_ key: String) throws(StorageError) -> Bool {
    try perform("contains", key) { try $0.value(forKey: key) != nil }
  }

  /// Whether a typed key has a value.
  public func contains<T: Codable>(_ key: Defaults.Key<T>) throws(StorageError) -> Bool {
    try contains(key.name)
  }

  /// All keys that have a value, in no particular order.
  public func keys() throws(StorageError) -> [String] {
    try perform("keys") { try $0.keys() }
  }
}

// MARK: - Writing

extension Defaults.Store {
  /// Stores a `Codable` value; nil removes it.
  ///
  /// - Throws: ``StorageError``. The old value is intact then, unless only the last step failed,
  ///   which notifies other processes or synchronizes with the disk, or the code is
  ///   `outcomeUnknown`: in these cases the new value may be stored.
  @inlinable
  public func set<T: Codable>(_ value: T?, forKey key: String) throws(StorageError) {
    do throws(StorageError) {
      guard let value, let stored = try Codec.encode(value) else { return try remove(key) }
      try write(stored, forKey: key)
    } catch {
      throw error.inContext(of: "set", key: key)
    }
  }

  /// Removes the value of a key: the overload for a literal `nil`.
  @inlinable
  public func set(
    _ value: _OptionalNilComparisonType, forKey key: String
  ) throws(StorageError) {
    try remove(key)
  }

  /// Stores the value of a typed key.
  @inlinable
  public func set<T: Codable>(_ value: T, for key: Defaults.Key<T>) throws(StorageError) {
    try set(value, forKey: key.name)
  }

  /// Removes the value of a key; does nothing if it has none.
  public func remove(_ key: String) throws(StorageError) {
    try perform("remove", key) { _ in try write(nil, forKey: key) }
  }

  /// Removes the values of several keys in one step, if they have any.
  ///
  /// ```swift
  /// try Defaults.shared.remove(["name", "age"])
  /// ```
  ///
  /// Other processes see all of them or none. A suite on a custom ``StorageEngines/Engine`` that
  /// cannot make several changes in one step removes them one by one; if that fails halfway, the
  /// first ones are removed.
  public func remove(_ keys: some Sequence<String>) throws(StorageError) {
    try perform("remove") { engine in
      try RunningUpdate.requireNone(of: self)
      let changes = keys.map { ValueChange(key: $0, value: nil) }
      let isCounted = observation.beginWrite()
      defer { observation.endWrite(of: changes.map(\.key), isCounted: isCounted) }
      try engine.apply(changes)
    }
  }

  /// Removes the value of a typed key, which then reads as its default.
  public func remove<T: Codable>(_ key: Defaults.Key<T>) throws(StorageError) {
    try remove(key.name)
  }

  /// Removes all values; the file no longer contains them. Copies of damaged and replaced files are
  /// kept.
  public func removeAll() throws(StorageError) {
    try perform("removeAll") { engine in
      try RunningUpdate.requireNone(of: self)
      let isCounted = observation.beginWrite()
      defer { observation.endWrite(of: nil, isCounted: isCounted) }
      try engine.removeAll()
    }
  }

  @usableFromInline
  func write(_ value: StoredValue?, forKey key: String) throws(StorageError) {
    try RunningUpdate.requireNone(of: self)
    let value = value?.copied
    let isCounted = observation.beginWrite()
    defer { observation.endWrite(of: [key], isCounted: isCounted) }
    if lateEngine != nil { return try engine.get().set(value, forKey: key) }
    try valueEngine.set(value, forKey: key)
  }

  /// Waits until everything that this process has set survives a power cut.
  ///
  /// Without this call, that takes about a second; a normal exit of the process waits for it. A
  /// kill of the process loses nothing either, unless the power fails within half a minute.
  public func synchronize() throws(StorageError) {
    try perform("synchronize") { try $0.synchronize() }
  }
}
