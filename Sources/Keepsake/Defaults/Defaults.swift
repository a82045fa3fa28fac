public import FoundationEssentials

/// Stores settings.
///
/// ```swift
/// Defaults.set(25, forKey: "age")
/// let age = Defaults.get("age", default: 18)
/// ```
///
/// No call throws a storage error: a call returns nil, its default or `false`, and reports the
/// failure to ``StorageSystem/onFailure``. `update` throws what your closure throws. The calls of a
/// ``Store``, which ``shared`` and ``suite(_:)`` return, throw ``StorageError``.
///
/// When a call that writes returns, the change survives a crash or a kill of the process. It
/// survives a power cut about a second later, or when ``synchronize(suite:)`` returns.
///
/// All calls are safe from any thread and any process. What one process sets, every process reads
/// from then on.
public enum Defaults {
  /// The throwing store of the standard suite, which calls use unless they name another one.
  public static var shared: Store { suite(.standard) }

  /// The throwing store of a suite.
  ///
  /// ```swift
  /// try Defaults.suite("team").set("dark", forKey: "theme")
  /// ```
  public static func suite(_ suite: Suite) -> Store {
    StorageScope.unconfigured?.defaultsBeforeUse(suite) ?? usedStore(suite)
  }

  /// The store of a suite, for a call of it.
  @usableFromInline
  static func usedStore(_ suite: Suite) -> Store {
    let (store, isRetained) = storeForCall(suite)
    return isRetained ? store.takeRetainedValue() : store.takeUnretainedValue()
  }

  /// Runs one call on the store of a suite; returns nil if it throws, after its error has been
  /// reported.
  @inlinable @inline(__always)
  static func attempt<R>(
    _ suite: Suite, _ body: (Store) throws(StorageError) -> R
  ) -> R? {
    let (store, isRetained) = storeForCall(suite)
    defer { if isRetained { store.release() } }
    // Counting a reference would make threads that read at the same time wait for each other.
    return store._withUnsafeGuaranteedRef { $0.attempt(body) }
  }

  /// The store of a suite. It is only retained if it may be released before the process ends.
  @usableFromInline
  static func storeForCall(_ suite: Suite) -> (Unmanaged<Store>, isRetained: Bool) {
    if !StorageScope.hasHadTemporaryScope || StorageScope.temporary == nil {
      switch suite.location {
      case .standard: return (standardStore, false)
      // The scope of the process never releases a store.
      case .named: return (.passUnretained(StorageScope.process.defaults(suite)), false)
      case .memory, .inDirectory: break
      }
    }
    return (.passRetained(StorageScope.current.defaults(suite)), true)
  }

  /// Kept because nearly every call uses it.
  private static let standardStore = Unmanaged.passRetained(
    StorageScope.process.defaults(.standard))
}

// MARK: - Reading

extension Defaults {
  /// The value of a key.
  ///
  /// ```swift
  /// let theme: String? = Defaults.get("theme")
  /// ```
  ///
  /// A number can be read as any numeric type that holds it without loss: 16 as `Int`, `UInt8` or
  /// `Double`. No other conversions are made.
  ///
  /// Each call decodes a value that is stored as JSON, such as a struct or an array. That costs far
  /// more than reading an integer. `model` keeps the decoded value if its type is `Sendable`, and
  /// so do typed keys and wrappers.
  ///
  /// - Returns: The value; nil if the key has none. Returns nil and reports the failure if the
  ///   value has another type or cannot be read.
  @inlinable
  public static func get<T: Codable>(_ key: String, suite: Suite = .standard) -> T? {
    attempt(suite) { store throws(StorageError) in try store.get(key) as T? } ?? nil
  }

  /// The value of a key, or a default.
  ///
  /// ```swift
  /// let size = Defaults.get("fontSize", default: 16)
  /// ```
  ///
  /// - Returns: The value; `defaultValue` if the key has none. Returns `defaultValue` and reports
  ///   the failure if the value has another type or cannot be read.
  @inlinable
  public static func get<T: Codable>(
    _ key: String, default defaultValue: @autoclosure () -> T, suite: Suite = .standard
  ) -> T {
    get(key, suite: suite) ?? defaultValue()
  }

