public import FoundationEssentials

/// Settings in one line each.
///
/// ```swift
/// Defaults.set(25, forKey: "age")
/// let age = Defaults.get("age", default: 18)
/// ```
///
/// A set has survived the end of the process, however it ends, once the call returns; it survives a
/// power cut about a second later, or when ``synchronize(suite:)`` returns. All calls are safe from
/// any thread and between processes: what one has set, the others read at once.
///
/// No call throws a storage error: a call returns nil, its default or `false`, and reports the
/// failure to ``StorageSystem/onFailure``. `update` throws what your closure throws. The calls of a
/// ``Store``, which ``shared`` and ``suite(_:)`` return, throw ``StorageError``.
public enum Defaults {
  /// The throwing store behind the calls that name no suite.
  public static var shared: Store { suite(.standard) }

  /// The throwing store of a suite.
  ///
  /// ```swift
  /// try Defaults.suite("team").set("dark", forKey: "theme")
  /// ```
  public static func suite(_ suite: Suite) -> Store {
    if case .standard = suite.location,
      !StorageScope.hasHadTemporaryScope || StorageScope.temporary == nil
    {
      return standardOfProcess
    }
    return StorageScope.current.defaults(suite)
  }

  /// Kept, because nearly every call wants it.
  private static let standardOfProcess = StorageScope.process.defaults(.standard)
}

// MARK: - Reading

extension Defaults {
  /// The value of a key as a `T`.
  ///
  /// ```swift
  /// let theme: String? = Defaults.get("theme")
  /// ```
  ///
  /// Numbers convert only where nothing is lost (16 reads as `Int`, `UInt8` or `Double`); nothing
  /// else converts.
  ///
  /// - Returns: nil when nothing is stored, or, reported, when another type is.
  @inlinable
  public static func get<T: Codable>(_ key: String, suite: Suite = .standard) -> T? {
    self.suite(suite).attempt { store throws(StorageError) in try store.get(key) as T? } ?? nil
  }

  /// The value of a key, or `defaultValue` when nothing, or, reported, another type is stored.
  ///
  /// ```swift
  /// let size = Defaults.get("fontSize", default: 16)
  /// ```
  @inlinable
  public static func get<T: Codable>(
    _ key: String, default defaultValue: @autoclosure () -> T, suite: Suite = .standard
  ) -> T {
    get(key, suite: suite) ?? defaultValue()
  }

  /// The text of a key; nil when there is none.
  @inlinable
  public static func string(_ key: String, suite: Suite = .standard) -> String? {
    get(key, suite: suite)
  }

  /// The integer of a key; 0 when there is none.
  @inlinable
  public static func int(_ key: String, suite: Suite = .standard) -> Int {
    get(key, default: 0, suite: suite)
  }

  /// The number of a key; 0 when there is none.
  @inlinable
  public static func double(_ key: String, suite: Suite = .standard) -> Double {
    get(key, default: 0, suite: suite)
  }

  /// The truth value of a key; false when there is none.
  @inlinable
  public static func bool(_ key: String, suite: Suite = .standard) -> Bool {
    get(key, default: false, suite: suite)
  }

  /// The bytes of a key; nil when there are none.
  @inlinable
  public static func data(_ key: String, suite: Suite = .standard) -> Data? {
    get(key, suite: suite)
  }

  /// The `Codable` value of a key; nil when there is none.
  ///
  /// ```swift
  /// let user: User? = Defaults.model("user")
  /// ```
  @inlinable
  public static func model<T: Codable>(
    _ key: String, type: T.Type = T.self, suite: Suite = .standard
  ) -> T? {
    get(key, suite: suite)
  }

  /// The `Codable` value of a key; nil when there is none.
  ///
  /// Reading it again does not decode it again, unless it holds an instance of a class.
  @inlinable
  public static func model<T: Codable & Sendable>(
    _ key: String, type: T.Type = T.self, suite: Suite = .standard
  ) -> T? {
    self.suite(suite).attempt { store throws(StorageError) in try store.model(key, type: type) }
      ?? nil
  }

