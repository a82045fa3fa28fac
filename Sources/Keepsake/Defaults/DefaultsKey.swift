extension Defaults {
  /// A key together with the type, default and suite of its value.
  ///
  /// Declare each key once. The editor then completes it after a dot, and the compiler rejects
  /// values of another type.
  ///
  /// ```swift
  /// extension Defaults.Key<Int> {
  ///   static let fontSize = Defaults.Key("fontSize", default: 16)
  /// }
  ///
  /// Defaults[.fontSize] = 18
  /// Defaults.update(.fontSize) { $0 += 1 }
  /// ```
  ///
  /// If the value may be missing, make it optional: `Defaults.Key<Date?>("lastLogin")`.
  public struct Key<Value: Codable> {
    /// The key under which the value is stored.
    public let name: String
    /// The value that reading returns if none is stored.
    public let defaultValue: Value
    /// The suite in which the value is stored.
    public let suite: Suite
    /// Whether a decoded value may be cached and returned again.
    @usableFromInline let allowsCaching: Bool

    @usableFromInline
    init(_ name: String, default defaultValue: Value, suite: Suite, allowsCaching: Bool) {
      self.name = name
      self.defaultValue = defaultValue
      self.suite = suite
      self.allowsCaching = allowsCaching
    }

    /// Makes a key with a default value.
    @inlinable
    public init(_ name: String, default defaultValue: Value, suite: Suite = .standard) {
      self.init(name, default: defaultValue, suite: suite, allowsCaching: false)
    }

    /// Makes a key with a default value.
    @inlinable
    public init(_ name: String, default defaultValue: Value, suite: Suite = .standard)
    where Value: Sendable {
      self.init(name, default: defaultValue, suite: suite, allowsCaching: true)
    }

    /// Makes a key whose value is nil if none is stored.
    @inlinable
    public init(_ name: String, suite: Suite = .standard) where Value: ExpressibleByNilLiteral {
      self.init(name, default: nil, suite: suite, allowsCaching: false)
    }

    /// Makes a key whose value is nil if none is stored.
    @inlinable
    public init(_ name: String, suite: Suite = .standard)
    where Value: ExpressibleByNilLiteral & Sendable {
      self.init(name, default: nil, suite: suite, allowsCaching: true)
    }
  }
}

extension Defaults.Key: Sendable where Value: Sendable {}
