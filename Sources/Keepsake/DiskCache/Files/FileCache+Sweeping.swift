internal import FoundationEssentials
internal import Synchronization

extension FileCache {
  // MARK: Removing what is over or damaged, under the key's lock

  /// Removes an entry if it still is over: by now it may be another one.
  func removeIfOver(
    _ name: EntryName, _ key: String?, _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) {
    let found = try look(name, key, session, readsPayload: false, isSettling: true)
    if case .expired = found { try removeFiles(name, session, ledger) }
  }

  /// Decides over files that did not fit each other, now that no writer is at them: the checksum
  /// says whether they are an entry, otherwise they go.
  func settle(
    _ name: EntryName, _ key: String?, _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) -> Look {
    let found = try look(name, key, session, readsPayload: true, isSettling: true)
    switch found {
    case .present, .absent: return found
    case .expired: break
    case .mixed: counts.damaged.add(1, ordering: .relaxed)
    }
    try removeFiles(name, session, ledger)
    return found
  }

  // MARK: Looking through subdirectories

  /// What a subfolder holds that the clock, a crash or somebody else has not spoilt.
  struct Survey {
    var entries: [(name: EntryName, payload: FileStatus, footprint: Int)] = []
    var earliestExpiry = Int64.max
    var size = 0
    var expiredCount = 0
  }

  func removeExpired() throws(StorageError) -> Int {
    // Who was killed while emptying the cache leaves no cache, but its old files.
    if try session() == nil, try location.leftOvers().isEmpty { return 0 }
    return try sweep(try writingSession(), from: 0)
  }

  /// Looks through all subdirectories from one on; returns how many expired entries it removed.
  func sweep(_ session: CacheSession, from first: Int) throws(StorageError) -> Int {
    guard let ledger = session.ledger else { return 0 }
    try location.removeLeftOvers(session)
    try location.sweepTag()
    try ledger.checkClock()
    var count = 0
    for directory in try directoriesToSurvey(session, ledger) where directory >= first {
      count += try survey(directory, session, ledger).expiredCount
      try ledger.advance(to: directory + 1)
    }
    try ledger.advance(to: EntryName.directoryCount)
    return count
  }

  /// Those that are there, and those that the books say something of.
  func directoriesToSurvey(
    _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) -> [Int] {
    let present = Set(try directories(session))
    return (0..<EntryName.directoryCount).filter { directory in
      present.contains(directory) || ledger.size(of: directory).bytes != 0
        || ledger.earliestExpiry(in: directory) != .max
    }
  }

  /// Counts a subfolder, and removes what is over, half or forgotten in it.
  @discardableResult
  func survey(
    _ directory: Int, _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) -> Survey {
    var expiredCount = 0
    // Again when the size changed meanwhile, as by removing, but not for ever.
    for _ in 0..<3 {
      let seen = ledger.size(of: directory)
      let began = try ledger.beginSweep(of: directory)
      var survey = try surveyOnce(directory, session, ledger)
      expiredCount += survey.expiredCount
      survey.expiredCount = expiredCount
      // A file that was listed may be one whose writer has yet to add its size.
      try session.awaitWriters(in: directory, timeout: timeout)
      let isRight = try ledger.endSweep(
        of: directory, earliestExpiry: survey.earliestExpiry, size: survey.size, seen: seen,
        began: began, since: session.epoch)
      if isRight { return survey }
    }
    return try surveyOnce(directory, session, ledger)
  }

  private func surveyOnce(
    _ directory: Int, _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) -> Survey {
    var survey = Survey()
    let path = session.path(ofDirectory: directory)
    let names = Set(try FileSystem.list(path))
    let now = WallClock.now
    var known: [UInt64: Bool] = [:]
    for fileName in names {
      if fileName.utf8.first == UInt8(ascii: ".") {
        if try session.isAbandoned(fileName, &known) {
          try FileSystem.remove(path + "/" + fileName)
        }
        continue
      }
      let payloadName = Sidecar.payloadName(of: fileName)
      // It is the payload's turn.
      if let payloadName, names.contains(payloadName) { continue }
      guard let name = EntryName(fileName: payloadName ?? fileName) else { continue }
      if payloadName != nil || !names.contains(fileName + Sidecar.suffix) {
        try removeHalf(name, session)
        continue
      }
      guard let payload = try FileSystem.status(name.path, in: session.directory, withTimes: true)
      else { continue }
      if payload.isDirectory {
        try removeHalf(name, session)
        continue
      }
      if payload.mayEnd {
        switch try fate(of: name, payload, session, now: now) {
        case .ends(let end): survey.earliestExpiry = min(survey.earliestExpiry, end)
        case .hasExpired:
          survey.expiredCount += 1
          continue
        case .isGone: continue
        }
      }
      let footprint = session.footprint(
        size: payload.size, keyLength: try keyLength(name, fileName, session))
      survey.size += footprint
      survey.entries.append((name, payload, footprint))
    }
    return survey
  }