  /// Whether anything is stored under a key.
  public static func contains(_ key: String, suite: Suite = .standard) -> Bool {
    self.suite(suite).attempt { store throws(StorageError) in try store.contains(key) } ?? false
  }

  /// The names of all stored keys, in no order; empty when they cannot be read.
  public static func keys(suite: Suite = .standard) -> [String] {
    self.suite(suite).attempt { store throws(StorageError) in try store.keys() } ?? []
  }
}

// MARK: - Writing

extension Defaults {
  /// Stores any `Codable` value; nil removes.
  ///
  /// ```swift
  /// Defaults.set("dark", forKey: "theme")
  /// Defaults.set(16, forKey: "size", suite: "com.example.shared")
  /// ```
  ///
  /// - Returns: Whether it is stored; if not, the old value is intact.
  @inlinable @discardableResult
  public static func set<T: Codable>(
    _ value: T?, forKey key: String, suite: Suite = .standard
  ) -> Bool {
    self.suite(suite).attempt { store throws(StorageError) in try store.set(value, forKey: key) }
      != nil
  }

  /// Removes the value: what a literal nil means.
  @inlinable @discardableResult
  public static func set(_ value: Never?, forKey key: String, suite: Suite = .standard) -> Bool {
    remove(key, suite: suite)
  }

  /// Removes the value of a key.
  ///
  /// - Returns: Whether nothing is stored now; true also when nothing was.
  @discardableResult
  public static func remove(_ key: String, suite: Suite = .standard) -> Bool {
    self.suite(suite).attempt { store throws(StorageError) in try store.remove(key) } != nil
  }

  /// Removes all values of one suite, from the disk too; copies of damaged files stay.
  ///
  /// - Returns: Whether the suite is empty now.
  @discardableResult
  public static func removeAll(suite: Suite = .standard) -> Bool {
    self.suite(suite).attempt { store throws(StorageError) in try store.removeAll() } != nil
  }

  /// Changes a value in one step that no other thread or process can come between.
  ///
  /// ```swift
  /// let launches = Defaults.update("launches", default: 0) { $0 += 1 }
  /// ```
  ///
  /// The closure runs without a lock, and again if the value changed meanwhile: let it do nothing
  /// else. Writing to the same suite inside it is an error.
  ///
  /// - Returns: The new value; `defaultValue` if, reported, it could not be stored.
  /// - Throws: What the closure throws; the old value is intact then.
  @inlinable @discardableResult
  public static func update<T: Codable, E: Error>(
    _ key: String, default defaultValue: T, suite: Suite = .standard,
    _ change: (inout T) throws(E) -> Void
  ) throws(E) -> T {
    let store = self.suite(suite)
    let outcome: Result<T, E>
    do throws(StorageError) {
      outcome = try store.attemptUpdate(key, default: defaultValue, change)
    } catch {
      store.report(error)
      return defaultValue
    }
    return try outcome.get()
  }

  /// Changes a value in one step, with a closure that cannot throw.
  ///
  /// Apart from the other one because Swift 6.3 crashes on a generic typed throw in one function
  /// with a `do` that does not catch all of a store's errors.
  @inlinable @discardableResult
  public static func update<T: Codable>(
    _ key: String, default defaultValue: T, suite: Suite = .standard, _ change: (inout T) -> Void
  ) -> T {
    self.suite(suite).attempt { store throws(StorageError) in
      try store.update(key, default: defaultValue, change)
    } ?? defaultValue
  }

  /// Returns when all that was set before, by this process, survives a power cut.
  ///
  /// - Returns: Whether it does.
  @discardableResult
  public static func synchronize(suite: Suite = .standard) -> Bool {
    self.suite(suite).attempt { store throws(StorageError) in try store.synchronize() } != nil
  }
}

// MARK: - Typed keys

