/// Backups of a suite, and replacing a suite by a backup. A backup is a journal too.
extension Journal {
  /// Writes the values at one moment to a new file, durably.
  func backUp(to path: String) throws(StorageError) {
    try validate()
    let backup = loaded.withLock { NewJournal($0.table.entries) }
    try FileSystem.replace(path, with: backup.bytes, mode: 0o600, durable: true)
  }

  /// Prepares to replace all values by those of a backup.
  func prepareRestore(from path: String) throws(StorageError) -> PreparedRestore {
    try validate()
    let new = try Self.values(ofBackupAt: path, into: fixedID())
    let mode = try location.prepareDirectory()
    let replacement = Replacement(try makeTemporaryFile(new.bytes, mode: mode))
    return PreparedRestore { () throws(StorageError) in
      try self.restore(replacement, new.id, end: new.end)
    }
  }

  /// The complete file that is about to replace a journal.
  ///
  /// Unchecked because its only user is the one call that moves it.
  private final class Replacement: @unchecked Sendable {
    private var temporary: TemporaryFile?

    init(_ temporary: consuming TemporaryFile) { self.temporary = consume temporary }

    func take() -> TemporaryFile? { temporary.take() }
  }

  /// A journal with the values of a backup.
  private static func values(
    ofBackupAt path: String, into oldID: UInt64?
  ) throws(StorageError) -> NewJournal {
    let backup = try File(path, .readNoFollow)
    let bytes = try backup.read(from: 0, count: backup.status().size)
    switch bytes.withUnsafeBytes({ JournalFormat.header(of: $0) }) {
    case .valid(let id, isIntact: true):
      let word = bytes.withUnsafeBytes { JournalFormat.word(of: $0) }
      let (records, damage) = bytes.withUnsafeBytes {
        JournalFormat.records(in: $0, from: JournalFormat.headerSize, seed: id)
      }
      if word.end(of: id) == bytes.count, damage == 0 {
        var table = ValueTable()
        table.apply(records, in: bytes)
        return NewJournal(table.entries, into: oldID)
      }
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

  /// Puts the file in place of the journal.
  ///
  /// - Returns: The path of the replaced journal; nil if it had no values.
  private func restore(
    _ replacement: Replacement, _ id: UInt64, end: Int
  ) throws(StorageError) -> String? {
    var kept: String?
    try locked { writer, deferred throws(StorageError) in
      guard let handle = writer.handle else { return false }
      guard handle.file.isWritable else { throw writingError() }
      guard let temporary = replacement.take() else { return true }
      kept = try keepReplacedFile(handle, end: writer.end)
      try install(temporary, id, end: end, &writer)
      guard let restored = writer.handle else { throw replacementFailure() }
      try loaded.withLock { file throws(StorageError) in
        try file.readAgain(restored)
        file.passOn(to: &deferred)
      }
      return true
    }
    try synchronizeDirectory()
    // Only now: a restore that fails must not push out what earlier ones have kept. What cannot be
    // removed is removed by the next one.
    if let kept { try? FileSystem.removeOldCopies(before: kept, replacedStem()) }
    return kept
  }

  private func replacementFailure() -> StorageError {
    StorageError(
      .timedOut, operation: "restore", path: location.path,
      reason: "another program replaced the file at the same moment",
      remedy: "Restore it again; that program's file was left as it is.")
  }

  /// What the paths of replaced journals begin with.
  func replacedStem() throws(StorageError) -> String { try location.target() + ".replaced" }

  /// Copies the journal that is about to be replaced.
  private func keepReplacedFile(
    _ handle: JournalHandle, end: Int
  ) throws(StorageError) -> String? {
    if loaded.withLock({ $0.isCurrent(in: handle) && $0.table.entries.count == 0 }) { return nil }
    let path = try FileSystem.unusedPath(replacedStem())
    let bytes = try handle.file.read(from: 0, count: end)
    try FileSystem.replace(path, with: bytes, mode: 0o600, durable: true)
    return path
  }
}
