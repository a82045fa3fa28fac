#if SecureVault
/// The key to the values that need a person's presence, while it is needed.
final class PresenceKey {
  /// Where it was unwrapped from.
  let slot: KeySlot
  private let key: SecretBytes

  init(slot: KeySlot, _ key: consuming SecretBytes) {
    self.slot = slot
    self.key = key
  }

  var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(key.bytes) }

  /// A box of its own around a value.
  func seal(
    _ kind: Payload.Kind, _ value: UnsafeRawBufferPointer, _ place: EntryPath, vaultID: [UInt8]
  ) throws(StorageError) -> [UInt8] {
    let prefix = PaddedValue.prefix(kind: kind.rawValue, length: value.count)
    let content = try SecretBytes(count: PaddedValue.paddedLength(value.count))
    content.bytes.initializeMemory(as: UInt8.self, repeating: 0)
    content.bytes.copyBytes(from: prefix)
    content.bytes[part: prefix.count...].copyMemory(from: value)
    return try XAES.seal(
      UnsafeRawBufferPointer(content.bytes), key: bytes,
      authenticating: place.context([], vaultID: vaultID, box: .presence))
  }

  /// The plaintext of a box that ``seal(_:_:_:vaultID:)`` made; nil when it is not that.
  func open(
    _ box: UnsafeRawBufferPointer, _ place: EntryPath, vaultID: [UInt8]
  ) throws(StorageError) -> SecretBytes? {
    let content = try SecretBytes(count: max(0, box.count - XAES.overhead))
    let isOpen = try XAES.open(
      box, key: bytes, authenticating: place.context([], vaultID: vaultID, box: .presence),
      into: content.bytes)
    if isOpen { return content }
    return nil
  }
}

extension Vault {
  /// Opens the box in a value's plaintext, after asking whoever is present.
  func openPresenceBox(
    _ plaintext: consuming SecretBytes, _ place: EntryPath, _ header: VaultHeader, reason: String
  ) throws(StorageError) -> SecretBytes {
    let bytes = UnsafeRawBufferPointer(plaintext.bytes)
    guard let (kind, range) = PaddedValue.parse(bytes), kind == PaddedValue.boxKind else {
      throw SealedFile.damage("it has no box that needs presence", place)
    }
    guard let slot = header.presenceSlot else { throw presenceSlotMissing }
    let key = try presenceKey(slot, header, reason: reason)
    if let content = try key.open(bytes[part: range], place, vaultID: header.vaultID) {
      return content
    }
    throw SealedFile.damage("its bytes are not those that were sealed for this key", place)
  }

  private func presenceKey(
    _ slot: KeySlot, _ header: VaultHeader, reason: String
  ) throws(StorageError) -> PresenceKey {
    let typed = try ask(SecureVault.PassphraseRequest(reason: reason))
    let secret = try SecureVault.KeySource.secret(passphrase: typed, logN: slot.logN)
    let key = try SecretBytes(count: XAES.keySize)
    switch try slot.unwrap(secret.bytes, vaultID: header.vaultID, into: key.bytes) {
    case .opened: return PresenceKey(slot: slot, key)
    case .wrongSecret: throw wrongPassphrase("the one for secrets that need presence")
    case .damaged: throw presenceSlotMissing
    }
  }

  private var presenceSlotMissing: StorageError {
    StorageError(
      .damaged, operation: "open", path: location.headerPath,
      reason: "the vault's header has lost the way to the secrets that need presence",
      remedy: "Put a copy of this file back, from a backup; the secrets are untouched.")
  }

