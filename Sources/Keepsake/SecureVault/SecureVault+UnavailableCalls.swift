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
