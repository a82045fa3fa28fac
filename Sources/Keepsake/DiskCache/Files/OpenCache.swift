internal import Synchronization

/// A cache that this process has open: its directory, its ledger and the entries that it has read.
///
/// A forked child opens its own, because parent and child would share the locks of a descriptor.
final class OpenCache: Sendable {
  let paths: CachePaths
  /// The cache's directory. The paths of all entries are relative to it.
  let directory: DirectoryHandle
  private let status: FileStatus
  let rules: EntryName.Rules
  let blockSize: Int
  /// nil if this process may not write, or if there was none when a reader opened the cache.
  let ledger: CacheLedger?
  /// The ledger's epoch when ``directory`` was opened.
  ///
  /// A change from before the cache was emptied must not be counted in the sizes after that.
  let epoch: UInt64?
  /// Part of the names of this process's temporary files. While the cache is open, the process
  /// locks the ledger byte that this number selects.
  let token: UInt64
  /// `.<token>-`, in hexadecimal.
  private let temporaryPrefix: [UInt8]
  let directoryMode: UInt32
  let timeout: Duration
  let counts: CacheCounts
  let verifiedEntries = VerifiedEntries()
  /// The least recently used entries that the last scan found, the first to go at the end.
  let evictionCandidates = Locked<[EvictionCandidate]>([])
  /// The subdirectories whose names, and those of the directories above, survive a power cut.
  let durableDirectories = Locked<Set<Int>>([])
  /// The subdirectories from which the files of killed writers were removed.
  let cleanedDirectories = Locked<Set<Int>>([])
  /// Whether a change could not be recorded, so that a subdirectory has to be counted again.
  let isCountDue = Atomic(false)
  /// The subdirectories that are known to be no links or mount points, as bits, and since when.
  private let ownDirectories = Locked((tick: Int64(0), bits: SIMD4<UInt64>()))

  private let processGeneration = ForkGuard.generation
  /// Keep the writers of this process apart, which share the locks of a descriptor.
  private let threadLocks = (0..<64).map { _ in ThreadLock() }
  private let publishedTimes = PublishedTimes()
  private let nameCount = Atomic<UInt64>(0)
  private let lastCheck: Atomic<Int64>
  private let timePrecision = Atomic<UInt8>(0)

  final class ThreadLock: Sendable {
    let lock = Locked(())
  }

  /// Opens the directory of a cache.
  init(
    at paths: CachePaths, _ ledger: CacheLedger?, mode: UInt32, timeout: Duration,
    counts: CacheCounts
  ) throws(StorageError) {
    self.paths = paths
    self.ledger = ledger
    directoryMode = mode
    self.timeout = timeout
    self.counts = counts
    // Read before the directory is opened, so that a cache that is replaced in the meantime is
    // opened again. This needs no lock, because emptying a cache keeps its directory.
    epoch = ledger?.epoch
    directory = try DirectoryHandle(paths.directory)
    let limits = try FileSystem.limits(at: paths.directory)
    blockSize = limits.blockSize
    let tag = try FileSystem.status(CachePaths.tagName, in: directory)
    let lowercased = try FileSystem.status(CachePaths.tagName.lowercased(), in: directory)
    rules = EntryName.Rules(
      ignoresCase: tag.flatMap { tag in lowercased.map { $0.isSameFile(as: tag) } } ?? false,
      longestName: limits.nameLength - Sidecar.suffix.utf8.count)
    token = UInt64.random(in: .min ... .max)
    try ledger?.file.lock(bytes: CacheLedger.Byte.process(token), Wait(timeout: timeout))
    let digits = String(token, radix: 16)
    temporaryPrefix = Array(
      (".\(String(repeating: "0", count: 16 - digits.utf8.count))\(digits)-").utf8)
    status = try directory.keep()
    lastCheck = Atomic(CoarseClock.now)
  }

  /// Whether the cache still consists of these files.
  ///
  /// An emptied cache is noticed at once, a replaced directory or ledger within a few milliseconds.
  ///
  /// - Parameters:
  ///   - forWriting: Whether the caller writes through ``directory``. A reader that uses a closed
  ///     descriptor finds nothing or an error, so it need not ask.
  ///   - usingRecentCheck: Whether to skip the file system if it was checked within the same tick
  ///     of the coarse clock.
  func isCurrent(
    forWriting: Bool = false, usingRecentCheck: Bool = true
  ) throws(StorageError) -> Bool {
    if processGeneration != ForkGuard.generation || forWriting && !directory.isOpen {
      return false
    }
    let now = CoarseClock.now
    let isChecked = usingRecentCheck && now == lastCheck.load(ordering: .relaxed)
    // Without a ledger, there is no epoch to compare, nor a file that shows that the program has
    // closed all.
    if !isChecked || ledger == nil {
      lastCheck.store(now, ordering: .relaxed)
      guard ledger != nil || isChecked || directory.isOpen,
        try FileSystem.status(directory.path)?.isSameFile(as: status) == true,
        try ledger?.file.isReplaced() != true
      else { return false }
    }
    return epoch == ledger?.epoch
  }

