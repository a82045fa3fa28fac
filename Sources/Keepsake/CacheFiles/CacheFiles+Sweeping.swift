internal import FoundationEssentials

extension CacheFiles {
  // MARK: Removing what is over or damaged, under the key's lock

  /// Removes an entry if it still is over: by now it may be another one.
  @discardableResult
  func removeIfOver(
    _ name: EntryName, _ key: String?, _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) -> Bool {
    guard
      case .expired = try look(name, key, session, readsPayload: false, trusting: false)
    else { return false }
    try removeFiles(name, session, ledger)
    return true
  }

  /// Decides over files that did not fit each other, now that no writer is at them: the checksum says
  /// whether they are an entry, otherwise they go.
  func settle(
    _ name: EntryName, _ key: String?, _ session: CacheSession, _ ledger: CacheLedger,
    readsPayload: Bool
  ) throws(StorageError) -> Look {
    let found = try look(name, key, session, readsPayload: true, trusting: false)
    switch found {
    case .present(let known, let data): return .present(known, readsPayload ? data : nil)
    case .absent: return .absent
    case .expired: break
    case .mixed: counts.count(\.damaged)
    }
    try removeFiles(name, session, ledger)
    return .absent
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
    guard try session() != nil else { return 0 }
    let session = try writingSession()
    return try sweep(session, from: 0)
  }

