extension Defaults {
  /// The name of a suite: a group of settings in a separate file.
  ///
  /// See ``StoragePlace``.
  public typealias Suite = StoragePlace<Defaults>
}

extension Defaults.Store {
  /// The app's suites that have a file, an engine set by `bootstrap`, or values in its backing,
  /// sorted by name.
  ///
  /// ```swift
  /// for suite in try Defaults.shared.suites() { print(suite) }
  /// ```
  ///
  /// They are the same for every store of the app. Suites in memory, and suites in a directory that
  /// the caller chose, are not listed. If only one of the app's directory and the backing can be
  /// read, the failure is reported to ``StorageSystem/onFailure``, and the suites of the other one
  /// are returned.
  ///
  /// - Throws: ``StorageError`` if one of the two cannot be read and the other one has no suites.
  public func suites() throws(StorageError) -> [Defaults.Suite] {
    let (suites, failures) = storedSuites()
    if suites.isEmpty, let failure = failures.first { throw failure }
    for failure in failures { report(failure) }
    return suites
  }

  /// The app's suites that were found, and the failures to find others.
  func storedSuites() -> (suites: [Defaults.Suite], failures: [StorageError]) {
    var (suites, failures) = (Set(scope.suitesOnEngines), [StorageError]())
    let lists: [() throws(StorageError) -> [Defaults.Suite]] = [
      suitesInFiles, scope.suitesOnBacking,
    ]
    for list in lists {
      do throws(StorageError) {
        suites.formUnion(try list())
      } catch {
        failures.append(error.inContext(of: "suites"))
      }
    }
    return (suites.sorted { $0.name < $1.name }, failures)
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
