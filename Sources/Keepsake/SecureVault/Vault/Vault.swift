#if SecureVault
/// Sealed entries, and the keys to them while the vault is open.
final class Vault: Sendable {
  let storage: any VaultStorage
  /// Finds the credentials that open the vault.
  let finder: DirectoryFinder
  private let currentOptions: @Sendable () -> VaultOptions
  /// How long to wait for other threads.
  let timeout: Duration
  let report: @Sendable (StorageError) -> Void
  /// The state of the vault in this process.
  let state = Locked(VaultState())
  /// Held while the vault is opened: a key source may be slow, and is asked by one thread only.
  private let opening = Locked(())

  /// - Parameter options: Evaluated at each use, because a later `bootstrap` may change them.
  init(
    storage: any VaultStorage, finder: DirectoryFinder,
    options: @escaping @autoclosure @Sendable () -> VaultOptions,
    timeout: Duration = .seconds(10), report: @escaping @Sendable (StorageError) -> Void
  ) {
    self.storage = storage
    self.finder = finder
    currentOptions = options
    self.timeout = timeout
    self.report = report
  }

  var options: VaultOptions { currentOptions() }

  // MARK: The open vault

  /// The open vault, which is created when there is none yet.
  func sessionForWriting() throws(StorageError) -> VaultSession {
    if let session = try session(mayCreate: true) { return session }
    throw lockedError(
      "there is no vault yet, and no configured key source is available to create one",
      remedy: try storage.keyFile() == nil
        ? "Call SecureVault.protect(with:) with a passphrase, or pass a credential or a closure to "
          + "StorageSystem.bootstrap. Several machines cannot share a key file."
        : "Call SecureVault.protect(with:), or make one available, such as a credential.")
  }

  /// Calls `body` with the open vault, and again whenever the header changed in the meantime.
  ///
  /// - Parameter body: Returns nil if its result may be due to keys that are out of date.
  /// - Returns: nil when there is no vault.
  @inline(__always)
  func withSession<R: ~Copyable>(
    _ body: (VaultSession) throws(StorageError) -> R?
  ) throws(StorageError) -> R? {
    for _ in 0..<Self.maxAttempts {
      guard let session = try session() else { return nil }
      if let result = try body(session) { return result }
      try reloadHeader(of: session)
    }
    throw headerKeepsChanging
  }

  /// Does the same for a call that removes something: it must not do nothing because this machine
  /// has not heard yet that another one has created the vault.
  func withStoredVault<R: ~Copyable>(
    _ body: (VaultSession) throws(StorageError) -> R?
  ) throws(StorageError) -> R? {
    if let result = try withSession(body) { return result }
    return try storage.isStillStored() ? nil : try withSession(body)
  }

  /// Far more often than rotations can change a header during one call.
  static let maxAttempts = 1_000

  var headerKeepsChanging: StorageError {
    StorageError(
      .timedOut, operation: "open", path: storage.headerPath,
      reason: "the vault header keeps changing",
      remedy: "Find the program that keeps writing to it, or use another file system.")
  }

  /// The open vault with the header as it is now; nil when there is no vault.
  func currentSession() throws(StorageError) -> VaultSession? {
    try withSession { session throws(StorageError) in
      try session.isCurrent() ? session : nil
    }
  }

  /// The open vault. Opens it with its key sources if necessary.
  ///
  /// - Parameter mayCreate: Whether to create the vault if there is none.
  /// - Returns: nil when there is no vault, and none was created.
  func session(mayCreate: Bool = false) throws(StorageError) -> VaultSession? {
    if let session = try existingSession() { return session }
    var opened: VaultSession?
    let isDone: Void? = try opening.withLock(timeout: timeout) { _ throws(StorageError) in
      opened = try openOrCreate(mayCreate: mayCreate)
    }
    if isDone != nil { return opened }
    throw StorageError(
      .timedOut, operation: "open", path: storage.path,
      reason: "another thread has been opening the vault for more than \(timeout)",
      remedy: "Look for a key source that hangs or that uses the vault itself.")
  }

  private func openOrCreate(mayCreate: Bool) throws(StorageError) -> VaultSession? {
    // Another thread may have opened it while this one waited.
    if let session = try existingSession() { return session }
    let lockCount = state.withLock { $0.lockCount }
    if let (header, storage) = try headerIfVaultExists() {
      try requireSameVault(header)
      return try makeCurrent(try open(header, storage), ifNotLockedSince: lockCount)
    }
    return mayCreate ? try create(ifNotLockedSince: lockCount) : nil
  }

