#if SecureVault
internal import Synchronization

/// A directory of sealed files, and the keys to it while it is open.
///
/// Who writes an entry holds the lock of one byte, made from the entry's name; who changes the
/// header holds all bytes. Under its byte a writer looks whether the header is still the one that
/// its keys are from: so nothing is ever sealed under a key that is going away. Readers take no
/// lock.
final class Vault: Sendable {
  let location: VaultPaths
  let finder: DirectoryFinder
  let options: VaultOptions
  let timeout: Duration
  let report: @Sendable (StorageError) -> Void
  /// What this process has of the vault.
  let state = Locked(VaultState())
  /// Opening may ask a source that is slow; all others wait for the one that asks.
  private let opening = Locked(())

  init(
    location: VaultPaths, finder: DirectoryFinder, options: VaultOptions,
    timeout: Duration = .seconds(10), report: @escaping @Sendable (StorageError) -> Void
  ) {
    self.location = location
    self.finder = finder
    self.options = options
    self.timeout = timeout
    self.report = report
  }

  func keyFile() throws(StorageError) -> KeyFile {
    KeyFile(path: try finder.directory(.state) + "/vault.key", timeout: timeout)
  }

  // MARK: The open vault

  /// The open vault, opened by its sources if it can be; nil when there is none yet.
  func session() throws(StorageError) -> VaultSession? { try session(mayCreate: false) }

  /// The open vault, which is made first where there is none.
  func sessionForWriting() throws(StorageError) -> VaultSession {
    if let session = try session(mayCreate: true) { return session }
    throw locked(
      "there is no vault yet and none of the configured key sources is there to make one",
      "Call SecureVault.protect(with:) first.")
  }

  /// Does something with the open vault, and again as long as its header changes meanwhile.
  ///
  /// - Parameter body: Returns nil when what it found may be due to keys that are the vault's no
  ///   more.
  /// - Returns: nil when there is no vault.
  func withSession<R: ~Copyable>(
    _ body: (VaultSession) throws(StorageError) -> R?
  ) throws(StorageError) -> R? {
    for _ in 0..<Self.maxAttempts {
      guard let session = try session() else { return nil }
      if let result = try body(session) { return result }
      try refresh(session)
    }
    throw headerKeepsChanging
  }

  /// More often than any number of rotations changes a header during one call.
  static let maxAttempts = 1_000

  var headerKeepsChanging: StorageError {
    StorageError(
      .timedOut, operation: "open", path: location.headerPath,
      reason: "the vault's header changes all the time",
      remedy: "Look for a program that keeps writing to it, or use another file system.")
  }

  /// The open vault with the header of this moment; nil when there is none.
  func freshSession() throws(StorageError) -> VaultSession? {
    try withSession { session throws(StorageError) in
      try isCurrent(session) ? session : nil
    }
  }

  private func session(mayCreate: Bool) throws(StorageError) -> VaultSession? {
    if let session = try openSession() { return session }
    var found: VaultSession?
    let isDone: Void? = try opening.withLock(timeout: timeout) { _ throws(StorageError) in
      found = try openOrCreate(mayCreate: mayCreate)
    }
    if isDone != nil { return found }
    throw StorageError(
      .timedOut, operation: "open", path: location.directory,
      reason: "another thread has been opening the vault for more than \(timeout)",
      remedy: "Look for a key source that hangs, or that uses the vault itself.")
  }

  private func openOrCreate(mayCreate: Bool) throws(StorageError) -> VaultSession? {
    // Another thread may have done it while this one waited.
    if let session = try openSession() { return session }
    let epoch = state.withLock { $0.epoch }
    if let (header, identity) = try headerOfVault() {
      return try install(try open(header, identity), since: epoch)
    }
    return mayCreate ? try create(since: epoch) : nil
  }

  /// nil when it is not open; an error after `lock()`.
  func openSession() throws(StorageError) -> VaultSession? {
    let (session, isLocked) = state.withLock { state in
      state.forgetParent()
      return (state.session, state.isLocked)
    }
    if isLocked { throw lockedByCall }
    return session
  }

  func locked(_ reason: String, _ remedy: String) -> StorageError {
    StorageError(
      .locked, operation: "open", path: location.directory, reason: reason, remedy: remedy)
  }

  private var lockedByCall: StorageError {
    locked("lock() was called", "Call SecureVault.unlock first.")
  }

