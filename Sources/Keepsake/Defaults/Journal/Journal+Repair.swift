/// A damaged file is copied, reported, and replaced by one with all its intact records. Values that
/// another program has dropped are kept for the user.
extension Journal {
  /// Keeps a copy of the damaged file and replaces the file by one with all its intact records. The
  /// caller holds the lock.
  ///
  /// - Returns: What to report when the lock is released. A failure is reported, not thrown,
  ///   because the intact records can still be read and appended to.
  func repairDamage(_ writer: inout Writer) -> StorageError? {
    let count = loaded.withLock { $0.takeDamage() } ?? 1
    do throws(StorageError) {
      let copy = try copyDamagedFile()
      try rewrite(&writer)
      return damageReport(count, .success(copy))
    } catch {
      return damageReport(count, .failure(error))
    }
  }

  /// Returns the path of the copy.
  private func copyDamagedFile() throws(StorageError) -> String {
    let damaged = try File(location.path, .read)
    let bytes = try damaged.read(from: 0, count: damaged.status().size)
    let stem = try location.target() + ".damaged"
    // A file that cannot be replaced is found damaged again by each process.
    for path in try FileSystem.copies(stem) {
      guard let copy = try File.openIfPresent(path), try copy.status().size == bytes.count else {
        continue
      }
      if try copy.read(from: 0, count: bytes.count) == bytes { return path }
    }
    let path = try FileSystem.unusedPath(stem)
    try FileSystem.replace(path, with: bytes, mode: 0o600, durable: true)
    // What cannot be removed now is removed with the next copy.
    try? FileSystem.removeOldCopies(before: path, stem)
    return path
  }

  /// The error that reports the damage.
  ///
  /// - Parameters:
  ///   - count: The number of damaged places.
  ///   - repair: The path of the damaged file's copy, or why the file was not repaired.
  func damageReport(_ count: Int, _ repair: Result<String, StorageError>) -> StorageError {
    let (outcome, underlying): (String, StorageError?) =
      switch repair {
      case .success(let copy): ("was kept as \(copy).", nil)
      case .failure(let error): ("could not be replaced: \(error.description)", error)
      }
    let report = StorageError(
      .damaged, operation: "open", path: location.path,
      reason: "the file is damaged in \(count) \(count == 1 ? "place" : "places"); "
        + "all other records are intact",
      remedy: "Check your settings: some may have reverted to an earlier value. "
        + "The damaged file \(outcome)",
      underlyingError: underlying)
    return underlying == nil ? report.asWarning : report
  }

  // MARK: Values that another program has dropped

  /// Keeps values that this process knew, and the file does not have any more. Not at once, because
  /// the caller may only read.
  func keepSoon(_ values: [UInt8]) { BackgroundWork.run { [self] in keep(values) } }

  private func keep(_ values: [UInt8]) {
    do throws(StorageError) {
      let path = try location.previousPath()
      try FileSystem.replace(path, with: values, mode: 0o600, durable: true)
      // The path tells the report from one of damage.
      report(
        replacementReport(
          path, "what they were before is kept here",
          remedy: "Check for missing settings, and take them from this file."
        ).asWarning)
    } catch {
      // A user who may not write the file has no values of their own in it, and only follows it.
      if error.code == .accessDenied,
        let handle = try? JournalHandle.open(location.path, forWriting: true),
        !handle.file.isWritable
      {
        return
      }
      report(
        replacementReport(
          location.path, "what they were before could not be kept",
          remedy: "Check for missing settings: \(error.description)", underlyingError: error))
    }
  }

  private func replacementReport(
    _ path: String, _ outcome: String, remedy: String, underlyingError: StorageError? = nil
  ) -> StorageError {
    StorageError(
      .damaged, operation: "open", path: path,
      reason: "another program replaced the settings while they were in use; \(outcome)",
      remedy: remedy, underlyingError: underlyingError)
  }
}
