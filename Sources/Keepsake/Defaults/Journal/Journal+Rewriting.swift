/// Making the file, and writing all of it anew: an empty one after `removeAll`, one that replaces a
/// damaged file, and one without the records that later ones have overridden.
extension Journal {
  /// Makes an empty journal, unless another process has just made one. The caller holds no lock.
  func makeFile() throws(StorageError) {
    let mode = try location.prepareDirectory()
    var temporary: TemporaryFile
    do throws(StorageError) {
      temporary = try makeTemporaryFile(NewJournal().bytes, mode: mode)
    } catch  where error.code == .notFound {
      try requireTarget()
      throw error
    }
    guard try temporary.claimDestination() else { return try requireTarget() }
    try synchronizeDirectory()
  }

  /// Throws if the journal's path is a symbolic link to nothing: there is no file to append to, and
  /// none may be made in place of the link.
  private func requireTarget() throws(StorageError) {
    let isLink = try FileSystem.status(location.path, followsLinks: false)?.isSymbolicLink == true
    guard isLink, try FileSystem.status(location.path) == nil else { return }
    throw StorageError(
      .notFound, operation: "open", path: location.path,
      reason: "the path is a symbolic link to a file that does not exist",
      remedy: "Restore that file, or remove the link.")
  }

  /// Writes the values of the table to a new file and puts it in place of the locked one, durably.
  /// If another program has replaced that, the writer has no file afterwards.
  ///
  /// - Parameter isEmpty: Whether to leave the values out, which removes them.
  func rewrite(_ writer: inout Writer, asEmpty isEmpty: Bool = false) throws(StorageError) {
    try removeStaleTemporaryFiles()
    let fixedID = try fixedID()
    let new =
      isEmpty
      ? NewJournal(into: fixedID)
      : loaded.withLock { NewJournal($0.table.entries, into: fixedID) }
    let temporary: TemporaryFile
    do throws(StorageError) {
      temporary = try makeTemporaryFile(new.bytes, mode: 0o600)
    } catch  where error.code == .accessDenied {
      // As beside a file that is mounted alone in a read-only container. An empty file has nothing
      // to lose.
      guard let old = writer.handle, try old.file.status().size == 0 else { throw error }
      try overwrite(old, with: new.bytes)
      let filled = try publish(JournalWord(id: new.id, end: new.end), in: old)
      loaded.withLock { $0.adopt(filled, new.id, end: new.end, isEmpty: isEmpty) }
      return writer.adopt(filled, new.id, end: new.end)
    }
    try install(temporary, new.id, end: new.end, isEmpty: isEmpty, &writer)
    try synchronizeDirectory()
  }

  /// The id of a journal that has another name, is mounted alone or may not be replaced, so that it
  /// has to stay the same file.
  func fixedID() throws(StorageError) -> UInt64? {
    guard let status = try FileSystem.status(location.path) else { return nil }
    let isProtected = try isProtected(status)
    guard status.linkCount > 1 || status.isMountPoint || isProtected else { return nil }
    // Not the id that this process knows, which may not have read the file.
    let bytes = try File.openIfPresent(location.path)?
      .read(from: 0, count: JournalFormat.headerSize)
    guard let bytes,
      case .valid(let id, _) = bytes.withUnsafeBytes({ JournalFormat.header(of: $0) })
    else { return nil }
    return id
  }

  /// Whether the file is another user's, in a sticky directory of another user.
  private func isProtected(_ status: FileStatus) throws(StorageError) -> Bool {
    let user = ProcessEnvironment.userID
    if user == 0 || status.owner == user { return false }
    let directory = try FileSystem.status(FileSystem.parent(of: location.target()))
    return directory.map { $0.mode & 0o1000 != 0 && $0.owner != user } ?? false
  }

  /// Makes a complete file, which will get the journal's name.
  func makeTemporaryFile(_ bytes: [UInt8], mode: UInt32) throws(StorageError) -> TemporaryFile {
    let temporary = try TemporaryFile.make(beside: location.target(), mode: mode)
    // It may wait for a lock before it is used again.
    _ = try temporary.file.keep()
    temporary.file.overwriteInPlace()
    try temporary.file.writeAll(bytes)
    try temporary.file.synchronize()
    return temporary
  }

  func removeStaleTemporaryFiles() throws(StorageError) {
    // A file that has just been replaced may be a restored one with an old time.
    try FileSystem.removeStaleTemporaryFiles(for: location.target(), countsRenames: true)
  }

