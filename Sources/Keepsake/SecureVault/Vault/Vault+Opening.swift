#if SecureVault
/// Opening, creating, locking and unlocking a vault.
extension Vault {
  // MARK: Opening

  /// Opens the vault with the first key source that has a slot in the header.
  func open(
    _ header: VaultHeader, _ storage: any VaultStorage
  ) throws(StorageError) -> VaultSession {
    var failure: StorageError?
    let options = options
    var budget = PassphraseWorkBudget(maxLogN: options.maxLogN)
    for source in options.sources {
      for slot in header.slots where source.matches(slot) {
        do throws(StorageError) {
          try budget.spend(on: slot, storage.headerPath)
          guard let secret = try source.secret(for: slot, in: self) else { continue }
          return try open(header, storage, slot, with: secret)
        } catch {
          failure = failure ?? error
        }
      }
    }
    do throws(StorageError) {
      if let session = try openRemembered(header, storage) { return session }
    } catch {
      failure = failure ?? error
    }
    throw failure ?? noMatchingSource(for: header)
  }

  private func noMatchingSource(for header: VaultHeader) -> StorageError {
    guard let protection = header.masterSlot?.protection else { return damagedHeader }
    let remedy =
      switch protection {
      case .passphrase: "Call SecureVault.unlock(passphrase:) first."
      default: "Add it to the key sources of StorageSystem.bootstrap."
      }
    return lockedError("the vault is protected with a \(protection)", remedy: remedy)
  }

  private func open(
    _ header: VaultHeader, _ storage: any VaultStorage, _ slot: KeySlot, with secret: SlotSecret
  ) throws(StorageError) -> VaultSession {
    let session = try VaultSession.open(header, storage) { masterKey throws(StorageError) in
      switch try slot.unwrap(with: secret.bytes, vaultID: header.vaultID, into: masterKey) {
      case .unwrapped: return
      case .damaged: throw damagedHeader
      case .wrongSecret:
        if slot.isTyped { throw wrongPassphrase("for the vault") }
        throw lockedError(
          "the key from the \(slot.protection) does not open this vault",
          remedy: "Provide the right key; the secrets are untouched.")
      }
    }
    if let session { return session }
    throw damagedHeader
  }

  private var damagedHeader: StorageError {
    VaultHeader.damageError(storage.headerPath, "the vault header was altered")
  }

  static let mistypedCode = "there is a typing error in the recovery code"

  /// - Parameter which: Follows "wrong passphrase".
  func wrongPassphrase(_ which: String) -> StorageError {
    StorageError(
      .wrongPassphrase, operation: "unlock", path: storage.path,
      reason: "wrong passphrase \(which)", remedy: "Enter the passphrase again.")
  }

  /// Asks the user for a passphrase.
  func askForPassphrase(
    _ request: SecureVault.PassphraseRequest
  ) throws(StorageError) -> String {
    guard let authenticate = options.authenticate else {
      throw lockedError(
        "the user must enter a passphrase, but there is no authenticate closure",
        remedy: "Pass one to StorageSystem.bootstrap, such as SecureVault.askTerminal.")
    }
    let answer: String?
    do {
      answer = try authenticate(request)
    } catch {
      if let error = error as? StorageError { throw error }
      // Only its type: the error's text may quote what the user typed.
      throw lockedError(
        "authenticate threw \(type(of: error))",
        remedy: "Fix the authenticate closure, or ask the user again.")
    }
    if let answer, !answer.isEmpty { return answer }
    throw lockedError("the user entered no passphrase", remedy: "Enter the passphrase again.")
  }

  // MARK: Creating

  /// Creates a vault under the first source that is available; nil when none is.
  func create(ifNotLockedSince lockCount: Int) throws(StorageError) -> VaultSession? {
    for source in options.sources {
      guard let secret = try source.secret(for: nil, in: self) else { continue }
      if let session = try create(under: secret, ifNotLockedSince: lockCount) { return session }
      // Another process created it first.
      guard let (header, storage) = try self.storage.readHeader() else { continue }
      try requireSameVault(header)
      return try makeCurrent(try open(header, storage), ifNotLockedSince: lockCount)
    }
    return nil
  }

  /// Creates a vault; nil when there is one already.
  func create(
    under secret: SlotSecret, ifNotLockedSince lockCount: Int
  ) throws(StorageError) -> VaultSession? {
    guard try storage.isCurrent() else { return nil }
    let vaultID = try SystemRandom.bytes(VaultHeader.idSize)
    let ring = try KeyRing.makeNew()
    let slot = try ring.makeSlot(vaultID: vaultID, for: secret)
    let header = try ring.makeHeader(
      vaultID: vaultID, slots: [slot], context: storage.context)
    guard let (_, storage) = try self.storage.replaceHeader({ header }) else { return nil }
    return try makeCurrent(
      VaultSession(header: header, storage: storage, ring: ring), ifNotLockedSince: lockCount,
      isNew: true)
  }

  // MARK: Locking

