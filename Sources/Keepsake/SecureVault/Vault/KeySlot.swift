#if SecureVault
/// One way into a vault: a key, wrapped under one that is derived from a secret.
///
///     0  kind   1  purpose   2  scrypt's log N   3  length of the locator   4  the locator
///     then  salt (32 bytes)   commitment (32)   box of the wrapped key (72)
struct KeySlot: Equatable, Sendable {
  enum Kind: UInt8, Sendable {
    case keyFile = 1
    case passphrase = 2
    case credential = 3
    case closure = 4
  }

  enum Purpose: UInt8, Sendable {
    /// Opens the vault.
    case master = 1
    /// Opens the values that need a person's presence.
    case presence = 2
  }

  let kind: Kind
  let purpose: Purpose
  /// 0 where the secret is no passphrase.
  let logN: UInt8
  /// Which key of the key file, or the source's name.
  let locator: [UInt8]
  private let salt: [UInt8]
  private var commitment: [UInt8]
  private var box: [UInt8]

  /// In bytes.
  static let maxLocatorSize = 255

  /// 128 MiB and about half a second, which is current practice for what lies in files.
  static let defaultLogN: UInt8 = 17
  /// A file is not to make anyone use more than 1 GiB.
  private static let acceptedLogN: ClosedRange<UInt8> = 10...20
  private static let saltSize = 32
  private static let boxSize = XAES.keySize + XAES.overhead
  private static let info = Array("Keepsake vault 1 slot".utf8)
  private static let context = Array("Keepsake vault 1 wrapped key".utf8)

  /// What is the slot's own, before salt and keys.
  private var head: [UInt8] {
    [kind.rawValue, purpose.rawValue, logN, UInt8(clamping: locator.count)] + locator
  }

  var bytes: [UInt8] { head + salt + commitment + box }

  init?(_ reader: inout ByteReader) {
    guard let kind = reader.number(UInt8.self).flatMap({ Kind(rawValue: $0) }),
      let purpose = reader.number(UInt8.self).flatMap({ Purpose(rawValue: $0) }),
      let logN = reader.number(UInt8.self), let length = reader.number(UInt8.self),
      let locator = reader.array(Int(length)), let salt = reader.array(Self.saltSize),
      let commitment = reader.array(Digest.size), let box = reader.array(Self.boxSize)
    else { return nil }
    guard kind == .passphrase ? Self.acceptedLogN.contains(logN) : logN == 0 else { return nil }
    self.kind = kind
    self.purpose = purpose
    self.logN = logN
    self.locator = locator
    self.salt = salt
    self.commitment = commitment
    self.box = box
  }

  /// Wraps a key for whoever has the secret.
  init(
    wrapping key: UnsafeRawBufferPointer, purpose: Purpose, vaultID: [UInt8],
    for secret: SlotSecret
  ) throws(StorageError) {
    kind = secret.kind
    self.purpose = purpose
    logN = secret.logN
    locator = secret.locator
    salt = try OpenSSL.randomBytes(Self.saltSize)
    (commitment, box) = ([], [])
    let derived = try derive(secret.bytes)
    commitment = Array(derived.bytes[XAES.keySize...])
    box = try XAES.seal(
      key, key: UnsafeRawBufferPointer(derived.bytes)[part: ..<XAES.keySize],
      authenticating: authenticated(vaultID))
  }

  enum Outcome { case opened, wrongSecret, damaged }

  /// Whether that is the slot's secret.
  func isOpened(by secret: UnsafeRawBufferPointer) throws(StorageError) -> Bool {
    commits(to: try derive(secret))
  }

  private func commits(to derived: borrowing SecretBytes) -> Bool {
    let expected = UnsafeRawBufferPointer(derived.bytes)[part: XAES.keySize...]
    return commitment.withBytes { OpenSSL.areEqual($0, expected) }
  }

  /// Unwraps the key into `key`.
  ///
  /// The commitment is compared first: it tells a wrong secret from damage, and no box opens under
  /// two secrets.
  func unwrap(
    _ secret: UnsafeRawBufferPointer, vaultID: [UInt8], into key: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Outcome {
    let derived = try derive(secret)
    guard commits(to: derived) else { return .wrongSecret }
    let derivedBytes = UnsafeRawBufferPointer(derived.bytes)
    let context = authenticated(vaultID)
    let isOpen = try box.withBytes { box throws(StorageError) in
      try XAES.open(
        box, key: derivedBytes[part: ..<XAES.keySize], authenticating: context, into: key)
    }
    return isOpen ? .opened : .damaged
  }

  private func authenticated(_ vaultID: [UInt8]) -> [UInt8] {
    Self.context + vaultID + head + salt
  }

  /// The key that wraps, and what commits to it.
  private func derive(_ secret: UnsafeRawBufferPointer) throws(StorageError) -> SecretBytes {
    let output = try SecretBytes(count: XAES.keySize + Digest.size)
    if kind == .passphrase {
      try salt.withBytes { salt throws(StorageError) in
        try KeyDerivation.scrypt(secret, salt: salt, logN: logN, into: output.bytes)
      }
    } else {
      try KeyDerivation.hkdf(secret, salt: salt, info: Self.info, into: output.bytes)
    }
    return output
  }
}
#endif
