#if SecureVault
public import FoundationEssentials

extension SecureVault {
  /// The secrets of one service. Its calls throw the errors that ``SecureVault`` reports.
  ///
  /// A missing secret is nil. A secret that cannot be read, or has another type, is an error. All
  /// calls are safe from any thread and between processes.
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
    /// The service that the secrets belong to.
    public let service: Service

    private let vaultIfAvailable: FirstUse<Result<Vault, StorageError>>
    private let scope: StorageScope

    init(service: Service, vault: FirstUse<Result<Vault, StorageError>>, scope: StorageScope) {
      self.service = service
      vaultIfAvailable = vault
      self.scope = scope
    }

    var vault: Vault {
      get throws(StorageError) { try vaultIfAvailable.value.get() }
    }

    /// The vault as files.
    var directory: VaultDirectory {
      get throws(StorageError) {
        if let directory = try vault.storage as? VaultDirectory { return directory }
        throw StorageError(
          .misuse, operation: "open", reason: "the vault is on a server, not on this machine",
          remedy: "Use a service in a directory: SecureVault.Service(_:in:).")
      }
    }

    /// Hands a failure to the handler of the scope that made this store.
    @usableFromInline
    func report(_ error: StorageError) { scope.report(error.reported(by: "SecureVault")) }

    /// The result of `body`, whose errors get the name of the call, the key and a path.
    @inlinable
    func perform<R: ~Copyable>(
      _ operation: String, _ key: String? = nil, _ body: () throws(StorageError) -> R
    ) throws(StorageError) -> R {
      do throws(StorageError) {
        return try body()
      } catch {
        throw error.inContext(of: operation, key: key, path: vaultPath)
      }
    }

    /// The vault's directory, for errors; nil when there is none.
    @usableFromInline
    var vaultPath: String? { try? vault.storage.path }

    /// The greatest cost of a passphrase that this process accepts when it opens a vault: the
    /// binary logarithm of scrypt's N. Initially it is 19, which takes 512 MiB and about two
    /// seconds.
    ///
    /// ```swift
    /// SecureVault.shared.maxWorkFactor = 20    // for the vaults of another program
    /// ```
    ///
    /// Anyone who can write to a vault's files can forge a header that demands much work. A vault
    /// whose passphrase costs more than this is therefore refused with an error of code
    /// `unsupportedVersion`, before any work is done, and one call of `unlock` never costs more
    /// than that, or than four passphrases of cost 17. ``protect(with:)`` makes passphrases of
    /// cost 17, which takes 128 MiB and half a second: a smaller value refuses these too.
    ///
    /// It is one value for the vaults of all services, limited to 10 through 20. Each
    /// ``StorageSystem/withTemporary(engines:keySources:authenticate:isolation:_:)`` block has its
    /// own.
    public var maxWorkFactor: Int {
      get { scope.maxPassphraseLogN }
      set { scope.maxPassphraseLogN = newValue }
    }

    /// The directory of the vault that holds the secrets of this and the app's other services.
    ///
    /// - Throws: ``StorageError`` if the directory cannot be determined, for example because the
    ///   user has no home directory; of code `misuse` if the app's ``StorageBacking`` keeps the
    ///   vault.
    public var folderURL: URL {
      get throws(StorageError) {
        try perform("folderURL") { () throws(StorageError) in
          URL(filePath: try directory.path)
        }
      }
    }
  }
}

// MARK: - Reading

extension SecureVault.Store {
  /// Returns the text of a secret; see ``SecureVault/get(_:reason:service:)``.
  ///
  /// - Returns: nil if there is no such secret.
  /// - Throws: ``StorageError`` of code `wrongType` if the secret is not text, `locked` before
  ///   `unlock` and if the vault's key is missing, `damaged` if the secret's file or the vault
  ///   header was altered.
  public func get(_ key: String, reason: String? = nil) throws(StorageError) -> String? {
    try decode(key, reason, "get")
  }

