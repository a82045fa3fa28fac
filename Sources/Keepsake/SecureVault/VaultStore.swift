#if SecureVault
public import FoundationEssentials

extension SecureVault {
  /// The secrets of one service, with errors thrown where ``SecureVault`` reports them.
  ///
  /// The calls are those of ``SecureVault``. What is missing is nil; what cannot be read, and a
  /// value of another type, are errors. All calls are safe from any thread and between processes.
  ///
  /// ```swift
  /// do {
  ///   let token = try SecureVault.service("com.app.auth").get("accessToken")
  ///   print(token == nil ? "log in first" : "welcome back")
  /// } catch StorageError.Code.locked {
  ///   print("unlock first")
  /// } catch {
  ///   print(error)
  /// }
  /// ```
  public final class Store: Sendable {
    /// Which service this is.
    public let service: Service

    private let vault: Result<Vault, StorageError>
    private let scope: StorageScope

    init(service: Service, vault: Result<Vault, StorageError>, scope: StorageScope) {
      self.service = service
      self.vault = vault
      self.scope = scope
    }

    /// Hands a failure to the handler of the scope that made this store.
    @usableFromInline
    func report(_ error: StorageError) { scope.report(error.reported(by: "SecureVault")) }

    /// Does one call, whose failures name it and the key.
    private func perform<R: ~Copyable>(
      _ operation: String, _ key: String? = nil, _ body: (Vault) throws(StorageError) -> R
    ) throws(StorageError) -> R {
      do throws(StorageError) {
        return try body(vault.get())
      } catch {
        throw error.inContext(of: operation, key: key)
      }
    }

    /// The directory of the vault in which the secrets lie, with those of the app's other services.
    ///
    /// - Throws: ``StorageError`` when there is no place for it, as without a home directory.
    public var folderURL: URL {
      get throws(StorageError) { URL(filePath: try vault.get().location.directory) }
    }
  }
}

// MARK: - Reading

extension SecureVault.Store {
  /// A secret that is text; nil when there is none.
  ///
  /// Of a secret that was set with ``SecureVault/Access/userPresence``, `reason` is what the person
  /// is told who has to be present.
  ///
  /// - Throws: ``StorageError`` of code `wrongType` when it is no text, `locked` before `unlock`
  ///   and when the key is not there, `damaged` when its file or the vault's header was changed.
  public func get(_ key: String, reason: String? = nil) throws(StorageError) -> String? {
    try decoded(key, reason, "get")
  }

  /// The bytes of a secret, whatever type it was stored as: text in UTF-8, a `Codable` value in
  /// JSON; nil when there is none.
  public func getData(_ key: String, reason: String? = nil) throws(StorageError) -> Data? {
    guard let secret = try opened(key, reason, "getData") else { return nil }
    let range = secret.range
    return secret.memory.data(range)
  }

  /// The `Codable` value of a secret; nil when there is none.
  ///
  /// - Throws: ``StorageError`` of code `wrongType` or `decodingFailed` when another type is
  ///   stored, and what ``get(_:reason:)`` throws.
  @inlinable
  public func model<T: Codable>(
    _ key: String, type: T.Type = T.self, reason: String? = nil
  ) throws(StorageError) -> T? {
    try decoded(key, reason, "model")
  }

  /// The secret of a typed key; nil when there is none.
  @inlinable
  public func get<T: Codable>(
    _ key: SecureVault.Key<T>, reason: String? = nil
  ) throws(StorageError) -> T? {
    try decoded(key.name, reason, "get")
  }

  @inlinable
  func decoded<T: Codable>(
    _ key: String, _ reason: String?, _ operation: String
  ) throws(StorageError) -> T? {
    guard let stored = try value(key, reason, operation) else { return nil }
    do throws(StorageError) {
      return try Codec.decode(stored, as: T.self)
    } catch {
      throw error.inContext(of: operation, key: key, path: place)
    }
  }

  @usableFromInline
  func value(
    _ key: String, _ reason: String?, _ operation: String
  ) throws(StorageError) -> StoredValue? {
    guard let secret = try opened(key, reason, operation) else { return nil }
    let (kind, range) = (secret.kind, secret.range)
    if kind == .data { return .data(secret.memory.data(range)) }
    if let value = secret.value { return value }
    throw StorageError(
      .decodingFailed, operation: operation, key: key, path: place,
      reason: "its bytes are not what was stored", remedy: "Remove the secret.")
  }

