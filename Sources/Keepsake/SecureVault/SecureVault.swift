#if SecureVault
public import FoundationEssentials

/// Stores secrets in sealed files, with one line for each call.
///
/// ```swift
/// SecureVault.set("tok", forKey: "accessToken", service: "com.app.auth")
/// let token = SecureVault.get("accessToken", service: "com.app.auth")
/// ```
///
/// Each secret is a file that OpenSSL seals with XAES-256-GCM. File names reveal neither keys nor
/// services. By default the vault's own key is in a file that is created when it is first needed,
/// and the user is not asked for anything. ``protect(with:service:)`` protects the vault with a
/// passphrase or another source instead. The article on the threat model explains what each
/// protects against.
///
/// When a set returns, the secret survives a power cut. A file that was altered, moved or exchanged
/// is an error and never yields a value, and no error contains a secret. All calls are safe from
/// any thread and between processes, and no reader waits for a writer.
///
/// Most calls do not throw: a call returns nil or `false`, and reports the failure to
/// ``StorageSystem/onFailure``. `withSecret` throws what your closure throws, and `askTerminal`
/// throws a ``StorageError`` if the terminal cannot be read. The calls of a ``Store``, which
/// ``shared`` and ``service(_:)`` return, throw ``StorageError``.
public enum SecureVault {
  /// The name of a service. Each service has its own secrets.
  ///
  /// See ``StoragePlace``. All services of an app share one vault and its key. A service in a
  /// directory that you choose, such as `SecureVault.Service("team", in: url)`, uses the vault of
  /// that directory.
  public typealias Service = StoragePlace<SecureVault>

  /// The service that calls use unless they name another one; initially ``StoragePlace/standard``.
  ///
  /// Set it once, at the start of the program. Each
  /// ``StorageSystem/withTemporary(engines:keySources:authenticate:isolation:_:)`` block has its
  /// own.
  public static var defaultService: Service {
    get { StorageScope.current.defaultService }
    set { StorageScope.current.defaultService = newValue }
  }

  /// The throwing store of the ``defaultService``.
  public static var shared: Store { service(defaultService) }

  /// The throwing store of a service.
  ///
  /// ```swift
  /// let auth = SecureVault.service("com.app.auth")
  /// ```
  ///
  /// Ask for a store where you use it. A store that you keep, for example in a `static let`, keeps
  /// the directories that were in force when it was made, even inside a test's temporary block.
  public static func service(_ service: Service) -> Store { StorageScope.current.vault(service) }
}

// MARK: - Reading

extension SecureVault {
  /// Returns the text of a secret.
  ///
  /// ```swift
  /// let pin = SecureVault.get("pin", reason: "Unlock notes")
  /// ```
  ///
  /// - Parameters:
  ///   - key: The name of the secret.
  ///   - reason: Shown to the user if the secret was set with ``Access/userPresence``.
  ///   - service: The service that it belongs to.
  /// - Returns: nil if there is no such secret. If it is not text or cannot be read, the failure is
  ///   reported and the result is nil.
  public static func get(
    _ key: String, reason: String? = nil, service: Service = defaultService
  ) -> String? {
    self.service(service).attempt { store throws(StorageError) in try store.get(key, reason: reason)
    } ?? nil
  }

  /// Returns the bytes of a secret of any type: text in UTF-8, a `Codable` value in JSON.
  ///
  /// - Returns: nil if there is no such secret. If it cannot be read, the failure is reported and
  ///   the result is nil.
  public static func getData(
    _ key: String, reason: String? = nil, service: Service = defaultService
  ) -> Data? {
    self.service(service).attempt { store throws(StorageError) in
      try store.getData(key, reason: reason)
    } ?? nil
  }

  /// Returns the `Codable` value of a secret.
  ///
  /// ```swift
  /// let credentials: Credentials? = SecureVault.model("credentials")
  /// ```
  ///
  /// - Returns: nil if there is no such secret. If it has another type or cannot be read, the
  ///   failure is reported and the result is nil.
  @inlinable
  public static func model<T: Codable>(
    _ key: String, type: T.Type = T.self, reason: String? = nil,
    service: Service = defaultService
  ) -> T? {
    self.service(service).attempt { store throws(StorageError) in
      try store.model(key, type: type, reason: reason)
    } ?? nil
  }

  /// Calls `body` with the bytes of a secret, and wipes them when it returns.
  ///
  /// ```swift
  /// let signature = SecureVault.withSecret("apiKey") { (bytes: RawSpan) in
  ///   sign(request, with: bytes)
  /// }
  /// ```
  ///
  /// Text is in UTF-8, a `Codable` value in JSON. There is no other copy of the plaintext.
  ///
  /// - Returns: The result of `body`; nil if there is no such secret. If it cannot be read, the
  ///   failure is reported and the result is nil.
  /// - Throws: Only what `body` throws.
  @discardableResult
  public static func withSecret<R, E: Error>(
    _ key: String, reason: String? = nil, service: Service = defaultService,
    _ body: (RawSpan) throws(E) -> R
  ) throws(E) -> R? {
    let store = self.service(service)
    let secret: OpenedEntry?
    do throws(StorageError) {
      secret = try store.open(key, reason, "withSecret")
    } catch {
      store.report(error)
      return nil
    }
    guard let secret else { return nil }
    return try secret.withBytes(body)
  }

