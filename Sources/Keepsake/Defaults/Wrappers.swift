/// A setting as a property of your type.
///
/// ```swift
/// @Default("fontSize") var fontSize = 16   // 16 while no value is stored
/// fontSize = 18
/// $fontSize.reset()
/// ```
///
/// A typed key has the name, the type and the default: `@Default(.fontSize) var fontSize`.
///
/// Reading and writing behave as in ``Defaults``: storage errors are reported, never thrown.
/// `fontSize += 1` is a read followed by a write, which is not atomic: use
/// `$fontSize.update { $0 += 1 }` if another thread or process may write too.
///
/// In an `@Observable` class, Observation tracks the setting. Observers are notified of every
/// change, by this process and by others. For a change by this process they are called on the
/// thread that makes it, before its call returns, or by another write that is in progress; for any
/// other change they are called in the background.
///
/// ```swift
/// @MainActor @Observable final class Preferences {
///   @ObservationIgnored @Default("fontSize") var fontSize = 16
/// }
/// ```
@propertyWrapper
public struct Default<Value: Codable> {
  /// The typed key of the setting.
  public let key: Defaults.Key<Value>

  /// Makes a setting that has `defaultValue` while no value is stored.
  public init(_ key: String, defaultValue: Value, suite: Defaults.Suite = .standard) {
    self.key = Defaults.Key(key, default: defaultValue, suite: suite)
  }

  /// Makes a setting that has `defaultValue` while no value is stored.
  public init(_ key: String, defaultValue: Value, suite: Defaults.Suite = .standard)
  where Value: Sendable {
    self.key = Defaults.Key(key, default: defaultValue, suite: suite)
  }

  /// Makes a setting that has the property's initial value while no value is stored.
  ///
  /// ```swift
  /// @Default("tags", suite: "team") var tags: [String] = []
  /// ```
  public init(wrappedValue: Value, _ key: String, suite: Defaults.Suite = .standard) {
    self.key = Defaults.Key(key, default: wrappedValue, suite: suite)
  }

  /// Makes a setting that has the property's initial value while no value is stored.
  public init(wrappedValue: Value, _ key: String, suite: Defaults.Suite = .standard)
  where Value: Sendable {
    self.key = Defaults.Key(key, default: wrappedValue, suite: suite)
  }

  /// Makes a setting from its typed key.
  ///
  /// ```swift
  /// @Default(.fontSize) var fontSize
  /// ```
  public init(_ key: Defaults.Key<Value>) { self.key = key }

  /// The stored value; the default if there is none.
  @inlinable
  public var wrappedValue: Value {
    get { Defaults.observableValue(of: key) }
    nonmutating set { Defaults[key] = newValue }
  }

  /// The setting itself, with its ``key``, ``reset()``, `update` and ``changes``.
  public var projectedValue: Default { self }

  /// Removes the stored value, so that the setting has its default again.
  ///
  /// - Returns: Whether no value is stored now. If not, the error is reported.
  @discardableResult
  public func reset() -> Bool { Defaults.remove(key) }

  /// Changes the value atomically: no other thread or process can change it in between.
  ///
  /// The closure may run several times, like the closure of `Defaults.update`.
  ///
  /// - Returns: The new value; the default if it could not be stored, which is reported.
  /// - Throws: Only what `change` throws; the old value is intact then.
  @inlinable @discardableResult
  public func update<E: Error>(_ change: (inout Value) throws(E) -> Void) throws(E) -> Value {
    try Defaults.update(key, change)
  }

  /// Changes the value atomically, with a closure that cannot throw.
  @inlinable @discardableResult
  public func update(_ change: (inout Value) -> Void) -> Value { Defaults.update(key, change) }

  /// The values as this and other processes change them.
  public var changes: Defaults.Changes<Value> { Defaults.changes(key) }
}

extension Default: Sendable where Value: Sendable {}

/// A setting as an optional property: nil if no value is stored. Setting it to nil removes the
/// value.
///
/// ```swift
/// @DefaultOptional("lastLogin") var lastLogin: Date?
/// ```
///
/// Observation tracks it in the same way as ``Default``.
@propertyWrapper
public struct DefaultOptional<Value: Codable> {
  /// The typed key of the setting.
  public let key: Defaults.Key<Value?>

  /// Makes a setting that is nil while no value is stored.
  public init(_ key: String, suite: Defaults.Suite = .standard) {
    self.key = Defaults.Key(key, suite: suite)
  }

  /// Makes a setting that is nil while no value is stored.
  public init(_ key: String, suite: Defaults.Suite = .standard) where Value: Sendable {
    self.key = Defaults.Key(key, suite: suite)
  }

  /// Makes a setting from its typed key.
  public init(_ key: Defaults.Key<Value?>) { self.key = key }

  /// The stored value; nil if there is none.
  @inlinable
  public var wrappedValue: Value? {
    get { Defaults.observableValue(of: key) }
    nonmutating set { Defaults[key] = newValue }
  }

  /// The setting itself, with its ``key``, ``reset()``, `update` and ``changes``.
  public var projectedValue: DefaultOptional { self }

  /// Removes the stored value, so that the setting is nil.
  ///
  /// - Returns: Whether no value is stored now. If not, the error is reported.
  @discardableResult
  public func reset() -> Bool { Defaults.remove(key) }

  /// Changes the value atomically: no other thread or process can change it in between.
  ///
  /// The closure may run several times, like the closure of `Defaults.update`.
  ///
  /// - Returns: The new value; nil if it could not be stored, which is reported.
  /// - Throws: Only what `change` throws; the old value is intact then.
  @inlinable @discardableResult
  public func update<E: Error>(_ change: (inout Value?) throws(E) -> Void) throws(E) -> Value? {
    try Defaults.update(key, change)
  }

  /// Changes the value atomically, with a closure that cannot throw.
  @inlinable @discardableResult
  public func update(_ change: (inout Value?) -> Void) -> Value? { Defaults.update(key, change) }

  /// The values as this and other processes change them.
  public var changes: Defaults.Changes<Value?> { Defaults.changes(key) }
}

extension DefaultOptional: Sendable where Value: Sendable {}
