#if SecureVault
public import FoundationEssentials
// The standard library has no other call for a normal form.
@_spi(_Unicode) internal import Swift

extension SecureVault {
  /// Where the key to a vault comes from.
  ///
  /// ``protect(with:service:)`` protects a vault with a source.
  /// ``StorageSystem/bootstrap(app:on:directories:engines:keySources:onFailure:authenticate:)``
  /// lists the sources that may open a vault without a call of `unlock`, and create a new one.
  ///
  /// ```swift
  /// guard SecureVault.protect(with: .passphrase(typed)) else { return }
  /// ```
  ///
  /// The article on the vault's threat model explains what each source protects against. Neither
  /// `print` nor `dump` shows a secret that a source holds.
  public struct KeySource: Sendable {
    enum Kind: Sendable {
      case keyFile
      case passphrase(String, logN: UInt8)
      case credential(String)
      case closure(String, @Sendable () throws -> Data)
    }

    let kind: Kind

    init(_ kind: Kind) { self.kind = kind }

    /// The sources that are used unless bootstrap names others: a systemd credential, then a key
    /// file.
    public static var standard: [Self] { [.credential(), .keyFile] }

    /// A random key in a file in the app's state directory. The file is created when it is first
    /// needed.
    ///
    /// The user is not asked for anything. Anyone who can read the user's whole home directory can
    /// read the secrets.
    public static var keyFile: Self { Self(.keyFile) }

    /// A passphrase, from which scrypt (RFC 7914) derives a key, using about half a second and 128
    /// MiB.
    ///
    /// It also opens a copy of the vault on another machine. The user may type it in any Unicode
    /// normalization. A `String` cannot be wiped from memory: a passphrase passed to bootstrap
    /// stays there while the process runs, and `unlock()` opens the vault with it after `lock()`.
    public static func passphrase(_ passphrase: String) -> Self {
      .passphrase(passphrase, logN: KeySlot.defaultLogN)
    }

    package static func passphrase(_ passphrase: String, logN: UInt8) -> Self {
      Self(.passphrase(passphrase, logN: logN))
    }

    /// A credential that systemd passes to the service, in `$CREDENTIALS_DIRECTORY/<name>`: at
    /// least 32 bytes that cannot be guessed.
    ///
    /// See `LoadCredentialEncrypted=` in `systemd.exec(5)`. Do not use a passphrase here: unlike
    /// with ``passphrase(_:)``, guessing it would be fast.
    public static func credential(_ name: String = "vault.key") -> Self { Self(.credential(name)) }

    /// The key that a closure returns: at least 32 bytes that cannot be guessed, and always the
    /// same.
    ///
    /// The closure may ask a key server or read a mounted secret. It is called on the thread that
    /// needs the key, and must not use the vault. If it throws, only the error's type is reported.
    /// The returned `Data` is not wiped when it is freed.
    ///
    /// - Parameters:
    ///   - name: Identifies the source. It is stored in the vault header.
    ///   - key: Returns the key.
    public static func closure(
      _ name: String, _ key: @escaping @Sendable () throws -> Data
    ) -> Self {
      Self(.closure(name, key))
    }
  }

  /// The kind of key source that protects a vault.
  public enum Protection: Hashable, Sendable {
    /// A random key in the app's state directory.
    case keyFile
    /// A passphrase.
    case passphrase
    /// A systemd credential, with its name.
    case credential(String)
    /// The key that a closure returns, with the source's name.
    case closure(String)
  }
}

extension SecureVault.Protection: CustomStringConvertible {
  /// The kind of source, and its name if it has one.
  public var description: String {
    switch self {
    case .keyFile: "key file"
    case .passphrase: "passphrase"
    case .credential(let name): "credential \(name.debugDescription)"
    case .closure(let name): "key source \(name.debugDescription)"
    }
  }
}

extension SecureVault.KeySource: CustomReflectable {
  var protection: SecureVault.Protection {
    switch kind {
    case .keyFile: .keyFile
    case .passphrase: .passphrase
    case .credential(let name): .credential(name)
    case .closure(let name, _): .closure(name)
    }
  }

  /// Empty, so that `print` and `dump` show no secret.
  public var customMirror: Mirror { Mirror(self, children: []) }
}

extension SecureVault.KeySource {
  /// Whether this source may have the secret that opens the slot.
  func matches(_ slot: KeySlot) -> Bool {
    switch kind {
    case .keyFile: slot.kind == .keyFile
    case .passphrase: slot.kind == .passphrase
    case .credential(let name): slot.kind == .credential && slot.locator == Array(name.utf8)
    case .closure(let name, _): slot.kind == .closure && slot.locator == Array(name.utf8)
    }
  }