  /// The session that is open already, if any.
  ///
  /// - Throws: An error of code `locked` after `lock()`.
  func existingSession() throws(StorageError) -> VaultSession? {
    let (session, isLocked) = state.withLock { state in
      state.dropInheritedSessions()
      return (state.session, state.isLocked)
    }
    if isLocked { throw lockWasCalled }
    return session
  }

  func lockedError(_ reason: String, remedy: String) -> StorageError {
    StorageError(
      .locked, operation: "open", path: storage.path, reason: reason, remedy: remedy)
  }

  /// Throws if this process has opened another vault at this path since the last `lock()`.
  func requireSameVault(_ header: VaultHeader) throws(StorageError) {
    if !state.withLock({ $0.accepts(header) }) { throw otherVault }
  }

  private var otherVault: StorageError {
    StorageError(
      .accessDenied, operation: "open", path: storage.headerPath,
      reason: "the vault was replaced by another one while this process used it",
      remedy: "If that is right, call SecureVault.lock() and then unlock.")
  }

  private var lockWasCalled: StorageError {
    lockedError(
      "lock() or eraseVault() has closed the vault", remedy: "Call SecureVault.unlock first.")
  }

  /// Makes `session` the open vault.
  ///
  /// - Parameters:
  ///   - lockCount: The count when the header was read.
  ///   - isUnlocking: Whether this ends what an earlier `lock()` began.
  ///   - isNew: Whether this process has just created the vault.
  /// - Returns: The session.
  /// - Throws: An error of code `locked` when the vault was locked or erased in the meantime,
  ///   `accessDenied` when another vault was opened.
  func makeCurrent(
    _ session: VaultSession, ifNotLockedSince lockCount: Int, isUnlocking: Bool = false,
    isNew: Bool = false
  ) throws(StorageError) -> VaultSession {
    let isCurrent = tryMakeCurrent(
      session, ifNotLockedSince: lockCount, isUnlocking: isUnlocking, isNew: isNew)
    if isCurrent { return session }
    try requireSameVault(session.header)
    throw lockWasCalled
  }

  /// Makes `session` the open vault; false when it was locked or erased, or another vault was
  /// opened, in the meantime.
  @discardableResult
  func tryMakeCurrent(
    _ session: VaultSession, ifNotLockedSince lockCount: Int, isUnlocking: Bool = false,
    isNew: Bool = false
  ) -> Bool {
    let (isCurrent, failure) = state.withLock { state -> (Bool, StorageError?) in
      state.dropInheritedSessions()
      guard state.lockCount == lockCount, isUnlocking || !state.isLocked,
        isNew || state.accepts(session.header)
      else { return (false, nil) }
      state.setSession(session)
      guard let failure = session.ring.shieldFailure, !state.isShieldFailureReported else {
        return (true, nil)
      }
      state.isShieldFailureReported = true
      return (true, failure)
    }
    // On another thread: the handler may lock the vault, which waits for calls that use the keys.
    if let failure { BackgroundWork.run { [report] in report(failure) } }
    return isCurrent
  }

  /// Replaces `session` by one with the header as it is now, or closes it if that would need a key
  /// source.
  func reloadHeader(of session: VaultSession) throws(StorageError) {
    let lockCount = state.withLock { $0.lockCount }
    if let (header, storage) = try storage.readHeader(), header.vaultID == session.header.vaultID {
      // A rotation keeps the master key, so no source needs to be asked again.
      let newSession = try VaultSession.open(header, storage) { masterKey throws(StorageError) in
        session.ring.withMasterKey { masterKey.copyMemory(from: $0) }
      }
      if let newSession {
        tryMakeCurrent(newSession, ifNotLockedSince: lockCount)
        return
      }
    }
    state.withLock { $0.closeSession(ifItIs: session) }
  }

  // MARK: The header

  /// The header; nil when there is no vault yet.
  ///
  /// - Throws: An error of code `damaged` when there are secrets but no header.
  func headerIfVaultExists() throws(StorageError) -> (VaultHeader, any VaultStorage)? {
    var attempts = 0
    while true {
      if let found = try storage.readHeader() { return found }
      do throws(StorageError) {
        try storage.requireNoEntries()
        return nil
      } catch {
        // After the header was found missing, another process may have created the vault and stored
        // a secret, and even have erased and created it again.
        attempts += 1
        if attempts == 4 { throw error }
      }
    }
  }

