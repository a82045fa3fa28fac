internal import FoundationEssentials
internal import Synchronization

extension CacheFiles {
  // MARK: Removing what is over or damaged, under the key's lock

  /// Removes an entry if it still is over: by now it may be another one.
  func removeIfOver(
    _ name: EntryName, _ key: String?, _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) {
    let found = try look(name, key, session, readsPayload: false, isSettling: true)
    if case .expired = found { try removeFiles(name, session, ledger) }
  }

  /// Decides over files that did not fit each other, now that no writer is at them: the checksum says
  /// whether they are an entry, otherwise they go.
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

  // MARK: Looking through subfolders

  /// What a subfolder holds that the clock, a crash or somebody else has not spoilt.
  private struct Survey {
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

  /// Looks through all subfolders from one on; returns how many expired entries it removed.
  private func sweep(_ session: CacheSession, from first: Int) throws(StorageError) -> Int {
    guard let ledger = session.ledger else { return 0 }
    try location.removeLeftOvers(session)
    try location.sweepTag()
    try ledger.checkClock()
    var count = 0
    for folder in try foldersToSurvey(session, ledger) where folder >= first {
      count += try survey(folder, session, ledger).expiredCount
      try ledger.advance(to: folder + 1)
    }
    try ledger.advance(to: EntryName.folderCount)
    return count
  }

  /// Those that are there, and those that the books say something of.
  private func foldersToSurvey(
    _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) -> [Int] {
    let present = Set(try folders(session))
    return (0..<EntryName.folderCount).filter { folder in
      present.contains(folder) || ledger.size(of: folder).bytes != 0
        || ledger.earliestExpiry(in: folder) != .max
    }
  }

  /// Counts a subfolder, and removes what is over, half or forgotten in it.
  @discardableResult
  private func survey(
    _ folder: Int, _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) -> Survey {
    var expiredCount = 0
    // Again when the size changed meanwhile, as by removing, but not for ever.
    for _ in 0..<3 {
      let seen = ledger.size(of: folder)
      let began = try ledger.beginSweep(of: folder)
      var survey = try surveyOnce(folder, session, ledger)
      expiredCount += survey.expiredCount
      survey.expiredCount = expiredCount
      // A file that was listed may be one whose writer has yet to add its size.
      try session.awaitWriters(in: folder, timeout: timeout)
      let isRight = try ledger.endSweep(
        of: folder, earliestExpiry: survey.earliestExpiry, size: survey.size, seen: seen,
        began: began)
      if isRight { return survey }
    }
    return try surveyOnce(folder, session, ledger)
  }

