public import FoundationEssentials

extension Defaults.Store {
  /// Sets all values of a document; keys that are not in it keep their values.
  ///
  /// The document is either a JSON object, such as ``export(as:)`` or any other program writes, or
  /// a property list, binary or XML, such as the file of Foundation's `UserDefaults`. A member that
  /// is null is skipped. A date is a member `$date`, with the seconds since 2001 or a text such as
  /// `"2026-11-22T00:13:28Z"`. JSON can be nested 512 levels deep, and a property list 64 levels.
  ///
  /// Nothing is set unless the whole document can be read. If a ``StorageEngines/Engine`` that
  /// cannot make several changes in one step fails halfway, the values before that are set.
  ///
  /// ```swift
  /// try Defaults.shared.import(Data(contentsOf: oldSettings))
  /// ```
  ///
  /// - Throws: ``StorageError`` with the code `decodingFailed` if the document is neither of these,
  ///   or if one of its values cannot be stored, such as an object that has two members of the same
  ///   name. ``StorageError/key`` names that value; in JSON, the error also says where it is.
  public func `import`(_ document: Data) throws(StorageError) {
    let document = try SettingsDocument(document)
    if let problem = document.problems.first { throw problem }
    try importValid(document)
  }

  /// Sets the values of a document that can be stored, and skips the others.
  package func importValid(_ document: SettingsDocument) throws(StorageError) {
    let changes = document.values.map { ValueChange(key: $0.key, value: $0.value) }
    try perform("import") { engine in
      try RunningUpdate.requireNone(of: self)
      let isCounted = observation.beginWrite()
      defer { observation.endWrite(of: changes.map(\.key), isCounted: isCounted) }
      try engine.apply(changes)
    }
  }
}
