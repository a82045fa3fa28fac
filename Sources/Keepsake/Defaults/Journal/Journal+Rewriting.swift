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
  /// - Parameter isEmpty: Whether to leave the values out, which removes them.
  func rewrite(asEmpty isEmpty: Bool = false) throws(StorageError) {
    try FileSystem.removeStaleTemporaryFiles(for: location.path)
    let id = UInt64.random(in: .min ... .max)
    let bytes = isEmpty ? JournalFormat.header(id: id) : file.withLock { $0.encodedTable(id: id) }
    let temporary = try TemporaryFile.make(
      beside: location.path, .createAndAppend, mode: location.fileMode())
    try temporary.file.writeAll(bytes)
    try temporary.file.synchronize()
    try install(temporary, seed: id, size: bytes.count, isEmpty: isEmpty)
    try synchronizeDirectory()
  }

  /// Gives a synced file the journal's name, continues with it, and tells the other processes.
  func install(
    _ temporary: consuming TemporaryFile, seed: UInt64, size: Int, isEmpty: Bool = false
  ) throws(StorageError) {
    // Everything that can fail precedes the move.
    let handle = try temporary.file.duplicate(as: location.path)
    let status = try handle.status()
    try temporary.moveToDestination()
    try file.withLock { file throws(StorageError) in
      file.adopt(handle, status, seed: seed, size: size, isEmpty: isEmpty)
      try file.publish(isReplaced: true)
    }
  }
}
