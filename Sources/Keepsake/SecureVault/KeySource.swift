#if SecureVault
public import FoundationEssentials

extension SecureVault {
  /// Where the key to a vault comes from.
  ///
  /// ``protect(with:service:)`` puts a vault under one;
  /// ``StorageSystem/bootstrap(app:directories:engines:keySources:authenticate:)`` says which ones
  /// may open a vault by themselves, and make a new one.
  ///
  /// ```swift
  /// guard SecureVault.protect(with: .passphrase(typed)) else { return }
  /// ```
  ///
  /// What each protects against is said in the article on the vault's threat model. Neither
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

    /// What is tried where bootstrap says nothing else: a credential of systemd, then a key file.
    public static var standard: [Self] { [.credential(), .keyFile] }

    /// A random key in a file of the app's state directory, which is made when it is first needed.
    ///
    /// Nobody is asked for anything; who can read the user's whole home can read the secrets.
    public static var keyFile: Self { Self(.keyFile) }

    /// A passphrase, from which scrypt (RFC 7914) makes a key in about half a second and 128 MiB.
    ///
    /// The vault can be copied to another machine and opens there. It is taken as it is, in UTF-8:
    /// the same letters typed in another Unicode form are another passphrase. A `String` cannot be
    /// wiped from memory; one that is given to bootstrap stays there, and opens the vault after
    /// `lock()` and `unlock()`, for as long as the process lives.
    public static func passphrase(_ passphrase: String) -> Self {
      Self(.passphrase(passphrase, logN: KeySlot.defaultLogN))
    }

    /// A credential that systemd gives the service, `$CREDENTIALS_DIRECTORY/<name>`: at least 32
    /// bytes that cannot be guessed.
    ///
    /// See `LoadCredentialEncrypted=` in `systemd.exec(5)`. A passphrase does not belong here, as
    /// nothing slows guessing down.
    public static func credential(_ name: String = "vault.key") -> Self { Self(.credential(name)) }

