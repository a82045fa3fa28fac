extension Defaults {
  /// The name of a suite: a group of settings in a file of its own, apart from all others.
  ///
  /// See ``StoragePlace``.
  public typealias Suite = StoragePlace<Defaults>
}

extension Defaults.Store {
  /// The app's suites that have a file, an engine set by `bootstrap`, or values in its backing,
  /// sorted by name.
  ///
  /// Not listed are suites in memory and suites in a directory of their own. If the directory or
  /// the backing cannot be read, that is reported, and the suites that were found are listed.
  func storedSuites() -> (suites: [Defaults.Suite], isComplete: Bool) {
    let inFiles = attempt { store throws(StorageError) in try store.suitesInFiles() }
    let onBacking = attempt { store throws(StorageError) in try store.scope.suitesOnBacking() }
    let suites = Set((inFiles ?? []) + (onBacking ?? []) + scope.suitesOnEngines)
    return (suites.sorted { $0.name < $1.name }, inFiles != nil && onBacking != nil)
  }

  private func suitesInFiles() throws(StorageError) -> [Defaults.Suite] {
    let directory = try scope.finder.directory(.configuration)
    return try FileSystem.list(directory).compactMap { name -> Defaults.Suite? in
      guard name.hasSuffix(JournalPaths.suffix) else { return nil }
      return FileName.decode(String(name.dropLast(JournalPaths.suffix.count)))
        .map { Defaults.Suite($0) }
    }
  }
}
