/// The size and the earliest expiry of each subdirectory, which all processes that use a cache keep
/// up to date together.
///
/// They are words in the lock file beside the cache. Reading one is a memory access; changing one
/// takes a lock for about a microsecond. A subdirectory whose words may be wrong is marked, and
/// counted again by the process that has left it so, or the next that opens the cache.
final class CacheLedger: Sendable {
  let file: LockFile
  /// How long a change waits for the words.
  let timeout: Duration
  /// Keeps the threads of this process apart, which share the locks of a descriptor.
  private let threadLock: OpenCache.ThreadLock

  private init(_ ledger: CacheLedger, timeout: Duration) {
    (file, threadLock) = (ledger.file, ledger.threadLock)
    self.timeout = timeout
  }

  private init(file: LockFile, timeout: Duration) throws(StorageError) {
    self.file = file
    self.timeout = timeout
    threadLock = OpenCache.ThreadLock()
    // The last byte is the version.
    let difference = file.word() ^ Self.magic
    if difference << 8 == 0, file.word() > Self.magic {
      throw StorageError(
        .unsupportedVersion, operation: "open", path: file.file.path,
        reason: "a newer version of Keepsake wrote the sizes of this cache",
        remedy: "Update Keepsake.")
    }
  }

  /// Opens the ledger; nil if there is none that this process may write, or none of this format.
  static func openExisting(
    _ paths: CachePaths, timeout: Duration
  ) throws(StorageError) -> CacheLedger? {
    let file = try LockFile.openExisting(
      paths.ledgerPath, wordCount: wordCount)
    guard let file else { return nil }
    let ledger = try CacheLedger(file: file, timeout: timeout)
    return ledger.isIntact ? ledger : nil
  }

  /// The same ledger for a call that waits this long.
  func waiting(_ timeout: Duration) -> CacheLedger { CacheLedger(self, timeout: timeout) }

  /// Opens the ledger, or creates it.
  ///
  /// - Parameter isEmpty: Whether the cache has no entries.
  static func createOrOpen(
    _ paths: CachePaths, mode: UInt32, timeout: Duration, isEmpty: Bool
  ) throws(StorageError) -> CacheLedger {
    let file = try LockFile.createOrOpen(
      paths.ledgerPath, mode: mode, timeout: timeout, wordCount: wordCount
    ) {
      initialWords(isEmpty: isEmpty)
    }
    let ledger = try CacheLedger(file: file, timeout: timeout)
    // It was truncated, has another format, or was left when the entries were removed.
    if !ledger.isIntact || isEmpty && ledger.totalSize != (0, true) { try ledger.invalidate() }
    return ledger
  }

  // MARK: Layout

  private enum Word {
    static let magic = 0
    static let epoch = 1
    static let lastSweep = 2
    static let nextSweepStart = 3
    static let latestTime = 4
    static let size = 5
    /// The earliest expiry that the last scan found…
    static let scannedExpiry = size + EntryName.directoryCount
    /// …and the earliest expiry of the entries stored since. They are separate so that a scan
    /// that is killed loses neither.
    static let storedExpiry = scannedExpiry + EntryName.directoryCount
    /// How many changes of files have begun, and were not recorded yet. This number is no part of
    /// ``writeWords(isEmpty:epoch:)``, because writers change it without the lock of the words.
    static let unrecordedChanges = storedExpiry + EntryName.directoryCount
    static let count = unrecordedChanges + EntryName.directoryCount
  }

  private static let wordCount = Word.count
  /// `KSLEDGR` and the version, 1.
  private static let magic: UInt64 = 0x3152_4744_454C_534B

  /// The bytes that are locked: below 2^62 one for each key, with those of a subdirectory in
  /// sequence; then one for the words; then one for each process.
  enum Byte {
    static let words: Range<UInt64> = (1 << 62)..<(1 << 62) + 1

    static func key(_ hash: UInt64) -> Range<UInt64> { (hash >> 2)..<(hash >> 2) + 1 }

    static func directory(_ number: Int) -> Range<UInt64> {
      let first = UInt64(number) << 54
      return first..<first + (1 << 54)
    }

    static func process(_ token: UInt64) -> Range<UInt64> {
      let byte = words.upperBound + token % (words.lowerBound - 2)
      return byte..<byte + 1
    }
  }

  fileprivate static let unknown: UInt64 = 1 << 63
  private static let never = UInt64(Int64.max)

