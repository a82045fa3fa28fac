/// A setting as a property.
///
/// ```swift
/// @Default("fontSize", defaultValue: 16) var fontSize: Int
/// fontSize = 18
/// $fontSize.reset()
/// ```
///
/// Reading and writing are those of ``Defaults``: no error is thrown, each is reported. `fontSize
/// += 1` reads and writes in two steps; `$fontSize.update { $0 += 1 }` is one.
///
/// In an `@Observable` class Observation tracks it, whoever changes the setting, in other processes
/// too. A change of this process is told on the thread that makes it, before the call returns, or
/// by another write at that moment; all others are told in the background.
///
/// ```swift
/// @MainActor @Observable final class Preferences {
///   @ObservationIgnored @Default("fontSize", defaultValue: 16) var fontSize: Int
/// }
/// ```
@propertyWrapper
public struct Default<Value: Codable> {
  /// The name, default and suite of the setting.
  public let key: Defaults.Key<Value>

  /// A setting with the value that it has while nothing is stored.
  public init(_ key: String, defaultValue: Value, suite: Defaults.Suite = .standard) {
    self.key = Defaults.Key(key, default: defaultValue, suite: suite)
  }

  /// A setting with the value that it has while nothing is stored.
  public init(_ key: String, defaultValue: Value, suite: Defaults.Suite = .standard)
  where Value: Sendable {
    self.key = Defaults.Key(key, default: defaultValue, suite: suite)
  }

  /// A setting by its typed key.
  public init(_ key: Defaults.Key<Value>) { self.key = key }

  /// The stored value, or the default.
  @inlinable
  public var wrappedValue: Value {
    get { Defaults.observed(key) }
    nonmutating set { Defaults[key] = newValue }
  }

  /// The setting itself: its ``key``, ``reset()``, `update` and ``changes``.
  public var projectedValue: Default { self }

  /// Removes the stored value, so that the default holds.
  @discardableResult
  public func reset() -> Bool { Defaults.remove(key) }

  /// Changes the value in one step that no other thread or process can come between.
  @inlinable @discardableResult
  public func update<E: Error>(_ change: (inout Value) throws(E) -> Void) throws(E) -> Value {
    try Defaults.update(key, change)
  }

  /// Changes the value in one step, with a closure that cannot throw.
  @inlinable @discardableResult
  public func update(_ change: (inout Value) -> Void) -> Value { Defaults.update(key, change) }

  /// The values as they change, in this process and in others.
  public var changes: Defaults.Changes<Value> { Defaults.changes(key) }
}

extension Default: Sendable where Value: Sendable {}

/// A setting as a property that is nil while nothing is stored; setting it to nil removes it.
///
/// ```swift
/// @DefaultOptional("lastLogin") var lastLogin: Date?
/// ```
///
/// Observation tracks it as it does ``Default``.
@propertyWrapper
public struct DefaultOptional<Value: Codable> {
  /// The name and suite of the setting.
  public let key: Defaults.Key<Value?>

  /// A setting that may be missing.
  public init(_ key: String, suite: Defaults.Suite = .standard) {
    self.key = Defaults.Key(key, suite: suite)
  }

  /// A setting that may be missing.
  public init(_ key: String, suite: Defaults.Suite = .standard) where Value: Sendable {
    self.key = Defaults.Key(key, suite: suite)
  }

  /// A setting by its typed key.
  public init(_ key: Defaults.Key<Value?>) { self.key = key }

  /// The stored value; nil when there is none.
  @inlinable
  public var wrappedValue: Value? {
    get { Defaults.observed(key) }
    nonmutating set { Defaults[key] = newValue }
  }

  /// The setting itself: its ``key``, ``reset()``, `update` and ``changes``.
  public var projectedValue: DefaultOptional { self }

  /// Removes the stored value.
  @discardableResult
  public func reset() -> Bool { Defaults.remove(key) }

  /// Changes the value in one step that no other thread or process can come between.
  @inlinable @discardableResult
  public func update<E: Error>(_ change: (inout Value?) throws(E) -> Void) throws(E) -> Value? {
    try Defaults.update(key, change)
  }

  /// Changes the value in one step, with a closure that cannot throw.
  @inlinable @discardableResult
  public func update(_ change: (inout Value?) -> Void) -> Value? { Defaults.update(key, change) }

  /// The values as they change, in this process and in others.
  public var changes: Defaults.Changes<Value?> { Defaults.changes(key) }
}

extension DefaultOptional: Sendable where Value: Sendable {}
