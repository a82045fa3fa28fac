#if SecureVault
/// Opening a vault, making one, and locking it again.
extension Vault {
  // MARK: Sources

  /// Opens the vault with the first source that it is under.
  func open(
    _ header: VaultHeader, _ identity: HeaderIdentity
  ) throws(StorageError) -> VaultSession {
    var failure: StorageError?
    for source in options.sources {
      for slot in header.slots where slot.purpose == .master && source.fits(slot) {
        do throws(StorageError) {
          guard let secret = try source.secret(for: slot, in: self) else { continue }
          return try open(header, identity, slot, with: secret)
        } catch {
          failure = failure ?? error
        }
      }
    }
    throw failure ?? noSource(for: header)
  }

  private func noSource(for header: VaultHeader) -> StorageError {
    guard let protection = header.masterSlot?.protection else { return damage }
    let remedy =
      switch protection {
      case .passphrase: "Call SecureVault.unlock(passphrase:) first."
      default: "Name that one among the key sources of StorageSystem.bootstrap."
      }
    return locked("it is under a \(protection)", remedy)
  }

  private func open(
    _ header: VaultHeader, _ identity: HeaderIdentity, _ slot: KeySlot, with secret: SlotSecret
  ) throws(StorageError) -> VaultSession {
    let ring = try KeyRing.open(header) { master throws(StorageError) in
      switch try slot.unwrap(secret.bytes, vaultID: header.vaultID, into: master) {
      case .opened: return
      case .damaged: throw damage
      case .wrongSecret:
        if slot.kind == .passphrase { throw wrongPassphrase("the vault's") }
        throw locked(
          "what the \(slot.protection) gave is not the key that the vault is under",
          "Give the program the right key; the secrets are untouched.")
      }
    }
    guard let ring else { throw damage }
    return VaultSession(
      header: header, identity: identity, ring: ring, lockPath: location.lockPath)
  }

  private var damage: StorageError {
    StorageError(
      .damaged, operation: "open", path: location.headerPath,
      reason: "the vault's header was changed",
      remedy: "Put a copy of this file back, from a backup; the secrets are untouched.")
  }

  func wrongPassphrase(_ whose: String) -> StorageError {
    StorageError(
      .wrongPassphrase, operation: "unlock", path: location.directory,
      reason: "the passphrase is not \(whose)", remedy: "Ask for it again.")
  }

  /// Makes a vault under the first source that is there; nil when none is.
  func create(since epoch: Int) throws(StorageError) -> VaultSession? {
    for source in options.sources {
      guard let secret = try source.secret(for: nil, in: self) else { continue }
      if let session = try create(under: secret, since: epoch) { return session }
      // Another process was faster.
      guard let (header, identity) = try readHeader() else { continue }
      return try install(try open(header, identity), since: epoch)
    }
    return nil
  }

  /// Makes a vault; nil when there is one.
  func create(under secret: SlotSecret, since epoch: Int) throws(StorageError) -> VaultSession? {
    if try FileSystem.status(location.headerPath) != nil { return nil }
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
      VaultSession(
        header: header, identity: identity, ring: ring, lockPath: location.lockPath), since: epoch)
  }

  static func slot(
    of ring: KeyRing, vaultID: [UInt8], _ secret: SlotSecret
  ) throws(StorageError) -> KeySlot {
    try ring.withMaster { master throws(StorageError) in
      try KeySlot(wrapping: master, purpose: .master, vaultID: vaultID, for: secret)
    }
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

  // MARK: Locking

  /// Wipes the keys, once the calls under way on other threads have ended.
  func lock() throws(StorageError) {
    let sessions = state.withLock { $0.lock() }
    // None keeps the keys while the caller's code runs, and no wait is longer; the last one wipes
    // them.
    let deadline = ContinuousClock.now + timeout * 2
    while sessions.contains(where: { $0.session != nil }) {
      guard ContinuousClock.now < deadline else {
        throw StorageError(
          .timedOut, operation: "lock", path: location.directory,
          reason: "a call on another thread still uses the keys",
          remedy: "They are wiped when it ends. Look for a disk or a process that hangs.")
      }
      BackgroundThread.sleep(for: .microseconds(50))
    }
  }

  func unlock(passphrase: String?) throws(StorageError) {
    let epoch = state.withLock { $0.epoch }
    guard let (header, identity) = try headerOfVault() else {
      guard passphrase == nil else {
        throw StorageError(
          .notFound, operation: "unlock", path: location.directory, reason: "there is no vault yet",
          remedy: "Call SecureVault.protect(with:) to make one.")
      }
      state.withLock { if $0.epoch == epoch { $0.isLocked = false } }
      return
    }
    guard let passphrase else {
      _ = try install(try open(header, identity), since: epoch, unlocking: true)
      return
    }
    guard let slot = header.slots.first(where: { $0.kind == .passphrase && $0.purpose == .master })
    else {
      throw StorageError(
        .misuse, operation: "unlock", path: location.directory,
        reason: "the vault is not under a passphrase", remedy: "Call unlock() without one.")
    }
    if passphrase.isEmpty { throw wrongPassphrase("the vault's") }
    let secret = try SecureVault.KeySource.secret(passphrase: passphrase, logN: slot.logN)
    _ = try install(
      try open(header, identity, slot, with: secret), since: epoch, unlocking: true)
  }

  /// Whether nothing can be read before `unlock`.
  func isLocked() throws(StorageError) -> Bool {
    let (isOpen, isLocked) = state.withLock { state in
      state.forgetParent()
      return (state.session != nil, state.isLocked)
    }
    if isLocked { return true }
    guard !isOpen, let (header, _) = try readHeader() else { return false }
    return !header.slots.contains { slot in
      slot.purpose == .master && options.sources.contains { $0.fits(slot) }
    }
  }

  /// What the vault is under; nil when there is none yet.
  func protection() throws(StorageError) -> SecureVault.Protection? {
    try readHeader()?.0.masterSlot?.protection
  }
}
#endif