  /// Keeps a vault that was opened; false when `lock()` was called meanwhile.
  @discardableResult
  func keep(_ session: VaultSession, since epoch: Int, unlocking: Bool = false) -> Bool {
    let (isKept, failure) = state.withLock { state -> (Bool, StorageError?) in
      state.forgetParent()
      guard state.epoch == epoch, unlocking || !state.isLocked else { return (false, nil) }
      state.keep(session)
      guard let failure = session.ring.shieldFailure, !state.isShieldReported else {
        return (true, nil)
      }
      state.isShieldReported = true
      return (true, failure)
    }
    // Elsewhere, because whoever hears of it may lock the vault, which waits for who uses the keys.
    if let failure { BackgroundWork.run { [report] in report(failure) } }
    return isKept
  }

  /// The same, with an error in place of false.
  func install(
    _ session: VaultSession, since epoch: Int, unlocking: Bool = false
  ) throws(StorageError) -> VaultSession {
    guard keep(session, since: epoch, unlocking: unlocking) else { throw lockedByCall }
    return session
  }

  /// Puts the vault as its header is now in place of `session`, or lets go of it if that needs a
  /// source.
  func refresh(_ session: VaultSession) throws(StorageError) {
    let epoch = state.withLock { $0.epoch }
    if let (header, identity) = try readHeader(), header.vaultID == session.header.vaultID {
      // A rotation keeps the master key: nobody needs to be asked again.
      let ring = try KeyRing.open(header) { master throws(StorageError) in
        session.ring.withMaster { master.copyMemory(from: $0) }
      }
      if let ring {
        keep(
          VaultSession(
            header: header, identity: identity, ring: ring, lockPath: location.lockPath),
          since: epoch)
        return
      }
    }
    state.withLock { if $0.session === session { $0.session = nil } }
  }

  /// Whether the header is still the one that the keys are from.
  func isCurrent(_ session: VaultSession) throws(StorageError) -> Bool {
    let status = try FileSystem.status(location.headerPath, withTimes: true)
    return status.map { session.identity.isSame(as: $0) } ?? false
  }
}

/// How the vaults of a scope are opened.
struct VaultOptions: Sendable {
  /// In the order in which they are tried.
  var sources = SecureVault.KeySource.standard
  var authenticate: SecureVault.Authenticator?
}

/// What a process has of a vault.
struct VaultState {
  var session: VaultSession?
  /// After `lock()`, until `unlock`.
  var isLocked = false
  /// Goes up with each `lock()`, which what was being opened meanwhile must not undo.
  var epoch = 0
  var isShieldReported = false
  private var generation = ForkGuard.generation
  /// All that may still be in use: an old one holds keys as well.
  private var sessions: [WeakSession] = []

  struct WeakSession {
    weak var session: VaultSession?
  }

  /// A child finds its parent's keys wiped, and the threads that used them gone.
  mutating func forgetParent() {
    if generation == ForkGuard.generation { return }
    generation = ForkGuard.generation
    session = nil
    sessions = []
  }

  mutating func keep(_ session: VaultSession) {
    self.session = session
    isLocked = false
    sessions.removeAll { $0.session == nil }
    sessions.append(WeakSession(session: session))
  }

  /// Returns all that may still be in use.
  mutating func lock() -> [WeakSession] {
    forgetParent()
    epoch += 1
    isLocked = true
    session = nil
    return sessions
  }
}

/// An open vault as its header was at one moment.
final class VaultSession: Sendable {
  let header: VaultHeader
  let identity: HeaderIdentity
  let ring: KeyRing
  /// The directories of services whose names are known to survive a power cut.
  let durableDirectories = Locked<Set<String>>([])
  /// The vault's lock, as this process has it open.
  let lock: ByteRangeLock
  private let temporaryCount = Atomic(UInt64.random(in: .min ... .max))

  init(header: VaultHeader, identity: HeaderIdentity, ring: KeyRing, lockPath: String) {
    self.header = header
    self.identity = identity
    self.ring = ring
    lock = ByteRangeLock(lockPath)
  }

  /// Another one each time, and no other session's: without a system call.
  func temporaryNumber() -> UInt64 { temporaryCount.wrappingAdd(1, ordering: .relaxed).newValue }
}

/// Which file a header is; it is kept open, so that no other one can get its inode.
struct HeaderIdentity: Sendable {
  let file: File
  let status: FileStatus

  func isSame(as other: FileStatus) -> Bool {
    status.isSameFile(as: other) && status.size == other.size && status.changed == other.changed
      && status.modified == other.modified
  }
}
#endif
