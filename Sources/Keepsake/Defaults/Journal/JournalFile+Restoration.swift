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
    /// Other processes may have known newer ones.
    case partial(known: [UInt8], mayBeOld: Bool)
    /// The file is no journal. The table has the values that were known to this process.
    case unreadable(mayBeOld: Bool)
  }

  /// For how long nothing may have changed the file. A complete journal may also be the first part
  /// of one: a program that copies slowly may pause between two records. If a file is not complete
  /// and other processes know newer values than this one, they get more time to write them.
  private func quietTime(isComplete: Bool, _ published: UInt64?) -> Int64 {
    (isComplete || published == tableWord ? 2 : 4) * WallClock.second
  }

  /// Whether this process or the published word knows of another journal than the one at the path,
  /// or this process has seen that there was none.
  func knowsJournal(_ published: UInt64?) -> Bool {
    identity != nil || wasMissing || Self.isOfJournal(published)
  }

  /// Whether other processes may know newer values than the table has.
  private func isTableOld(_ published: UInt64?) -> Bool {
    published != nil && published != tableWord
  }

  /// Whether a program may still be writing the file.
  mutating func isUnsettled(
    _ status: FileStatus, isComplete: Bool, _ published: UInt64?
  ) -> Bool {
    // A clock that was set back must not make the file wait.
    let age = WallClock.now.subtractingSaturated(status.changed).magnitude
    let quietTime = quietTime(isComplete: isComplete, published).magnitude
    guard age < quietTime else { return false }
    settlingTime = .nanoseconds(quietTime - age)
    return true
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
    restoration = .unreadable(mayBeOld: isTableOld(published))
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
    guard identity != nil || isLocked && knowsJournal(published) else { return nil }
    if isComplete { return .complete }
    if identity == nil { return nil }
    return .partial(known: encodedTable(id: newID()), mayBeOld: isTableOld(published))
  }
}

extension Journal {
  /// Does what a restored file requires. The caller holds the file lock.
  ///
  /// - Returns: What to report when the lock is released.
  func completeRestoration() throws(StorageError) -> StorageError? {
    let (restoration, handle, identity) = file.withLock { ($0.restoration, $0.handle, $0.identity) }
    switch restoration {
    case nil: return nil
    case .complete:
      // If it cannot be replaced, the file itself will do.
      _ = try? rewrite()
      keepLateWritesSoon(to: handle, since: identity)
      file.withLock { $0.restoration = nil }
      return nil
    case .partial(let known, let mayBeOld):
      let copy = Result { () throws(StorageError) in try keep(known, as: "previous") }
      let damage = file.withLock({ $0.damage }) == nil ? nil : repair()
      if damage == nil { _ = try? rewrite() }
      keepLateWritesSoon(to: handle, since: identity)
      file.withLock { $0.restoration = nil }
      let kept =
        switch copy {
        case .success(let path):
          "What they were before was kept as \(path)\(mayBeOld ? Self.lacksNewerValues : "")."
        case .failure(let error): "What they were before could not be kept: \(error.description)"
        }
      return StorageError(
        .damaged, operation: "open", path: location.path,
        reason: "another program replaced the file with an incomplete one while it was in use",
        remedy: "Check for missing settings. \(kept)", underlyingError: damage)
    case .unreadable(let mayBeOld):
      let found = try File.openIfPresent(location.path)
      let status = try found?.status(withTimes: true)
      // A copy, because something else than a journal may be worth keeping.
      let isEmpty = status?.size == 0
      let copy = isEmpty ? nil : try copyDamagedFile()
      try rewrite()
      keepLateWritesSoon(to: found, since: status)
      return StorageError(
        .damaged, operation: "open", path: location.path,
        reason: "another program \(isEmpty ? "emptied" : "overwrote") the file while it was in use",
        remedy: "To remove all settings, call removeAll or delete the file. The values were "
          + "written to it again\(mayBeOld ? Self.lacksNewerValues : "")"
          + "\(copy.map { ", and what was found is kept as \($0)" } ?? "").")
    }
  }

  private static let lacksNewerValues = ", without those that other processes set last"

  // MARK: Programs that restore at the same moment

  /// Keeps the file that a new one has replaced if it is not the one that was there when the values
  /// of the new one were taken, because then another program has restored it since. If that program
  /// has not finished, it continues in the kept file. The caller holds the file lock.
  ///
  /// - Parameters:
  ///   - path: The temporary path, which the replaced file has now.
  ///   - source: The file that was there then; nil if there was none.
  func keepIfRestored(
    _ replaced: inout TemporaryFile, at path: String, since source: JournalFile.Contents?
  ) {
    var reason = "another program replaced the file while it was being written anew"
    var failure: StorageError?
    do throws(StorageError) {
      guard let status = try FileSystem.status(path) else { return }
      if let source, try source.areUnchanged(status) { return }
    } catch {
      reason = "the file was written anew, and another program may have replaced it meanwhile"
      failure = error
    }
    replaced.leave()
    var kept = path
    do throws(StorageError) {
      let stem = "\(location.path).restored"
      let unused = try FileSystem.unusedPath(stem)
      try FileSystem.rename(path, to: unused)
      kept = unused
      try? FileSystem.removeOldCopies(before: unused, stem)
    } catch {
      failure = failure ?? error
    }
    let report = restoredTooLate(reason, keptAs: kept, failure)
    // Not here, because the receiver may set a value.
    BackgroundWork.run { [self] in self.report(report) }
  }

  private func restoredTooLate(
    _ reason: String, keptAs path: String, _ failure: StorageError? = nil
  ) -> StorageError {
    StorageError(
      .damaged, operation: "open", path: location.path, reason: reason,
      remedy: "Restore it again. What that program wrote was kept as \(path).",
      underlyingError: failure)
  }

  // MARK: Programs that pause for long

  /// When to look at a file again after it was replaced.
  @TaskLocal static var lateWriteDelay = Duration.seconds(30)

  /// Keeps what a program writes to a file after that was taken for finished, and replaced.
  private func keepLateWritesSoon(to replaced: File?, since status: FileStatus?) {
    let isReplaced = file.withLock { $0.handle !== replaced }
    guard let replaced, let status, isReplaced else { return }
    BackgroundWork.run(after: Self.lateWriteDelay) { [weak self] in
      self?.keepLateWrites(to: replaced, since: status)
    }
  }

  private func keepLateWrites(to replaced: File, since status: FileStatus) {
    do throws(StorageError) {
      let now = try replaced.status(withTimes: true)
      // One that has a name was kept when it was replaced.
      if now.linkCount > 0 { return }
      if now.size == status.size, now.modified == status.modified { return }
      // A program may set the time of the file, also to one in the future.
      let age = WallClock.now.subtractingSaturated(now.changed).magnitude
      if age < (2 * WallClock.second).magnitude {
        return keepLateWritesSoon(to: replaced, since: status)
      }
      let path = try keep(replaced.read(from: 0, count: now.size), as: "restored")
      report(
        restoredTooLate(
          "another program paused while it replaced the file, and went on too late", keptAs: path))
    } catch {
      report(error.inContext(of: "open", path: location.path))
    }
  }
}
