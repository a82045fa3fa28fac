// Calls that people type by mistake. Their messages say what to type; programs cannot call them.

#if SecureVault
extension SecureVault {
  @available(*, unavailable, message: "A typed key takes 'for:', not 'forKey:'.")
  @_documentation(visibility: private) @discardableResult
  public static func set<T: Codable>(
    _ value: T?, forKey key: SecureVault.Key<T>
  ) -> Bool { false }

  @available(*, unavailable, message: "A string takes 'forKey:', not 'for:'.")
  @_documentation(visibility: private) @discardableResult
  public static func set<T: Codable>(
    _ value: T?, for key: String
  ) -> Bool { false }

  @available(
    *, unavailable, message: "Give the values one Codable type: a struct, or Defaults.Value."
  )
  @_documentation(visibility: private) @discardableResult
  public static func set(_ value: [String: Any], forKey key: String) -> Bool { false }

  @available(
    *, unavailable, message: "Give the values one Codable type: a struct, or Defaults.Value."
  )
  @_documentation(visibility: private) @discardableResult
  public static func set(_ value: [Any], forKey key: String) -> Bool { false }

  @available(*, unavailable, message: "Brackets take a typed key. Use get and set.")
  @_documentation(visibility: private)
  public static subscript<T: Codable>(_ key: String) -> T? {
    get { nil }
    set {}
  }
}

extension SecureVault.Store {
  @available(*, unavailable, message: "A typed key takes 'for:', not 'forKey:'.")
  @_documentation(visibility: private)
  public func set<T: Codable>(
    _ value: T?, forKey key: SecureVault.Key<T>
  ) throws(StorageError) {}

  @available(*, unavailable, message: "A string takes 'forKey:', not 'for:'.")
  @_documentation(visibility: private)
  public func set<T: Codable>(
    _ value: T?, for key: String
  ) throws(StorageError) {}
}
#endif
