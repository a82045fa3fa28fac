internal import Synchronization

extension OpenCache {
  /// Removes the least recently used entries until nine tenths of the limit are left.
  ///
  /// - Parameter limit: The limit; nil if there is none any more.
  /// - Throws: The first error, after what else can be removed was removed.
  func evict(toFit limit: () -> Int?) throws(StorageError) {
    var failure: StorageError?
    try evict(toFit: limit, &failure)
    if let failure { throw failure }
  }

  @inline(never)
  private func evict(toFit limit: () -> Int?, _ failure: inout StorageError?) throws(StorageError) {
    guard let ledger else { return }
    for _ in 0..<3 where failure == nil {
      attempt(&failure) { () throws(StorageError) in try countAgain(timeout: Self.longestWait) }
      let size = ledger.totalSize.bytes
      // The limit after the size: what was stored under a raised limit is not evicted for the old.
      guard let limit = limit(), size > limit else { return }
      if evictKnownEntries(toFit: limit, ledger, &failure) { continue }
      try evictOnce(toFit: limit, ledger, &failure)
    }
  }

  /// Removes old entries of this many bytes, unless the cache fits before. Does not wait for what
  /// other threads and processes have locked.
  @inline(never)
  func evict(bytes: Int, toFit limit: Int) throws(StorageError) {
    guard let ledger else { return }
    var failure: StorageError?
    let target = CacheSizeLimit.evictionTarget(of: limit)
    let rest = evictKnownEntries(of: bytes, downTo: target, ledger, &failure)
    if rest > 0, ledger.totalSize.bytes > limit {
      try evictOnce(toFit: limit, ledger, atMost: rest, &failure)
    }
    if let failure { throw failure }
  }

  /// How long a complete eviction waits for the writers of an entry, and for the ledger.
  private static let longestWait = Duration.milliseconds(100)

  /// The result of `body`; nil if it fails, so that the eviction goes on with other entries.
  @discardableResult
  private func attempt<R>(
    _ failure: inout StorageError?, _ body: () throws(StorageError) -> R
  ) -> R? {
    do throws(StorageError) {
      return try body()
    } catch {
      // What is locked is in use, or of a process that has stopped. It is left to a later eviction.
      if error.code != .timedOut { failure = failure ?? error }
      return nil
    }
  }

  /// Takes as many subdirectories as make a fair sample, removes their oldest entries, and
  /// continues with the next subdirectories.
  ///
  /// - Parameter bytes: How many bytes to remove at most, from small samples and without waiting
  ///   for anything that is locked; nil for as many as it takes.
  @inline(never)
  private func evictOnce(
    toFit limit: Int, _ ledger: CacheLedger, atMost bytes: Int? = nil,
    _ failure: inout StorageError?
  ) throws(StorageError) {
    let target = CacheSizeLimit.evictionTarget(of: limit)
    let totalSize = ledger.totalSize.bytes
    let subdirectories = try subdirectoriesToScan(
      ledger.waiting(bytes == nil ? Self.longestWait : .zero))
    let start = Int.random(in: 0...subdirectories.count)
    var sample: [EvictionCandidate] = []
    let rotated = subdirectories[start...] + subdirectories[..<start]
    var isWhole = true
    var bytesLeft = bytes ?? .max
    for (step, subdirectory) in rotated.enumerated() {
      let scan = attempt(&failure) { () throws(StorageError) in try subdirectory.scan() }
      if scan == nil { isWhole = false }
      failure = failure ?? scan?.failure
      for entry in scan?.entries ?? [] {
        let sidecar = attempt(&failure) { () throws(StorageError) in
          try FileSystem.status(entry.name.sidecarPath, in: directory, withTimes: true)
        }
        guard case .some(.some(let sidecar)) = sidecar else { continue }
        sample.append(
          EvictionCandidate(
            name: entry.name, payload: entry.payload, footprint: entry.footprint, sidecar: sidecar,
            lastUsed: lastUse(of: entry.name, entry.payload, sidecar)))
      }
      let isLast = step == subdirectories.count - 1
      guard sample.count >= (bytes == nil ? 10_000 : 1_000) || isLast else { continue }
      sample.sort { $0.lastUsed < $1.lastUsed }
      // The last used entry is kept even if it alone exceeds nine tenths, or if other threads have
      // removed the rest: a writer may have just stored it.
      let last = sample.last?.footprint ?? 0
      let goal = last > target ? limit : target
      let size = sample.reduce(0) { $0 + $1.footprint }
      var surplus = size - Int(Double(size) * min(1, Double(goal) / Double(max(1, totalSize))))
      var rest = last > limit ? sample[...] : sample.dropLast()
      while surplus > 0, bytesLeft > 0, ledger.totalSize.bytes > goal,
        let candidate = rest.popFirst()
      {
        let isEvicted = attempt(&failure) { () throws(StorageError) in try evict(candidate) }
        guard isEvicted == true else { continue }
        surplus -= candidate.footprint
        bytesLeft -= candidate.footprint
      }
      // Only if the sample was the whole cache, no other entry is older.
      if isLast, isWhole {
        let oldest = rest.prefix(Self.mostKnownEntries).reversed()
        evictionCandidates.withLock { $0 = Array(oldest) }
      }
      if bytesLeft <= 0 { return }
      isWhole = false
      sample = []
    }
  }