  func opened(
    _ key: String, _ reason: String?, _ operation: String
  ) throws(StorageError) -> OpenedSecret? {
    try perform(operation, key) { vault throws(StorageError) in
      try vault.read(service.name, key, reason: reason)
    }
  }

  /// Where the secrets lie, for errors.
  @usableFromInline
  var place: String? { try? vault.get().location.directory }

  /// Calls `body` with a secret's bytes, which are wiped when it returns.
  ///
  /// Text is in UTF-8, a `Codable` value in JSON. No other copy was made on the way.
  ///
  /// ```swift
  /// try SecureVault.shared.withSecret("apiKey") { (bytes: RawSpan) in sign(request, with: bytes) }
  /// ```
  ///
  /// - Returns: What `body` returns; nil when there is no secret.
  /// - Throws: What `body` throws, or a ``StorageError``.
  @discardableResult
  public func withSecret<R, E: Error>(
    _ key: String, reason: String? = nil, _ body: (RawSpan) throws(E) -> R
  ) throws -> R? {
    guard let secret = try opened(key, reason, "withSecret") else { return nil }
    return try secret.withBytes(body)
  }

  /// Calls a closure that cannot throw with a secret's bytes, which are wiped when it returns.
  ///
  /// See `withSecret`, whose only errors are then the store's own.
  @discardableResult
  public func withSecret<R>(
    _ key: String, reason: String? = nil, _ body: (RawSpan) -> R
  ) throws(StorageError) -> R? {
    guard let secret = try opened(key, reason, "withSecret") else { return nil }
    return secret.withBytes(body)
  }

  /// Whether there is a secret; it is not opened.
  public func contains(_ key: String) throws(StorageError) -> Bool {
    try perform("contains", key) { vault throws(StorageError) in
      try vault.contains(service.name, key)
    }
  }

  /// Whether there is a secret of a typed key.
  public func contains<T: Codable>(_ key: SecureVault.Key<T>) throws(StorageError) -> Bool {
    try contains(key.name)
  }

  /// When a secret was made and changed, and how it is guarded; nil when there is none.
  public func entry(_ key: String) throws(StorageError) -> SecureVault.Entry? {
    try perform("entry", key) { vault throws(StorageError) in
      try vault.names(service.name, key).map {
        SecureVault.Entry($0.names, isPresenceRequired: $0.isPresenceRequired)
      }
    }
  }

  /// When a typed key's secret was made and changed, and how it is guarded; nil when there is none.
  public func entry<T: Codable>(
    _ key: SecureVault.Key<T>
  ) throws(StorageError) -> SecureVault.Entry? {
    try entry(key.name)
  }

  /// The keys of all secrets of this service, sorted.
  ///
  /// An entry whose file is damaged is reported to ``StorageSystem/onFailure`` and hides no other.
  public func keys() throws(StorageError) -> [String] {
    try perform("keys") { vault throws(StorageError) in try vault.keys(service.name) }
  }

  /// The services of the same vault that have secrets, sorted by name.
  func storedServices() throws(StorageError) -> [SecureVault.Service] {
    try perform("services") { vault throws(StorageError) in
      try vault.services().map { SecureVault.Service($0) }
    }
  }
}

// MARK: - Writing

extension SecureVault.Store {
  /// Stores a secret such that it survives a power cut: `String`, `Data`, or any `Codable` value;
  /// nil removes it.
  ///
  /// `access` says whether a person has to be present to read it; nil leaves that as it is, and
  /// makes a new secret, or one that takes the place of a damaged file,
  /// ``SecureVault/Access/whenUnlocked``.
  ///
  /// - Throws: ``StorageError``; the old value is intact then, unless the directory could not be
  ///   synchronized: then it is the old or the new one.
  @inlinable
  public func set<T: Codable>(
    _ value: T?, forKey key: String, access: SecureVault.Access? = nil
  ) throws(StorageError) {
    let stored: StoredValue?
    do throws(StorageError) {
      if let value { stored = try Codec.encode(value) } else { stored = nil }
    } catch {
      throw error.inContext(of: "set", key: key, path: place)
    }
    guard let stored else { return try remove(key) }
    try write(stored, forKey: key, access)
  }

