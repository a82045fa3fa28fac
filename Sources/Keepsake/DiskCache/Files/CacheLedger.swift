/// What the processes that share a cache keep together about it: its size, and what expires next.
///
/// One word or a few for each subfolder, in the lock file beside the cache. Looking is free;
/// changing takes the lock of one byte for about a microsecond. What a killed process could not
/// write down is put right by the next sweep.
final class CacheLedger: Sendable {
  let file: LockFile
  private let timeout: Duration
  /// Byte locks belong to the descriptor, which all threads share.
  private let inProcess = Locked(())

  init(file: LockFile, timeout: Duration) {
    self.file = file
    self.timeout = timeout
  }

  // MARK: Layout

  private enum Word {
    static let epoch = 0
    static let lastSweep = 1
    static let cursor = 2
    static let latestTime = 3
    static let size = 4
    /// The earliest expiry as the last sweep found it…
    static let swept = size + EntryName.directoryCount
    /// …and of what was stored since: a sweep that is killed in the middle forgets neither.
    static let stored = swept + EntryName.directoryCount
    static let count = stored + EntryName.directoryCount
  }

  static let wordCount = Word.count

  /// Bytes to lock: below 2^62 one for each key, those of a directory side by side; then that of
  /// the words, then one for each process.
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

  /// The words of a cache that is empty, or of one whose content nobody has looked at.
  static func initial(isEmpty: Bool) -> [UInt64] {
    let now = UInt64(max(0, WallClock.now))
    let directories = EntryName.directoryCount
    let header = [UInt64.random(in: .min ... .max), isEmpty ? now : 0, 0, now]
    return header + Array(repeating: isEmpty ? 0 : unknown, count: directories)
      + Array(repeating: isEmpty ? never : 0, count: 2 * directories)
  }

  // MARK: Looking

  /// Changes when the cache is emptied as a whole.
  var epoch: UInt64 { file.word(Word.epoch) }

  /// A subfolder's word: below its size on disk, in the middle a count of the changes to it.
  struct FolderSize: Equatable {
    fileprivate let word: UInt64

    /// nil when it is to be counted.
    var bytes: UInt64? { word & CacheLedger.unknown == 0 ? word & Self.mask : nil }

    fileprivate static let mask: UInt64 = (1 << 48) - 1

    /// The same directory changed once more; nil for a size that is not known.
    fileprivate func changed(to bytes: UInt64?) -> UInt64 {
      let count = ((word >> 48) &+ 1) & 0x7FFF
      return count << 48 | (bytes.map { min($0, Self.mask) } ?? CacheLedger.unknown)
    }
  }

  func size(of directory: Int) -> FolderSize { FolderSize(word: file.word(Word.size + directory)) }

  /// What all entries take; directories that are to be counted are left out.
  var total: Int {
    var total: UInt64 = 0
    for directory in 0..<EntryName.directoryCount {
      total = total.addingReportingOverflow(size(of: directory).bytes ?? 0).partialValue
    }
    return Int(clamping: total)
  }

  var isCounted: Bool { (0..<EntryName.directoryCount).allSatisfy { size(of: $0).bytes != nil } }

  /// Nothing in the directory expires before.
  func earliestExpiry(in directory: Int) -> Int64 {
    let word = min(file.word(Word.swept + directory), file.word(Word.stored + directory))
    return Int64(clamping: word)
  }

  var lastSweep: Int64 { Int64(clamping: file.word(Word.lastSweep)) }
  var cursor: Int { Int(file.word(Word.cursor) % UInt64(EntryName.directoryCount)) }

  // MARK: Changing

  private func change<R>(
    timeout: Duration? = nil, _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let timeout = timeout ?? self.timeout
    let result = try inProcess.withLock(timeout: timeout) { _ throws(StorageError) in
      try file.lock(bytes: Byte.words, timeout: timeout)
      defer { file.unlock(bytes: Byte.words) }
      return try body()
    }
    guard let result else {
      throw StorageError(
        .timedOut, operation: "lock", path: file.file.path,
        reason: "another thread held it for more than \(timeout)",
        remedy: "Look for a stopped thread of this program.")
    }
    return result
  }

  /// Adds to a directory's size, unless the cache was emptied since `epoch`; nil: nobody can tell
  /// how much.
  func add(_ bytes: Int?, to directory: Int, since epoch: UInt64?) throws(StorageError) {
    if bytes == 0 { return }
    try change { () throws(StorageError) in
      guard self.epoch == epoch else { return }
      let size = size(of: directory)
      let sum = bytes.flatMap { bytes in
        size.bytes.map { Int(clamping: $0).addingReportingOverflow(bytes).partialValue }
      }
      let word = size.changed(to: sum.map { UInt64(max(0, $0)) })
      try file.publish(word, at: Word.size + directory)
    }
  }

