#if SecureVault
/// The keys of an open vault, in memory that is shielded and wiped.
///
///     0  master key    32  key set: key for names (32 bytes), id of the primary entry key (4),
///                          number of entry keys (4), and for each its id (4) and the key (32)
final class KeyRing: Sendable {
  private let pages: KeyPages
  /// The key that seals.
  let primary: UInt32
  private let offsets: [UInt32: Int]
  /// What was made with the key for names.
  let entryPathCache = Locked(EntryPathCache())

  private static let nameKey = XAES.keySize..<(2 * XAES.keySize)
  private static let headSize = XAES.keySize + 8
  private static let entrySize = 4 + XAES.keySize
  private static let info = Array("Keepsake vault 1 key set".utf8)

  /// nil when the pages hold no key set.
  init?(_ pages: KeyPages) {
    var reader = ByteReader(UnsafeRawBufferPointer(pages.bytes)[part: XAES.keySize...])
    guard reader.take(XAES.keySize) != nil, let primary = reader.number(UInt32.self),
      let count = reader.number(UInt32.self)
    else { return nil }
    var offsets: [UInt32: Int] = [:]
    for _ in 0..<count {
      guard let id = reader.number(UInt32.self) else { return nil }
      offsets[id] = XAES.keySize + reader.position
      guard reader.take(XAES.keySize) != nil else { return nil }
    }
    guard offsets.count == Int(count), offsets[primary] != nil, reader.isAtEnd else { return nil }
    self.pages = pages
    self.primary = primary
    self.offsets = offsets
  }

  var ids: Set<UInt32> { Set(offsets.keys) }
  /// Why the keys may reach swap space or a dump; nil when they may not.
  var shieldFailure: StorageError? { pages.lockFailure }

  // MARK: Use

  /// Calls `body` with the master key, which opens the key set.
  func withMaster<R: ~Copyable, E: Error>(
    _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    try with(0..<XAES.keySize, body)
  }

  /// Calls `body` with the key for names, which never changes.
  func withNameKey<R: ~Copyable, E: Error>(
    _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    try with(Self.nameKey, body)
  }

  func hasKey(_ id: UInt32) -> Bool { offsets[id] != nil }

  /// Calls `body` with the entry key of that id; nil when there is none.
  func withEntryKey<R: ~Copyable, E: Error>(
    _ id: UInt32, _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R? {
    guard let offset = offsets[id] else { return nil }
    return try with(offset..<(offset + XAES.keySize), body)
  }

  private func with<R: ~Copyable, E: Error>(
    _ range: Range<Int>, _ body: (UnsafeRawBufferPointer) throws(E) -> R
  ) throws(E) -> R {
    defer { withExtendedLifetime(pages) {} }
    return try body(UnsafeRawBufferPointer(pages.bytes)[part: range])
  }

  // MARK: Sealing and opening

  /// The header of a vault with these keys.
  func header(vaultID: [UInt8], slots: [KeySlot]) throws(StorageError) -> VaultHeader {
    var header = VaultHeader(vaultID: vaultID, slots: slots)
    let keySetKey = try withMaster { master throws(StorageError) in
      try Self.keySetKey(master, vaultID)
    }
    header.keySetBox = try with(XAES.keySize..<pages.bytes.count) { keySet throws(StorageError) in
      try XAES.seal(
        keySet, key: UnsafeRawBufferPointer(keySetKey.bytes), authenticating: header.prefix)
    }
    return header
  }

  /// The keys of a vault whose master key `unwrap` puts in place; nil when that one does not open
  /// them.
  static func open(
    _ header: VaultHeader, unwrap: (UnsafeMutableRawBufferPointer) throws(StorageError) -> Void
  ) throws(StorageError) -> KeyRing? {
    let count = header.keySetBox.count - XAES.overhead
    guard count >= headSize else { return nil }
    let pages = try KeyPages(count: XAES.keySize + count)
    try unwrap(pages.bytes[part: ..<XAES.keySize])
    let master = UnsafeRawBufferPointer(pages.bytes)[part: ..<XAES.keySize]
    let keySetKey = try keySetKey(master, header.vaultID)
    let isOpen = try header.keySetBox.withBytes { box throws(StorageError) in
      try XAES.open(
        box, key: UnsafeRawBufferPointer(keySetKey.bytes), authenticating: header.prefix,
        into: pages.bytes[part: XAES.keySize...])
    }
    return isOpen ? KeyRing(pages) : nil
  }

  private static func keySetKey(
    _ master: UnsafeRawBufferPointer, _ vaultID: [UInt8]
  ) throws(StorageError) -> SecretBytes {
    let key = try SecretBytes(count: XAES.keySize)
    try KeyDerivation.hkdf(master, salt: vaultID, info: info, into: key.bytes)
    return key
  }

  // MARK: New keys

  /// All keys of a new vault.
  static func makeNew() throws(StorageError) -> KeyRing {
    try make(from: nil, keeping: [], newMaster: true, addsPrimary: true)
  }

  /// The same keys and a new primary one, under a new master key if asked for.
  func addingPrimary(newMaster: Bool) throws(StorageError) -> KeyRing {
    try Self.make(from: self, keeping: ids, newMaster: newMaster, addsPrimary: true)
  }

  /// The primary entry key and, of the others, those.
  func keeping(_ others: Set<UInt32>) throws(StorageError) -> KeyRing {
    let kept = ids.intersection(others.union([primary]))
    return try Self.make(from: self, keeping: kept, newMaster: false, addsPrimary: false)
  }

  private static func make(
    from old: KeyRing?, keeping ids: Set<UInt32>, newMaster: Bool, addsPrimary: Bool
  ) throws(StorageError) -> KeyRing {
    let count = ids.count + (addsPrimary ? 1 : 0)
    let pages = try KeyPages(count: XAES.keySize + headSize + count * entrySize)
    var position = 0
    /// The old key that stands there, or else a new one.
    func putKey(_ offset: Int?) throws(StorageError) {
      let place = pages.bytes[part: position..<(position + XAES.keySize)]
      if let old, let offset {
        old.with(offset..<(offset + XAES.keySize)) { place.copyMemory(from: $0) }
      } else {
        try OpenSSL.randomize(place, forKey: true)
      }
      position += XAES.keySize
    }
    func putNumber(_ number: UInt32) {
      pages.bytes.storeBytes(of: number.littleEndian, toByteOffset: position, as: UInt32.self)
      position += 4
    }
    try putKey(newMaster ? nil : 0)
    try putKey(nameKey.lowerBound)
    var primary = old?.primary ?? 0
    if addsPrimary {
      // Random and not the next number, which may be in use where an old header was put back.
      repeat { primary = UInt32.random(in: 1 ... .max) } while ids.contains(primary)
    }
    putNumber(primary)
    putNumber(UInt32(count))
    for id in ids.sorted() {
      putNumber(id)
      try putKey(old?.offsets[id])
    }
    if addsPrimary {
      putNumber(primary)
      try putKey(nil)
    }
    guard let ring = KeyRing(pages) else { throw OpenSSL.failure("a key set") }
    return ring
  }
}
#endif