  /// The words of an empty cache, or of one that has to be counted.
  private static func initialWords(isEmpty: Bool) -> [UInt64] {
    let now = UInt64(max(0, WallClock.now))
    let directories = EntryName.directoryCount
    let header = [magic, UInt64.random(in: 1 ... .max), isEmpty ? now : 0, 0, now]
    return header + Array(repeating: isEmpty ? 0 : unknown, count: directories)
      + Array(repeating: isEmpty ? never : 0, count: 2 * directories)
      + Array(repeating: 0, count: directories)
  }

  // MARK: Reading

  private var isIntact: Bool { file.word(Word.magic) == Self.magic && epoch != 0 }

  /// A random number that changes whenever the cache is emptied; 0 if the ledger was truncated.
  var epoch: UInt64 { file.word(Word.epoch) }

  /// The size of a subdirectory, and whether that is known.
  struct DirectorySize: Equatable {
    /// The size on disk in the lower 48 bits, above them a count of the changes.
    fileprivate let word: UInt64
    fileprivate let unrecordedChanges: UInt64

    /// nil if the subdirectory has to be counted.
    var bytes: UInt64? { word & CacheLedger.unknown == 0 ? word & Self.mask : nil }

    /// Whether the subdirectory has to be counted again, unless an entry is being written.
    var mayBeWrong: Bool { bytes == nil || unrecordedChanges != 0 }

    fileprivate static let mask: UInt64 = (1 << 48) - 1
    fileprivate static let largestCount: UInt64 = 0x7FFF

    /// How many changes were counted, up to a multiple of the largest count plus one.
    private var count: UInt64 { (word >> 48) & Self.largestCount }

    /// The word after one more change; nil for an unknown size.
    fileprivate func changed(to bytes: UInt64?) -> UInt64 {
      ((count + 1) & Self.largestCount) << 48
        | (bytes.map { min($0, Self.mask) } ?? CacheLedger.unknown)
    }
  }

  func size(of directory: Int) -> DirectorySize {
    DirectorySize(
      word: file.word(Word.size + directory),
      unrecordedChanges: file.word(Word.unrecordedChanges + directory))
  }

  /// Whether a subdirectory may have to be counted again.
  var mayBeWrong: Bool { (0..<EntryName.directoryCount).contains { size(of: $0).mayBeWrong } }

  /// The size of all entries, without the subdirectories that have to be counted, and whether there
  /// are none of those.
  var totalSize: (bytes: Int, isKnown: Bool) {
    var (total, unknown): (UInt64, UInt64) = (0, 0)
    // Each set of a cache with a limit comes here. 256 sizes of 48 bits do not overflow.
    file.forEachWord(from: Word.size, count: EntryName.directoryCount) { word in
      let isUnknown = word >> 63
      unknown |= isUnknown
      total &+= word & DirectorySize.mask & (isUnknown &- 1)
    }
    return (Int(clamping: total), unknown == 0)
  }

  /// Whether an entry of the subdirectory may have expired.
  func mayHaveExpired(in directory: Int, at time: Int64) -> Bool {
    size(of: directory).unrecordedChanges != 0 || earliestExpiry(in: directory) <= time
  }

  /// No entry of the subdirectory expires before this time, except for changes that are not
  /// recorded yet.
  func earliestExpiry(in directory: Int) -> Int64 {
    let word = min(
      file.word(Word.scannedExpiry + directory), file.word(Word.storedExpiry + directory))
    return Int64(clamping: word)
  }

  var lastSweep: Int64 { Int64(clamping: file.word(Word.lastSweep)) }

  /// The subdirectory with which the next sweep begins, or an unfinished one continues.
  var nextSweepStart: Int {
    Int(file.word(Word.nextSweepStart) % UInt64(EntryName.directoryCount))
  }

  // MARK: Changing

  /// How long a change waits that may be left out, because what is not recorded stays marked. The
  /// words are locked for a microsecond, unless the holder was stopped.
  private var briefWait: Duration { min(timeout, .milliseconds(100)) }

  /// Locks the words for a change.
  private func lock(_ timeout: Duration) throws(StorageError) {
    let wait = Wait(timeout: timeout)
    guard threadLock.lock.lock(timeout: timeout) else {
      throw LockFile.threadTimeoutError(
        timeout, path: file.file.path, lockFile: file,
        remedy: "Find the blocked thread in this program.")
    }
    do throws(StorageError) {
      try file.requireOpen()
      try file.lock(bytes: Byte.words, wait)
    } catch {
      threadLock.lock.unlock()
      throw error
    }
  }

  private func unlock() {
    file.unlock(bytes: Byte.words)
    threadLock.lock.unlock()
  }