extension Defaults {
  /// The value of a typed key, its default while nothing is stored.
  ///
  /// ```swift
  /// Defaults[.fontSize] = 18
  /// ```
  ///
  /// Setting an optional to nil removes it. `Defaults[.count] += 1` reads and writes in two steps:
  /// use `update` where others may write too.
  @inlinable
  public static subscript<T: Codable>(key: Key<T>) -> T {
    get {
      self.suite(key.suite).attempt { store throws(StorageError) in try store.get(key) }
        ?? key.defaultValue
    }
    set { set(newValue, forKey: key.name, suite: key.suite) }
  }

  /// The value of a typed key for a property, which Observation may track.
  @inlinable
  static func observed<T: Codable>(_ key: Key<T>) -> T {
    self.suite(key.suite).attempt { store throws(StorageError) in
      store.noteRead(key.name)
      return try store.get(key)
    } ?? key.defaultValue
  }

  /// Changes the value of a typed key in one step; see `update`.
  @inlinable @discardableResult
  public static func update<T: Codable, E: Error>(
    _ key: Key<T>, _ change: (inout T) throws(E) -> Void
  ) throws(E) -> T {
    try update(key.name, default: key.defaultValue, suite: key.suite, change)
  }

  /// Changes the value of a typed key in one step, with a closure that cannot throw.
  @inlinable @discardableResult
  public static func update<T: Codable>(_ key: Key<T>, _ change: (inout T) -> Void) -> T {
    update(key.name, default: key.defaultValue, suite: key.suite, change)
  }

  /// Removes the value of a typed key, which then reads as its default.
  @discardableResult
  public static func remove<T: Codable>(_ key: Key<T>) -> Bool {
    remove(key.name, suite: key.suite)
  }

  /// Whether anything is stored under a typed key.
  public static func contains<T: Codable>(_ key: Key<T>) -> Bool {
    contains(key.name, suite: key.suite)
  }
}

// MARK: - Changes

extension Defaults {
  /// The values of a key as they change, in this process and in others; see ``Changes``.
  public static func changes<T: Codable>(
    _ key: String, default defaultValue: T, suite: Suite = .standard
  ) -> Changes<T> {
    self.suite(suite).changes(key, default: defaultValue)
  }

  /// The values of a key as they change, nil while nothing is stored; see ``Changes``.
  public static func changes<T: Codable>(
    _ key: String, type: T.Type = T.self, suite: Suite = .standard
  ) -> Changes<T?> {
    self.suite(suite).changes(key, type: type)
  }

  /// The values of a typed key as they change; see ``Changes``.
  public static func changes<T: Codable>(_ key: Key<T>) -> Changes<T> {
    suite(key.suite).changes(key)
  }

  /// The names of a suite's keys as their values change, in this process and in others.
  ///
  /// ```swift
  /// for await names in Defaults.changes(suite: "team") { print(names) }
  /// ```
  ///
  /// - Returns: A sequence that goes on until its task is cancelled; see ``SuiteChanges``.
  public static func changes(suite: Suite = .standard) -> SuiteChanges {
    self.suite(suite).changes()
  }
}

// MARK: - Suites, import and export

extension Defaults {
  /// The app's suites that have a file or an engine of their own, sorted by name; those with a
  /// directory of their own are not among them.
  public static func suites() -> [Suite] {
    shared.attempt { store throws(StorageError) in try store.storedSuites() } ?? []
  }

  /// All values of a suite as one document; nil when they cannot be read or expressed.
  ///
  /// See ``Store/export(as:)``.
  public static func export(as format: ExportFormat, suite: Suite = .standard) -> Data? {
    self.suite(suite).attempt { store throws(StorageError) in try store.export(as: format) }
  }

  /// Sets all values of a document that ``export(as:suite:)``, another JSON writer or Foundation's
  /// `UserDefaults` made.
  ///
  /// See ``Store/import(_:)``.
  ///
  /// - Returns: Whether all are stored; if not, none or, when the disk is full, the first few are.
  @discardableResult
  public static func `import`(_ document: Data, suite: Suite = .standard) -> Bool {
    self.suite(suite).attempt { store throws(StorageError) in try store.import(document) } != nil
  }
}