  private func surveyOnce(
    _ folder: Int, _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) -> Survey {
    var survey = Survey()
    let path = session.path(ofFolder: folder)
    let names = Set(try FileSystem.list(path))
    let now = WallClock.now
    var known: [UInt64: Bool] = [:]
    for fileName in names {
      if fileName.hasPrefix(".") {
        if try session.isAbandoned(fileName, &known) {
          try FileSystem.remove(path + "/" + fileName)
        }
        continue
      }
      let isSidecar = fileName.hasSuffix(Sidecar.suffix)
      let payloadName = isSidecar ? String(fileName.dropLast(Sidecar.suffix.count)) : fileName
      guard let name = EntryName(fileName: payloadName) else { continue }
      let isWhole =
        isSidecar ? names.contains(payloadName) : names.contains(fileName + Sidecar.suffix)
      if !isWhole {
        try removeHalf(name, session)
        continue
      }
      if isSidecar { continue }
      guard let payload = try FileSystem.status(name.path, in: session.folder, withTimes: true)
      else { continue }
      if payload.isFolder {
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
    if let key = EntryName.key(fileName: fileName) { return key.count }
    guard let status = try FileSystem.status(name.sidecarPath, in: session.folder) else { return 0 }
    return max(0, status.size - Sidecar.headerSize)
  }

  /// Removes one file of two, unless a writer has added the other meanwhile.
  private func removeHalf(_ name: EntryName, _ session: CacheSession) throws(StorageError) {
    _ = try session.withKeyLock(name, timeout: timeout) {
      (ledger) throws(StorageError) -> Void in
      let payload = try FileSystem.status(name.path, in: session.folder)
      let sidecar = try FileSystem.status(name.sidecarPath, in: session.folder)
      if let payload, sidecar != nil, !payload.isFolder { return }
      if payload != nil { counts.damaged.add(1, ordering: .relaxed) }
      try removeFiles(name, session, ledger)
    }
  }

  // MARK: Listing and counting

  func keys() throws(StorageError) -> [String] {
    guard let session = try session() else { return [] }
    try session.ledger?.checkClock()
    var keys: [String] = []
    let now = WallClock.now
    for folder in try folders(session) {
      let path = session.path(ofFolder: folder)
      let names = Set(try FileSystem.list(path))
      let mayHaveExpired = session.ledger.map { $0.earliestExpiry(in: folder) <= now } ?? true
      for fileName in names where names.contains(fileName + Sidecar.suffix) {
        guard let name = EntryName(fileName: fileName) else { continue }
        if mayHaveExpired {
          guard let payload = try FileSystem.status(name.path, in: session.folder, withTimes: true)
          else { continue }
          if payload.mayEnd, payload.hintedEnd(now: now) == nil {
            guard case .present = try look(name, nil, session, readsPayload: false) else {
              continue
            }
          }
        }
        var key = EntryName.key(fileName: fileName)
        if key == nil { key = try sidecarKey(name, session) }
        if let key { keys.append(String(decoding: key, as: UTF8.self)) }
      }
    }
    return keys
  }

  private func isPresent(_ name: EntryName, _ session: CacheSession) throws(StorageError) -> Bool {
    do throws(StorageError) {
      guard case .present = try look(name, nil, session, readsPayload: false) else { return false }
      return true
    } catch  where error.code == .unsupportedVersion {
      return true
    }
  }

  private func sidecarKey(
    _ name: EntryName, _ session: CacheSession
  ) throws(StorageError) -> [UInt8]? {
    do throws(StorageError) {
      return try readSidecar(name, session, keyLength: nil)?.0.key
    } catch  where error.code == .unsupportedVersion {
      return nil
    }
  }

  /// The numbers of the subfolders that are there.
  private func folders(_ session: CacheSession) throws(StorageError) -> [Int] {
    try FileSystem.list(session.folder.path).compactMap { name in
      guard name.utf8.count == 2, let number = Int(name, radix: 16) else { return nil }
      return EntryName.folderName(number) == name ? number : nil
    }
  }

  func totalSize() throws(StorageError) -> Int {
    guard let session = try session() else { return 0 }
    guard let ledger = session.ledger else { return try measure(session) }
    try ledger.checkClock()
    let now = WallClock.now
    for folder in 0..<EntryName.folderCount
    where ledger.size(of: folder).bytes == nil || ledger.earliestExpiry(in: folder) <= now {
      try survey(folder, session, ledger)
    }
    return ledger.total
  }

  /// The size as far as a process can tell that may not write.
  private func measure(_ session: CacheSession) throws(StorageError) -> Int {
    var size = 0
    for key in try keys() {
      guard let entry = try entry(key) else { continue }
      size += session.footprint(size: entry.size, keyLength: key.utf8.count)
    }
    return size
  }

  // MARK: Keeping to the size limit

  /// After something was stored: sees to it that the cache does not grow beyond its limit, and that it
  /// is looked through once a day. Far beyond the limit the caller waits.
  func keepTidy(_ session: CacheSession) {
    guard let ledger = session.ledger else { return }
    if WallClock.now.subtractingSaturated(ledger.lastSweep) > Self.sweepPause { tidyUp(session) }
    guard let sizeLimit else { return }
    let total = ledger.total
    if total.subtractingReportingOverflow(sizeLimit).partialValue > sizeLimit / 10 {
      evict(waits: true)
    } else if total > sizeLimit || !ledger.isCounted {
      evictSoon()
    }
  }

  static let sweepPause = 86_400 * WallClock.second

  func evictSoon() {
    // One that is under way looks again before it ends.
    if isEvictionPending.exchange(true, ordering: .relaxed) { return }
    Housekeeper.run { [self] in
      isEvictionPending.store(false, ordering: .relaxed)
      evict(waits: false)
    }
  }

  /// Removes the least recently used entries until nine tenths of the limit are left.
  private func evict(waits: Bool) {
    do throws(StorageError) {
      // One thread at a time; what several processes do at once their look at the total keeps apart.
      if waits {
        _ = try evicting.withLock(timeout: timeout) { _ throws(StorageError) in try evict() }
      } else {
        _ = try evicting.withLockIfAvailable { _ throws(StorageError) in try evict() }
      }
    } catch {
      report(error.during("evict", path: location.root))
    }
  }

  private func evict() throws(StorageError) {
    try retrying { () throws(StorageError) in
      guard let sizeLimit, try session() != nil else { return }
      let session = try writingSession()
      guard let ledger = session.ledger else { return }
      for _ in 0..<3 {
        for folder in 0..<EntryName.folderCount where ledger.size(of: folder).bytes == nil {
          try survey(folder, session, ledger)
        }
        guard ledger.total > sizeLimit else { return }
        try evict(session, ledger, limit: sizeLimit)
      }
    }
  }

  /// One pass: the entries of as many subfolders as make a fair sample, oldest first; then of the next.
  private func evict(
    _ session: CacheSession, _ ledger: CacheLedger, limit: Int
  ) throws(StorageError) {
    let target = limit / 10 * 9
    let total = ledger.total
    let folders = try foldersToSurvey(session, ledger)
    let start = Int.random(in: 0...folders.count)
    var batch: [Candidate] = []
    for (step, folder) in (folders[start...] + folders[..<start]).enumerated() {
      for entry in try survey(folder, session, ledger).entries {
        let sidecar = try FileSystem.status(
          entry.name.sidecarPath, in: session.folder, withTimes: true)
        guard let sidecar else { continue }
        batch.append(Candidate(entry.name, entry.payload, entry.footprint, sidecar, session.memory))
      }
      let isLast = step == folders.count - 1
      guard batch.count >= 10_000 || isLast else { continue }
      batch.sort { $0.used < $1.used }
      // What was used last stays, also if it alone is more than nine tenths.
      let goal = batch.last.map { $0.footprint > target ? limit : target } ?? target
      let size = batch.reduce(0) { $0 + $1.footprint }
      var surplus = size - Int(Double(size) * min(1, Double(goal) / Double(max(1, total))))
      for candidate in batch {
        guard surplus > 0, ledger.total > goal else { break }
        surplus -= try evict(candidate, session) ? candidate.footprint : 0
      }
      batch = []
    }
  }

  private struct Candidate {
    let name: EntryName
    let payload: FileStatus
    let footprint: Int
    let sidecar: FileStatus
    let used: Int64

    init(
      _ name: EntryName, _ payload: FileStatus, _ footprint: Int, _ sidecar: FileStatus,
      _ memory: EntryMemory
    ) {
      self.name = name
      self.payload = payload
      self.footprint = footprint
      self.sidecar = sidecar
      let used = max(sidecar.modified, memory.lastUse(of: name) ?? .min)
      // From the future, before the clock was set back: as good as unknown.
      self.used = used > WallClock.now + 60 * WallClock.second ? .min : used
    }
  }

  /// Removes an entry, unless it was used or written since it was chosen.
  private func evict(_ candidate: Candidate, _ session: CacheSession) throws(StorageError) -> Bool {
    let name = candidate.name
    let outcome = try session.withKeyLock(name, timeout: timeout) {
      (ledger: CacheLedger) throws(StorageError) -> Bool in
      let sidecar = try FileSystem.status(name.sidecarPath, in: session.folder, withTimes: true)
      let payload = try FileSystem.status(name.path, in: session.folder, withTimes: true)
      guard sidecar == candidate.sidecar, payload == candidate.payload else { return false }
      try removeFiles(name, session, ledger)
      return true
    }
    guard case .done(true) = outcome else { return false }
    counts.evictions.add(1, ordering: .relaxed)
    return true
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
    Housekeeper.run { [self] in
      do throws(StorageError) {
        try FileSystem.removeTree(trash)
      } catch {
        report(error.during("removeAll", path: trash))
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
      return report(error.during("sweep", path: location.root))
    }
    Housekeeper.run { [self] in
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
        report(error.during("sweep", path: location.root))
      }
    }
  }
}

extension FileStatus {
  /// Whether a payload with these times belongs to an entry that may end; see ``FileEntryWriter``.
  fileprivate var mayEnd: Bool { modified % 2 == 0 }

  /// When the entry ends, or a time before; nil when only its sidecar can tell.
  fileprivate func hintedEnd(now: Int64) -> Int64? {
    accessed > now && modified <= now.addingSaturated(60 * WallClock.second) ? accessed : nil
  }
}