  /// Marks the size and the expiry of a subdirectory as possibly wrong, until
  /// ``endChange(in:adding:expires:since:)`` has recorded what the caller is about to change. The
  /// mark of a process that is killed or fails in between stays. The key must be locked.
  ///
  /// Where there are no marks, the expiry is recorded now.
  @inline(__always)
  func beginChange(in directory: Int, expires: Int64 = .max) throws(StorageError) {
    if file.storesWords {
      file.add(1, at: Word.unrecordedChanges + directory)
    } else {
      try recordExpiry(expires, in: directory)
    }
  }

  @inline(never)
  private func recordExpiry(_ time: Int64, in directory: Int) throws(StorageError) {
    let (expiry, word) = (UInt64(max(0, time)), Word.storedExpiry + directory)
    if expiry >= file.word(word) { return }
    try lock(timeout)
    defer { unlock() }
    try publish(min(expiry, file.word(word)), at: word)
  }

  /// Records that a change has added to the size of a subdirectory, or an entry that expires, and
  /// removes the mark.
  ///
  /// The expiry is compared with those of entries stored since the last scan only, because the word
  /// of the last scan may be replaced at any moment.
  ///
  /// - Parameter bytes: nil if the size has become unknown.
  func endChange(
    in directory: Int, adding bytes: Int?, expires: Int64 = .max, since epoch: UInt64?
  ) throws(StorageError) {
    let expiry = UInt64(max(0, expires))
    if bytes != 0 || expiry < file.word(Word.storedExpiry + directory) {
      try record(bytes, expiry, in: directory, since: epoch)
    }
    file.add(.max, at: Word.unrecordedChanges + directory)
  }

  /// If the cache was emptied since `epoch`, it is unknown whether the change was made before or
  /// after that, and so are the size and the expiry.
  private func record(
    _ bytes: Int?, _ expiry: UInt64, in directory: Int, since epoch: UInt64?
  ) throws(StorageError) {
    try lock(briefWait)
    defer { unlock() }
    let isCurrent = self.epoch == epoch
    if bytes != 0 || !isCurrent {
      let sum = (isCurrent ? bytes : nil).flatMap { bytes in
        size(of: directory).bytes.map {
          Int(clamping: $0).addingReportingOverflow(bytes).partialValue
        }
      }
      try publishSize(sum.map { UInt64(max(0, $0)) }, of: directory)
    }
    let word = Word.storedExpiry + directory
    try publish(isCurrent ? min(expiry, file.word(word)) : 0, at: word)
    // For a process that has had the cache open since before the clock was set back.
    if timeSinceLatest > Self.clockTolerance { try publishLatestTime() }
  }

  /// Publishes the size after one more change; nil for an unknown size.
  private func publishSize(_ bytes: UInt64?, of directory: Int) throws(StorageError) {
    try file.publish(size(of: directory).changed(to: bytes), at: Word.size + directory)
  }

  /// Writes a word unless it has that value.
  private func publish(_ word: UInt64, at number: Int) throws(StorageError) {
    if file.word(number) != word { try file.publish(word, at: number) }
  }

  /// Begins a scan of a subdirectory: from now on, expiries of stored entries are recorded
  /// separately.
  ///
  /// - Returns: The start that `endScan` needs.
  func beginScan(of directory: Int) throws(StorageError) -> UInt64 {
    try lock(timeout)
    defer { unlock() }
    var earliest = UInt64(max(0, earliestExpiry(in: directory)))
    // Made a little earlier, so that it differs from what any other scan has published.
    if earliest < Self.never { earliest = max(earliest, 1_001) - .random(in: 1...1_000) }
    try publish(earliest, at: Word.scannedExpiry + directory)
    try publish(Self.never, at: Word.storedExpiry + directory)
    return earliest
  }

  /// Records the earliest expiry that a scan found, unless the cache was emptied since `epoch`.
  ///
  /// - Parameter start: What ``beginScan(of:)`` returned.
  func endScan(
    of directory: Int, earliestExpiry: Int64, start: UInt64, since epoch: UInt64?
  ) throws(StorageError) {
    try lock(timeout)
    defer { unlock() }
    guard self.epoch == epoch else { return }
    // A scan that began later may have found an entry that this one has not.
    let other = file.word(Word.scannedExpiry + directory)
    let found = UInt64(max(0, earliestExpiry))
    try publish(other == start ? found : min(other, found), at: Word.scannedExpiry + directory)
  }