  /// The secret for a vault's slot, or for a new vault's if `slot` is nil.
  ///
  /// - Returns: nil when the source is not available for a new vault.
  func secret(
    for slot: KeySlot?, in vault: Vault
  ) throws(StorageError) -> SlotSecret? {
    switch kind {
    case .keyFile:
      guard let keyFile = try vault.storage.keyFile() else { return nil }
      if let slot { return try keyFile.secret(forID: slot.locator) }
      return try keyFile.newestSecret()
    case .passphrase(let text, let logN):
      return try Self.secret(passphrase: text, logN: slot?.logN ?? logN)
    case .credential(let name):
      let path = try Self.credentialPath(name, vault.finder.environment)
      guard let path, let file = try File.openIfPresent(path) else {
        if slot == nil { return nil }
        throw StorageError(
          .locked, operation: "open", path: path,
          reason: "the credential \(name.debugDescription), which opens this vault, is missing",
          remedy: "Add LoadCredential=\(name) to the systemd unit; the secrets are untouched.")
      }
      let memory = try Self.contents(of: file)
      return try Self.secret(.credential, name, memory, path: path)
    case .closure(let name, let key):
      let data: Data
      do {
        data = try key()
      } catch {
        // Only its type: the error's text may quote the key.
        throw StorageError(
          .locked, operation: "open",
          reason: "the key source \(name.debugDescription) threw \(type(of: error))",
          remedy: "Make sure that the source can be reached; the secrets are untouched.")
      }
      return try Self.secret(.closure, name, try Self.copy(data.span.bytes), path: nil)
    }
  }

  static func secret(passphrase: String, logN: UInt8) throws(StorageError) -> SlotSecret {
    guard !passphrase.isEmpty else {
      throw StorageError(
        .misuse, operation: "protect", reason: "the passphrase is empty",
        remedy: "Use a passphrase of several words.")
    }
    // scrypt makes no difference between a short passphrase and the same with zeros at its end.
    guard !passphrase.utf8.contains(0) else {
      throw StorageError(
        .misuse, operation: "protect", reason: "the passphrase has a NUL character in it",
        remedy: "Use a passphrase without it.")
    }
    // Systems differ in the form that they type `é` in.
    var normalized = ""
    normalized.unicodeScalars.append(contentsOf: passphrase._nfc)
    return SlotSecret(.passphrase, logN: logN, try copy(normalized.utf8.span.bytes))
  }

  private static func secret(
    _ kind: KeySlot.Kind, _ name: String, _ memory: consuming SecretBytes, path: String?
  ) throws(StorageError) -> SlotSecret {
    guard name.utf8.count <= KeySlot.maxLocatorSize else {
      throw StorageError(
        .misuse, operation: "open",
        reason: "the key source name is longer than \(KeySlot.maxLocatorSize) bytes",
        remedy: "Use a shorter name.")
    }
    guard memory.bytes.count >= XAES.keySize else {
      throw StorageError(
        .misuse, operation: "open", path: path,
        reason: "the key of \(name.debugDescription) has fewer than \(XAES.keySize) bytes",
        remedy: "Generate a key with: openssl rand -base64 48")
    }
    return SlotSecret(kind, locator: Array(name.utf8), memory)
  }

  private static func copy(_ bytes: RawSpan) throws(StorageError) -> SecretBytes {
    try bytes.withUnsafeBytes { bytes throws(StorageError) in try SecretBytes(copying: bytes) }
  }

  private static func credentialPath(
    _ name: String, _ environment: (String) throws(StorageError) -> String?
  ) throws(StorageError) -> String? {
    guard !name.isEmpty, name != ".", name != "..", name.utf8.count <= 255,
      !name.utf8.contains(where: { $0 == UInt8(ascii: "/") || $0 == 0 })
    else {
      throw StorageError(
        .misuse, operation: "open", reason: "the credential name is invalid",
        remedy: "Use the name in the unit's LoadCredential= setting.")
    }
    guard let directory = try environment("CREDENTIALS_DIRECTORY"), directory.hasPrefix("/") else {
      return nil
    }
    return directory + "/" + name
  }

  private static func contents(of file: File) throws(StorageError) -> SecretBytes {
    let size = try file.status().size
    guard size <= 1 << 20 else {
      throw StorageError(
        .misuse, operation: "open", path: file.path, reason: "the file is too large for a key",
        remedy: "Generate a key with: openssl rand -base64 48")
    }
    let memory = try SecretBytes(count: size)
    guard try file.read(from: 0, into: memory.bytes) == size else {
      throw StorageError(
        .damaged, operation: "open", path: file.path,
        reason: "the file changed while it was read", remedy: "Try again.")
    }
    return memory
  }
}

extension KeySlot {
  /// The kind of key source that a vault with this slot is protected with.
  var protection: SecureVault.Protection {
    let name = String(decoding: locator, as: UTF8.self)
    return switch kind {
    case .keyFile: .keyFile
    case .passphrase, .recoveryCode: .passphrase
    case .credential: .credential(name)
    case .closure: .closure(name)
    }
  }
}
#endif
