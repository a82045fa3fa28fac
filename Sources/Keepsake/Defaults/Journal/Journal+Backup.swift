/// Backups of a suite, and replacing a suite by a backup. A backup is a journal too.
extension Journal {
  /// Writes the values at one moment to a new file, durably.
  func backUp(to path: String) throws(StorageError) {
    try validate()
    let bytes = file.withLock { $0.encodedTable(id: .random(in: .min ... .max)) }
    try FileSystem.replace(path, with: bytes, mode: 0o600, durable: true)
  }

  /// Prepares to replace all values by those of a backup.
  func prepareRestore(from path: String) throws(StorageError) -> PreparedRestore {
    let id = file.withLock { $0.newID() }
    let bytes = try Self.values(ofBackupAt: path, id: id)
    _ = try location.prepareDirectory()
    let temporary = try makeTemporaryFile()
    try temporary.file.writeAll(bytes)
    try temporary.file.synchronize()
    let replacement = Replacement(temporary)
    return PreparedRestore { () throws(StorageError) in try self.restore(replacement) }
  }

  /// The complete file that is about to replace a journal.
  ///
  /// Unchecked because its only user is the one call that moves it.
  private final class Replacement: @unchecked Sendable {
    var temporary: TemporaryFile

    init(_ temporary: consuming TemporaryFile) { self.temporary = temporary }
  }

  /// The bytes of a journal with the values of a backup.
  private static func values(
    ofBackupAt path: String, id: UInt64
  ) throws(StorageError) -> [UInt8] {
    let backup = try File(path, .readNoFollow)
    let bytes = try backup.read(from: 0, count: backup.status().size)
    switch bytes.withUnsafeBytes({ JournalFormat.header(of: $0) }) {
    case .valid(let oldID, isIntact: true):
      var output = JournalFormat.header(id: id)
      let end = copyLiveRecords(
        bytes, from: JournalFormat.headerSize, seed: oldID, newSeed: id, to: &output)
      if end == bytes.count { return output }
    case .unsupported:
      throw StorageError(
        .unsupportedVersion, operation: "restore", path: path,
        reason: "a newer version of Keepsake wrote the file",
        remedy: "Update Keepsake; nothing was changed.")
    case .valid, .incomplete, .foreign: break
    }
    throw StorageError(
      .damaged, operation: "restore", path: path, reason: "the backup of the suite is damaged",
      remedy: "Restore another backup; nothing was changed.")
  }

  /// Puts the file in place of the journal, and tells the other processes.
  ///
  /// - Returns: The path of the replaced journal; nil if it had no values.
  private func restore(_ replacement: Replacement) throws(StorageError) -> String? {
    var kept: String?
    try locked { () throws(StorageError) in
      kept = try keepReplacedFile()
      try takePermissions(replacement.temporary)
      try mark()
      try replacement.temporary.moveToDestination()
      try file.withLock { file throws(StorageError) in
        file.forgetFile()
        // The new file is complete, and not one that another program has begun to write.
        file.wasMissing = false
        _ = try file.reload(nil, isLocked: true)
        try file.publish()
      }
    }
    try synchronizeDirectory()
    // Only now: a restore that fails must not push out what earlier ones have kept. What cannot be
    // removed is removed by the next one.
    if let kept { try? FileSystem.removeOldCopies(before: kept, replacedStem) }
    return kept
  }

  /// What the paths of replaced journals begin with.
  private var replacedStem: String { location.path + ".replaced" }

  /// Gives the file a second name, which it keeps when it is replaced.
  private func keepReplacedFile() throws(StorageError) -> String? {
    if file.withLock({ $0.table.entries.count == 0 }) { return nil }
    let path = try FileSystem.unusedPath(replacedStem)
    if try !FileSystem.link(location.path, to: path) {
      let replaced = try File(location.path, .read)
      let bytes = try replaced.read(from: 0, count: replaced.status().size)
      try FileSystem.replace(path, with: bytes, mode: 0o600, durable: true)
    }
    return path
  }
}