  /// Looks through all subfolders from one on; returns how many expired entries it removed.
  private func sweep(_ session: CacheSession, from first: Int) throws(StorageError) -> Int {
    guard let ledger = session.ledger else { return 0 }
    for path in try location.leftOvers(session) { try FileSystem.remove(path) }
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
      present.contains(folder) || ledger.size(of: folder) != 0
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
      try ledger.beginSweep(of: folder)
      var survey = try surveyOnce(folder, session, ledger)
      expiredCount += survey.expiredCount
      survey.expiredCount = expiredCount
      let isRight = try ledger.endSweep(
        of: folder, earliestExpiry: survey.earliestExpiry, size: survey.size, seen: seen)
      if isRight { return survey }
    }
    return try surveyOnce(folder, session, ledger)
  }

  private func surveyOnce(
    _ folder: Int, _ session: CacheSession, _ ledger: CacheLedger
  ) throws(StorageError) -> Survey {
    var survey = Survey()
    let path = session.folder(folder)
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
      guard let name = EntryName(fileName: payloadName, root: session.root) else { continue }
      let isWhole =
        isSidecar ? names.contains(payloadName) : names.contains(fileName + Sidecar.suffix)
      if !isWhole {
        try removeHalf(name, session)
        continue
      }
      if isSidecar { continue }
      guard let payload = try FileSystem.status(name.path, withTimes: true) else { continue }
      if payload.isFolder {
        try removeHalf(name, session)
        continue
      }
      if payload.mayEnd {
        let end = try self.end(of: name, payload, session, now: now)
        if end <= now {
          survey.expiredCount += 1
          continue
        }
        survey.earliestExpiry = min(survey.earliestExpiry, end)
      }
      let footprint = session.footprint(
        size: payload.size, keyLength: try keyLength(name, fileName))
      survey.size += footprint
      survey.entries.append((name, payload, footprint))
    }
    return survey
  }

  /// When an entry ends; in the past when that made it go.
  private func end(
    of name: EntryName, _ payload: FileStatus, _ session: CacheSession, now: Int64
  ) throws(StorageError) -> Int64 {
    if let end = payload.hintedEnd(now: now) { return end }
    let outcome = try session.withKeyLock(name, timeout: timeout) {
      (ledger) throws(StorageError) -> Int64 in
      if try removeIfOver(name, nil, session, ledger) { return now }
      guard let (sidecar, used) = try readSidecar(name, keyLength: nil) else { return .max }
      return sidecar.lifespan.end(created: sidecar.created, used: used)
    }
    guard case .done(let end) = outcome else { return .max }
    return end
  }

  private func keyLength(_ name: EntryName, _ fileName: String) throws(StorageError) -> Int {
    if let key = EntryName.key(fileName: fileName) { return key.count }
    guard let status = try FileSystem.status(name.sidecarPath) else { return 0 }
    return max(0, status.size - Sidecar.headerSize)
  }

  /// Removes one file of two, unless a writer has added the other meanwhile.
  private func removeHalf(_ name: EntryName, _ session: CacheSession) throws(StorageError) {
    _ = try session.withKeyLock(name, timeout: timeout) {
      (ledger) throws(StorageError) -> Void in
      _ = try settle(name, nil, session, ledger, readsPayload: false)
      // A sidecar alone is absent to a reader, but still there.
      if try FileSystem.status(name.path) == nil { try FileSystem.remove(name.sidecarPath) }
    }
  }

  // MARK: Listing and counting

  func keys() throws(StorageError) -> [String] {
    guard let session = try session() else { return [] }
    try session.ledger?.checkClock()
    var keys: [String] = []
    let now = WallClock.now
    for folder in try folders(session) {
      let path = session.folder(folder)
      let names = Set(try FileSystem.list(path))
      let mayHaveExpired = session.ledger.map { $0.earliestExpiry(in: folder) <= now } ?? true
      for fileName in names where names.contains(fileName + Sidecar.suffix) {
        guard let name = EntryName(fileName: fileName, root: session.root) else { continue }
        if mayHaveExpired {
          guard let payload = try FileSystem.status(name.path, withTimes: true) else { continue }
          if payload.mayEnd, payload.hintedEnd(now: now) == nil {
            guard case .present = try look(name, nil, session, readsPayload: false) else {
              continue
            }
          }
        }
        var key = EntryName.key(fileName: fileName)
        if key == nil { key = try readSidecar(name, keyLength: nil)?.0.key }
        if let key { keys.append(String(decoding: key, as: UTF8.self)) }
      }
    }
    return keys
  }

  /// The numbers of the subfolders that are there.
  private func folders(_ session: CacheSession) throws(StorageError) -> [Int] {
    try FileSystem.list(session.root).compactMap { name in
      guard name.utf8.count == 2, let number = Int(name, radix: 16) else { return nil }
      return EntryName.folderName(number) == name ? number : nil
    }
  }

  func totalSize() throws(StorageError) -> Int {
    guard var session = try session() else { return 0 }
    if let ledger = session.ledger, try ledger.file.isReplaced() {
      drop(session)
      guard let reopened = try self.session() else { return 0 }
      session = reopened
    }
    guard let ledger = session.ledger else { return try measure(session) }
    try ledger.checkClock()
    let now = WallClock.now
    for folder in 0..<EntryName.folderCount
    where ledger.size(of: folder) == nil || ledger.earliestExpiry(in: folder) <= now {
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

  /// Sees to it that the cache does not grow beyond its limit; far beyond, the caller waits for it.
  func keepToLimit(_ session: CacheSession) {
    guard let sizeLimit, let ledger = session.ledger else { return }
    let total = ledger.total
    guard total > sizeLimit else { return }
    if total - sizeLimit > sizeLimit / 10 { evict() } else { evictSoon() }
  }

  func evictSoon() {
    guard sizeLimit != nil else { return }
    Housekeeper.run { [self] in evict() }
  }

  /// Removes the least recently used entries until nine tenths of the limit are left.
  private func evict() {
    do throws(StorageError) {
      // One thread at a time; what several processes do at once their look at the total keeps apart.
      try evicting.withLock(timeout: timeout) { _ throws(StorageError) in
        guard let sizeLimit, try session() != nil else { return }
        let session = try writingSession()
        guard let ledger = session.ledger else { return }
        for _ in 0..<3 where !ledger.isCounted || ledger.total > sizeLimit {
          try evict(session, ledger, limit: sizeLimit)
        }
      }
    } catch {
      report(error.during("evict", path: location.root))
    }
  }

  /// One pass: the entries of as many subfolders as make a fair sample, oldest first; then of the next.
  private func evict(
    _ session: CacheSession, _ ledger: CacheLedger, limit: Int
  ) throws(StorageError) {
    for folder in 0..<EntryName.folderCount where ledger.size(of: folder) == nil {
      try survey(folder, session, ledger)
    }
    let target = limit / 10 * 9
    let total = ledger.total
    let folders = try foldersToSurvey(session, ledger)
    let start = Int.random(in: 0...folders.count)
    var batch: [Candidate] = []
    for (step, folder) in (folders[start...] + folders[..<start]).enumerated() {
      for entry in try survey(folder, session, ledger).entries {
        guard let sidecar = try FileSystem.status(entry.name.sidecarPath, withTimes: true) else {
          continue
        }
        batch.append(Candidate(entry.name, entry.payload, entry.footprint, sidecar, session.memory))
      }
      let isLast = step == folders.count - 1
      guard batch.count >= 10_000 || isLast else { continue }
      let size = batch.reduce(0) { $0 + $1.footprint }
      var surplus = size - Int(Double(size) * min(1, Double(target) / Double(max(1, total))))
      for (place, candidate) in batch.sorted(by: { $0.used < $1.used }).enumerated() {
        guard surplus > 0, ledger.total > target else { break }
        // What was stored last stays if it fits alone.
        if place == batch.count - 1, ledger.total <= limit { break }
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
      let sidecar = try FileSystem.status(name.sidecarPath, withTimes: true)
      let payload = try FileSystem.status(name.path, withTimes: true)
      guard sidecar == candidate.sidecar, payload == candidate.payload else { return false }
      try removeFiles(name, session, ledger)
      return true
    }
    guard case .done(true) = outcome else { return false }
    counts.count(\.evictions)
    return true
  }

  // MARK: Emptying and tidying up

  func removeAll() throws(StorageError) {
    guard let old = try session() else { return }
    if old.ledger == nil { drop(old) }
    let session = try writingSession()
    guard let ledger = session.ledger else { return }
    let trash = location.trashPath()
    try ledger.clear { () throws(StorageError) in
      do throws(StorageError) {
        try FileSystem.rename(location.root, to: trash)
      } catch  where error.code == .notFound {
        // Somebody else was first.
      }
    }
    drop(session)
    Housekeeper.run { [self] in
      do throws(StorageError) {
        try FileSystem.removeTree(trash)
      } catch {
        report(error.during("removeAll", path: trash))
      }
    }
  }

  /// Once for each process that writes: what others left behind goes, and once a day a sweep goes on.
  func tidyUp(_ session: CacheSession) {
    guard let ledger = session.ledger else { return }
    let sweepIsDue = WallClock.now - ledger.lastSweep > 86_400 * WallClock.second
    Housekeeper.run { [self] in
      do throws(StorageError) {
        if sweepIsDue {
          _ = try sweep(session, from: ledger.cursor)
        } else {
          for path in try location.leftOvers(session) { try FileSystem.remove(path) }
        }
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
    accessed > now && modified <= now + 60 * WallClock.second ? accessed : nil
  }
}