  /// Returns the bytes of a secret of any type: text in UTF-8, a `Codable` value in JSON.
  ///
  /// - Returns: nil if there is no such secret.
  /// - Throws: ``StorageError`` of code `locked` before `unlock` and if the vault's key is missing,
  ///   `damaged` if the secret's file or the vault header was altered.
  public func getData(_ key: String, reason: String? = nil) throws(StorageError) -> Data? {
    guard let secret = try open(key, reason, "getData") else { return nil }
    return secret.data()
  }

  /// Returns the `Codable` value of a secret.
  ///
  /// - Returns: nil if there is no such secret.
  /// - Throws: ``StorageError`` of code `wrongType` or `decodingFailed` if the secret has another
  ///   type, `locked` before `unlock` and if the vault's key is missing, `damaged` if the secret's
  ///   file or the vault header was altered.
  @inlinable
  public func model<T: Codable>(
    _ key: String, type: T.Type = T.self, reason: String? = nil
  ) throws(StorageError) -> T? {
    try decode(key, reason, "model")
  }

  /// Returns the secret of a typed key.
  ///
  /// - Returns: nil if there is no such secret.
  /// - Throws: ``StorageError``, as `model` does; of code `accessDenied` if the key's access is
  ///   ``SecureVault/Access/userPresence`` and the secret was stored without it.
  @inlinable
  public func get<T: Codable>(
    _ key: SecureVault.Key<T>, reason: String? = nil
  ) throws(StorageError) -> T? {
    try decode(key.name, reason, "get", key.access)
  }

  @inlinable
  func decode<T: Codable>(
    _ key: String, _ reason: String?, _ operation: String, _ access: SecureVault.Access? = nil
  ) throws(StorageError) -> T? {
    guard let stored = try value(key, reason, operation, access) else { return nil }
    return try perform(operation, key) { () throws(StorageError) in
      try Codec.decode(stored, as: T.self)
    }
  }

  @usableFromInline
  func value(
    _ key: String, _ reason: String?, _ operation: String, _ access: SecureVault.Access?
  ) throws(StorageError) -> StoredValue? {
    guard let secret = try open(key, reason, operation, access) else { return nil }
    if secret.kind == Payload.Kind.data.rawValue { return .data(secret.data()) }
    if let value = secret.value { return value }
    return try perform(operation, key) { () throws(StorageError) in
      throw StorageError(
        .decodingFailed, operation: operation, reason: "the secret's bytes do not fit its type",
        remedy: "Remove the secret.")
    }
  }

  func open(
    _ key: String, _ reason: String?, _ operation: String, _ access: SecureVault.Access? = nil
  ) throws(StorageError) -> OpenedEntry? {
    try perform(operation, key) { () throws(StorageError) in
      try vault.read(service.name, key, reason: reason, expectsPresence: access == .userPresence)
    }
  }

  /// Calls `body` with the bytes of a secret, and wipes them when it returns; see
  /// `SecureVault.withSecret`.
  ///
  /// ```swift
  /// try SecureVault.shared.withSecret("apiKey") { (bytes: RawSpan) in sign(request, with: bytes) }
  /// ```
  ///
  /// - Returns: The result of `body`; nil if there is no such secret.
  /// - Throws: What `body` throws, or a ``StorageError`` as `getData` does.
  @discardableResult
  public func withSecret<R, E: Error>(
    _ key: String, reason: String? = nil, _ body: (RawSpan) throws(E) -> R
  ) throws -> R? {
    guard let secret = try open(key, reason, "withSecret") else { return nil }
    return try secret.withBytes(body)
  }

  /// Calls a closure that does not throw with the bytes of a secret, and wipes them when it
  /// returns.
  ///
  /// - Returns: The result of `body`; nil if there is no such secret.
  /// - Throws: ``StorageError``, as `getData` does.
  @discardableResult
  public func withSecret<R>(
    _ key: String, reason: String? = nil, _ body: (RawSpan) -> R
  ) throws(StorageError) -> R? {
    guard let secret = try open(key, reason, "withSecret") else { return nil }
    return secret.withBytes(body)
  }