  func hasSameDirectory(as other: OpenCache) -> Bool { status.isSameFile(as: other.status) }

  /// Whether the program has left the descriptors open.
  var isOpen: Bool { directory.isOpen && ledger?.file.file.isOpen ?? true }

  /// When a call last used the cache, by ``CoarseClock``.
  var lastUse: Int64 { lastCheck.load(ordering: .relaxed) }

  /// Whether the file system keeps times to the nanosecond; nil before the first file was written.
  var keepsNanoseconds: Bool? {
    get {
      let precision = timePrecision.load(ordering: .relaxed)
      return precision == 0 ? nil : precision == 1
    }
    set { timePrecision.store(newValue == nil ? 0 : newValue == true ? 1 : 2, ordering: .relaxed) }
  }

  func path(ofSubdirectory number: Int) -> String {
    directory.path + "/" + EntryName.directoryName(number)
  }

  var fileMode: UInt32 { directoryMode & 0o666 }

  /// The number of bytes that a payload and a sidecar take on disk.
  func footprint(size: Int, sidecar: Int) -> Int { rounded(size) + rounded(sidecar) }

  /// The number of bytes that an entry takes on disk.
  ///
  /// - Parameter sidecar: The size of the sidecar. It counts only if the name is a hash, because
  ///   scans do not look at other sidecars.
  func footprint(of name: EntryName, size: Int, sidecar: Int) -> Int {
    footprint(size: size, sidecar: name.isHashed ? sidecar : Sidecar.headerSize)
  }

  /// The same with the sidecar as it is.
  @inline(never)
  func footprint(of name: EntryName, size: Int) throws(StorageError) -> Int {
    let sidecar = name.isHashed ? try FileSystem.status(name.sidecarPath, in: directory) : nil
    return footprint(of: name, size: size, sidecar: sidecar?.size ?? Sidecar.headerSize)
  }

  private func rounded(_ size: Int) -> Int {
    // Bounded, because a damaged sidecar may claim a size with which sums would overflow.
    (min(size, 1 << 48) + blockSize - 1) / blockSize * blockSize
  }

  // MARK: Published payloads

  /// Notes that the payload of a record has got its name. The key must be locked.
  func notePublished(_ sidecar: Sidecar, as name: EntryName) {
    publishedTimes.note(sidecar.modified, of: name)
  }

  /// Whether this process knows that the payload of a record has got its name. The key must be
  /// locked.
  func hasPublished(_ sidecar: Sidecar, as name: EntryName) -> Bool {
    sidecar.modified != 0 && publishedTimes.isLast(sidecar.modified, of: name)
  }

  /// Whether this process has published a payload of this name lately; true for a few other names
  /// as well.
  func mayHavePublished(_ name: EntryName) -> Bool { publishedTimes.mayContain(name) }

  // MARK: Temporary files

  /// An unpredictable number that no other process uses, without a system call.
  func randomNumber() -> UInt64 {
    Checksum.step(token, nameCount.add(1, ordering: .relaxed).newValue)
  }

  /// `<subdirectory>/.<token>-<number>.tmp`, in hexadecimal.
  func temporaryName(in subdirectory: Int) -> String {
    let number = nameCount.add(1, ordering: .relaxed).newValue
    return String(unsafeUninitializedCapacity: 41) { buffer in
      Hexadecimal.write(UInt64(subdirectory), to: buffer[..<2])
      buffer[2] = UInt8(ascii: "/")
      var count = 3
      func append(_ bytes: [UInt8]) {
        UnsafeMutableRawBufferPointer(UnsafeMutableBufferPointer(rebasing: buffer[count...]))
          .copyBytes(from: bytes)
        count += bytes.count
      }
      append(temporaryPrefix)
      Hexadecimal.write(number, to: buffer[count..<count + 16])
      count += 16
      for character in ".tmp".utf8 {
        buffer[count] = character
        count += 1
      }
      return count
    }
  }

