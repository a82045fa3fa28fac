extension Defaults.Store {
  /// Writes the values at one moment to a file, while other processes may write.
  package func backUp(to path: String) throws(StorageError) {
    try perform("backUp") { engine in try Self.journal(engine).backUp(to: path) }
  }

  /// Prepares to replace all values with the values of a backup.
  package func prepareRestore(from path: String) throws(StorageError) -> PreparedRestore {
    try perform("prepareRestore") { engine in
      try Self.journal(engine).prepareRestore(from: path)
    }
  }

  private static func journal(_ engine: any ValueEngine) throws(StorageError) -> Journal {
    if let journal = engine as? Journal { return journal }
    throw StorageError(
      .misuse, operation: "backUp", reason: "the suite is not kept in a journal",
      remedy: "Copy what its engine stores.")
  }
}
