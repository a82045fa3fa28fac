internal import Synchronization

/// A cache's files as one process has them open; a forked child opens its own.
final class CacheSession: Sendable {
  let generation = ForkGuard.generation
  /// The cache's directory, from which all entries are seen.
  let directory: DirectoryHandle
  private let status: FileStatus
  /// The ledger's while ``directory`` is the cache's: what was done in a directory that has been
  /// emptied away since does not belong in the books of the next one. nil where it could not be
  /// told.
  let epoch: UInt64?
  let rules: EntryName.Rules
  let blockSize: Int
  /// nil where this process may not write.
  let ledger: CacheLedger?
  /// Marks this process's temporary files; the byte of this number is locked while it lives.
  let token: UInt64
  let directoryMode: UInt32
  let memory = EntryMemory()
  private let stripes = (0..<64).map { _ in Stripe() }
  private let temporaryCount = Atomic<UInt64>(0)
  private let lastLook: Atomic<Int64>
  private let timeKeeping = Atomic<UInt8>(0)
  /// The subdirectories whose names are known to survive a power cut, with those above them.
  let durableDirectories = Locked<Set<Int>>([])
  private let lastWasThere = Atomic(false)

  /// Whether the last entry that was read and not known was there: then the next one may be as
  /// well.
  var expectsEntries: Bool {
    get { lastWasThere.load(ordering: .relaxed) }
    set {
      // Written by all threads, it would not stay in any one's cache.
      if newValue != expectsEntries { lastWasThere.store(newValue, ordering: .relaxed) }
    }
  }

  /// Whether the file system keeps a file's time to the nanosecond; nil until a first one has shown
  /// it.
  var keepsTimes: Bool? {
    get {
      let seen = timeKeeping.load(ordering: .relaxed)
      return seen == 0 ? nil : seen == 1
    }
    set { timeKeeping.store(newValue == nil ? 0 : newValue == true ? 1 : 2, ordering: .relaxed) }
  }

  private final class Stripe: Sendable {
    let writer = Locked(())
  }

  init(
    directory: DirectoryHandle, rules: EntryName.Rules, blockSize: Int, ledger: CacheLedger?,
    epoch: UInt64?, token: UInt64, directoryMode: UInt32
  ) throws(StorageError) {
    self.directory = directory
    self.rules = rules
    self.blockSize = blockSize
    self.ledger = ledger
    self.epoch = epoch
    self.token = token
    self.directoryMode = directoryMode
    status = try directory.status()
    lastLook = Atomic(CoarseClock.now)
  }

  /// Whether these still are the cache's files: emptying it is noticed at once, what somebody else
  /// does to its directory or lock file within a few milliseconds.
  func isCurrent() throws(StorageError) -> Bool {
    if generation != ForkGuard.generation { return false }
    let tick = CoarseClock.now
    if tick != lastLook.load(ordering: .relaxed) {
      lastLook.store(tick, ordering: .relaxed)
      guard try FileSystem.status(directory.path)?.isSameFile(as: status) == true,
        try ledger?.file.isReplaced() != true
      else { return false }
    }
    return epoch == ledger?.epoch
  }

  func path(ofDirectory number: Int) -> String {
    directory.path + "/" + EntryName.directoryName(number)
  }

  var fileMode: UInt32 { directoryMode & 0o666 }

  /// What an entry takes on the disk.
  func footprint(size: Int, keyLength: Int) -> Int {
    rounded(size) + rounded(Sidecar.headerSize + keyLength)
  }

  private func rounded(_ size: Int) -> Int {
    // More than any file system holds, as a damaged sidecar may claim, must not overflow a sum.
    (min(size, 1 << 48) + blockSize - 1) / blockSize * blockSize
  }

  // MARK: Temporary files

  /// A number that nobody can guess, and that is no other one's: without a system call for each.
  func randomNumber() -> UInt64 {
    Checksum.step(token, temporaryCount.add(1, ordering: .relaxed).newValue)
  }

