internal import Synchronization

/// A folder of sealed files, and the keys to it while it is open.
///
/// Who writes an entry holds the lock of one byte, made from the entry's name; who changes the header
/// holds all bytes. Under its byte a writer looks whether the header is still the one that its keys are
/// from: so nothing is ever sealed under a key that is going away. Readers take no lock.
final class Vault: Sendable {
  let location: VaultLocation
  let finder: DirectoryFinder
  private let options: VaultOptions
  let report: @Sendable (StorageError) -> Void
  let timeout: Duration

  private struct State {
    var session: VaultSession?
    var generation = ForkGuard.generation
    /// After `lock()`, until `unlock`.
    var isLocked = false
    /// Goes up with each `lock()`, which what was being opened meanwhile must not undo.
    var epoch = 0
    var isShieldReported = false
    /// All that may still be in use: an old one holds keys as well.
    var sessions: [WeakSession] = []

    /// A child finds its parent's keys wiped, and the threads that used them gone.
    mutating func forgetParent() {
      if generation == ForkGuard.generation { return }
      generation = ForkGuard.generation
      session = nil
      sessions = []
    }
  }

  private struct WeakSession {
    weak var session: VaultSession?
  }

  private let state = Locked(State())
  /// Opening may ask a source that is slow; all others wait for the one that asks.
  private let opening = Locked(())

  init(
    location: VaultLocation, finder: DirectoryFinder, options: VaultOptions,
    timeout: Duration = .seconds(10), report: @escaping @Sendable (StorageError) -> Void
  ) {
    self.location = location
    self.finder = finder
    self.options = options
    self.timeout = timeout
    self.report = report
  }

  func keyFile() throws(StorageError) -> KeyFile {
    KeyFile(path: try finder.folder(.state) + "/vault.key", timeout: timeout)
  }

  // MARK: The open vault

  /// The open vault, opened by its sources if it can be; nil when there is none yet.
  func session() throws(StorageError) -> VaultSession? { try session(mayCreate: false) }

  /// The open vault, which is made first where there is none.
  func sessionForWriting() throws(StorageError) -> VaultSession {
    if let session = try session(mayCreate: true) { return session }
    throw StorageError(
      .locked, operation: "open", path: location.folder,
      reason: "there is no vault yet and none of the configured key sources is there to make one",
      remedy: "Call SecureVault.protect(with:) first.")
  }

