extension Defaults {
  /// The name of a suite: a group of settings in a file of its own, apart from all others.
  ///
  /// See ``StoragePlace``.
  public typealias Suite = StoragePlace<Defaults>
}

extension Defaults.Store {
  /// The app's suites that have a file, or an engine set by `bootstrap`, sorted by name.
  ///
  /// Not listed are suites in memory and suites in a directory of their own.
  func storedSuites() throws(StorageError) -> [Defaults.Suite] {
    let directory = try scope.finder.directory(.configuration)
    let inFiles = try FileSystem.list(directory).compactMap { name -> String? in
      guard name.hasSuffix(JournalPaths.suffix) else { return nil }
      return FileName.decode(String(name.dropLast(JournalPaths.suffix.count)))
    }
    let onEngines = scope.engines.keys.filter { suite in
      switch suite.location {
      case .standard, .named: true
      case .memory, .inDirectory: false
      }
    }
    return Set(inFiles.map { Defaults.Suite($0) }).union(onEngines).sorted { $0.name < $1.name }
  }
}