  /// `.<token>-<number>.tmp`, in hexadecimal; with a subfolder as seen from the cache's directory.
  func temporaryName(in subfolder: Int? = nil) -> String {
    let number = temporaryCount.add(1, ordering: .relaxed).newValue
    return String(unsafeUninitializedCapacity: 41) { buffer in
      var count = 0
      func write(_ character: UInt8) {
        buffer[count] = character
        count += 1
      }
      func write(_ number: UInt64, digits: Int) {
        Hexadecimal.write(number, to: buffer[count..<count + digits])
        count += digits
      }
      if let subfolder {
        write(UInt64(subfolder), digits: 2)
        write(UInt8(ascii: "/"))
      }
      write(UInt8(ascii: "."))
      write(token, digits: 16)
      write(UInt8(ascii: "-"))
      write(number, digits: 16)
      for character in ".tmp".utf8 { write(character) }
      return count
    }
  }

  /// Whether the process that left a temporary file is gone; `known` keeps what was found out.
  func isAbandoned(_ name: String, _ known: inout [UInt64: Bool]) throws(StorageError) -> Bool {
    guard let ledger, let dash = name.lastIndex(of: "-"),
      let start = name[..<dash].lastIndex(of: "."),
      let token = UInt64(name[name.index(after: start)..<dash], radix: 16), token != self.token
    else { return false }
    if let isGone = known[token] { return isGone }
    let byte = CacheLedger.Byte.process(token)
    let isGone = try ledger.file.tryLock(bytes: byte)
    if isGone { ledger.file.unlock(bytes: byte) }
    known[token] = isGone
    return isGone
  }

  // MARK: One writer for each key

  enum LockOutcome<R> {
    case done(R)
    /// Somebody else has the lock.
    case busy
  }

  /// Runs `body` while no other writer of the key does, in this process or another.
  ///
  /// - Parameter timeout: nil to give up at once.
  func withKeyLock<R>(
    _ name: EntryName, timeout: Duration?, _ body: (CacheLedger) throws(StorageError) -> R
  ) throws(StorageError) -> LockOutcome<R> {
    guard let ledger else { return .busy }
    let byte = CacheLedger.Byte.key(name.hash)
    let stripe = stripe(of: name.directory)
    func run() throws(StorageError) -> LockOutcome<R> {
      defer { ledger.file.unlock(bytes: byte) }
      return .done(try body(ledger))
    }
    guard let timeout else {
      return try stripe.writer.withLockIfAvailable { _ throws(StorageError) -> LockOutcome<R> in
        guard try ledger.file.tryLock(bytes: byte) else { return .busy }
        return try run()
      } ?? .busy
    }
    return try waiting(for: name.directory, timeout) { () throws(StorageError) in
      try ledger.file.lock(bytes: byte, timeout: timeout)
      return try run()
    }
  }

  /// Returns when all who were writing an entry of the directory are through.
  func awaitWriters(in directory: Int, timeout: Duration) throws(StorageError) {
    guard let ledger else { return }
    let bytes = CacheLedger.Byte.directory(directory)
    try waiting(for: directory, timeout) { () throws(StorageError) in
      try ledger.file.lock(bytes: bytes, timeout: timeout)
      ledger.file.unlock(bytes: bytes)
    }
  }

  /// Those of a directory share one.
  private func stripe(of directory: Int) -> Stripe { stripes[directory % stripes.count] }

  private func waiting<R>(
    for number: Int, _ timeout: Duration, _ body: () throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let stripe = stripe(of: number)
    let result = try stripe.writer.withLock(timeout: timeout) { _ throws(StorageError) in
      try body()
    }
    if let result { return result }
    throw StorageError(
      .timedOut, operation: "lock", path: path(ofDirectory: number),
      reason: "another thread was writing for more than \(timeout)",
      remedy: "Look for a stopped thread of this program.")
  }
}