  /// The entries that a scan found are older than all that are stored or used after it. So this
  /// many of them can be evicted later without another scan. They take about 1 MB.
  private static let mostKnownEntries = 4_000

  /// Removes the least recently used entries that the last scan found.
  ///
  /// - Returns: Whether they were enough. Otherwise a scan is needed, also to remove what has
  ///   expired.
  @inline(never)
  private func evictKnownEntries(
    toFit limit: Int, _ ledger: CacheLedger, _ failure: inout StorageError?
  ) -> Bool {
    let target = CacheSizeLimit.evictionTarget(of: limit)
    let knownSize = evictionCandidates.withLock { $0.reduce(0) { $0 + $1.footprint } }
    let now = WallClock.now
    // If the other entries alone exceed the target, one of them may be too large for it.
    let surplus = ledger.totalSize.bytes - target
    guard knownSize > 0, surplus <= knownSize,
      (0..<EntryName.directoryCount).allSatisfy({ ledger.earliestExpiry(in: $0) > now })
    else { return false }
    let rest = evictKnownEntries(of: surplus, downTo: target, ledger, &failure)
    return rest <= 0 || ledger.totalSize.bytes <= target
  }

  /// Removes this many bytes of the entries that the last scan found, unless the cache is smaller
  /// than `target` before. Bounded by what is removed, because that may not be recorded.
  ///
  /// - Returns: How many bytes are left to remove.
  private func evictKnownEntries(
    of bytes: Int, downTo target: Int, _ ledger: CacheLedger, _ failure: inout StorageError?
  ) -> Int {
    var bytes = bytes
    while bytes > 0, ledger.totalSize.bytes > target,
      let candidate = evictionCandidates.withLock({ $0.popLast() })
    {
      let isEvicted = attempt(&failure) { () throws(StorageError) in try evict(candidate) }
      bytes -= isEvicted == true ? candidate.footprint : 0
    }
    return bytes
  }

  struct EvictionCandidate: Sendable {
    fileprivate let name: EntryName
    fileprivate let payload: FileStatus?
    fileprivate let footprint: Int
    fileprivate let sidecar: FileStatus
    fileprivate let lastUsed: Int64
  }

  private func lastUse(
    of name: EntryName, _ payload: FileStatus?, _ sidecar: FileStatus
  ) -> Int64 {
    // The kernel's time of the sidecar can be a timer tick before the exact times in memory. An
    // entry that was stored in that tick must not count as older than all that were read in it.
    let created = payload.map { $0.canExpire ? .min : $0.accessed } ?? .min
    let times = [sidecar.modified, created, verifiedEntries.lastUse(of: name) ?? .min]
    // A time in the future says nothing, because the clock has been set back since.
    let latest = WallClock.now.addingSaturated(60 * WallClock.second)
    return times.filter { $0 <= latest }.max() ?? .min
  }

  /// Removes an entry, unless it was used since it was chosen, or is being written.
  ///
  /// - Returns: Whether it was removed.
  @inline(never)
  private func evict(_ candidate: EvictionCandidate) throws(StorageError) -> Bool {
    let name = candidate.name
    let entry = try lock(name, timeout: .zero)
    defer { entry.unlock() }
    let sidecar = try FileSystem.status(name.sidecarPath, in: directory, withTimes: true)
    let payload = try FileSystem.status(name.path, in: directory, withTimes: true)
    guard let sidecar, sidecar == candidate.sidecar, payload == candidate.payload,
      lastUse(of: name, payload, sidecar) == candidate.lastUsed
    else { return false }
    try entry.remove()
    counts.evictions.add(1, ordering: .relaxed)
    return true
  }
}