    /// Whatever a closure returns: at least 32 bytes that cannot be guessed, always the same.
    ///
    /// It may ask a key server or read a mounted secret. It is called on the thread that needs the
    /// key, must not use the vault itself, and what it throws is reported by its type alone. The
    /// `Data` that it returns stays in freed memory as Swift leaves it.
    ///
    /// - Parameters:
    ///   - name: Stands in the vault's header, so that the right source is asked again.
    ///   - key: Returns the key.
    public static func closure(
      _ name: String, _ key: @escaping @Sendable () throws -> Data
    ) -> Self {
      Self(.closure(name, key))
    }
  }

  /// What a vault is under.
  public enum Protection: Hashable, Sendable {
    /// A random key in the app's state directory.
    case keyFile
    /// A passphrase.
    case passphrase
    /// A credential of systemd, by its name.
    case credential(String)
    /// What a closure returns, by its name.
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

extension SecureVault.KeySource: CustomStringConvertible, CustomDebugStringConvertible,
  CustomReflectable
{
  /// The kind of source, and its name if it has one; never its secret.
  public var description: String {
    let protection: SecureVault.Protection =
      switch kind {
      case .keyFile: .keyFile
      case .passphrase: .passphrase
      case .credential(let name): .credential(name)
      case .closure(let name, _): .closure(name)
      }
    return protection.description
  }
  /// The same as ``description``.
  public var debugDescription: String { description }
  /// Nothing, so that `dump` shows no secret.
  public var customMirror: Mirror { Mirror(self, children: []) }
}

extension SecureVault.KeySource {
  /// The slots that this source may open.
  func fits(_ slot: KeySlot) -> Bool {
    switch kind {
    case .keyFile: slot.kind == .keyFile
    case .passphrase: slot.kind == .passphrase
    case .credential(let name): slot.kind == .credential && slot.locator == Array(name.utf8)
    case .closure(let name, _): slot.kind == .closure && slot.locator == Array(name.utf8)
    }
  }

  /// What it gives for a vault's slot, or else for a new one.
  ///
  /// - Returns: nil when a new vault cannot be made from it, as it is not there.
  func secret(
    for slot: KeySlot?, in vault: Vault
  ) throws(StorageError) -> SlotSecret? {
    switch kind {
    case .keyFile:
      if let slot { return try vault.keyFile().secret(slot.locator) }
      return try vault.keyFile().newestSecret()
    case .passphrase(let text, let logN):
      return try Self.secret(passphrase: text, logN: slot?.logN ?? logN)
    case .credential(let name):
      let path = try Self.credentialPath(name, vault.finder.environment)
      guard let path, let file = try File.openIfPresent(path) else {
        if slot == nil { return nil }
        throw StorageError(
          .locked, operation: "open", path: path,
          reason: "the credential \(name.debugDescription), which opens this vault, is missing",
          remedy: "Give the service LoadCredential=\(name); the secrets are untouched.")
      }
      let memory = try Self.contents(of: file, atMost: 1 << 20)
      return try Self.secret(.credential, name, memory, path: path)
    case .closure(let name, let key):
      let data: Data
      do {
        data = try key()
      } catch {
        // The error's text may quote the key: its type must do.
        throw StorageError(
          .locked, operation: "open",
          reason: "the key source \(name.debugDescription) threw \(type(of: error))",
          remedy: "See to it that the source can be reached; the secrets are untouched.")
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
    return SlotSecret(.passphrase, logN: logN, try copy(passphrase.utf8.span.bytes))
  }

  private static func secret(
    _ kind: KeySlot.Kind, _ name: String, _ memory: consuming SecretBytes, path: String?
  ) throws(StorageError) -> SlotSecret {
    guard name.utf8.count <= KeySlot.maxLocatorSize else {
      throw StorageError(
        .misuse, operation: "open",
        reason: "the key source's name is longer than \(KeySlot.maxLocatorSize) bytes",
        remedy: "Use a shorter name.")
    }
    guard memory.bytes.count >= XAES.keySize else {
      throw StorageError(
        .misuse, operation: "open", path: path,
        reason: "the key of \(name.debugDescription) has less than \(XAES.keySize) bytes",
        remedy: "Make one that cannot be guessed, as with: openssl rand -base64 48")
    }
    return SlotSecret(kind, locator: Array(name.utf8), memory)
  }

  private static func copy(_ bytes: RawSpan) throws(StorageError) -> SecretBytes {
    try bytes.withUnsafeBytes { bytes throws(StorageError) in try SecretBytes(copying: bytes) }
  }

  private static func credentialPath(
    _ name: String, _ environment: (String) -> String?
  ) throws(StorageError) -> String? {
    guard !name.isEmpty, name != ".", name != "..", name.utf8.count <= 255,
      !name.utf8.contains(where: { $0 == UInt8(ascii: "/") || $0 == 0 })
    else {
      throw StorageError(
        .misuse, operation: "open", reason: "a credential cannot have that name",
        remedy: "Use the name that stands in the unit's LoadCredential=.")
    }
    guard let directory = environment("CREDENTIALS_DIRECTORY"), directory.hasPrefix("/") else {
      return nil
    }
    return directory + "/" + name
  }

  private static func contents(of file: File, atMost limit: Int) throws(StorageError) -> SecretBytes
  {
    let size = try file.status().size
    guard size <= limit else {
      throw StorageError(
        .misuse, operation: "open", path: file.path, reason: "too large for a key",
        remedy: "Make one with: openssl rand -base64 48")
    }
    let memory = try SecretBytes(count: size)
    guard try file.read(from: 0, into: memory.bytes) == size else {
      throw StorageError(
        .damaged, operation: "open", path: file.path, reason: "it changed while it was read",
        remedy: "Try again.")
    }
    return memory
  }
}

extension KeySlot {
  /// What a vault with this slot is under.
  var protection: SecureVault.Protection {
    let name = String(decoding: locator, as: UTF8.self)
    return switch kind {
    case .keyFile: .keyFile
    case .passphrase: .passphrase
    case .credential: .credential(name)
    case .closure: .closure(name)
    }
  }
}
#endif