  /// Records the size that a count found, and removes the mark, unless an entry was changed since
  /// the count began or the cache was emptied since `epoch`.
  ///
  /// The writers of the subdirectory must be excluded, now and when the count began: a mark is then
  /// one of a writer that has ended.
  ///
  /// - Parameters:
  ///   - sizeBefore: The size when the count began.
  ///   - knowsExpiries: Whether the expiries were found too, since the count began.
  /// - Returns: Whether the size now matches the files. Otherwise it is unknown.
  func endCount(
    of directory: Int, _ bytes: Int, sizeBefore: DirectorySize, knowsExpiries: Bool = false,
    since epoch: UInt64?
  ) throws(StorageError) -> Bool {
    try lock(timeout)
    defer { unlock() }
    guard self.epoch == epoch else { return true }
    let size = size(of: directory)
    guard size == sizeBefore else {
      try publishSize(nil, of: directory)
      return false
    }
    if size.bytes != UInt64(bytes) { try publishSize(UInt64(bytes), of: directory) }
    if size.unrecordedChanges != 0 {
      if !knowsExpiries { try publish(0, at: Word.storedExpiry + directory) }
      try publish(0, at: Word.unrecordedChanges + directory)
    }
    return true
  }

  /// Records the subdirectory with which a sweep continues; the sweep is complete if it is past the
  /// last one.
  func setNextSweep(from directory: Int) throws(StorageError) {
    do throws(StorageError) {
      try lock(timeout)
      defer { unlock() }
      let isComplete = directory >= EntryName.directoryCount
      try file.publish(isComplete ? 0 : UInt64(directory), at: Word.nextSweepStart)
      if isComplete { try file.publish(UInt64(max(0, WallClock.now)), at: Word.lastSweep) }
    } catch  where error.code == .diskFull {}
  }

  /// Runs `removeFiles`, and resets all words if it returns that the cache is empty.
  func reset(_ removeFiles: () throws(StorageError) -> Bool) throws(StorageError) {
    try lock(timeout)
    defer { unlock() }
    // The epoch changes first: once any process finds the cache empty, no other one reads the old
    // files. If this process is killed in between, all sizes are unknown.
    var isWritten = try writeWordsUnlessFull(isEmpty: false)
    if try removeFiles() { isWritten = try writeWordsUnlessFull(isEmpty: true) }
    // The next set makes a new ledger.
    if !isWritten { try FileSystem.unlink(file.file.path) }
  }

  /// Returns whether there was space for that.
  private func writeWordsUnlessFull(isEmpty: Bool) throws(StorageError) -> Bool {
    do throws(StorageError) {
      try writeWords(isEmpty: isEmpty)
      return true
    } catch  where error.code == .diskFull {
      return false
    }
  }

  /// Makes all sizes and expiries unknown, because they do not match the files.
  func invalidate() throws(StorageError) {
    try lock(timeout)
    defer { unlock() }
    try writeWords(isEmpty: false)
  }

  /// - Parameter epoch: nil for a new one.
  private func writeWords(isEmpty: Bool, epoch: UInt64? = nil) throws(StorageError) {
    var words = Self.initialWords(isEmpty: isEmpty)
    words.removeLast(EntryName.directoryCount)  // the marks
    if let epoch { words[Word.epoch] = epoch }
    // The counts go on, so that a size that is being counted is not taken for an unchanged one.
    for directory in 0..<EntryName.directoryCount {
      words[Word.size + directory] = size(of: directory).changed(to: isEmpty ? 0 : nil)
    }
    try file.file.overwrite(words.span.bytes, at: 0, as: .publish)
  }

  /// Makes all sizes and expiries unknown if the clock was set back: the entry that was to expire
  /// first may no longer be the first.
  func checkClock() throws(StorageError) {
    let age = timeSinceLatest
    if age.magnitude <= Self.clockTolerance { return }
    do throws(StorageError) {
      try lock(briefWait)
      defer { unlock() }
      if age < 0 {
        // With the same epoch, because it is still the same cache.
        try writeWords(isEmpty: false, epoch: epoch)
      } else {
        try publishLatestTime()
      }
    } catch  where [.diskFull, .timedOut].contains(error.code) {}
  }

  private static let clockTolerance = 60 * WallClock.second

  /// How long ago the latest time was that any process has noted; negative if the clock was set
  /// back since.
  private var timeSinceLatest: Int64 {
    WallClock.now.subtractingSaturated(Int64(clamping: file.word(Word.latestTime)))
  }

  private func publishLatestTime() throws(StorageError) {
    try file.publish(UInt64(max(0, WallClock.now)), at: Word.latestTime)
  }
}
