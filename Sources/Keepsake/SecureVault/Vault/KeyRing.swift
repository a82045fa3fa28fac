#if SecureVault
/// The keys of an open vault, in memory that is shielded and wiped.
///
///     0   master key (32 bytes)
///     32  key set: number of name keys (4), the name keys (32 each), id of the primary entry key
///         (4), number of entry keys (4), and for each its id (4) and the key (32)
///     then number of presence slots (2), and the slots
///
/// The first name key is the primary one. The others, newest first, are there while entries are
/// moved to their names under the primary key.
final class KeyRing: Sendable {
  private let pages: KeyPages
  let nameKeyCount: Int
  /// The id of the entry key that new entries are sealed under.
  let primaryID: UInt32
  private let offsets: [UInt32: Int]
  /// Apart from the others, because most calls use it.
  private let primaryOffset: Int
  private let keySetEnd: Int
  /// The slots that the key set's box had besides the keys.
  let sealedSlots: [KeySlot]

  private static let nameKeysStart = XAES.keySize + 4
  private static let minKeySetSize = 4 + XAES.keySize + 8
  private static let recordSize = 4 + XAES.keySize
  private static let info = Array("Keepsake vault 1 key set".utf8)

  /// nil when the pages do not hold a valid key set.
  init?(_ pages: KeyPages) throws(StorageError) {
    var reader = ByteReader(UnsafeRawBufferPointer(pages.bytes)[part: XAES.keySize...])
    guard let nameKeyCount = reader.number(UInt32.self), nameKeyCount > 0,
      reader.take(Int(nameKeyCount) * XAES.keySize) != nil,
      let primaryID = reader.number(UInt32.self), let count = reader.number(UInt32.self)
    else { return nil }
    var offsets: [UInt32: Int] = [:]
    for _ in 0..<count {
      guard let id = reader.number(UInt32.self) else { return nil }
      offsets[id] = XAES.keySize + reader.position
      guard reader.take(XAES.keySize) != nil else { return nil }
    }
    keySetEnd = XAES.keySize + reader.position
    var slots: [KeySlot] = []
    guard let slotCount = reader.number(UInt16.self), slotCount <= VaultHeader.maxSlotCount
    else { return nil }
    for _ in 0..<slotCount {
      guard let slot = try KeySlot(&reader, path: nil), !slot.opensVault else { return nil }
      slots.append(slot)
    }
    guard offsets.count == Int(count), let primaryOffset = offsets[primaryID], reader.isAtEnd
    else { return nil }
    sealedSlots = slots
    self.pages = pages
    self.nameKeyCount = Int(nameKeyCount)
    self.primaryID = primaryID
    self.offsets = offsets
    self.primaryOffset = primaryOffset
  }

  /// The ids of all entry keys.
  var keyIDs: Set<UInt32> { Set(offsets.keys) }
  /// Why the keys may reach swap space or a core dump; nil when they cannot.
  var shieldFailure: StorageError? { pages.shieldFailure }
  var lease: KeyPages.Lease { pages.lease }

  // MARK: Using keys

  /// Calls `body` with the master key, which opens the key set.
  func withMasterKey<R: ~Copyable, E: Error>(
    _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    try withBytes(in: 0..<XAES.keySize, body)
  }

  /// Calls `body` with a name key; 0 is the primary one.
  func withNameKey<R: ~Copyable, E: Error>(
    _ number: Int = 0, _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    let start = Self.nameKeysStart + number * XAES.keySize
    return try withBytes(in: start..<(start + XAES.keySize), body)
  }

  func hasKey(_ id: UInt32) -> Bool { id == primaryID || offsets[id] != nil }