  /// Returns whether a secret exists, without opening it or asking the user.
  ///
  /// - Returns: Whether it exists. If that cannot be determined, the failure is reported and the
  ///   result is false.
  public static func contains(_ key: String, service: Service = defaultService) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.contains(key) } ?? false
  }

  /// Returns the keys of all secrets of a service, sorted.
  ///
  /// A secret whose file is damaged is reported and left out.
  ///
  /// - Returns: The keys. If the vault cannot be read, the failure is reported and the result is
  ///   empty.
  public static func keys(service: Service = defaultService) -> [String] {
    self.service(service).attempt { store throws(StorageError) in try store.keys() } ?? []
  }

  /// Returns the app's services that have secrets, sorted by name.
  ///
  /// Services in a directory that the caller chose are not included.
  ///
  /// - Returns: The services. If the vault cannot be read, the failure is reported and the result
  ///   is empty.
  public static func services() -> [Service] {
    service(.standard).attempt { store throws(StorageError) in try store.services() } ?? []
  }
}

// MARK: - Writing

extension SecureVault {
  /// Stores a `String`, `Data` or any other `Codable` value as a secret; nil removes the secret.
  ///
  /// ```swift
  /// SecureVault.set("tok", forKey: "accessToken", service: "com.app.auth")
  /// SecureVault.set(pin, forKey: "pin", access: .userPresence)
  /// ```
  ///
  /// - Parameters:
  ///   - value: The value to store.
  ///   - key: The name of the secret.
  ///   - access: What reading the secret will require. nil keeps the access of a secret that
  ///     exists; a new one, or one whose damaged file does not tell, gets ``Access/whenUnlocked``.
  ///   - service: The service that it belongs to.
  /// - Returns: Whether the secret is stored and survives a power cut. If not, the old value is
  ///   intact, unless only synchronizing the directory failed; then either value may be stored.
  @inlinable @discardableResult
  public static func set<T: Codable>(
    _ value: T?, forKey key: String, access: Access? = nil, service: Service = defaultService
  ) -> Bool {
    self.service(service).attempt { store throws(StorageError) in
      try store.set(value, forKey: key, access: access)
    } != nil
  }

  /// Removes a secret: the overload for a literal `nil`.
  @inlinable @discardableResult
  public static func set(
    _ value: _OptionalNilComparisonType, forKey key: String, access: Access? = nil,
    service: Service = defaultService
  ) -> Bool {
    remove(key, service: service)
  }

  /// Removes a secret.
  ///
  /// Its file is deleted and not overwritten. What remains of it on the disk stays sealed.
  ///
  /// - Returns: Whether the secret is gone; true even if it never existed.
  @discardableResult
  public static func remove(_ key: String, service: Service = defaultService) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.remove(key) } != nil
  }

  /// Removes all secrets of one service.
  ///
  /// - Returns: Whether the service has no secrets now.
  @discardableResult
  public static func removeAll(service: Service = defaultService) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.removeAll() } != nil
  }
}

// MARK: - Protection

