// Calls that people type by mistake. Their messages say what to type; programs cannot call them.

extension Defaults {
  @available(*, unavailable, message: "A typed key takes 'for:', not 'forKey:'.")
  @_documentation(visibility: private) @discardableResult
  public static func set<T: Codable>(
    _ value: T?, forKey key: Defaults.Key<T>
  ) -> Bool { false }

  @available(*, unavailable, message: "A string takes 'forKey:', not 'for:'.")
  @_documentation(visibility: private) @discardableResult
  public static func set<T: Codable>(
    _ value: T?, for key: String
  ) -> Bool { false }
}

extension Defaults.Store {
  @available(*, unavailable, message: "A typed key takes 'for:', not 'forKey:'.")
  @_documentation(visibility: private)
  public func set<T: Codable>(
    _ value: T?, forKey key: Defaults.Key<T>
  ) throws(StorageError) {}

  @available(*, unavailable, message: "A string takes 'forKey:', not 'for:'.")
  @_documentation(visibility: private)
  public func set<T: Codable>(
    _ value: T?, for key: String
  ) throws(StorageError) {}
}

// Values of mixed types, and reads that forget that there may be no value.

extension Defaults {
  @available(
    *, unavailable, message: "Give the values one Codable type: a struct, or Defaults.Value."
  )
  @_documentation(visibility: private) @discardableResult
  public static func set(
    _ value: [String: Any], forKey key: String, suite: Suite = .standard
  ) -> Bool { false }

  @available(
    *, unavailable, message: "Give the values one Codable type: a struct, or Defaults.Value."
  )
  @_documentation(visibility: private) @discardableResult
  public static func set(
    _ value: [Any], forKey key: String, suite: Suite = .standard
  ) -> Bool { false }

  @available(*, unavailable, message: "There may be no value: read an optional, or name a default.")
  @_documentation(visibility: private)
  public static func get<T: Codable>(
    _ key: String, suite: Suite = .standard
  ) throws -> T { throw missingDefault }

  @available(*, unavailable, message: "Name a default, as in update(key, default: 0).")
  @_documentation(visibility: private) @discardableResult
  public static func update<T: Codable>(
    _ key: String, suite: Suite = .standard, _ change: (inout T) -> Void
  ) throws -> T { throw missingDefault }

  @available(*, unavailable, message: "Brackets take a typed key. Use get and set.")
  @_documentation(visibility: private)
  public static subscript<T: Codable>(_ key: String) -> T? {
    get { nil }
    set {}
  }

  private static var missingDefault: StorageError {
    StorageError(
      .misuse, operation: "get", reason: "there may be no value", remedy: "Name a default.")
  }
}

// The names of UserDefaults.

extension Defaults {
  @available(*, unavailable, renamed: "shared")
  @_documentation(visibility: private)
  public static var standard: Store { shared }

  @available(*, unavailable, renamed: "get(_:)")
  @_documentation(visibility: private)
  public static func object(forKey key: String) -> String? { nil }

  @available(*, unavailable, renamed: "string(_:)")
  @_documentation(visibility: private)
  public static func string(forKey key: String) -> String? { nil }

  @available(*, unavailable, renamed: "int(_:)")
  @_documentation(visibility: private)
  public static func integer(forKey key: String) -> Int { 0 }

  @available(*, unavailable, renamed: "double(_:)")
  @_documentation(visibility: private)
  public static func double(forKey key: String) -> Double { 0 }

  @available(*, unavailable, renamed: "bool(_:)")
  @_documentation(visibility: private)
  public static func bool(forKey key: String) -> Bool { false }

  @available(*, unavailable, renamed: "data(_:)")
  @_documentation(visibility: private)
  public static func data(forKey key: String) -> String? { nil }

  @available(*, unavailable, renamed: "remove(_:)")
  @_documentation(visibility: private)
  public static func removeObject(forKey key: String) {}
}