  /// Removes the secret: what a literal nil means.
  @inlinable
  public func set(
    _ value: Never?, forKey key: String, access: SecureVault.Access? = nil
  ) throws(StorageError) {
    try remove(key)
  }

  /// Stores the secret of a typed key with the key's own access; nil removes it.
  @inlinable
  public func set<T: Codable>(_ value: T?, for key: SecureVault.Key<T>) throws(StorageError) {
    try set(value, forKey: key.name, access: key.access)
  }

  @usableFromInline
  func write(
    _ value: StoredValue, forKey key: String, _ access: SecureVault.Access?
  ) throws(StorageError) {
    try perform("set", key) { vault throws(StorageError) in
      try value.withPayload { kind, bytes throws(StorageError) in
        try vault.write(
          Vault.Secret(kind: kind, value: bytes, service: service.name, key: key, access: access))
      }
    }
  }

  /// Removes a secret; nothing happens when it is missing.
  public func remove(_ key: String) throws(StorageError) {
    try perform("remove", key) { vault throws(StorageError) in
      try vault.remove(service.name, key)
    }
  }

  /// Removes the secret of a typed key.
  public func remove<T: Codable>(_ key: SecureVault.Key<T>) throws(StorageError) {
    try remove(key.name)
  }

  /// Removes all secrets of this service.
  public func removeAll() throws(StorageError) {
    try perform("removeAll") { vault throws(StorageError) in try vault.removeAll(service.name) }
  }

  /// Removes all secrets of all services of the vault, and the keys to them, whether it can be
  /// opened or not.
  ///
  /// The key file stays: what it still opens are copies of the vault.
  public func eraseVault() throws(StorageError) {
    try perform("eraseVault") { vault throws(StorageError) in try vault.eraseVault() }
  }
}

// MARK: - Protection

extension SecureVault.Store {
  /// Puts the vault, with all its services, under another source of keys.
  ///
  /// See ``SecureVault/protect(with:service:)``. A secret that cannot be sealed again, because its
  /// file is damaged, is reported and keeps its old key.
  ///
  /// - Throws: ``StorageError``; the vault is then under its old source, unless its directory could
  ///   not be synchronized: then under the old or the new one.
  public func protect(with source: SecureVault.KeySource) throws(StorageError) {
    try perform("protect") { vault throws(StorageError) in try vault.protect(with: source) }
  }

  /// What the vault is under; nil when there is none yet.
  public var protection: SecureVault.Protection? {
    get throws(StorageError) {
      try perform("protection") { vault throws(StorageError) in try vault.protection() }
    }
  }

  /// Seals all secrets again under a new key and forgets the old ones.
  ///
  /// - Throws: The first failure with a single secret, after all others are done, or at once one
  ///   that all would meet, such as a full disk. What is left keeps its key until a call finds
  ///   nothing wrong.
  public func rotateKeys() throws(StorageError) {
    try perform("rotateKeys") { vault throws(StorageError) in try vault.rotateKeys() }
  }

  /// Opens the vault: with its passphrase, or, after ``lock()``, with whatever key source opens it.
  ///
  /// - Throws: ``StorageError`` of code `wrongPassphrase` when it is not the right one.
  public func unlock(passphrase: String? = nil) throws(StorageError) {
    try perform("unlock") { vault throws(StorageError) in
      try vault.unlock(passphrase: passphrase)
    }
  }

  /// Wipes the keys from this process's memory; nothing can be read until `unlock`.
  ///
  /// - Throws: ``StorageError`` of code `timedOut` when a call on another thread goes on using
  ///   them: they are wiped when it ends.
  public func lock() throws(StorageError) {
    try perform("lock") { vault throws(StorageError) in try vault.lock() }
  }

  /// Whether nothing can be read before `unlock`.
  public var isLocked: Bool {
    get throws(StorageError) {
      try perform("isLocked") { vault throws(StorageError) in try vault.isLocked() }
    }
  }
}

extension SecureVault.Store: CustomStringConvertible, CustomReflectable {
  /// The service's name.
  public var description: String { "secrets of \(service)" }
  /// Nothing, so that `dump` shows no secret.
  public var customMirror: Mirror { Mirror(self, children: []) }
}
#endif