  /// Returns whether a secret exists, without opening it or asking the user.
  ///
  /// - Throws: ``StorageError`` of code `locked` before `unlock` and if the vault's key is missing.
  public func contains(_ key: String) throws(StorageError) -> Bool {
    try perform("contains", key) { () throws(StorageError) in
      try vault.contains(service.name, key)
    }
  }

  /// Returns whether a secret of a typed key exists, without opening it or asking the user.
  ///
  /// - Throws: ``StorageError`` of code `locked` before `unlock` and if the vault's key is missing.
  public func contains<T: Codable>(_ key: SecureVault.Key<T>) throws(StorageError) -> Bool {
    try contains(key.name)
  }

  /// Returns the dates and the access of a secret, without opening its value or asking the user.
  ///
  /// - Returns: nil if there is no such secret.
  /// - Throws: ``StorageError`` of code `locked` before `unlock` and if the vault's key is missing,
  ///   `damaged` if the secret's file or the vault header was altered.
  public func entry(_ key: String) throws(StorageError) -> SecureVault.Entry? {
    try perform("entry", key) { () throws(StorageError) in
      guard let entry = try vault.findEntry(service.name, key, .names), let names = entry.names
      else { return nil }
      return SecureVault.Entry(names, isPresenceRequired: entry.header.isPresenceRequired)
    }
  }

  /// Returns the dates and the access of a typed key's secret.
  ///
  /// - Returns: nil if there is no such secret.
  /// - Throws: ``StorageError`` of code `locked` before `unlock` and if the vault's key is missing,
  ///   `damaged` if the secret's file or the vault header was altered.
  public func entry<T: Codable>(
    _ key: SecureVault.Key<T>
  ) throws(StorageError) -> SecureVault.Entry? {
    try entry(key.name)
  }

  /// Returns the keys of all secrets of this service, sorted.
  ///
  /// A secret whose file is damaged is reported to ``StorageSystem/onFailure`` and left out.
  ///
  /// - Throws: ``StorageError`` of code `locked` before `unlock` and if the vault's key is missing,
  ///   `damaged` if the vault header was altered.
  public func keys() throws(StorageError) -> [String] {
    try perform("keys") { () throws(StorageError) in try vault.keys(service.name) }
  }

  /// Returns the services of the same vault that have secrets, sorted by name.
  ///
  /// - Throws: ``StorageError`` of code `locked` before `unlock` and if the vault's key is missing,
  ///   `damaged` if the vault header was altered.
  public func services() throws(StorageError) -> [SecureVault.Service] {
    try perform("services") { () throws(StorageError) in
      try vault.services().map(service.named)
    }
  }
}

// MARK: - Writing

extension SecureVault.Store {
  /// Stores a `String`, `Data` or any other `Codable` value as a secret; nil removes the secret.
  ///
  /// When it returns, the secret survives a power cut. `SecureVault.set` describes `access`.
  ///
  /// - Throws: ``StorageError``. The old value is intact then, unless only synchronizing the
  ///   directory failed; then either value may be stored.
  @inlinable
  public func set<T: Codable>(
    _ value: T?, forKey key: String, access: SecureVault.Access? = nil
  ) throws(StorageError) {
    let isStored = try perform("set", key) { () throws(StorageError) in
      guard let value, let stored = try Codec.encode(value) else { return false }
      _ = try write(stored, forKey: key, access)
      return true
    }
    if !isStored { try remove(key) }
  }

  /// Stores a secret unless there is one under this key already.
  ///
  /// When it returns true, the secret survives a power cut. If several threads or processes add a
  /// secret under one key, exactly one succeeds.
  ///
  /// - Parameters:
  ///   - value: The value to store; an optional that is nil stores nothing.
  ///   - key: The name of the secret.
  ///   - access: What reading the secret will require.
  /// - Returns: Whether this call stored the secret; false if there is one, even a damaged one.
  /// - Throws: ``StorageError``. Nothing is stored then, unless only synchronizing the directory
  ///   failed.
  @inlinable
  public func add<T: Codable>(
    _ value: T, forKey key: String, access: SecureVault.Access = .whenUnlocked
  ) throws(StorageError) -> Bool {
    try perform("add", key) { () throws(StorageError) in
      guard let stored = try Codec.encode(value) else { return false }
      return try write(stored, forKey: key, access, replaces: false)
    }
  }