  /// The token of the process that made a temporary file; nil for any other name.
  static func token(ofTemporary name: String) -> UInt64? {
    let (length, suffix) = (16, ".tmp")
    let digits = name.dropFirst().dropLast(suffix.utf8.count)
    guard name.utf8.first == UInt8(ascii: "."), name.hasSuffix(suffix),
      digits.utf8.count == 2 * length + 1, digits.dropFirst(length).first == "-",
      Hexadecimal.number(digits.suffix(length)) != nil
    else { return nil }
    return Hexadecimal.number(digits.prefix(length))
  }

  /// Whether the process that made a temporary file has ended.
  ///
  /// - Parameter hasEnded: The answers so far, by the token in the file's name.
  func isAbandoned(
    _ fileName: String, _ hasEnded: inout [UInt64: Bool]
  ) throws(StorageError) -> Bool {
    guard let ledger, let token = Self.token(ofTemporary: fileName), token != self.token else {
      return false
    }
    if let answer = hasEnded[token] { return answer }
    try ledger.file.requireOpen()
    let byte = CacheLedger.Byte.process(token)
    let isFree = try ledger.file.file.tryLock(bytes: byte)
    if isFree { ledger.file.unlock(bytes: byte) }
    hasEnded[token] = isFree
    return isFree
  }

  // MARK: Key locks

  /// Locks a key, so that no other thread or process writes its entry until it is unlocked.
  ///
  /// - Parameter timeout: With zero, recording the change does not wait either.
  /// - Throws: An error of code `accessDenied` if this process may not write.
  func lock(_ name: EntryName, timeout: Duration) throws(StorageError) -> LockedEntry {
    guard let ledger else { throw .notPermitted(paths.ledgerPath) }
    var entry = LockedEntry(cache: self, ledger: ledger, name: name)
    if timeout == .zero {
      try ledger.file.requireOpen()
      entry.ledger = ledger.waiting(.zero)
    }
    try lock(entry.byte, of: name.directory, ledger, timeout: timeout)
    do throws(StorageError) {
      try requireOwn(name.directory)
    } catch {
      entry.unlock()
      throw error
    }
    return entry
  }

  /// Locks bytes of keys in a subdirectory for one thread, until they are unlocked.
  func lock(
    _ bytes: Range<UInt64>, of subdirectory: Int, _ ledger: CacheLedger, timeout: Duration
  ) throws(StorageError) {
    let wait = Wait(timeout: timeout)
    let threadLock = threadLock(of: subdirectory)
    guard threadLock.lock.lock(timeout: timeout) else {
      throw LockFile.threadTimeoutError(
        timeout, path: path(ofSubdirectory: subdirectory), lockFile: ledger.file,
        remedy: "Find the blocked thread in this program.")
    }
    do throws(StorageError) {
      try ledger.file.lock(bytes: bytes, wait)
    } catch {
      threadLock.lock.unlock()
      throw error
    }
  }

  func unlock(_ bytes: Range<UInt64>, of subdirectory: Int, _ ledger: CacheLedger) {
    ledger.file.unlock(bytes: bytes)
    threadLock(of: subdirectory).lock.unlock()
  }

  private func threadLock(of subdirectory: Int) -> ThreadLock {
    threadLocks[subdirectory % threadLocks.count]
  }

  /// Throws if the subdirectory is a link or a mount point: what would be written or removed is not
  /// the cache's.
  ///
  /// Looks at each once within a tick of the coarse clock, because every write asks.
  func requireOwn(_ number: Int) throws(StorageError) {
    let bit = UInt64(1) << UInt64(truncatingIfNeeded: number % 64)
    let now = CoarseClock.now
    let isKnown = ownDirectories.withLock {
      $0.tick == now && $0.bits[number / 64] & bit != 0
    }
    if !isKnown { try look(at: number, bit, now) }
  }

  @inline(never)
  private func look(at number: Int, _ bit: UInt64, _ now: Int64) throws(StorageError) {
    let name = EntryName.directoryName(number)
    guard let status = try FileSystem.status(name, in: directory, followsLinks: false) else {
      return
    }
    if status.isSymbolicLink { throw .linkInTheWay(directory.path(of: name)) }
    if status.isMountPoint { throw .mountInTheWay(directory.path(of: name), "write") }
    ownDirectories.withLock { own in
      if own.tick != now { own = (now, SIMD4()) }
      own.bits[number / 64] |= bit
    }
  }
}