  /// Remembers that something in the directory expires at `end`.
  ///
  /// Compared with what was stored alone: what the last sweep found may be replaced at any moment.
  func note(expiry end: Int64, in directory: Int) throws(StorageError) {
    let word = UInt64(max(0, end))
    if word >= file.word(Word.stored + directory) { return }
    try change { () throws(StorageError) in
      if word < file.word(Word.stored + directory) {
        try file.publish(word, at: Word.stored + directory)
      }
    }
  }

  /// Writes a word, unless it is there already.
  private func publish(_ word: UInt64, at number: Int) throws(StorageError) {
    if file.word(number) != word { try file.publish(word, at: number) }
  }

  /// Before a directory is looked through: what is stored from now on is noted apart.
  ///
  /// - Returns: What ``endSweep(of:earliestExpiry:size:seen:began:)`` needs.
  func beginSweep(of directory: Int) throws(StorageError) -> UInt64 {
    try change { () throws(StorageError) in
      var earliest = UInt64(max(0, earliestExpiry(in: directory)))
      // A little before: unlike what any other sweep of the directory has published or will find.
      if earliest < Self.never { earliest -= min(earliest, .random(in: 1...1_000)) }
      try publish(earliest, at: Word.swept + directory)
      try publish(Self.never, at: Word.stored + directory)
      return earliest
    }
  }

  /// What looking through a directory found, unless the cache was emptied since `epoch`; its size
  /// only if nothing changed there since `seen`.
  ///
  /// - Returns: Whether the size is right now.
  func endSweep(
    of directory: Int, earliestExpiry: Int64, size: Int, seen: FolderSize, began: UInt64,
    since epoch: UInt64?
  ) throws(StorageError) -> Bool {
    try change { () throws(StorageError) in
      guard self.epoch == epoch else { return false }
      // Another sweep that began meanwhile may know of something that this one has not seen.
      let other = file.word(Word.swept + directory)
      let found = UInt64(max(0, earliestExpiry))
      try publish(other == began ? found : min(other, found), at: Word.swept + directory)
      guard self.size(of: directory) == seen else { return false }
      if seen.bytes != UInt64(size) {
        try file.publish(seen.changed(to: UInt64(size)), at: Word.size + directory)
      }
      return true
    }
  }

  /// Where the round of sweeps goes on, and whether it is complete.
  func advance(to directory: Int) throws(StorageError) {
    try change { () throws(StorageError) in
      let isComplete = directory >= EntryName.directoryCount
      try file.publish(isComplete ? 0 : UInt64(directory), at: Word.cursor)
      if isComplete { try file.publish(UInt64(max(0, WallClock.now)), at: Word.lastSweep) }
    }
  }

  /// Runs `body` between two emptyings of the cache and not in the middle of one.
  func withEpoch<R>(
    timeout: Duration, _ body: (UInt64) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    try change(timeout: timeout) { () throws(StorageError) in try body(epoch) }
  }

  /// Empties the cache with `remove`, and the books with it.
  func clear(_ remove: () throws(StorageError) -> Void) throws(StorageError) {
    try change { () throws(StorageError) in
      try remove()
      try reset(isEmpty: true)
    }
  }

  /// All is to be counted anew: something else removed the cache's directory.
  func distrust() throws(StorageError) {
    try change { () throws(StorageError) in try reset(isEmpty: false) }
  }

  /// - Parameter epoch: A new one unless it is given.
  private func reset(isEmpty: Bool, epoch: UInt64? = nil) throws(StorageError) {
    var words = Self.initial(isEmpty: isEmpty)
    if let epoch { words[Word.epoch] = epoch }
    try file.file.overwrite(words.span.bytes, at: 0, as: .publish)
  }

  /// When the clock was set back, what was to expire first is not any more: everything is looked
  /// at.
  func checkClock() throws(StorageError) {
    let now = WallClock.now
    let latest = Int64(clamping: file.word(Word.latestTime))
    if now < latest - 60 * WallClock.second {
      // It is the same cache, and those who have it open go on counting.
      try change { () throws(StorageError) in try reset(isEmpty: false, epoch: epoch) }
    } else if now > latest + 60 * WallClock.second {
      try change { () throws(StorageError) in
        try file.publish(UInt64(max(0, now)), at: Word.latestTime)
      }
    }
  }
}