  /// Removes a secret: the overload for a literal `nil`.
  @inlinable
  public func set(
    _ value: _OptionalNilComparisonType, forKey key: String, access: SecureVault.Access? = nil
  ) throws(StorageError) {
    try remove(key)
  }

  /// Stores the secret of a typed key with the key's access; nil removes the secret.
  ///
  /// When it returns, the secret survives a power cut.
  ///
  /// - Throws: ``StorageError``. The old value is intact then, unless only synchronizing the
  ///   directory failed; then either value may be stored.
  @inlinable
  public func set<T: Codable>(_ value: T?, for key: SecureVault.Key<T>) throws(StorageError) {
    try set(value, forKey: key.name, access: key.access)
  }

  @usableFromInline
  func write(
    _ value: StoredValue, forKey key: String, _ access: SecureVault.Access?, replaces: Bool = true
  ) throws(StorageError) -> Bool {
    try value.withPayload { kind, bytes throws(StorageError) in
      try vault.write(
        NewSecret(
          kind: kind, value: bytes, service: service.name, key: key, access: access,
          replaces: replaces))
    }
  }

  /// Removes a secret. Removing a missing secret is not an error.
  ///
  /// See ``SecureVault/remove(_:service:)``.
  ///
  /// - Throws: ``StorageError``, for example of code `locked`; the secret may then still exist.
  public func remove(_ key: String) throws(StorageError) {
    try perform("remove", key) { () throws(StorageError) in
      try vault.remove(service.name, key)
    }
  }

  /// Removes the secret of a typed key. Removing a missing secret is not an error.
  ///
  /// - Throws: ``StorageError``, for example of code `locked`; the secret may then still exist.
  public func remove<T: Codable>(_ key: SecureVault.Key<T>) throws(StorageError) {
    try remove(key.name)
  }

  /// Removes all secrets of this service.
  ///
  /// - Throws: ``StorageError``, for example of code `locked`; some secrets may then still exist.
  public func removeAll() throws(StorageError) {
    try perform("removeAll") { () throws(StorageError) in try vault.removeAll(service.name) }
  }

  /// Removes the whole vault, whether it can be opened or not: the secrets of all services, and the
  /// keys to them.
  ///
  /// Use it when the passphrase or the key file is lost. The next vault is created with the first
  /// key source that is available. To remove the secrets of one service, use ``removeAll()``.
  ///
  /// Vaults that a restore has replaced and kept (`vault.replaced-*`) are removed, too. The header,
  /// which has the wrapped keys, is overwritten before it is removed; the files of the secrets are
  /// only removed. A backup of the vault, here or on another machine, still opens with the
  /// passphrase, recovery code or key of its time. So do snapshots of a file system, and possibly
  /// blocks that a flash disk or a copy-on-write file system has not reused. The key file stays,
  /// because copies of the vault may need it. A header that has another hard link is not
  /// overwritten. Files of other programs stay, which is reported.
  ///
  /// - Throws: ``StorageError``; some secrets may then still exist.
  public func eraseVault() throws(StorageError) {
    try perform("eraseVault") { () throws(StorageError) in try vault.erase() }
  }
}

// MARK: - Protection

extension SecureVault.Store {
  /// Protects the vault, with all its services, with another key source.
  ///
  /// See ``SecureVault/protect(with:service:)``. A secret that cannot be sealed again, because its
  /// file is damaged, is reported, and the old keys are kept for it.
  ///
  /// - Throws: ``StorageError``. The old source still protects the vault then, unless only
  ///   synchronizing the directory failed; then either may protect it.
  public func protect(with source: SecureVault.KeySource) throws(StorageError) {
    try perform("protect") { () throws(StorageError) in try vault.protect(with: source) }
  }

  /// The kind of key source that protects the vault; nil if there is no vault yet.
  ///
  /// - Throws: ``StorageError`` if the vault header cannot be read.
  public var protection: SecureVault.Protection? {
    get throws(StorageError) {
      try perform("protection") { () throws(StorageError) in try vault.protection() }
    }
  }

