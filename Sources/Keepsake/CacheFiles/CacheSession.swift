internal import Synchronization

/// A cache's files as one process has them open; a forked child opens its own.
final class CacheSession: Sendable {
  let generation = ForkGuard.generation
  let rules: EntryName.Rules
  let blockSize: Int
  /// nil where this process may not write.
  let ledger: CacheLedger?
  /// Marks this process's temporary files; the byte of this number is locked while it lives.
  let token: UInt64
  let folderMode: UInt32
  let memory = EntryMemory()
  private let stripes = (0..<64).map { _ in Stripe() }
  private let temporaryCount = Atomic<UInt64>(0)
  private let timeKeeping = Atomic<UInt8>(0)

  /// Whether the file system keeps a file's time to the nanosecond; nil until a first one has shown it.
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
    rules: EntryName.Rules, blockSize: Int, ledger: CacheLedger?, token: UInt64, folderMode: UInt32
  ) {
    self.rules = rules
    self.blockSize = blockSize
    self.ledger = ledger
    self.token = token
    self.folderMode = folderMode
  }

  var root: String { rules.root }
  var fileMode: UInt32 { folderMode & 0o666 }

  func folder(_ number: Int) -> String { root + EntryName.folderName(number) }

  /// What an entry takes on the disk.
  func footprint(size: Int, keyLength: Int) -> Int {
    rounded(size).addingReportingOverflow(rounded(Sidecar.headerSize + keyLength)).partialValue
  }

  private func rounded(_ size: Int) -> Int {
    let (sum, overflow) = size.addingReportingOverflow(blockSize - 1)
    return overflow ? .max / 2 : sum / blockSize * blockSize
  }

  // MARK: Temporary files

  func temporaryName() -> String {
    let number = temporaryCount.add(1, ordering: .relaxed).newValue
    return ".\(String(token, radix: 16))-\(String(number, radix: 16)).tmp"
  }

  /// Whether the process that left a temporary file is gone; `known` keeps what was found out.
  func isAbandoned(_ name: String, _ known: inout [UInt64: Bool]) throws(StorageError) -> Bool {
    guard let ledger, name.hasSuffix(".tmp"), let dash = name.lastIndex(of: "-"),
      let start = name[..<dash].lastIndex(of: "."),
      let token = UInt64(name[name.index(after: start)..<dash], radix: 16), token != self.token
    else { return false }
    if let isGone = known[token] { return isGone }
    let byte = CacheLedger.Byte.process(token)
    let isGone = try ledger.file.tryLock(byte: byte)
    if isGone { ledger.file.unlock(byte: byte) }
    known[token] = isGone
    return isGone
  }

  // MARK: One writer for each key

  enum LockOutcome<R> {
    case done(R)
    /// Somebody else has the lock.
    case busy
    /// The lock file was deleted by hand: others lock another one by now.
    case isGone
  }

  /// Runs `body` while no other writer of the key does, in this process or another.
  ///
  /// - Parameter timeout: nil to give up at once.
  func withKeyLock<R>(
    _ name: EntryName, timeout: Duration?, _ body: (CacheLedger) throws(StorageError) -> R
  ) throws(StorageError) -> LockOutcome<R> {
    guard let ledger else { return .busy }
    let byte = CacheLedger.Byte.key(name.hash)
    let stripe = stripes[Int(name.hash & 63)]
    func run() throws(StorageError) -> LockOutcome<R> {
      defer { ledger.file.unlock(byte: byte) }
      if try ledger.file.isDeleted() { return .isGone }
      return .done(try body(ledger))
    }
    guard let timeout else {
      return try stripe.writer.withLockIfAvailable { _ throws(StorageError) -> LockOutcome<R> in
        guard try ledger.file.tryLock(byte: byte) else { return .busy }
        return try run()
      } ?? .busy
    }
    let outcome = try stripe.writer.withLock(timeout: timeout) { _ throws(StorageError) in
      try ledger.file.lock(byte: byte, timeout: timeout)
      return try run()
    }
    if let outcome { return outcome }
    throw StorageError(
      .timedOut, operation: "lock", path: name.path,
      reason: "another thread was writing for more than \(timeout)",
      remedy: "Look for a stopped thread of this program.")
  }
}