  /// Calls `body` with the entry key of this id; nil when there is none.
  func withEntryKey<R: ~Copyable, E: Error>(
    _ id: UInt32, _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R? {
    guard let offset = id == primaryID ? primaryOffset : offsets[id] else { return nil }
    return try withBytes(in: offset..<(offset + XAES.keySize), body)
  }

  private func withBytes<R: ~Copyable, E: Error>(
    in range: Range<Int>, _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    defer { withExtendedLifetime(pages) {} }
    return try body(UnsafeRawBufferPointer(pages.bytes)[part: range])
  }

  // MARK: Sealing and opening

  /// A key slot that wraps the master key.
  func makeSlot(
    _ purpose: KeySlot.Purpose = .master, vaultID: [UInt8], for secret: SlotSecret
  ) throws(StorageError) -> KeySlot {
    try withMasterKey { masterKey throws(StorageError) in
      try KeySlot(wrapping: masterKey, purpose: purpose, vaultID: vaultID, for: secret)
    }
  }

  /// The header of a vault with these keys.
  func makeHeader(
    vaultID: [UInt8], slots: [KeySlot], context: String
  ) throws(StorageError) -> VaultHeader {
    var header = VaultHeader(vaultID: vaultID, slots: slots, context: context)
    let keySetKey = try withMasterKey { masterKey throws(StorageError) in
      try Self.keySetKey(masterKey, vaultID)
    }
    var sealedSlots: [UInt8] = []
    sealedSlots.append(number: UInt16(header.sealedSlots.count))
    for slot in header.sealedSlots { sealedSlots += slot.bytes }
    let keySet = XAES.keySize..<keySetEnd
    let plaintext = try SecretBytes(count: keySet.count + sealedSlots.count)
    withBytes(in: keySet) { plaintext.bytes.copyMemory(from: $0) }
    plaintext.bytes[part: keySet.count...].copyBytes(from: sealedSlots)
    header.keySetBox = try XAES.seal(
      UnsafeRawBufferPointer(plaintext.bytes), key: UnsafeRawBufferPointer(keySetKey.bytes),
      authenticating: header.associatedData)
    return header
  }

  /// The keys of a vault; nil when the master key does not open its key set.
  ///
  /// - Parameter unwrap: Writes the master key to the memory that it is given.
  static func open(
    _ header: VaultHeader, unwrap: (UnsafeMutableRawBufferPointer) throws(StorageError) -> Void
  ) throws(StorageError) -> KeyRing? {
    let count = header.keySetBox.count - XAES.overhead
    guard count >= minKeySetSize else { return nil }
    let pages = try KeyPages(count: XAES.keySize + count)
    try unwrap(pages.bytes[part: ..<XAES.keySize])
    let masterKey = UnsafeRawBufferPointer(pages.bytes)[part: ..<XAES.keySize]
    let keySetKey = try keySetKey(masterKey, header.vaultID)
    let isAuthentic = try header.keySetBox.withBytes { box throws(StorageError) in
      try XAES.open(
        box, key: UnsafeRawBufferPointer(keySetKey.bytes), authenticating: header.associatedData,
        into: pages.bytes[part: XAES.keySize...])
    }
    return isAuthentic ? try KeyRing(pages) : nil
  }

  /// The key that the key set is sealed under.
  private static func keySetKey(
    _ masterKey: UnsafeRawBufferPointer, _ vaultID: [UInt8]
  ) throws(StorageError) -> SecretBytes {
    let key = try SecretBytes(count: XAES.keySize)
    try KeyDerivation.hkdf(masterKey, salt: vaultID, info: info, into: key.bytes)
    return key
  }

  // MARK: Making keys

  /// All keys of a new vault.
  static func makeNew() throws(StorageError) -> KeyRing {
    try make(from: nil, keeping: [], nameKeyCount: 0, newMasterKey: true, addsPrimaryKey: true)
  }

  /// The same keys and a new primary entry key; if asked for, also a new primary name key, under a
  /// new master key.
  func addingPrimaryKey(newMasterKey: Bool) throws(StorageError) -> KeyRing {
    try Self.make(
      from: self, keeping: keyIDs, nameKeyCount: nameKeyCount, newMasterKey: newMasterKey,
      addsPrimaryKey: true)
  }

  /// The primary keys, of the other entry keys those with these ids, and the other name keys if
  /// asked for.
  func keepingKeys(
    _ ids: Set<UInt32>, keepsOldNames: Bool
  ) throws(StorageError) -> KeyRing {
    try Self.make(
      from: self, keeping: keyIDs.intersection(ids.union([primaryID])),
      nameKeyCount: keepsOldNames ? nameKeyCount : 1, newMasterKey: false, addsPrimaryKey: false)
  }

  private static func make(
    from old: KeyRing?, keeping ids: Set<UInt32>, nameKeyCount: Int, newMasterKey: Bool,
    addsPrimaryKey: Bool
  ) throws(StorageError) -> KeyRing {
    let count = ids.count + (addsPrimaryKey ? 1 : 0)
    let newNameKeyCount = nameKeyCount + (newMasterKey ? 1 : 0)
    // It ends with a number of 0 slots.
    let pages = try KeyPages(
      count: nameKeysStart + newNameKeyCount * XAES.keySize + 8 + count * recordSize + 2)
    var writer = ByteWriter(pages.bytes)
    /// Copies the old key at `offset`, or makes a new one if that is nil.
    func putKey(_ offset: Int?) throws(StorageError) {
      if let old, let offset {
        old.withBytes(in: offset..<(offset + XAES.keySize)) { writer.append($0) }
      } else {
        try SystemRandom.fill(pages.bytes[part: writer.count..<(writer.count + XAES.keySize)])
        writer.skip(XAES.keySize)
      }
    }
    try putKey(newMasterKey ? nil : 0)
    writer.append(UInt32(newNameKeyCount))
    if newMasterKey { try putKey(nil) }
    for number in 0..<nameKeyCount { try putKey(nameKeysStart + number * XAES.keySize) }
    var primaryID = old?.primaryID ?? 0
    if addsPrimaryKey {
      // Random, because the next number may be in use if an old header was restored.
      repeat {
        primaryID = try SystemRandom.bytes(4).reduce(0) { $0 << 8 | UInt32($1) }
      } while primaryID == 0 || ids.contains(primaryID)
    }
    writer.append(primaryID)
    writer.append(UInt32(count))
    for id in ids.sorted() {
      writer.append(id)
      try putKey(old?.offsets[id])
    }
    if addsPrimaryKey {
      writer.append(primaryID)
      try putKey(nil)
    }
    guard let ring = try KeyRing(pages) else {
      throw OpenSSL.inputError("the new key set is not valid")
    }
    return ring
  }
}
#endif