  /// Wipes the keys, once the calls that use them on other threads have ended.
  func lock() throws(StorageError) {
    // The header alone: its session must not stay in use here.
    let openHeader = state.withLock { $0.session?.header }
    let leases = state.withLock { $0.lock() }
    // A process that has not opened the vault locks it for others too. And since this one opened
    // it, the vault may have got a passphrase, or have lost the one that it was remembered with.
    let failure = forgetRemembered(knownHeaders(besides: openHeader))
    // The last user of a session wipes its keys. No session is in use while the caller's code runs,
    // and no call waits longer for a lock than this.
    let deadline = ContinuousClock.now + timeout * 2
    while leases.contains(where: { $0.lease != nil }) {
      guard ContinuousClock.now < deadline else {
        throw failure
          ?? StorageError(
            .timedOut, operation: "lock", path: storage.path,
            reason: "a call on another thread still uses the keys",
            remedy: "Look for a hung disk or process; the keys are wiped when the call ends.")
      }
      BackgroundThread.sleep(for: .microseconds(50))
    }
    if let failure { throw failure }
  }

  /// - Parameter seconds: How long other processes may open the vault without a passphrase.
  func unlock(
    passphrase: String?, rememberingFor seconds: UInt32? = nil
  ) throws(StorageError) {
    let lockCount = state.withLock { $0.lockCount }
    guard let (header, storage) = try headerIfVaultExists() else {
      state.withLock { if $0.lockCount == lockCount { $0.isLocked = false } }
      if passphrase == nil { return }
      throw StorageError(
        .notFound, operation: "unlock", path: storage.path, reason: "there is no vault yet",
        remedy: "Call SecureVault.protect(with:) to create one.")
    }
    try requireSameVault(header)
    guard let passphrase else {
      // If it is open, it needs no key source, which may be gone by now.
      if let session = try? existingSession(), try !session.isCurrent() {
        try reloadHeader(of: session)
      }
      if (try? existingSession()) != nil { return }
      _ = try makeCurrent(
        try open(header, storage), ifNotLockedSince: lockCount, isUnlocking: true)
      return
    }
    guard header.hasTypedSlot else {
      throw StorageError(
        .misuse, operation: "unlock", path: storage.path,
        reason: "the vault is not protected with a passphrase",
        remedy: "Call unlock() without one.")
    }
    let session = try makeCurrent(
      try open(header, storage, passphrase: passphrase), ifNotLockedSince: lockCount,
      isUnlocking: true)
    if let seconds { remember(session, seconds: seconds, ifNotLockedSince: lockCount) }
  }

  /// Opens the vault with what a user typed: a recovery code, or the passphrase of any slot.
  private func open(
    _ header: VaultHeader, _ storage: any VaultStorage, passphrase: String
  ) throws(StorageError) -> VaultSession {
    if passphrase.isEmpty { throw wrongPassphrase("for the vault") }
    var failure = wrongPassphrase("for the vault")
    func attempt(_ slot: KeySlot, with secret: SlotSecret) throws(StorageError) -> VaultSession? {
      do throws(StorageError) {
        return try open(header, storage, slot, with: secret)
      } catch  where error.code == .wrongPassphrase {
        return nil
      }
    }
    // Recovery codes first, because trying one costs nothing.
    let codeSlots = header.slots.filter { $0.kind == .recoveryCode }
    if let secret = try RecoveryCode.secret(passphrase) {
      for slot in codeSlots {
        if let session = try attempt(slot, with: secret) { return session }
      }
    } else if !codeSlots.isEmpty, RecoveryCode.isMistyped(passphrase) {
      failure = StorageError(
        .wrongPassphrase, operation: "unlock", path: storage.path, reason: Self.mistypedCode,
        remedy: "Compare it with the code on paper, and enter it again.")
    }
    var budget = PassphraseWorkBudget(maxLogN: options.maxLogN)
    for slot in header.slots where slot.kind == .passphrase {
      do throws(StorageError) {
        try budget.spend(on: slot, storage.headerPath)
      } catch {
        failure = error
        continue
      }
      let secret = try SecureVault.KeySource.secret(passphrase: passphrase, logN: slot.logN)
      if let session = try attempt(slot, with: secret) { return session }
    }
    throw failure
  }

  /// Whether `unlock` must open the vault. The key sources are not tried, so their keys may be
  /// missing although this is false.
  func isLocked() throws(StorageError) -> Bool {
    let (isOpen, isLocked) = state.withLock { state in
      state.dropInheritedSessions()
      return (state.session != nil, state.isLocked)
    }
    if isLocked { return true }
    guard !isOpen, let (header, storage) = try self.storage.readHeader() else { return false }
    let hasSource = header.slots.contains { slot in
      options.sources.contains { $0.matches(slot) }
    }
    if hasSource { return false }
    return try openRemembered(header, storage) == nil
  }

  /// What the vault is protected with; nil when there is no vault yet.
  func protection() throws(StorageError) -> SecureVault.Protection? {
    try storage.readHeader()?.0.masterSlot?.protection
  }
}
#endif