  /// Seals all secrets again under a new key, and drops the old keys.
  ///
  /// Other threads and processes can read and write in the meantime. The call may be interrupted at
  /// any point; the next call continues it.
  ///
  /// Everything that opened the vault still opens it: the master key, recovery codes and recovery
  /// passphrases stay. After a compromise, call ``protect(with:)``. While a file in the vault is
  /// damaged, the old keys are kept for it; see ``forgetOldKeys()``.
  ///
  /// - Throws: The first failure of a single secret after all others are done, or at once a failure
  ///   that every secret would meet, such as a full disk. The old keys are kept until a call
  ///   succeeds.
  public func rotateKeys() throws(StorageError) {
    try perform("rotateKeys") { () throws(StorageError) in try vault.rotateKeys() }
  }

  /// Opens the vault until ``lock()`` is called in this process.
  ///
  /// Checking a passphrase takes about half a second. With `rememberFor`, the other processes of
  /// this login can open the vault without a passphrase for some time; see
  /// ``SecureVault/unlock(passphrase:rememberFor:service:)``. A failure to remember the key is
  /// reported to ``StorageSystem/onFailure`` and not thrown.
  ///
  /// - Parameters:
  ///   - passphrase: The vault's passphrase, or a recovery code or recovery passphrase; nil to use
  ///     the key sources of bootstrap again after ``lock()``.
  ///   - period: How long the key is remembered; nil to remember nothing.
  /// - Throws: ``StorageError`` of code `wrongPassphrase` if the passphrase is wrong, `misuse` if
  ///   the vault has none, `notFound` if there is no vault yet, `locked` if no key source opens it.
  public func unlock(
    passphrase: String? = nil, rememberFor period: Duration? = nil
  ) throws(StorageError) {
    try perform("unlock") { () throws(StorageError) in
      try vault.unlock(passphrase: passphrase, rememberingFor: period?.wholeSeconds)
    }
  }

  /// Wipes the keys from this process's memory, and makes the login forget a remembered key.
  /// Nothing can be read until `unlock`, even with a key file.
  ///
  /// - Throws: ``StorageError`` of code `timedOut` if a call on another thread still uses the keys
  ///   after twice the timeout for locks. They are wiped when that call ends.
  public func lock() throws(StorageError) {
    try perform("lock") { () throws(StorageError) in try vault.lock() }
  }

  /// Whether the vault must be opened with `unlock`.
  ///
  /// It is true after ``lock()``, and if no key source of bootstrap protects the vault and no
  /// remembered key opens it. The key sources are not tried, so it is false if the key file,
  /// credential or key server is missing; see ``SecureVault/isLocked`` for what to do then.
  ///
  /// - Throws: ``StorageError`` if the vault header cannot be read.
  public var isLocked: Bool {
    get throws(StorageError) {
      try perform("isLocked") { () throws(StorageError) in try vault.isLocked() }
    }
  }

  /// Runs `body` with this store on a thread of the library, so that the caller's thread does not
  /// wait for the disk, for a passphrase or for the user.
  ///
  /// ```swift
  /// let token = try await SecureVault.shared.perform { store in try store.get("token") }
  /// ```
  ///
  /// See ``StorageSystem/perform(_:)``.
  ///
  /// - Returns: What `body` returns.
  /// - Throws: What `body` throws, or `CancellationError` if the task was cancelled before `body`
  ///   started.
  @discardableResult
  public func perform<R>(
    _ body: sending @escaping (SecureVault.Store) throws -> sending R
  ) async throws -> sending R {
    // The closure is transferred rather than shared: this function does not use it again.
    nonisolated(unsafe) let body = body
    return try await BlockingWork.run { try body(self) }
  }
}

extension SecureVault.Store: CustomStringConvertible, CustomReflectable {
  /// The service's name.
  public var description: String { "secrets of \(service)" }
  /// Empty, so that `dump` shows no secret.
  public var customMirror: Mirror { Mirror(self, children: []) }
}
#endif
