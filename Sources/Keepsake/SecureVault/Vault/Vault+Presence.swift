#if SecureVault
/// The key under which values that require the user's presence are sealed.
///
/// It lives only while it is needed.
final class PresenceKey {
  /// The key slot that it was unwrapped from.
  let slot: KeySlot
  private let key: SecretBytes

  init(slot: KeySlot, _ key: consuming SecretBytes) {
    self.slot = slot
    self.key = key
  }

  var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(key.bytes) }

  /// Seals a value in a separate box, which becomes the value of the entry.
  func seal(_ secret: NewSecret, vaultID: [UInt8]) throws(StorageError) -> SecretBytes {
    let box = try SecretBytes(
      count: PaddedValue.paddedLength(secret.value.count) + XAES.overhead)
    let memory = box.bytes
    try SystemRandom.fill(memory[part: ..<XAES.nonceSize])
    PaddedValue.write(secret.kind.rawValue, secret.value, to: XAES.message(in: memory))
    let associatedData = KeyRing.presenceAssociatedData(
      secret.service, secret.key, vaultID: vaultID)
    try associatedData.withBytes { data throws(StorageError) in
      try XAES(key: bytes).seal(memory, authenticating: data)
    }
    return box
  }
}

extension Vault {
  /// Asks the user for the passphrase of the key that opens an entry's value.
  func presenceKey(
    for entry: borrowing OpenedEntry, in header: VaultHeader, reason: String
  ) throws(StorageError) -> PresenceKey {
    guard entry.kind == PaddedValue.boxKind else {
      throw entry.path.damageError("its value is not sealed for user presence")
    }
    guard let slot = header.presenceSlot else { throw presenceSlotMissing }
    return try askForPresenceKey(in: slot, header, reason: reason)
  }

  private func askForPresenceKey(
    in slot: KeySlot, _ header: VaultHeader, reason: String
  ) throws(StorageError) -> PresenceKey {
    let passphrase = try askForPassphrase(SecureVault.PassphraseRequest(reason: reason))
    let secret = try SecureVault.KeySource.secret(passphrase: passphrase, logN: slot.logN)
    let key = try SecretBytes(count: XAES.keySize)
    switch try slot.unwrap(with: secret.bytes, vaultID: header.vaultID, into: key.bytes) {
    case .unwrapped: return PresenceKey(slot: slot, key)
    case .wrongSecret: throw wrongPassphrase("for secrets that require user presence")
    case .damaged: throw presenceSlotMissing
    }
  }

  private var presenceSlotMissing: StorageError {
    VaultHeader.damageError(
      storage.headerPath,
      "the vault header has no usable key slot for secrets that require user presence")
  }

  /// The key to seal a value under, after asking the user.
  ///
  /// If no secret requires presence yet, a new key is made under the vault's passphrase, or under
  /// one that the user chooses.
  func presenceKeyForWriting(
    _ header: VaultHeader, reason: String
  ) throws(StorageError) -> PresenceKey {
    var header = header
    for _ in 0..<Self.maxAttempts {
      let isInUse = try isPresenceKeyInUse()
      // Another process may have made or replaced one since the header was read.
      guard let current = try currentSession()?.header, current.hasSlots(of: header) else {
        header = try sessionForWriting().header
        continue
      }
      if isInUse {
        // Never make a new key while there are secrets under another one.
        guard let slot = header.presenceSlot else { throw presenceSlotMissing }
        return try askForPresenceKey(in: slot, header, reason: reason)
      }
      if let key = try makePresenceKey(header, reason: reason) { return key }
      header = try sessionForWriting().header
    }
    throw headerKeepsChanging
  }

  private func isPresenceKeyInUse() throws(StorageError) -> Bool {
    let isInUse = try withSession { session throws(StorageError) -> Bool? in
      let isInUse = try session.hasEntryRequiringPresence()
      return try session.isCurrent() ? isInUse : nil
    }
    return isInUse ?? false
  }

  /// Makes a presence key and adds its slot to the header; nil when the header has changed.
  private func makePresenceKey(
    _ header: VaultHeader, reason: String
  ) throws(StorageError) -> PresenceKey? {
    let vaultSlot = header.masterSlot.flatMap { $0.kind == .passphrase ? $0 : nil }
    let passphrase = try askForPassphrase(
      SecureVault.PassphraseRequest(reason: reason, isNew: vaultSlot == nil))
    let secret = try SecureVault.KeySource.secret(
      passphrase: passphrase, logN: vaultSlot?.logN ?? KeySlot.defaultLogN)
    if let vaultSlot, try !vaultSlot.isOpened(by: secret.bytes) {
      throw wrongPassphrase("for the vault")
    }
    let key = try SecretBytes(count: XAES.keySize)
    try SystemRandom.fill(key.bytes)
    let slot = try KeySlot(
      wrapping: UnsafeRawBufferPointer(key.bytes), purpose: .presence, vaultID: header.vaultID,
      for: secret)
    let isDone = try withSession { session throws(StorageError) -> Bool? in
      guard session.header.hasSlots(of: header) else { return false }
      // While the user was asked, another process may have stored a secret under the presence key
      // that this would replace.
      var isInUse = false
      let replaced: Void? = try replaceHeader(of: session, slots: header.slots + [slot]) {
        () throws(StorageError) in
        isInUse = try session.hasEntryRequiringPresence()
        return isInUse ? nil : session.ring
      }
      return isInUse ? false : replaced.map { true }
    }
    return isDone == true ? PresenceKey(slot: slot, key) : nil
  }

  /// The presence key's slots in the header that will protect the vault with `secret`.
  ///
  /// There are never fewer than before: another process may be about to store the first value under
  /// that key.
  ///
  /// - Returns: The slots, and whether they are right only as long as no secret requires presence.
  func presenceSlots(
    _ header: VaultHeader, under secret: SlotSecret
  ) throws(StorageError) -> (slots: [KeySlot], areForNoSecrets: Bool) {
    guard let slot = header.presenceSlot else { return ([], false) }
    guard secret.kind == .passphrase else { return ([slot], false) }
    guard try isPresenceKeyInUse() else { return ([slot], true) }
    let key = try SecretBytes(count: XAES.keySize)
    let result = try slot.unwrap(with: secret.bytes, vaultID: header.vaultID, into: key.bytes)
    if case .unwrapped = result { return ([slot], false) }
    let current = try askForPresenceKey(
      in: slot, header, reason: "To change the passphrase, enter the current one")
    let newSlot = try KeySlot(
      wrapping: current.bytes, purpose: .presence, vaultID: header.vaultID, for: secret)
    return ([newSlot], false)
  }
}
#endif