  private enum Fate {
    /// At this time, or not before it.
    case ends(Int64)
    /// And was removed.
    case hasExpired
    /// It was damaged.
    case isGone
  }

  /// Looks when an entry ends, and removes it if that has come or nothing can tell.
  private func fate(
    of name: EntryName, _ payload: FileStatus, _ session: CacheSession, now: Int64
  ) throws(StorageError) -> Fate {
    if let end = payload.hintedEnd(now: now) { return .ends(end) }
    do throws(StorageError) {
      let outcome = try session.withKeyLock(name, timeout: timeout) {
        (ledger) throws(StorageError) -> Fate in
        var found = try look(name, nil, session, readsPayload: false)
        if case .mixed = found { found = try settle(name, nil, session, ledger) }
        switch found {
        case .present(let known, _):
          return .ends(known.lifespan.end(created: known.created, used: known.noted))
        case .expired:
          try removeFiles(name, session, ledger)
          return .hasExpired
        case .absent, .mixed: return .isGone
        }
      }
      guard case .done(let fate) = outcome else { return .ends(.max) }
      return fate
    } catch  where error.code == .unsupportedVersion {
      // Not ours to judge.
      return .ends(.max)
    }
  }

  private func keyLength(
    _ name: EntryName, _ fileName: String, _ session: CacheSession
  ) throws(StorageError) -> Int {
    if let length = EntryName.keyLength(fileName: fileName) { return length }
    guard let status = try FileSystem.status(name.sidecarPath, in: session.directory) else {
      return 0
    }
    return max(0, status.size - Sidecar.headerSize)
  }

  /// Removes one file of two, unless a writer has added the other meanwhile.
  private func removeHalf(_ name: EntryName, _ session: CacheSession) throws(StorageError) {
    _ = try session.withKeyLock(name, timeout: timeout) {
      (ledger) throws(StorageError) -> Void in
      let payload = try FileSystem.status(name.path, in: session.directory)
      let sidecar = try FileSystem.status(name.sidecarPath, in: session.directory)
      if let payload, sidecar != nil, !payload.isDirectory { return }
      if payload != nil { counts.damaged.add(1, ordering: .relaxed) }
      try removeFiles(name, session, ledger)
    }
  }

  // MARK: Emptying and tidying up

  func removeAll() throws(StorageError) {
    guard let old = try session() else { return }
    let session = try retrying { () throws(StorageError) in try writingSession() }
    guard let ledger = session.ledger else { return }
    let trash = location.trashPath()
    try ledger.clear { () throws(StorageError) in
      do throws(StorageError) {
        try FileSystem.rename(location.root, to: trash)
      } catch  where error.code == .notFound {
        // Somebody else was first.
      }
    }
    drop(old)
    drop(session)
    BackgroundWork.run { [self] in
      do throws(StorageError) {
        try FileSystem.removeTree(trash)
      } catch {
        report(error.inContext(of: "removeAll", path: trash))
      }
    }
  }

  /// In the background: what others left behind goes, and once a day a sweep goes on.
  func tidyUp(_ session: CacheSession) {
    guard let ledger = session.ledger else { return }
    let isSweepDue = WallClock.now.subtractingSaturated(ledger.lastSweep) > Self.sweepPause
    do throws(StorageError) {
      // Looked at here, as there hardly ever is any: no thread for nothing.
      let leftOvers = try location.leftOvers()
      if !isSweepDue, leftOvers.isEmpty { return }
    } catch {
      return report(error.inContext(of: "sweep", path: location.root))
    }
    BackgroundWork.run { [self] in
      do throws(StorageError) {
        try sweeping.withLockIfAvailable { _ throws(StorageError) in
          if isSweepDue {
            _ = try sweep(session, from: ledger.cursor)
          } else {
            try location.removeLeftOvers(session)
          }
        }
      } catch  where error.code == .notFound {
        // Emptied meanwhile.
      } catch {
        report(error.inContext(of: "sweep", path: location.root))
      }
    }
  }
}

extension FileStatus {
  /// Whether a payload with these times belongs to an entry that may end; see ``FileEntryWriter``.
  var mayEnd: Bool { modified % 2 == 0 }

  /// When the entry ends, or a time before; nil when only its sidecar can tell.
  func hintedEnd(now: Int64) -> Int64? {
    accessed > now && modified <= now.addingSaturated(60 * WallClock.second) ? accessed : nil
  }
}