  /// Replaces the header of `session` by one with these slots and the keys that `makeRing` returns.
  ///
  /// - Parameter makeRing: Called as ``VaultStorage/replaceHeader(_:)`` says. If it returns nil,
  ///   nothing is done.
  /// - Returns: nil when nothing was done, for example because the header of `session` is out of
  ///   date.
  func replaceHeader(
    of session: VaultSession, slots: [KeySlot], _ makeRing: () throws(StorageError) -> KeyRing?
  ) throws(StorageError) -> Void? {
    let lockCount = state.withLock { $0.lockCount }
    var newRing: KeyRing?
    let replaced = try session.storage.replaceHeader { () throws(StorageError) -> VaultHeader? in
      newRing = try makeRing()
      return try newRing?.makeHeader(
        vaultID: session.header.vaultID, slots: slots, context: storage.context)
    }
    guard let (header, storage) = replaced, let newRing else { return nil }
    // The header is in place, so this succeeds even if the vault was locked in the meantime.
    tryMakeCurrent(
      VaultSession(header: header, storage: storage, ring: newRing),
      ifNotLockedSince: lockCount)
    return ()
  }

  /// Removes all entries and the header, whether the vault can be opened or not.
  func erase() throws(StorageError) {
    let header = (try? storage.readHeader())?.0
    var failure: StorageError?
    var reports: [StorageError] = []
    // Once nothing is locked and the old keys are gone: the handler may use the vault.
    defer { reports.forEach(report) }
    do throws(StorageError) {
      guard try storage.erase(reporting: { reports.append($0) }) else { return }
    } catch {
      // What stays may be an older vault beside this one.
      guard (try? storage.isCurrent()) == true else { throw error }
      failure = error
    }
    state.withLock { $0.reset() }
    failure = forgetRemembered(header.map { [$0] } ?? []) ?? failure
    if let failure { throw failure }
  }
}

/// How the vaults of a scope are opened.
struct VaultOptions: Sendable {
  /// In the order in which they are tried.
  var sources = SecureVault.KeySource.standard
  var authenticate: SecureVault.Authenticator?
  /// See ``SecureVault/Store/maxWorkFactor``.
  var maxLogN = PassphraseWorkBudget.defaultMaxLogN

  var hasStandardSources: Bool { kinds == VaultOptions().kinds }

  /// Whether both have the same kinds and names of sources, and both or neither ask the user.
  func isSame(as other: Self) -> Bool {
    kinds == other.kinds && (authenticate == nil) == (other.authenticate == nil)
  }

  private var kinds: [SecureVault.Protection] { sources.map(\.protection) }
}

/// The state of a vault in this process.
struct VaultState {
  private(set) var session: VaultSession?
  /// The id of the vault that was opened or created last, until `lock()`.
  private(set) var vaultID: [UInt8]?
  /// Whether `lock()` was called, and `unlock` not yet.
  var isLocked = false
  /// How often the vault was locked or erased. An opening that started before must not undo it.
  private(set) var lockCount = 0
  var isShieldFailureReported = false
  private var generation = ForkGuard.generation
  /// Of all keys that may still be in use, also of earlier sessions.
  private var leases: [WeakLease] = []

  struct WeakLease {
    weak var lease: KeyPages.Lease?
  }

  /// Forgets sessions from before a fork: their keys are wiped in the child, and the threads that
  /// used them are gone.
  mutating func dropInheritedSessions() {
    if generation == ForkGuard.generation { return }
    generation = ForkGuard.generation
    session = nil
    leases = []
  }

  /// Whether no other vault was opened since the last `lock()`.
  func accepts(_ header: VaultHeader) -> Bool { vaultID == nil || vaultID == header.vaultID }

  mutating func setSession(_ session: VaultSession) {
    self.session = session
    vaultID = session.header.vaultID
    isLocked = false
    leases.removeAll { $0.lease == nil }
    leases.append(WeakLease(lease: session.ring.lease))
  }

  mutating func closeSession(ifItIs old: VaultSession) {
    if session === old { session = nil }
  }

  /// Closes the session because this process has erased the vault.
  mutating func reset() {
    lockCount += 1
    forgetVault()
    isLocked = false
  }

  /// Closes the session, and accepts another vault in its place.
  mutating func forgetVault() { (session, vaultID) = (nil, nil) }

  /// Returns the leases of all keys that may still be in use.
  mutating func lock() -> [WeakLease] {
    dropInheritedSessions()
    lockCount += 1
    isLocked = true
    forgetVault()
    return leases
  }
}
#endif