  /// The key to seal a value under, after asking whoever is present; the first time there is none,
  /// and a passphrase is chosen, or the one that the vault is under is taken.
  func presenceKeyForWriting(
    _ header: VaultHeader, reason: String
  ) throws(StorageError) -> PresenceKey {
    var header = header
    for _ in 0..<Self.maxAttempts {
      let isInUse = try withSession { session throws(StorageError) in
        try isPresenceKeyInUse(session)
      }
      if isInUse == true, let slot = header.presenceSlot {
        return try presenceKey(slot, header, reason: reason)
      }
      // Another process may have made it meanwhile.
      guard let current = try freshSession()?.header, current.hasSlots(of: header) else {
        header = try sessionForWriting().header
        continue
      }
      // Never a new key where there are secrets under another one.
      if isInUse == true { throw presenceSlotMissing }
      if let key = try newPresenceKey(header, reason: reason) { return key }
      header = try sessionForWriting().header
    }
    throw headerKeepsChanging
  }

  /// nil when the header has changed meanwhile.
  private func newPresenceKey(
    _ header: VaultHeader, reason: String
  ) throws(StorageError) -> PresenceKey? {
    let own = header.masterSlot.flatMap { $0.kind == .passphrase ? $0 : nil }
    let typed = try ask(SecureVault.PassphraseRequest(reason: reason, isNew: own == nil))
    let secret = try SecureVault.KeySource.secret(
      passphrase: typed, logN: own?.logN ?? KeySlot.defaultLogN)
    if let own, try !own.isOpened(by: secret.bytes) { throw wrongPassphrase("the vault's") }
    let key = try SecretBytes(count: XAES.keySize)
    try OpenSSL.randomize(key.bytes, forKey: true)
    let slot = try KeySlot(
      wrapping: UnsafeRawBufferPointer(key.bytes), purpose: .presence, vaultID: header.vaultID,
      for: secret)
    let masters = header.slots.filter { $0.purpose == .master }
    let isDone = try withSession { session throws(StorageError) -> Bool? in
      guard session.header.hasSlots(of: header) else { return false }
      // Somebody may have stored the first one under the key that would go now, while this one was
      // asked.
      var isInUse = false
      let replaced: Void? = try replaceHeader(of: session, slots: masters + [slot]) {
        () throws(StorageError) in
        isInUse = try isPresenceKeyInUse(session)
        return isInUse ? nil : try session.ring.keeping(session.ring.ids)
      }
      return isInUse ? false : replaced.map { true }
    }
    return isDone == true ? PresenceKey(slot: slot, key) : nil
  }

  /// The slots for the presence key in the header that protects the vault with `secret`: never
  /// fewer than before, as somebody may be storing the first value that needs it.
  func presenceSlots(
    _ header: VaultHeader, under secret: SlotSecret
  ) throws(StorageError) -> [KeySlot] {
    guard let slot = header.presenceSlot else { return [] }
    let isInUse = try withSession { session throws(StorageError) in
      try isPresenceKeyInUse(session)
    }
    guard secret.kind == .passphrase, isInUse == true else { return [slot] }
    let key = try SecretBytes(count: XAES.keySize)
    if case .opened = try slot.unwrap(secret.bytes, vaultID: header.vaultID, into: key.bytes) {
      return [slot]
    }
    let current = try presenceKey(slot, header, reason: "A new passphrase needs the current one")
    return [
      try KeySlot(
        wrapping: current.bytes, purpose: .presence, vaultID: header.vaultID, for: secret)
    ]
  }

  /// Whether any entry needs a person's presence, as its sealed names vouch for. One that cannot be
  /// opened may need it, if there is a key for that.
  private func isPresenceKeyInUse(_ session: VaultSession) throws(StorageError) -> Bool {
    for directory in try location.entryDirectories() {
      for place in try location.places(in: directory) {
        do throws(StorageError) {
          switch try SealedFile.read(place, .names, session) {
          case .missing: continue
          case .opened(let opened): if opened.head.isPresenceRequired { return true }
          case .unknownKey: if session.header.presenceSlot != nil { return true }
          }
        } catch {
          if error.isDescriptorLimit { throw error }
          if session.header.presenceSlot != nil { return true }
        }
      }
    }
    return false
  }
}
#endif
