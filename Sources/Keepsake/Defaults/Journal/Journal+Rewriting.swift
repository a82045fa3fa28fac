/// Writing the whole file anew: the first file of a suite, an empty one after `removeAll`, and one
/// that replaces a damaged file.
extension JournalFile {
  /// The values of the table as the bytes of a new file.
  func encodedTable(id: UInt64) -> [UInt8] {
    var bytes = JournalFormat.header(id: id)
    for (key, entry) in table.entries.elements {
      JournalFormat.append(entry.value, key: key, seed: id, to: &bytes)
    }
    return bytes
  }
}

extension Journal {
  /// Writes the values of the table to a new file and puts it in place of the old one, durably. The
  /// caller holds the file lock.
  ///
  /// - Parameters:
  ///   - isEmpty: Whether to leave the values out, which removes them.
  ///   - mayReplace: Whether there may be an old file.
  /// - Returns: Whether the file is in place; false if there is one that may not be replaced.
  @discardableResult
  func rewrite(
    asEmpty isEmpty: Bool = false, mayReplace: Bool = true
  ) throws(StorageError) -> Bool {
    try removeStaleTemporaryFiles()
    let (id, bytes, source) = file.withLock { file in
      let id = file.newID()
      let bytes = isEmpty ? JournalFormat.header(id: id) : file.encodedTable(id: id)
      return (id, bytes, file.contents)
    }
    let temporary = try makeTemporaryFile()
    try temporary.file.writeAll(bytes)
    try temporary.file.synchronize()
    guard
      try install(
        temporary, madeFrom: source, seed: id, size: bytes.count, isEmpty: isEmpty,
        mayReplace: mayReplace)
    else { return false }
    try synchronizeDirectory()
    return true
  }

  /// Gives a synced file the journal's name, continues with it, and tells the other processes.
  ///
  /// - Parameter source: The file that was there when its values were taken; nil if there was none.
  /// - Returns: Whether it has the name; false if there is a file that may not be replaced.
  @discardableResult
  func install(
    _ temporary: consuming TemporaryFile, madeFrom source: JournalFile.Contents?, seed: UInt64,
    size: Int, isEmpty: Bool = false, mayReplace: Bool = true
  ) throws(StorageError) -> Bool {
    // Everything that can fail precedes the move.
    var handle = try temporary.file.duplicate(as: location.path)
    var status = try handle.status()
    try mark()
    try takePermissions(temporary)
    if mayReplace {
      do throws(StorageError) {
        if let replaced = try temporary.exchangeWithDestination() {
          keepIfRestored(&temporary, at: replaced, since: source)
        }
      } catch  where error.code == .busy {
        // A file that is mounted alone cannot be replaced.
        guard let filled = try fillEmptyFile(from: handle, size: size) else { throw error }
        (handle, status) = filled
      }
    } else if try !temporary.renameToDestinationIfAbsent() {
      return false  // a program has begun to restore the journal
    }
    try file.withLock { file throws(StorageError) in
      file.adopt(handle, status, seed: seed, size: size, isEmpty: isEmpty)
      try file.publish()
    }
    // A removal may have used the space while the disk was full.
    file.withLock { $0.lockFile }?.reserveSpace()
    return true
  }

  /// Writes to the file that is at the path already; nil if it is not empty. Nothing is lost if
  /// this process is killed meanwhile: other programs take what there is for a file that is being
  /// restored.
  private func fillEmptyFile(
    from source: File, size: Int
  ) throws(StorageError) -> (File, FileStatus)? {
    let file = try File.openForAppending(location.path)
    guard try file.status().size == 0 else { return nil }
    do throws(StorageError) {
      try file.writeAll(source.read(from: 0, count: size))
      try file.synchronize()
      return (file, try file.status())
    } catch {
      try? file.truncate(to: 0)
      throw error
    }
  }

  /// Makes a file that will get the journal's name. If there is a journal, only this user may read
  /// the file until it has that journal's permissions.
  func makeTemporaryFile() throws(StorageError) -> TemporaryFile {
    let isFirst = try FileSystem.status(location.path) == nil
    return try TemporaryFile.make(
      beside: location.path, .createAndAppend, mode: isFirst ? location.fileMode() : 0o600)
  }

  func takePermissions(_ temporary: borrowing TemporaryFile) throws(StorageError) {
    guard let old = try FileSystem.status(location.path) else { return }
    try temporary.takePermissions(of: old, at: location.path)
  }

  /// Marks the lock file before the journal changes. The caller holds the file lock.
  func mark() throws(StorageError) {
    try file.withLock { file throws(StorageError) in
      try file.makeLockFileWritable()
      try file.lockFile?.mark()
    }
  }
}
