extension Defaults {
  /// A setting's name with its type, its default and its suite.
  ///
  /// Declare keys once and they complete after a dot; a value of another type does not compile.
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
  /// For a setting that may be missing make the value optional: `Defaults.Key<Date?>("lastLogin")`.
  public struct Key<Value: Codable> {
    /// The name under which the value is stored.
    public let name: String
    /// What reading returns while nothing is stored.
    public let defaultValue: Value
    /// Where it is stored.
    public let suite: Suite
    /// Whether a decoded value may be kept and handed out again.
    @usableFromInline let keepsModel: Bool

    @usableFromInline
    init(_ name: String, default defaultValue: Value, suite: Suite, keepsModel: Bool) {
      self.name = name
      self.defaultValue = defaultValue
      self.suite = suite
      self.keepsModel = keepsModel
    }

    /// A key with the value that stands in while nothing is stored.
    @inlinable
    public init(_ name: String, default defaultValue: Value, suite: Suite = .standard) {
      self.init(name, default: defaultValue, suite: suite, keepsModel: false)
    }

    /// A key with the value that stands in while nothing is stored.
    @inlinable
    public init(_ name: String, default defaultValue: Value, suite: Suite = .standard)
    where Value: Sendable {
      self.init(name, default: defaultValue, suite: suite, keepsModel: true)
    }

    /// A key whose value is nil while nothing is stored.
    @inlinable
    public init(_ name: String, suite: Suite = .standard) where Value: ExpressibleByNilLiteral {
      self.init(name, default: nil, suite: suite, keepsModel: false)
    }

    /// A key whose value is nil while nothing is stored.
    @inlinable
    public init(_ name: String, suite: Suite = .standard)
    where Value: ExpressibleByNilLiteral & Sendable {
      self.init(name, default: nil, suite: suite, keepsModel: true)
    }
  }
}

extension Defaults.Key: Sendable where Value: Sendable {}