  /// The value of a key as a string; nil if it has none.
  @inlinable
  public static func string(_ key: String, suite: Suite = .standard) -> String? {
    attempt(suite) { store throws(StorageError) in try store.string(key) } ?? nil
  }

  /// The value of a key as an integer; `defaultValue` if it has none.
  @inlinable
  public static func int(
    _ key: String, default defaultValue: @autoclosure () -> Int = 0, suite: Suite = .standard
  ) -> Int {
    attempt(suite) { store throws(StorageError) in
      try store.int(key, default: defaultValue())
    } ?? defaultValue()
  }

  /// The value of a key as a floating-point number; `defaultValue` if it has none.
  @inlinable
  public static func double(
    _ key: String, default defaultValue: @autoclosure () -> Double = 0, suite: Suite = .standard
  ) -> Double {
    attempt(suite) { store throws(StorageError) in
      try store.double(key, default: defaultValue())
    } ?? defaultValue()
  }

  /// The value of a key as a Boolean; `defaultValue` if it has none.
  @inlinable
  public static func bool(
    _ key: String, default defaultValue: @autoclosure () -> Bool = false, suite: Suite = .standard
  ) -> Bool {
    attempt(suite) { store throws(StorageError) in
      try store.bool(key, default: defaultValue())
    } ?? defaultValue()
  }

  /// The value of a key as bytes; nil if it has none.
  @inlinable
  public static func data(_ key: String, suite: Suite = .standard) -> Data? {
    attempt(suite) { store throws(StorageError) in try store.data(key) } ?? nil
  }

  /// The `Codable` value of a key; nil if it has none.
  ///
  /// ```swift
  /// let user: User? = Defaults.model("user")
  /// ```
  @inlinable
  public static func model<T: Codable>(
    _ key: String, type: T.Type = T.self, suite: Suite = .standard
  ) -> T? {
    attempt(suite) { store throws(StorageError) in try store.model(key, type: type) }
      ?? nil
  }

  /// The `Codable` value of a key; nil if it has none.
  ///
  /// The decoded value is cached, so reading it again does not decode it again. Values that contain
  /// instances of classes are not cached.
  @inlinable
  public static func model<T: Codable & Sendable>(
    _ key: String, type: T.Type = T.self, suite: Suite = .standard
  ) -> T? {
    attempt(suite) { store throws(StorageError) in try store.model(key, type: type) }
      ?? nil
  }

  /// Whether a key has a value, of any type. Returns false and reports the failure if the suite
  /// cannot be read.
  public static func contains(_ key: String, suite: Suite = .standard) -> Bool {
    attempt(suite) { store throws(StorageError) in try store.contains(key) } ?? false
  }

  /// All keys that have a value, in no particular order. Returns none and reports the failure if
  /// the suite cannot be read.
  public static func keys(suite: Suite = .standard) -> [String] {
    attempt(suite) { store throws(StorageError) in try store.keys() } ?? []
  }
}

// MARK: - Writing

extension Defaults {
  /// Stores a `Codable` value; nil removes it.
  ///
  /// ```swift
  /// Defaults.set("dark", forKey: "theme")
  /// Defaults.set(16, forKey: "size", suite: "com.example.shared")
  /// ```
  ///
  /// - Returns: Whether the value is stored. If not, the error is reported and the old value is
  ///   intact, except in the cases that `Store.set` names.
  @inlinable @discardableResult
  public static func set<T: Codable>(
    _ value: T?, forKey key: String, suite: Suite = .standard
  ) -> Bool {
    attempt(suite) { store throws(StorageError) in try store.set(value, forKey: key) }
      != nil
  }

  /// Removes the value of a key: the overload for a literal `nil`.
  ///
  /// - Returns: Whether the key has no value now. If not, the error is reported.
  @inlinable @discardableResult
  public static func set(
    _ value: _OptionalNilComparisonType, forKey key: String, suite: Suite = .standard
  ) -> Bool {
    remove(key, suite: suite)
  }

