/// A journal that another program replaces or writes over while it is in use, as restoring a backup
/// does. It may do so in several steps, and be empty in between.
///
/// Such a program does not tell when it has finished. So the file has to stay unchanged for a
/// while: until then readers keep the table, and writers wait. What then reads as a journal is the
/// journal from now on, even if it is older. If nothing does, the values of the table stay.
extension JournalFile {
  /// What a writer still has to do for a restored file.
  enum Restoration {
    /// The file was read. It is written to a new one, so that words that stood for the old file
    /// never stand for other values.
    case complete
    /// A part of the file could be read. `known` is a journal with the values before.
    case partial(known: [UInt8])
    /// The file is no journal. The table has the values that were known.
    case unreadable
  }

  /// For how long nothing may have changed a file that reads as a complete journal…
  private static let quietTime = WallClock.second / 10
  /// …and any other file, which is not finished. If other processes know newer values than this
  /// one, they are given more time to write them.
  private func longQuietTime(_ published: UInt64?) -> Int64 {
    (published == tableWord ? 2 : 4) * WallClock.second
  }

  /// Whether this process or the published word knows of another journal than the one at the path.
  func knowsJournal(_ published: UInt64?) -> Bool {
    identity != nil || Self.isOfJournal(published)
  }

  /// Whether a program may still be writing the file.
  func isUnsettled(_ status: FileStatus, isComplete: Bool, _ published: UInt64?) -> Bool {
    // A clock that was set back must not make the file wait.
    let age = WallClock.now.subtractingSaturated(status.changed).magnitude
    return age < (isComplete ? Self.quietTime : longQuietTime(published)).magnitude
  }

  /// What to do with a file that is no journal.
  ///
  /// - Returns: What `validate` returns if the table stays as it is; nil if it must not.
  mutating func keepTable(
    insteadOf status: FileStatus, _ published: UInt64?, isLocked: Bool
  ) -> Bool? {
    guard knowsJournal(published) else { return nil }
    guard isLocked else { return identity == nil ? nil : false }
    if isUnsettled(status, isComplete: false, published) { return false }
    if identity == nil { return nil }
    restoration = .unreadable
    return true
  }

  /// What a writer has to do after the table was replaced by the values of another file.
  ///
  /// - Parameter isPublished: Whether a writer of this journal has published the file.
  func restoration(
    by id: UInt64, upTo end: Int, isPublished: Bool, isComplete: Bool, _ published: UInt64?,
    isLocked: Bool
  ) -> Restoration? {
    guard !isPublished || id == seed && end < offset else { return nil }
    // Without values before, only a writer has something to do, and it does so at once.
    guard identity != nil || isLocked && Self.isOfJournal(published) else { return nil }
    if isComplete { return .complete }
    return identity == nil ? nil : .partial(known: encodedTable(id: newID()))
  }
}

extension Journal {
  /// Does what a restored file requires. The caller holds the file lock.
  ///
  /// - Returns: What to report when the lock is released.
  func completeRestoration() throws(StorageError) -> StorageError? {
    switch file.withLock({ $0.restoration }) {
    case nil: return nil
    case .complete:
      // If it cannot be replaced, the file itself will do.
      _ = try? rewrite()
      file.withLock { $0.restoration = nil }
      return nil
    case .partial(let known):
      let copy = Result { () throws(StorageError) in try keep(known, as: "previous") }
      let damage = file.withLock({ $0.damage }) == nil ? nil : repair()
      if damage == nil { _ = try? rewrite() }
      file.withLock { $0.restoration = nil }
      let kept =
        switch copy {
        case .success(let path): "What they were before was kept as \(path)."
        case .failure(let error): "What they were before could not be kept: \(error.description)"
        }
      return StorageError(
        .damaged, operation: "open", path: location.path,
        reason: "another program replaced the file with an incomplete one while it was in use",
        remedy: "Check for missing settings. \(kept)", underlyingError: damage)
    case .unreadable:
      // A copy, because something else than a journal may be worth keeping.
      let isEmpty = try FileSystem.status(location.path)?.size == 0
      let copy = isEmpty ? nil : try copyDamagedFile()
      try rewrite()
      return StorageError(
        .damaged, operation: "open", path: location.path,
        reason: "another program \(isEmpty ? "emptied" : "overwrote") the file while it was in use",
        remedy: "To remove all settings, call removeAll or delete the file. The values were "
          + "written to it again\(copy.map { ", and what was found is kept as \($0)" } ?? "").")
    }
  }
}
