extension Defaults {
  /// All values of a suite by key, whatever their types; see ``Store/values()``.
  ///
  /// ```swift
  /// for (key, value) in Defaults.values() { print(key, value) }
  /// ```
  ///
  /// - Returns: The values. Returns none and reports the failure if the suite cannot be read.
  public static func values(suite: Suite = .standard) -> [String: Value] {
    self.suite(suite).attempt { store throws(StorageError) in try store.values() } ?? [:]
  }
}

extension Defaults.Store {
  /// All values of the suite by key, whatever their types.
  ///
  /// A value that cannot be read, or is nested more than 63 levels deep, is left out and reported
  /// to ``StorageSystem/onFailure``. Of keys that differ only in Unicode normalization (NFC and
  /// NFD), one is returned.
  ///
  /// - Throws: ``StorageError`` if the suite cannot be read.
  public func values() throws(StorageError) -> [String: Defaults.Value] {
    var values: [String: Defaults.Value] = [:]
    let keys = try perform("values") { try $0.keys() }
    for key in keys {
      do throws(StorageError) {
        values[key] = try value(forKey: key, operation: "values")
      } catch {
        report(error)
      }
    }
    return values
  }
}
