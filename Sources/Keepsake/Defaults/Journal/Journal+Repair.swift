/// A damaged file is copied, reported, and replaced by one with all its intact records.
///
/// A torn record at the end is no damage: the next writer closes it, see ``JournalFormat/Tail``.
extension Journal {
  /// Keeps a copy of the damaged file and replaces the file by one with all its intact records. The
  /// caller holds the file lock.
  ///
  /// - Returns: What to report when the lock is released. A failure is reported, not thrown,
  ///   because the intact records can still be read and appended to.
  func repair() -> StorageError? {
    do throws(StorageError) {
      let copy = try copyDamagedFile()
      try rewrite()
      return damageReport(.success(copy))
    } catch {
      return damageReport(.failure(error))
    }
  }

  /// Repairs damage that happened after the file was read, so the table still has all values.
  func repairFromTable() throws(StorageError) {
    file.withLock { $0.damage = $0.damage ?? 1 }
    try maintain { () throws(StorageError) in }  // taking the lock repairs the file
  }

  /// Returns the path of the copy.
  func copyDamagedFile() throws(StorageError) -> String {
    let damaged = try File(location.path, .read)
    return try keep(damaged.read(from: 0, count: damaged.status().size), as: "damaged")
  }

  /// Writes bytes to a new file beside the journal, and returns its path.
  func keep(_ bytes: [UInt8], as kind: String) throws(StorageError) -> String {
    let stem = "\(location.path).\(kind)"
    // A file that cannot be replaced is found damaged again by each writer.
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

  /// The error that reports the damage, once.
  ///
  /// - Parameter repair: The path of the damaged file's copy, or why the file was not repaired.
  func damageReport(_ repair: Result<String, StorageError>) -> StorageError? {
    let count = file.withLock { file in
      defer { file.damage = nil }
      return file.damage
    }
    guard let count else { return nil }
    let remedy: String
    var underlying: StorageError?
    switch repair {
    case .success(let copy):
      remedy =
        "Check your settings: some may have reverted to an earlier value. "
        + "The damaged file was kept as \(copy)."
    case .failure(let error):
      underlying = error
      remedy =
        "Check your settings: some may have reverted to an earlier value. "
        + "The damaged file could not be replaced: \(error.description)"
    }
    return StorageError(
      .damaged, operation: "open", path: location.path,
      reason: "the file is damaged in \(count) \(count == 1 ? "place" : "places"); "
        + "all other records are intact",
      remedy: remedy, underlyingError: underlying)
  }
}
