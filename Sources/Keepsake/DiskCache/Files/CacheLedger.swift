/// The size and the earliest expiry of each subdirectory, which all processes that use a cache keep
/// up to date together.
///
/// They are words in the lock file beside the cache. Reading one is a memory access; changing one
/// takes a lock for about a microsecond. The next sweep corrects what a killed process could not
/// record. On some file systems, no word can be changed while the disk is full: a change that a
/// later one makes good is then left out.
final class CacheLedger: Sendable {
  let file: LockFile
  private let timeout: Duration
  /// Keeps the threads of this process apart, which share the locks of a descriptor.
  private let threadLock = Locked(())
  /// How many changes this process has counted in each subdirectory.
  private let ownChanges = Locked([UInt64](repeating: 0, count: EntryName.directoryCount))

  init(file: LockFile, timeout: Duration) {
    self.file = file
    self.timeout = timeout
  }

  // MARK: Layout

  private enum Word {
    static let epoch = 0
    static let lastSweep = 1
    static let nextSweepStart = 2
    static let latestTime = 3
    static let size = 4
    /// The earliest expiry that the last scan found…
    static let scannedExpiry = size + EntryName.directoryCount
    /// …and the earliest expiry of the entries stored since. They are separate so that a scan
    /// that is killed loses neither.
    static let storedExpiry = scannedExpiry + EntryName.directoryCount
    static let count = storedExpiry + EntryName.directoryCount
  }

  static let wordCount = Word.count

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

  /// The words of an empty cache, or of one that has to be scanned.
  static func initialWords(isEmpty: Bool) -> [UInt64] {
    let now = UInt64(max(0, WallClock.now))
    let directories = EntryName.directoryCount
    let header = [UInt64.random(in: .min ... .max), isEmpty ? now : 0, 0, now]
    return header + Array(repeating: isEmpty ? 0 : unknown, count: directories)
      + Array(repeating: isEmpty ? never : 0, count: 2 * directories)
  }

  // MARK: Reading

  /// A random number that changes whenever the cache is emptied; 0 if the ledger was truncated.
  var epoch: UInt64 { file.word(Word.epoch) }

  /// The word of a subdirectory: its size on disk in the lower 48 bits, above them a count of its
  /// changes.
  struct DirectorySize: Equatable {
    fileprivate let word: UInt64

    /// nil if the subdirectory has to be scanned.
    var bytes: UInt64? { word & CacheLedger.unknown == 0 ? word & Self.mask : nil }

    fileprivate static let mask: UInt64 = (1 << 48) - 1
    fileprivate static let largestCount: UInt64 = 0x7FFF

    /// How many changes were counted, up to a multiple of the largest count plus one.
    fileprivate var count: UInt64 { (word >> 48) & Self.largestCount }

    /// The word after one more change; nil for an unknown size.
    fileprivate func changed(to bytes: UInt64?) -> UInt64 {
      ((count + 1) & Self.largestCount) << 48
        | (bytes.map { min($0, Self.mask) } ?? CacheLedger.unknown)
    }
  }

  func size(of directory: Int) -> DirectorySize {
    DirectorySize(word: file.word(Word.size + directory))
  }

  /// The size of all entries, without the subdirectories that have to be scanned, and whether there
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

  /// How many changes other processes have counted in a subdirectory, up to a multiple of 2^15.
  func foreignChanges(in directory: Int) -> UInt64 {
    ownChanges.withLock { own in
      (size(of: directory).count &- own[directory]) & DirectorySize.largestCount
    }
  }

  /// No entry of the subdirectory expires before this time.
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

  private func change<R>(
    timeout: Duration? = nil, _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let timeout = timeout ?? self.timeout
    let result = try threadLock.withLock(timeout: timeout) { _ throws(StorageError) in
      try file.lock(bytes: Byte.words, timeout: timeout)
      defer { file.unlock(bytes: Byte.words) }
      return try body()
    }
    guard let result else {
      throw LockFile.threadTimeoutError(
        timeout, path: file.file.path, lockFile: file,
        remedy: "Find the blocked thread in this program.")
    }
    return result
  }

  /// Changes words, but not if the disk is full and the file system needs space even for that.
  private func changeUnlessFull(
    _ body: () throws(StorageError) -> Void
  ) throws(StorageError) {
    do throws(StorageError) {
      try change(body)
    } catch  where error.code == .diskFull {}
  }

  /// Adds to the size of a subdirectory. If the cache was emptied since `epoch`, it is unknown
  /// whether the change was made before or after that, and so is the size.
  ///
  /// - Parameter bytes: nil if the size has become unknown.
  func add(_ bytes: Int?, to directory: Int, since epoch: UInt64?) throws(StorageError) {
    try change { () throws(StorageError) in
      let size = size(of: directory)
      let sum = (self.epoch == epoch ? bytes : nil).flatMap { bytes in
        size.bytes.map { Int(clamping: $0).addingReportingOverflow(bytes).partialValue }
      }
      try publishSize(sum.map { UInt64(max(0, $0)) }, of: directory)
      // Nor is it known whether the expiry was recorded before.
      if self.epoch != epoch { try publish(0, at: Word.storedExpiry + directory) }
    }
  }