extension SecureVault {
  /// Protects the vault, with all its services, with another key source.
  ///
  /// ```swift
  /// guard SecureVault.protect(with: .passphrase(typed)) else { return }
  /// ```
  ///
  /// All keys are replaced and all secrets are sealed again. The old passphrase or key opens
  /// nothing that is written from then on, even together with an old copy of the vault header.
  /// After a compromise, call `protect`: recovery codes and recovery passphrases become invalid
  /// too, including any that an intruder added, and a remembered key is forgotten. If you use
  /// recovery codes, call ``Store/addRecovery()`` again.
  ///
  /// Older copies of the vault still open with the passphrase, key or code of their time. A new
  /// passphrase also applies to secrets with ``Access/userPresence``; the user must then enter the
  /// current passphrase.
  ///
  /// While a file in the vault is damaged, the old keys are kept for it, under the new source, and
  /// the damage is reported. ``Store/forgetOldKeys()`` drops them anyway.
  ///
  /// - Returns: Whether the new source protects the vault. If not, the old one still does, unless
  ///   only synchronizing the directory failed; then either may protect it.
  public static func protect(
    with source: KeySource, service: Service = defaultService
  ) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.protect(with: source) }
      != nil
  }

  /// The kind of key source that protects the vault of the ``defaultService``.
  ///
  /// It is nil if there is no vault yet. If the vault header cannot be read, the failure is
  /// reported and the value is nil.
  public static var protection: Protection? { protection(service: defaultService) }

  /// The kind of key source that protects the vault of a service; nil if there is no vault yet.
  public static func protection(service: Service) -> Protection? {
    self.service(service).attempt { store throws(StorageError) in try store.protection } ?? nil
  }

  /// Opens the vault until ``lock(service:)`` is called in this process.
  ///
  /// ```swift
  /// if SecureVault.isLocked, let typed = askUser() {
  ///   guard SecureVault.unlock(passphrase: typed, rememberFor: .minutes(15)) else { return }
  /// }
  /// ```
  ///
  /// Checking a passphrase takes about half a second.
  ///
  /// With `rememberFor`, the other processes of this login can open the vault without a passphrase
  /// for that time. The vault's master key is put in the kernel's session keyring (`keyrings(7)`).
  /// Processes of the same user in the same login find it there when they use the vault or read
  /// ``isLocked``, until the time is over or one of them calls ``lock(service:)``. A process that
  /// has already opened the vault keeps it open. A new key source or passphrase makes the
  /// remembered key useless. The article on the threat model says what this protects against.
  /// Without such a keyring, as in many containers, the vault is still opened, and the failure is
  /// reported.
  ///
  /// - Parameters:
  ///   - passphrase: The vault's passphrase, or a recovery code or recovery passphrase; nil to use
  ///     the key sources of bootstrap, or a remembered key, again after ``lock(service:)``.
  ///   - period: How long to remember the key, rounded up to whole seconds, at least one; nil to
  ///     remember nothing. Using the key does not prolong the time. Without a passphrase, it has no
  ///     effect.
  ///   - service: A service of the vault.
  /// - Returns: Whether the vault is open. If not, for instance because the passphrase is wrong,
  ///   the failure is reported.
  public static func unlock(
    passphrase: String? = nil, rememberFor period: Duration? = nil,
    service: Service = defaultService
  ) -> Bool {
    self.service(service).attempt { store throws(StorageError) in
      try store.unlock(passphrase: passphrase, rememberFor: period)
    } != nil
  }

  /// Wipes the keys from this process's memory. Nothing can be read until `unlock`, even with a key
  /// file.
  ///
  /// A key that ``unlock(passphrase:rememberFor:service:)`` put in the keyring of the login is
  /// destroyed, so that no other process can open the vault with it.
  ///
  /// It waits for calls on other threads that use the keys, but no longer than twice the timeout
  /// for locks. A call that is just opening the vault fails, and wipes its keys.
  public static func lock(service: Service = defaultService) {
    self.service(service).attempt { store throws(StorageError) in try store.lock() }
  }

  /// Whether the vault of the ``defaultService`` must be opened with `unlock`.
  ///
  /// It is true after ``lock(service:)``, and if no key source of bootstrap protects the vault and
  /// no remembered key opens it. If the vault header cannot be read, the failure is reported and
  /// the value is true.
  ///
  /// The key sources are not tried. If the key file, credential or key server is missing, the value
  /// is false although no secret can be read: calls on a ``Store`` throw the code `locked`. Restore
  /// the key, or call ``unlock(passphrase:rememberFor:service:)`` with a recovery code or recovery
  /// passphrase, and then ``protect(with:service:)`` with a new source.
  public static var isLocked: Bool { isLocked(service: defaultService) }

  /// Whether the vault of a service must be opened with `unlock`; see ``isLocked``.
  public static func isLocked(service: Service) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.isLocked } ?? true
  }
}

// MARK: - Typed keys

extension SecureVault {
  /// The secret of a typed key, which is nil if there is none. Setting it to nil removes it.
  ///
  /// ```swift
  /// SecureVault[.accessToken] = token
  /// ```
  @inlinable
  public static subscript<T: Codable>(key: Key<T>) -> T? {
    get { get(key) }
    set { set(newValue, for: key) }
  }

  /// Returns the secret of a typed key.
  ///
  /// - Returns: nil if there is no such secret. If it has another type or cannot be read, or if the
  ///   key's access is ``Access/userPresence`` and the secret was stored without it, the failure is
  ///   reported and the result is nil.
  @inlinable
  public static func get<T: Codable>(_ key: Key<T>, reason: String? = nil) -> T? {
    service(key.service ?? defaultService).attempt { store throws(StorageError) in
      try store.get(key, reason: reason)
    } ?? nil
  }

  /// Stores the secret of a typed key with the key's access; nil removes the secret.
  ///
  /// - Returns: Whether the secret is stored and survives a power cut. If not, the old value is
  ///   intact, unless only synchronizing the directory failed; then either value may be stored.
  @inlinable @discardableResult
  public static func set<T: Codable>(_ value: T?, for key: Key<T>) -> Bool {
    set(value, forKey: key.name, access: key.access, service: key.service ?? defaultService)
  }

  /// Removes the secret of a typed key.
  ///
  /// - Returns: Whether the secret is gone; true even if it never existed.
  @discardableResult
  public static func remove<T: Codable>(_ key: Key<T>) -> Bool {
    remove(key.name, service: key.service ?? defaultService)
  }

  /// Returns whether a secret of a typed key exists, without opening it or asking the user.
  public static func contains<T: Codable>(_ key: Key<T>) -> Bool {
    contains(key.name, service: key.service ?? defaultService)
  }
}
#endif