  /// Gives a synced file the journal's name, and continues with it. The caller holds the lock of
  /// the journal, and then that of the new file.
  ///
  /// Other processes look at the path again when they see that the file has been replaced. They are
  /// told before it is, so that they also do if this process is killed.
  func install(
    _ temporary: consuming TemporaryFile, _ id: UInt64, end: Int, isEmpty: Bool = false,
    _ writer: inout Writer
  ) throws(StorageError) {
    guard let old = writer.handle else { return }
    try temporary.file.requireOpen("rename")
    // Everything that can fail precedes the exchange.
    var new = try JournalHandle(temporary.file.duplicate(as: location.path))
    _ = try new.file.tryLock()
    let target = try location.target()
    let status = try old.file.status()
    // A file that was deleted stays so.
    guard status.linkCount > 0 else {
      try leave(old)
      return writer.forget()
    }
    try temporary.file.takePermissions(of: status, at: target)
    writer.word = nil
    if status.linkCount > 1 {
      new = try fill(old, from: temporary, new, id, end: end)
    } else {
      let word = old.word
      // An empty file has no header.
      if !old.isLost { try old.publish(.replaced) }
      do throws(StorageError) {
        guard try exchange(&temporary, for: old) else {
          try old.publish(word)
          try leave(old)
          return writer.forget()
        }
        // A child that was forked in the meantime would keep it.
        old.file.unlock()
      } catch  where !temporary.isKept && [.busy, .accessDenied].contains(error.code) {
        // A file that is mounted alone, or another user's in a sticky directory.
        new = try fill(old, from: temporary, new, id, end: end)
      } catch {
        if !old.isLost { try? old.publish(word) }
        throw error
      }
    }
    loaded.withLock { $0.adopt(new, id, end: end, isEmpty: isEmpty) }
    writer.adopt(new, id, end: end)
  }

  /// Exchanges the names of the new file and the journal; false if another program has put its own
  /// file there meanwhile, which stays.
  private func exchange(
    _ temporary: inout TemporaryFile, for old: JournalHandle
  ) throws(StorageError) -> Bool {
    guard let path = try temporary.exchangeWithDestination() else { return true }
    let failure: StorageError?
    do throws(StorageError) {
      if try FileSystem.status(path)?.isSameFile(as: old.status) == true { return true }
      failure = nil
    } catch {
      failure = error
    }
    // Also if it is not known which file that was: nothing has changed then.
    do throws(StorageError) {
      _ = try temporary.exchangeWithDestination()
    } catch {
      temporary.keep()
      // Under its temporary name, that file would be swept away.
      try? FileSystem.rename(path, to: FileSystem.unusedPath(replacedStem()))
      throw error
    }
    if let failure { throw failure }
    return false
  }

  /// Writes the contents of the new file into the old one, which has to stay the same file.
  ///
  /// The new file is kept beside it meanwhile. A file with the new id and without a word is
  /// unfinished, and its readers and the next writer use the new one.
  ///
  /// - Returns: The old file with its new contents.
  private func fill(
    _ old: JournalHandle, from temporary: consuming TemporaryFile, _ new: JournalHandle,
    _ id: UInt64, end: Int
  ) throws(StorageError) -> JournalHandle {
    let bytes = try new.file.read(from: 0, count: end)
    try temporary.leave(at: location.nextPath(id: id))
    try synchronizeDirectory()
    try overwrite(old, with: bytes)
    // Not before the file is complete, or another killed writer's would be missing.
    try location.removeNextJournals(id: id)
    return try publish(new.word, in: old)
  }

  /// Writes a journal without a word into the file.
  private func overwrite(_ old: JournalHandle, with bytes: [UInt8]) throws(StorageError) {
    var header = Array(bytes[..<JournalFormat.headerSize])
    header.replaceSubrange(
      JournalWord.offset..<JournalWord.offset + JournalWord.size, with: JournalWord.replaced.bytes)
    try old.file.overwrite(header.span.bytes, at: 0)
    try old.file.synchronize()
    let rest = Array(bytes[JournalFormat.headerSize...])
    try old.file.overwrite(rest.span.bytes, at: JournalFormat.headerSize)
    try old.file.truncate(to: bytes.count)
    try old.file.synchronize()
  }

  /// Ends that with the word.
  ///
  /// - Returns: The file with its new contents.
  private func publish(
    _ word: JournalWord, in old: JournalHandle
  ) throws(StorageError) -> JournalHandle {
    // The mapping of an empty file does not show what was written to it.
    let filled = try JournalHandle(old.file.duplicate(as: location.path))
    try filled.publish(word)
    try filled.file.synchronize()
    return filled
  }
}