  private func session(mayCreate: Bool) throws(StorageError) -> VaultSession? {
    if let session = try openSession() { return session }
    var found: VaultSession?
    let isDone: Void? = try opening.withLock(timeout: timeout) { _ throws(StorageError) in
      found = try openOrCreate(mayCreate: mayCreate)
    }
    if isDone != nil { return found }
    throw StorageError(
      .timedOut, operation: "open", path: location.folder,
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
  private func openSession() throws(StorageError) -> VaultSession? {
    let (session, isLocked) = state.withLock { state in
      state.forgetParent()
      return (state.session, state.isLocked)
    }
    if isLocked { throw locked("lock() was called", "Call SecureVault.unlock first.") }
    return session
  }

  func locked(_ reason: String, _ remedy: String) -> StorageError {
    StorageError(
      .locked, operation: "open", path: location.folder, reason: reason, remedy: remedy)
  }

  /// Keeps a vault that was opened, unless `lock()` was called meanwhile.
  private func install(
    _ session: VaultSession, since epoch: Int, unlocking: Bool = false
  ) throws(StorageError) -> VaultSession {
    let (isKept, failure) = state.withLock { state -> (Bool, StorageError?) in
      guard state.epoch == epoch, unlocking || !state.isLocked else { return (false, nil) }
      state.forgetParent()
      state.session = session
      state.isLocked = false
      state.sessions.removeAll { $0.session == nil }
      state.sessions.append(WeakSession(session: session))
      guard let failure = session.ring.shieldFailure, !state.isShieldReported else {
        return (true, nil)
      }
      state.isShieldReported = true
      return (true, failure)
    }
    if let failure { report(failure) }
    guard isKept else { throw locked("lock() was called", "Call SecureVault.unlock first.") }
    return session
  }

  /// The vault as its header is now, which is another one than that of `session`; nil when it is gone.
  func reloaded(_ session: VaultSession) throws(StorageError) -> VaultSession? {
    let epoch = state.withLock { $0.epoch }
    guard let (header, identity) = try readHeader() else {
      forget(session)
      return try self.session()
    }
    // A rotation keeps the master key: nobody needs to be asked again.
    let ring = try KeyRing.open(header) { master throws(StorageError) in
      session.ring.withMaster { master.copyMemory(from: $0) }
    }
    if let ring, header.vaultID == session.header.vaultID {
      return try install(
        VaultSession(header: header, identity: identity, ring: ring), since: epoch)
    }
    forget(session)
    return try self.session()
  }

  private func forget(_ session: VaultSession) {
    state.withLock { if $0.session === session { $0.session = nil } }
  }

  /// The open vault with the header of this moment; nil when there is none.
  func freshSession() throws(StorageError) -> VaultSession? {
    guard let session = try session() else { return nil }
    return try isCurrent(session) ? session : try reloaded(session)
  }

  /// Whether the header is still the one that the keys are from.
  func isCurrent(_ session: VaultSession) throws(StorageError) -> Bool {
    let status = try FileSystem.status(location.headerPath, withTimes: true)
    return status.map { session.identity.isSame(as: $0) } ?? false
  }

  // MARK: The header

  func readHeader() throws(StorageError) -> (VaultHeader, HeaderIdentity)? {
    guard let file = try File.ifPresent(location.headerPath) else { return nil }
    let status = try file.status(withTimes: true)
    guard status.isRegularFile, status.size <= VaultHeader.mostBytes else {
      throw StorageError(
        .damaged, operation: "open", path: file.path, reason: "this is no vault's header",
        remedy: "Put a copy of the right file back, from a backup; the secrets are untouched.")
    }
    let bytes = try file.read(from: 0, count: status.size)
    return (
      try VaultHeader(bytes, path: location.headerPath), HeaderIdentity(file: file, status: status)
    )
  }

  /// The header; nil when there is no vault.
  ///
  /// - Throws: An error of code `damaged`, among others, for secrets without a header.
  private func headerOfVault() throws(StorageError) -> (VaultHeader, HeaderIdentity)? {
    var attempts = 0
    while true {
      if let found = try readHeader() { return found }
      do throws(StorageError) {
        try requireNoEntries()
        return nil
      } catch {
        // Between the two looks others may have made the vault and stored a secret, even twice if
        // they erased it meanwhile.
        attempts += 1
        if attempts == 4 { throw error }
      }
    }
  }

  /// Puts a header in place; the caller holds all bytes' lock.
  private func write(
    _ header: VaultHeader, mode: UInt32, isFirst: Bool
  ) throws(StorageError) -> HeaderIdentity {
    try FileSystem.sweepTemporaries(beside: location.headerPath)
    var temporary = try TemporaryFile.make(
      beside: location.headerPath, mode: mode & 0o666)
    try temporary.file.writeAll(try header.bytes())
    try temporary.file.synchronize()
    if isFirst {
      guard try temporary.moveIntoEmptyPlace() else {
        throw StorageError(
          .damaged, operation: "open", path: location.headerPath,
          reason: "something else made this file", remedy: "Try again.")
      }
    } else {
      try temporary.moveIntoPlace()
    }
    try FileSystem.synchronizeFolder(location.folder)
    return HeaderIdentity(
      file: temporary.file, status: try temporary.file.status(withTimes: true))
  }

  /// Holds off everything that others do to the vault, while `body` runs.
  private func exclusively<R>(
    _ body: (_ mode: UInt32) throws(StorageError) -> R
  ) throws(StorageError) -> R {
    let mode = try location.prepare()
    return try ByteLock.hold(
      ByteLock.all, of: location.lockPath, mode: mode & 0o666, timeout: timeout
    ) { () throws(StorageError) in try body(mode) }
  }

  /// Replaces the header of `session` by one with those slots and the keys that `ring` returns, while
  /// nobody else writes.
  ///
  /// - Returns: The vault with its new header; nil when that of `session` is not the header any more.
  func replaceHeader(
    of session: VaultSession, slots: [KeySlot], _ ring: () throws(StorageError) -> KeyRing
  ) throws(StorageError) -> VaultSession? {
    let epoch = state.withLock { $0.epoch }
    return try exclusively { mode throws(StorageError) in
      guard try isCurrent(session) else { return nil }
      let ring = try ring()
      let header = try ring.header(vaultID: session.header.vaultID, slots: slots)
      let identity = try write(header, mode: mode, isFirst: false)
      return try install(
        VaultSession(header: header, identity: identity, ring: ring), since: epoch)
    }
  }

  /// Entries whose header is gone are not given a new one: their keys would never be found again.
  private func requireNoEntries() throws(StorageError) {
    for folder in try location.entryFolders() {
      guard let place = try location.places(in: folder).first else { continue }
      throw StorageError(
        .damaged, operation: "open", path: location.headerPath,
        reason: "the vault's header is missing, but its secrets are there, such as \(place.path)",
        remedy:
          "Put the header back, from a backup; the secrets are untouched. Without it nobody can "
          + "read them, and SecureVault.erase() starts anew.")
    }
  }

  // MARK: Opening and making

  private func open(
    _ header: VaultHeader, _ identity: HeaderIdentity
  ) throws(StorageError) -> VaultSession {
    var failure: StorageError?
    for source in options.sources {
      for slot in header.slots where slot.purpose == .master && source.fits(slot) {
        do throws(StorageError) {
          let secret = try source.secret(for: slot, in: self)
          guard let secret else { continue }
          return try open(header, identity, slot, with: secret)
        } catch {
          failure = failure ?? error
        }
      }
    }
    throw failure ?? locked(remedy(for: header).reason, remedy(for: header).remedy)
  }

  private func remedy(for header: VaultHeader) -> (reason: String, remedy: String) {
    switch protection(of: header) {
    case .passphrase?:
      ("it is under a passphrase", "Call SecureVault.unlock(passphrase:) first.")
    case .credential(let name)?:
      (
        "it is under the credential \(name.debugDescription)",
        "Name .credential(\(name.debugDescription)) among the key sources of bootstrap."
      )
    case .closure(let name)?:
      (
        "it is under the key source \(name.debugDescription)",
        "Name that closure among the key sources of bootstrap."
      )
    case .keyFile?, nil:
      ("it is under a key file", "Name .keyFile among the key sources of bootstrap.")
    }
  }

  private func open(
    _ header: VaultHeader, _ identity: HeaderIdentity, _ slot: KeySlot,
    with secret: SourceSecret
  ) throws(StorageError) -> VaultSession {
    let ring = try KeyRing.open(header) { master throws(StorageError) in
      switch try slot.unwrap(secret.bytes, vaultID: header.vaultID, into: master) {
      case .opened: return
      case .damaged: throw damage
      case .wrongSecret:
        if slot.kind == .passphrase { throw wrongPassphrase }
        throw StorageError(
          .damaged, operation: "open", path: location.headerPath,
          reason: "the key is not the one that the vault is under (\(slot.protection))",
          remedy: "Give the program the right key; the secrets are untouched.")
      }
    }
    guard let ring else { throw damage }
    return VaultSession(header: header, identity: identity, ring: ring)
  }

  private var damage: StorageError {
    StorageError(
      .damaged, operation: "open", path: location.headerPath,
      reason: "the vault's header was changed",
      remedy: "Put a copy of this file back, from a backup; the secrets are untouched.")
  }

  var wrongPassphrase: StorageError {
    StorageError(
      .wrongPassphrase, operation: "unlock", path: location.folder,
      reason: "the passphrase is not the vault's", remedy: "Ask for it again.")
  }

  private func create(since epoch: Int) throws(StorageError) -> VaultSession? {
    for source in options.sources {
      let secret = try source.secret(for: nil, in: self)
      guard let secret else { continue }
      if let session = try create(under: secret, since: epoch) { return session }
      // Another process was faster.
      guard let (header, identity) = try readHeader() else { continue }
      return try install(try open(header, identity), since: epoch)
    }
    return nil
  }

  /// Makes a vault; nil when there is one.
  private func create(
    under secret: SourceSecret, since epoch: Int
  ) throws(StorageError) -> VaultSession? {
    let vaultID = try OpenSSL.randomBytes(VaultHeader.idSize)
    let ring = try KeyRing.makeNew()
    let slot = try Self.slot(of: ring, vaultID: vaultID, secret)
    let header = try ring.header(vaultID: vaultID, slots: [slot])
    let identity = try exclusively { mode throws(StorageError) -> HeaderIdentity? in
      if try FileSystem.status(location.headerPath) != nil { return nil }
      try requireNoEntries()
      return try write(header, mode: mode, isFirst: true)
    }
    guard let identity else { return nil }
    return try install(
      VaultSession(header: header, identity: identity, ring: ring), since: epoch)
  }

  static func slot(
    of ring: KeyRing, vaultID: [UInt8], _ secret: SourceSecret
  ) throws(StorageError) -> KeySlot {
    try ring.withMaster { master throws(StorageError) in
      try KeySlot(wrapping: master, purpose: .master, vaultID: vaultID, for: secret)
    }
  }

  // MARK: Locking

  /// Wipes the keys, once the calls under way on other threads have ended.
  func lock() {
    let sessions = state.withLock { state -> [WeakSession] in
      state.forgetParent()
      state.epoch += 1
      state.isLocked = true
      state.session = nil
      return state.sessions
    }
    // None keeps the keys while the caller's code runs, and no wait is longer; the last one wipes them.
    let deadline = ContinuousClock.now + timeout * 2
    while sessions.contains(where: { $0.session != nil }), ContinuousClock.now < deadline {
      FileSystem.pause()
    }
  }

  func unlock(passphrase: String?) throws(StorageError) {
    let epoch = state.withLock { $0.epoch }
    guard let (header, identity) = try headerOfVault() else {
      guard passphrase == nil else {
        throw StorageError(
          .notFound, operation: "unlock", path: location.folder, reason: "there is no vault yet",
          remedy: "Call SecureVault.protect(with:) to make one.")
      }
      state.withLock { $0.isLocked = false }
      return
    }
    guard let passphrase else {
      _ = try install(try open(header, identity), since: epoch, unlocking: true)
      return
    }
    guard let slot = header.slots.first(where: { $0.kind == .passphrase && $0.purpose == .master })
    else {
      throw StorageError(
        .misuse, operation: "unlock", path: location.folder,
        reason: "the vault is not under a passphrase", remedy: "Call unlock() without one.")
    }
    if passphrase.isEmpty { throw wrongPassphrase }
    let secret = try SecureVault.KeySource.secret(passphrase: passphrase, logN: slot.logN)
    _ = try install(
      try open(header, identity, slot, with: secret), since: epoch, unlocking: true)
  }

  /// Whether nothing can be read before `unlock`.
  func isLocked() throws(StorageError) -> Bool {
    let (session, isLocked) = state.withLock { state in
      state.forgetParent()
      return (state.session, state.isLocked)
    }
    if isLocked { return true }
    if session != nil { return false }
    guard let (header, _) = try readHeader() else { return false }
    return !header.slots.contains { slot in
      slot.purpose == .master && options.sources.contains { $0.fits(slot) }
    }
  }

  /// What the vault is under; nil when there is none yet.
  func protection() throws(StorageError) -> SecureVault.Protection? {
    try readHeader().flatMap { protection(of: $0.0) }
  }

  private func protection(of header: VaultHeader) -> SecureVault.Protection? {
    header.masterSlot?.protection
  }

  // MARK: For the other files of this type

  /// Makes a vault under that source; nil when there is one.
  func createUnder(_ secret: SourceSecret) throws(StorageError) -> VaultSession? {
    if try FileSystem.status(location.headerPath) != nil { return nil }
    let epoch = state.withLock { state in
      state.isLocked = false
      return state.epoch
    }
    return try create(under: secret, since: epoch)
  }

  func secret(
    of source: SecureVault.KeySource
  ) throws(StorageError) -> SourceSecret? {
    if case .keyFile = source.kind { return try keyFile().addSecret() }
    return try source.secret(for: nil, in: self)
  }

  /// Asks whoever sits there for a passphrase.
  func ask(_ request: SecureVault.PassphraseRequest) throws(StorageError) -> String {
    guard let authenticate = options.authenticate else {
      throw locked(
        "a person has to be present",
        "Give StorageSystem.bootstrap an authenticate closure, such as SecureVault.askTerminal.")
    }
    let answer: String?
    do {
      answer = try authenticate(request)
    } catch {
      if let error = error as? StorageError { throw error }
      // The error's text may quote what was typed: its type must do.
      throw locked("authenticate threw \(type(of: error))", "Ask again.")
    }
    if let answer, !answer.isEmpty { return answer }
    throw locked("no passphrase was given", "Ask again.")
  }

  /// The vault is empty and without keys after this, whether it could be opened or not.
  func erase() throws(StorageError) {
    guard try FileSystem.status(location.folder) != nil else { return }
    try exclusively { _ throws(StorageError) in
      for folder in try location.entryFolders() {
        try FileSystem.removeTree(location.folder + "/" + folder)
      }
      try FileSystem.sweepTemporaries(beside: location.entryStem, olderThan: -1)
      // Without the header, entries that a power cut brought back would be an error for good.
      try FileSystem.synchronizeFolder(location.folder)
      try FileSystem.unlink(location.headerPath)
      try FileSystem.synchronizeFolder(location.folder)
    }
    state.withLock { state in
      state.session = nil
      state.isLocked = false
    }
  }
}

/// How the vaults of a scope are opened.
struct VaultOptions: Sendable {
  /// In the order in which they are tried.
  var sources = SecureVault.KeySource.standard
  var authenticate: SecureVault.Authenticator?
}

/// An open vault as its header was at one moment.
final class VaultSession: Sendable {
  let header: VaultHeader
  let identity: HeaderIdentity
  let ring: KeyRing
  /// The folders of services whose names are known to survive a power cut.
  let durableFolders = Locked<Set<String>>([])

  init(header: VaultHeader, identity: HeaderIdentity, ring: KeyRing) {
    self.header = header
    self.identity = identity
    self.ring = ring
  }
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