  /// Removes the value of a key.
  ///
  /// - Returns: Whether the key has no value now; true even if the key had no value. If not, the
  ///   error is reported.
  @discardableResult
  public static func remove(_ key: String, suite: Suite = .standard) -> Bool {
    attempt(suite) { store throws(StorageError) in try store.remove(key) } != nil
  }

  /// Removes all values of a suite; its file no longer contains them. Copies of damaged and
  /// replaced files are kept.
  ///
  /// - Returns: Whether the suite is empty now. If not, the error is reported.
  @discardableResult
  public static func removeAll(suite: Suite = .standard) -> Bool {
    attempt(suite) { store throws(StorageError) in try store.removeAll() } != nil
  }

  /// Changes a value atomically: no other thread or process can change it in between.
  ///
  /// ```swift
  /// let launches = Defaults.update("launches", default: 0) { $0 += 1 }
  /// ```
  ///
  /// The closure runs without a lock. It may run several times, so it should have no side effects.
  /// If the value changes during eight attempts, the ninth holds the suite lock. Writing to the
  /// same suite inside it is an error.
  ///
  /// - Parameters:
  ///   - key: The key of the value.
  ///   - defaultValue: The value passed to the closure if the key has none.
  ///   - suite: The suite of the key.
  ///   - change: Changes the value. If `T` is optional, nil removes it.
  /// - Returns: The new value; `defaultValue` if it could not be stored, which is reported.
  /// - Throws: Only what `change` throws; the old value is intact then.
  @inlinable @discardableResult
  public static func update<T: Codable, E: Error>(
    _ key: String, default defaultValue: T, suite: Suite = .standard,
    _ change: (inout T) throws(E) -> Void
  ) throws(E) -> T {
    let store = usedStore(suite)
    let result: Result<T, E>
    do throws(StorageError) {
      result = try store.updateResult(key, default: defaultValue, change)
    } catch {
      store.report(error)
      return defaultValue
    }
    return try result.get()
  }

  /// Changes a value atomically with a closure that cannot throw.
  ///
  /// This overload is needed because Swift 6.3 crashes on a function with a generic typed throw and
  /// a `do` that does not catch all of a store's errors.
  @inlinable @discardableResult
  public static func update<T: Codable>(
    _ key: String, default defaultValue: T, suite: Suite = .standard, _ change: (inout T) -> Void
  ) -> T {
    attempt(suite) { store throws(StorageError) in
      try store.update(key, default: defaultValue, change)
    } ?? defaultValue
  }

  /// Waits until everything that this process has set in the suite survives a power cut.
  ///
  /// - Returns: Whether it does. If not, the error is reported.
  @discardableResult
  public static func synchronize(suite: Suite = .standard) -> Bool {
    attempt(suite) { store throws(StorageError) in try store.synchronize() } != nil
  }
}

// MARK: - Typed keys

extension Defaults {
  /// The value of a typed key; the key's default if it has none.
  ///
  /// ```swift
  /// Defaults[.fontSize] = 18
  /// ```
  ///
  /// Setting an optional to nil removes the value. `Defaults[.count] += 1` is a read followed by a
  /// write, which is not atomic: use `update` if another thread or process may write too.
  @inlinable
  public static subscript<T: Codable>(key: Key<T>) -> T {
    get { get(key) }
    set { set(newValue, forKey: key.name, suite: key.suite) }
  }

  /// The value of a typed key; the key's default if it has none.
  @inlinable
  public static func get<T: Codable>(_ key: Key<T>) -> T {
    attempt(key.suite) { store throws(StorageError) in try store.get(key) } ?? key.defaultValue
  }

  /// Stores the value of a typed key.
  ///
  /// When the call returns, the value survives the end of the process, as with
  /// ``set(_:forKey:suite:)-(T?,_,_)``.
  ///
  /// ```swift
  /// guard Defaults.set(18, for: .fontSize) else { return }
  /// ```
  ///
  /// - Returns: Whether the value was stored. If not, the old one is unchanged, and the failure is
  ///   reported.
  @inlinable @discardableResult
  public static func set<T: Codable>(_ value: T, for key: Key<T>) -> Bool {
    set(value, forKey: key.name, suite: key.suite)
  }