  /// Publishes the size after one more change; nil for an unknown size.
  private func publishSize(_ bytes: UInt64?, of directory: Int) throws(StorageError) {
    try ownChanges.withLock { own throws(StorageError) in
      try file.publish(size(of: directory).changed(to: bytes), at: Word.size + directory)
      own[directory] &+= 1
    }
  }

  /// Records that an entry of the subdirectory expires at this time.
  ///
  /// It is compared with the entries stored since the last scan only, because the word of the last
  /// scan may be replaced at any moment.
  func recordExpiry(_ time: Int64, in directory: Int) throws(StorageError) {
    let word = UInt64(max(0, time))
    if word >= file.word(Word.storedExpiry + directory) { return }
    try change { () throws(StorageError) in
      if word < file.word(Word.storedExpiry + directory) {
        try file.publish(word, at: Word.storedExpiry + directory)
      }
    }
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
    try change { () throws(StorageError) in
      var earliest = UInt64(max(0, earliestExpiry(in: directory)))
      // Made a little earlier, so that it differs from what any other scan has published.
      if earliest < Self.never { earliest -= min(earliest, .random(in: 1...1_000)) }
      try publish(earliest, at: Word.scannedExpiry + directory)
      try publish(Self.never, at: Word.storedExpiry + directory)
      return earliest
    }
  }

  /// Records the result of a scan, unless the cache was emptied since `epoch`.
  ///
  /// The size is recorded only if it has not changed since the scan began.
  ///
  /// - Parameters:
  ///   - sizeBefore: The size before ``beginScan(of:)``.
  ///   - start: What ``beginScan(of:)`` returned.
  /// - Returns: Whether the recorded size now matches the files.
  func endScan(
    of directory: Int, earliestExpiry: Int64, size: Int, sizeBefore: DirectorySize, start: UInt64,
    since epoch: UInt64?
  ) throws(StorageError) -> Bool {
    try change { () throws(StorageError) in
      guard self.epoch == epoch else { return false }
      // A scan that began later may have found an entry that this one has not.
      let other = file.word(Word.scannedExpiry + directory)
      let found = UInt64(max(0, earliestExpiry))
      try publish(other == start ? found : min(other, found), at: Word.scannedExpiry + directory)
      guard self.size(of: directory) == sizeBefore else { return false }
      if sizeBefore.bytes != UInt64(size) {
        try publishSize(UInt64(size), of: directory)
      }
      return true
    }
  }

  /// Records the subdirectory with which a sweep continues; the sweep is complete if it is past the
  /// last one.
  func setNextSweep(from directory: Int) throws(StorageError) {
    try changeUnlessFull { () throws(StorageError) in
      let isComplete = directory >= EntryName.directoryCount
      try file.publish(isComplete ? 0 : UInt64(directory), at: Word.nextSweepStart)
      if isComplete { try file.publish(UInt64(max(0, WallClock.now)), at: Word.lastSweep) }
    }
  }

  /// Runs `body` with the current epoch, while the cache cannot be emptied.
  func withEpoch<R>(
    timeout: Duration, _ body: (UInt64) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    try change(timeout: timeout) { () throws(StorageError) in try body(epoch) }
  }

  /// Runs `removeFiles`, and resets all words if it returns that the cache is empty.
  func reset(_ removeFiles: () throws(StorageError) -> Bool) throws(StorageError) {
    try change { () throws(StorageError) in
      // The epoch changes first: once any process finds the cache empty, no other one reads the old
      // files. If this process is killed in between, all sizes are unknown.
      var isWritten = try writeWordsUnlessFull(isEmpty: false)
      if try removeFiles() { isWritten = try writeWordsUnlessFull(isEmpty: true) }
      // The next set makes a new ledger.
      if !isWritten { try FileSystem.unlink(file.file.path) }
    }
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
    try change { () throws(StorageError) in try writeWords(isEmpty: false) }
  }

  /// - Parameter epoch: nil for a new one.
  private func writeWords(isEmpty: Bool, epoch: UInt64? = nil) throws(StorageError) {
    var words = Self.initialWords(isEmpty: isEmpty)
    if let epoch { words[Word.epoch] = epoch }
    // The counts go on: a process must not find that nothing has changed.
    for directory in 0..<EntryName.directoryCount {
      words[Word.size + directory] = size(of: directory).changed(to: isEmpty ? 0 : nil)
    }
    try file.file.overwrite(words.span.bytes, at: 0, as: .publish)
  }

  /// Makes all sizes and expiries unknown if the clock was set back: the entry that was to expire
  /// first may no longer be the first.
  func checkClock() throws(StorageError) {
    let now = WallClock.now
    let age = now.subtractingSaturated(Int64(clamping: file.word(Word.latestTime)))
    if age < -60 * WallClock.second {
      // With the same epoch, because it is still the same cache.
      try changeUnlessFull { () throws(StorageError) in
        try writeWords(isEmpty: false, epoch: epoch)
      }
    } else if age > 60 * WallClock.second {
      try changeUnlessFull { () throws(StorageError) in
        try file.publish(UInt64(max(0, now)), at: Word.latestTime)
      }
    }
  }
}
