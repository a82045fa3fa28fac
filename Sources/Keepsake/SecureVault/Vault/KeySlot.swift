#if SecureVault
/// A key slot of the vault header: a key, wrapped under one that is derived from a secret.
///
///     0  kind   1  purpose   2  scrypt's log N   3  length of the locator   4  the locator
///     then  salt (32 bytes)   commitment (32)   box of the wrapped key (72)
struct KeySlot: Equatable, Sendable {
  enum Kind: UInt8, Sendable {
    case keyFile = 1
    case passphrase = 2
    case credential = 3
    case closure = 4
    case recoveryCode = 5

    /// What HKDF gets besides the secret, so that the same bytes as two kinds of secret give
    /// unrelated keys.
    fileprivate var info: [UInt8] {
      let name =
        switch self {
        case .keyFile: "key file"
        case .passphrase: "passphrase"
        case .credential: "credential"
        case .closure: "closure"
        case .recoveryCode: "recovery code"
        }
      return Array("Keepsake vault 1 slot: \(name)".utf8)
    }
  }

  enum Purpose: UInt8, Sendable {
    /// The slot wraps the master key for the source that protects the vault.
    case master = 1
    /// The slot wraps the key to values that require the user's presence.
    case presence = 2
    /// The slot wraps the master key for recovery, by a code or a second passphrase.
    case recovery = 3
  }

  let kind: Kind
  let purpose: Purpose
  /// scrypt's cost for a passphrase; 0 for other secrets.
  let logN: UInt8
  /// The id of the key in the key file, or the source's name.
  let locator: [UInt8]
  private let salt: [UInt8]
  private var commitment: [UInt8]
  private var box: [UInt8]

  /// In bytes.
  static let maxLocatorSize = 255

  /// 128 MiB and about half a second, which is current practice for data at rest.
  #if DEBUG
  @TaskLocal static var defaultLogN: UInt8 = 17
  #else
  static let defaultLogN: UInt8 = 17
  #endif
  /// ``PassphraseWorkBudget`` limits what a process does for a header.
  static let acceptedLogN: ClosedRange<UInt8> = 10...20
  private static let saltSize = 32
  private static let boxSize = XAES.keySize + XAES.overhead
  private static let domain = Array("Keepsake vault 1 wrapped key".utf8)

  /// The slot's fields before the salt.
  private var prefix: [UInt8] {
    [kind.rawValue, purpose.rawValue, logN, UInt8(clamping: locator.count)] + locator
  }

  /// Whether the slot wraps the key that opens the vault.
  var opensVault: Bool { purpose != .presence }
  /// Whether what opens the slot is entered by a user.
  var isTyped: Bool { kind == .passphrase || kind == .recoveryCode }
  /// Distinguishes the slots of a header, and changes with what opens the slot.
  var id: String { String(salt.prefix(4).reduce(0) { $0 << 8 | UInt32($1) }, radix: 16) }

  var bytes: [UInt8] { prefix + salt + commitment + box }

  /// nil if the bytes are not a slot.
  ///
  /// - Parameter path: The header's, for errors.
  init?(_ reader: inout ByteReader, path: String?) throws(StorageError) {
    guard let rawKind = reader.number(UInt8.self), let rawPurpose = reader.number(UInt8.self),
      let logN = reader.number(UInt8.self), let length = reader.number(UInt8.self),
      let locator = reader.array(Int(length)), let salt = reader.array(Self.saltSize),
      let commitment = reader.array(Digest.size), let box = reader.array(Self.boxSize),
      rawKind > 0, rawPurpose > 0
    else { return nil }
    guard let kind = Kind(rawValue: rawKind), let purpose = Purpose(rawValue: rawPurpose) else {
      throw VaultHeader.newerVersionError(path)
    }
    guard kind == .passphrase ? Self.acceptedLogN.contains(logN) : logN == 0,
      kind != .recoveryCode || purpose == .recovery
    else { return nil }
    self.kind = kind
    self.purpose = purpose
    self.logN = logN
    self.locator = locator
    self.salt = salt
    self.commitment = commitment
    self.box = box
  }

  /// Wraps a key under one that is derived from the secret.
  init(
    wrapping key: UnsafeRawBufferPointer, purpose: Purpose, vaultID: [UInt8],
    for secret: SlotSecret
  ) throws(StorageError) {
    kind = secret.kind
    self.purpose = purpose
    logN = secret.logN
    locator = secret.locator
    salt = try SystemRandom.bytes(Self.saltSize)
    (commitment, box) = ([], [])
    let derived = try derive(secret.bytes)
    commitment = Array(derived.bytes[XAES.keySize...])
    box = try XAES.seal(
      key, key: UnsafeRawBufferPointer(derived.bytes)[part: ..<XAES.keySize],
      authenticating: associatedData(vaultID))
  }

  enum UnwrapResult { case unwrapped, wrongSecret, damaged }

  /// Whether this is the slot's secret.
  func isOpened(by secret: UnsafeRawBufferPointer) throws(StorageError) -> Bool {
    commits(to: try derive(secret))
  }

  private func commits(to derived: borrowing SecretBytes) -> Bool {
    let expected = UnsafeRawBufferPointer(derived.bytes)[part: XAES.keySize...]
    return commitment.withBytes { OpenSSL.areEqual($0, expected) }
  }

  /// Unwraps the key into `key`.
  ///
  /// The commitment is compared first. It tells a wrong secret from damage, and rules out that a
  /// box opens under two secrets.
  func unwrap(
    with secret: UnsafeRawBufferPointer, vaultID: [UInt8],
    into key: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> UnwrapResult {
    let derived = try derive(secret)
    guard commits(to: derived) else { return .wrongSecret }
    let derivedBytes = UnsafeRawBufferPointer(derived.bytes)
    let associatedData = associatedData(vaultID)
    let isAuthentic = try box.withBytes { box throws(StorageError) in
      try XAES.open(
        box, key: derivedBytes[part: ..<XAES.keySize], authenticating: associatedData, into: key)
    }
    return isAuthentic ? .unwrapped : .damaged
  }

  private func associatedData(_ vaultID: [UInt8]) -> [UInt8] {
    Self.domain + vaultID + prefix + salt
  }

  /// The wrapping key, followed by the commitment to it.
  private func derive(_ secret: UnsafeRawBufferPointer) throws(StorageError) -> SecretBytes {
    let output = try SecretBytes(count: XAES.keySize + Digest.size)
    if kind == .passphrase {
      try salt.withBytes { salt throws(StorageError) in
        try KeyDerivation.scrypt(secret, salt: salt, logN: logN, into: output.bytes)
      }
    } else {
      try KeyDerivation.hkdf(secret, salt: salt, info: kind.info, into: output.bytes)
    }
    return output
  }
}

/// The secret that opens a key slot, and what the slot records about it.
///
/// It lives only while a slot is opened or made.
final class SlotSecret {
  let kind: KeySlot.Kind
  let logN: UInt8
  let locator: [UInt8]
  private let memory: SecretBytes

  var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(memory.bytes) }

  init(
    _ kind: KeySlot.Kind, locator: [UInt8] = [], logN: UInt8 = 0, _ memory: consuming SecretBytes
  ) {
    self.kind = kind
    self.locator = locator
    self.logN = logN
    self.memory = memory
  }
}
#endif