  /// The value of a typed key, read such that Observation can track it.
  @inlinable
  static func observableValue<T: Codable>(of key: Key<T>) -> T {
    attempt(key.suite) { store throws(StorageError) in
      store.registerAccess(to: key.name)
      return try store.get(key)
    } ?? key.defaultValue
  }

  /// Changes the value of a typed key atomically.
  ///
  /// The closure may run several times, like the closure of `update(_:default:suite:_:)`.
  ///
  /// - Returns: The new value; the key's default if it could not be stored, which is reported.
  /// - Throws: Only what `change` throws; the old value is intact then.
  @inlinable @discardableResult
  public static func update<T: Codable, E: Error>(
    _ key: Key<T>, _ change: (inout T) throws(E) -> Void
  ) throws(E) -> T {
    try update(key.name, default: key.defaultValue, suite: key.suite, change)
  }

  /// Changes the value of a typed key atomically, with a closure that cannot throw.
  @inlinable @discardableResult
  public static func update<T: Codable>(_ key: Key<T>, _ change: (inout T) -> Void) -> T {
    update(key.name, default: key.defaultValue, suite: key.suite, change)
  }

  /// Removes the value of a typed key, which then reads as its default.
  ///
  /// - Returns: Whether the key has no value now. If not, the error is reported.
  @discardableResult
  public static func remove<T: Codable>(_ key: Key<T>) -> Bool {
    remove(key.name, suite: key.suite)
  }

  /// Whether a typed key has a value. Returns false and reports the failure if the suite cannot be
  /// read.
  public static func contains<T: Codable>(_ key: Key<T>) -> Bool {
    contains(key.name, suite: key.suite)
  }
}

// MARK: - Changes

extension Defaults {
  /// The values of a key as this and other processes change them; see ``Changes``.
  public static func changes<T: Codable>(
    _ key: String, default defaultValue: T, initial: Bool = false, suite: Suite = .standard
  ) -> Changes<T> {
    self.suite(suite).changes(key, default: defaultValue, initial: initial)
  }

  /// The values of a key as this and other processes change them, nil while it has none; see
  /// ``Changes``.
  public static func changes<T: Codable>(
    _ key: String, type: T.Type = T.self, initial: Bool = false, suite: Suite = .standard
  ) -> Changes<T?> {
    self.suite(suite).changes(key, type: type, initial: initial)
  }

  /// The values of a typed key as this and other processes change them; see ``Changes``.
  public static func changes<T: Codable>(_ key: Key<T>, initial: Bool = false) -> Changes<T> {
    suite(key.suite).changes(key, initial: initial)
  }

  /// The keys of a suite whose values this and other processes change.
  ///
  /// ```swift
  /// for await keys in Defaults.changes(suite: "team") {
  ///   if keys.contains("theme") { applyTheme() }
  /// }
  /// ```
  ///
  /// Each element is the set of keys whose values differ from those at the previous element, or,
  /// for the first element, at the call that made the sequence: keys that were added, changed or
  /// removed. Several changes may be combined into one element. A value that was changed back, or
  /// stored again unchanged, does not count, unless it is a `Set`. No element is empty.
  ///
  /// The sequence can be used from any thread and by several loops, each of which gets every
  /// change. It uses no processor time while it waits. After a change it compares the values that
  /// were set since the last element, and all values of the suite only if some were removed.
  /// Changes in quick succession are combined: a loop looks at most five times in ten milliseconds.
  /// A suite that cannot be read counts as unchanged, and the error is reported to
  /// ``StorageSystem/onFailure``. Keys that differ only in Unicode normalization (NFC and NFD) are
  /// one element of the set. For the values of one key, see ``Changes``.
  ///
  /// - Returns: A sequence that ends when its task is cancelled.
  public static func changes(
    suite: Suite = .standard
  ) -> some AsyncSequence<Set<String>, Never> & Sendable {
    self.suite(suite).changes()
  }
}
