#if SecureVault
/// A vault header: its id, the key slots that open it, and the sealed key set.
///
/// The article on the vault format describes it. All integers are little-endian:
///
///     0   "KVH1"   4  version   5  cipher suite   6  number of slots (2)   8  vault id (16)
///     24  the slots, the length of the key set's box (4), the box, SHA-256 of all before
///
/// The presence slots are sealed with the key set: a copy of the header alone does not let anyone
/// guess the passphrase.
///
/// The checksum tells damage from a wrong key. It does not prevent forgery: for that, the key set's
/// box authenticates everything before it.
package struct VaultHeader: Equatable, Sendable {
  /// Names the vault where a server could put another one in its place; see
  /// ``VaultStorage/context``.
  let context: String
  var vaultID: [UInt8]
  /// The slots that are not sealed.
  var slots: [KeySlot]
  /// The slots in the key set's box; empty until the vault is open.
  var sealedSlots: [KeySlot] = []
  var keySetBox: [UInt8]

  /// The slot of the source that protects the vault. Every vault has one.
  var masterSlot: KeySlot? { slots.first { $0.purpose == .master } }
  var presenceSlot: KeySlot? { sealedSlots.first }
  var allSlots: [KeySlot] { slots + sealedSlots }
  /// Whether a passphrase or a recovery code opens the vault.
  var hasTypedSlot: Bool { slots.contains(where: \.isTyped) }

  /// Whether both are headers of the same vault with the same slots; its keys may differ.
  func hasSlots(of other: VaultHeader) -> Bool {
    vaultID == other.vaultID && slots == other.slots && sealedSlots == other.sealedSlots
  }

  static let idSize = 16
  package static let maxSize = 1 << 20
  private static let signature: [UInt8] = Array("KVH1".utf8)
  static let maxSlotCount = 16

  /// The associated data of the key set's box: the header up to that box, and the context.
  var associatedData: [UInt8] {
    var bytes = prefix
    bytes.append(number: UInt32(clamping: context.utf8.count))
    bytes.append(contentsOf: context.utf8)
    return bytes
  }

  /// The header up to the key set's box.
  private var prefix: [UInt8] {
    var bytes = Self.signature
    bytes.append(VaultFormat.version)
    bytes.append(VaultFormat.cipherSuite)
    bytes.append(number: UInt16(slots.count))
    bytes.append(contentsOf: vaultID)
    for slot in slots { bytes.append(contentsOf: slot.bytes) }
    return bytes
  }

  func bytes() throws(StorageError) -> [UInt8] {
    var bytes = prefix
    bytes.append(number: UInt32(keySetBox.count))
    bytes.append(contentsOf: keySetBox)
    bytes.append(contentsOf: try bytes.withBytes(Digest.sha256))
    return bytes
  }

  /// The bytes, unless they could not be read again: such a header must not replace one that can.
  package func bytesToStore(path: String) throws(StorageError) -> [UInt8] {
    let bytes = try bytes()
    if bytes.count <= Self.maxSize, try VaultHeader(bytes, path: path).bytes() == bytes {
      return bytes
    }
    throw StorageError(
      .misuse, operation: "open", path: path,
      reason: "the vault header has no room for another key",
      remedy: "Remove the damaged secrets: the header keeps old keys for them.")
  }

  /// - Parameter keySetBox: Empty if the key set is sealed later.
  init(vaultID: [UInt8], slots: [KeySlot], context: String, keySetBox: [UInt8] = []) {
    self.context = context
    self.vaultID = vaultID
    self.slots = slots.filter(\.opensVault)
    sealedSlots = slots.filter { !$0.opensVault }
    self.keySetBox = keySetBox
  }

  package init(_ bytes: [UInt8], path: String, context: String = "") throws(StorageError) {
    let parsed = try bytes.withBytes { bytes throws(StorageError) -> VaultHeader? in
      var reader = ByteReader(bytes)
      guard reader.take(4)?.elementsEqual(Self.signature) == true else {
        throw Self.foreignError(path)
      }
      guard bytes.count > Digest.size else { return nil }
      let sum = try Digest.sha256(bytes[part: ..<(bytes.count - Digest.size)])
      guard bytes[part: (bytes.count - Digest.size)...].elementsEqual(sum) else { return nil }
      guard reader.number() == VaultFormat.version, reader.number() == VaultFormat.cipherSuite
      else { throw Self.newerVersionError(path) }
      guard let count = reader.number(UInt16.self), count <= Self.maxSlotCount,
        let vaultID = reader.array(Self.idSize)
      else { return nil }
      var slots: [KeySlot] = []
      for _ in 0..<count {
        guard let slot = try KeySlot(&reader, path: path), slot.opensVault else { return nil }
        slots.append(slot)
      }
      guard let length = reader.number(UInt32.self), let box = reader.array(Int(length)),
        reader.take(Digest.size) != nil, reader.isAtEnd
      else { return nil }
      return VaultHeader(vaultID: vaultID, slots: slots, context: context, keySetBox: box)
    }
    guard let parsed else { throw Self.damageError(path) }
    self = parsed
  }

  static func foreignError(_ path: String) -> StorageError {
    StorageError(
      .damaged, operation: "open", path: path, reason: "the file is not a vault header",
      remedy: "Move it away, or restore the right file from a backup; the secrets are untouched.")
  }

  package static func damageError(
    _ path: String, _ reason: String = "the vault header is damaged"
  ) -> StorageError {
    StorageError(
      .damaged, operation: "open", path: path, reason: reason,
      remedy: "Restore it from a backup; the secrets are untouched.")
  }

  static func newerVersionError(_ path: String?) -> StorageError {
    StorageError(
      .unsupportedVersion, operation: "open", path: path,
      reason: "a newer version of Keepsake wrote this vault header",
      remedy: "Update Keepsake; nothing was changed.")
  }
}
#endif
