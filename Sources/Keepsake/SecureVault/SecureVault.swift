#if SecureVault
public import FoundationEssentials

/// Secrets, sealed, in one line each.
///
/// ```swift
/// SecureVault.set("tok", forKey: "accessToken", service: "com.app.auth")
/// let token = SecureVault.get("accessToken", service: "com.app.auth")
/// ```
///
/// Each secret is a file of its own, sealed with XAES-256-GCM by OpenSSL; neither keys nor services
/// can be told from the files. By default the key to them lies in a file that is made when it is
/// first needed: nobody is asked for anything. ``protect(with:service:)`` puts the vault under a
/// passphrase or another source, and the article on the threat model says what each protects
/// against.
///
/// A set survives a power cut once it returns. A file that was changed, moved or exchanged is an
/// error and never a value, and no error shows a secret. All calls are safe from any thread and
/// between processes, and no reader waits for a writer.
///
/// No call throws a storage error: a call returns nil or `false`, and reports the failure to
/// ``StorageSystem/onFailure``. `withSecret` throws what your closure throws, and `askTerminal`
/// throws if the terminal cannot be read. The calls of a ``Store``, which ``shared`` and
/// ``service(_:)`` return, throw ``StorageError``.
public enum SecureVault {
  /// Names a service whose secrets are kept apart from all others.
  ///
  /// See ``StoragePlace``. All services of an app are in one vault, under one key; those with a
  /// directory of their own, as `SecureVault.Service("team", in: url)`, are in that directory's
  /// vault.
  public typealias Service = StoragePlace<SecureVault>

  /// The service that is meant where none is named; at first ``StoragePlace/standard``.
  ///
  /// Set it once, first thing in the program. Inside
  /// ``StorageSystem/withTemporary(engines:keySources:authenticate:isolation:_:)`` it is that
  /// block's own.
  public static var defaultService: Service {
    get { StorageScope.current.defaultService }
    set { StorageScope.current.defaultService = newValue }
  }

  /// The throwing store behind the calls that name no service.
  public static var shared: Store { service(defaultService) }

  /// The throwing store of a service.
  ///
  /// ```swift
  /// let auth = SecureVault.service("com.app.auth")
  /// ```
  ///
  /// Ask for it where it is used: one that is kept, as in a `static let`, goes on with the
  /// directories of the moment when it was made, in a test as well.
  public static func service(_ service: Service) -> Store { StorageScope.current.vault(service) }
}

// MARK: - Reading

extension SecureVault {
  /// A secret that is text; nil when there is none, or, reported, it cannot be read.
  ///
  /// ```swift
  /// let pin = SecureVault.get("pin", reason: "Unlock notes")
  /// ```
  ///
  /// Of a secret that was set with ``Access/userPresence``, `reason` is what the person is told who
  /// has to be present.
  public static func get(
    _ key: String, reason: String? = nil, service: Service = defaultService
  ) -> String? {
    self.service(service).attempt { store throws(StorageError) in try store.get(key, reason: reason)
    } ?? nil
  }

  /// The bytes of a secret, whatever type it was stored as; nil when there is none, or, reported,
  /// it cannot be read.
  public static func getData(
    _ key: String, reason: String? = nil, service: Service = defaultService
  ) -> Data? {
    self.service(service).attempt { store throws(StorageError) in
      try store.getData(key, reason: reason)
    } ?? nil
  }

  /// The `Codable` value of a secret; nil when there is none, or, reported, it cannot be read.
  ///
  /// ```swift
  /// let credentials: Credentials? = SecureVault.model("credentials")
  /// ```
  @inlinable
  public static func model<T: Codable>(
    _ key: String, type: T.Type = T.self, reason: String? = nil,
    service: Service = defaultService
  ) -> T? {
    self.service(service).attempt { store throws(StorageError) in
      try store.model(key, type: type, reason: reason)
    } ?? nil
  }

  /// Calls `body` with a secret's bytes, which are wiped when it returns.
  ///
  /// ```swift
  /// let signature = SecureVault.withSecret("apiKey") { (bytes: RawSpan) in
  ///   sign(request, with: bytes)
  /// }
  /// ```
  ///
  /// Text is in UTF-8, a `Codable` value in JSON. No other copy was made on the way.
  ///
  /// - Returns: What `body` returns; nil when there is no secret, or, reported, it cannot be read.
  /// - Throws: What `body` throws.
  @discardableResult
  public static func withSecret<R, E: Error>(
    _ key: String, reason: String? = nil, service: Service = defaultService,
    _ body: (RawSpan) throws(E) -> R
  ) throws(E) -> R? {
    let store = self.service(service)
    let secret: OpenedSecret?
    do throws(StorageError) {
      secret = try store.opened(key, reason, "withSecret")
    } catch {
      store.report(error)
      return nil
    }
    guard let secret else { return nil }
    return try secret.withBytes(body)
  }

  /// Whether there is a secret; it is not opened, and nobody is asked for anything.
  public static func contains(_ key: String, service: Service = defaultService) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.contains(key) } ?? false
  }

  /// When a secret was made and changed, and how it is guarded; nil when there is none.
  ///
  /// Nobody is asked for anything.
  public static func entry(_ key: String, service: Service = defaultService) -> Entry? {
    self.service(service).attempt { store throws(StorageError) in try store.entry(key) } ?? nil
  }

  /// The keys of all secrets of a service, sorted; empty when they cannot be read.
  ///
  /// An entry whose file is damaged is reported and hides no other.
  public static func keys(service: Service = defaultService) -> [String] {
    self.service(service).attempt { store throws(StorageError) in try store.keys() } ?? []
  }

  /// The app's services that have secrets, sorted by name; those with a directory of their own are
  /// not among them.
  public static func services() -> [Service] {
    service(.standard).attempt { store throws(StorageError) in try store.storedServices() } ?? []
  }
}

// MARK: - Writing

extension SecureVault {
  /// Stores a secret such that it survives a power cut: `String`, `Data`, or any `Codable` value;
  /// nil removes it.
  ///
  /// ```swift
  /// SecureVault.set("tok", forKey: "accessToken", service: "com.app.auth")
  /// SecureVault.set(pin, forKey: "pin", access: .userPresence)
  /// ```
  ///
  /// `access` says whether a person has to be present to read it; nil leaves that as it is, and
  /// makes a new secret, or one that takes the place of a damaged file, ``Access/whenUnlocked``.
  ///
  /// - Returns: Whether it is stored; if not, the old value is intact, unless the report says that
  ///   its directory could not be synchronized: then it is the old or the new one.
  @inlinable @discardableResult
  public static func set<T: Codable>(
    _ value: T?, forKey key: String, access: Access? = nil, service: Service = defaultService
  ) -> Bool {
    self.service(service).attempt { store throws(StorageError) in
      try store.set(value, forKey: key, access: access)
    } != nil
  }

  /// Removes the secret: what a literal nil means.
  @inlinable @discardableResult
  public static func set(
    _ value: Never?, forKey key: String, access: Access? = nil, service: Service = defaultService
  ) -> Bool {
    remove(key, service: service)
  }

  /// Removes a secret.
  ///
  /// Its file is deleted, not overwritten: what a disk keeps of deleted files stays sealed.
  ///
  /// - Returns: Whether there is none now; true also when there was none.
  @discardableResult
  public static func remove(_ key: String, service: Service = defaultService) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.remove(key) } != nil
  }

  /// Removes all secrets of one service.
  ///
  /// - Returns: Whether it has none now.
  @discardableResult
  public static func removeAll(service: Service = defaultService) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.removeAll() } != nil
  }

  /// Removes the whole vault: all secrets of all services, and the keys to them, whether it can be
  /// opened or not.
  ///
  /// It is for those who have forgotten their passphrase or lost the key file, and want to start
  /// anew. The next vault is made with the first key source that is there. To remove the secrets of
  /// one service use ``removeAll(service:)``.
  ///
  /// - Returns: Whether the vault is empty now.
  @discardableResult
  public static func eraseVault(service: Service = defaultService) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.eraseVault() } != nil
  }
}

// MARK: - Protection

extension SecureVault {
  /// Puts the vault, with all its services, under another source of keys.
  ///
  /// ```swift
  /// guard SecureVault.protect(with: .passphrase(typed)) else { return }
  /// ```
  ///
  /// All keys are made anew and all secrets sealed again, so the old passphrase or key opens
  /// nothing of what is written from now on, not even with an old copy of the vault's header.
  /// Copies of the vault that were made before still open with the old one. Where there are secrets
  /// with ``Access/userPresence``, a new passphrase is theirs as well, and the current one is asked
  /// for.
  ///
  /// - Returns: Whether it is under the new source; if not, it is under the old one, unless the
  ///   report says that its directory could not be synchronized: then under the old or the new one.
  public static func protect(
    with source: KeySource, service: Service = defaultService
  ) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.protect(with: source) }
      != nil
  }

  /// What the vault is under; nil when there is none yet, or, reported, its header cannot be read.
  public static var protection: Protection? {
    shared.attempt { store throws(StorageError) in try store.protection } ?? nil
  }

  /// Seals all secrets again under a new key and forgets the old ones.
  ///
  /// Others may go on reading and writing meanwhile. It may be interrupted anywhere; the next call
  /// goes on.
  ///
  /// - Returns: Whether no secret is under an old key.
  @discardableResult
  public static func rotateKeys(service: Service = defaultService) -> Bool {
    self.service(service).attempt { store throws(StorageError) in try store.rotateKeys() } != nil
  }

  /// Opens the vault: with its passphrase, or, after ``lock(service:)``, with whatever key source
  /// opens it.
  ///
  /// It stays open in this process until ``lock(service:)``. A passphrase takes about half a
  /// second.
  ///
  /// - Returns: Whether it is open; false, and reported, when the passphrase is not the right one.
  public static func unlock(
    passphrase: String? = nil, service: Service = defaultService
  ) -> Bool {
    self.service(service).attempt { store throws(StorageError) in
      try store.unlock(passphrase: passphrase)
    }
      != nil
  }

  /// Wipes the keys from this process's memory; nothing can be read until `unlock`, also with a key
  /// file.
  ///
  /// It waits for calls on other threads that use the keys, for as long as twice the time-out for
  /// locks; what is being opened at that moment fails, and wipes its keys itself.
  public static func lock(service: Service = defaultService) {
    self.service(service).attempt { store throws(StorageError) in try store.lock() }
  }

  /// Whether nothing can be read before `unlock`: after ``lock(service:)``, or under a passphrase,
  /// or another source that bootstrap does not name, that was not given yet. Also true, and
  /// reported, when the header cannot be read.
  public static var isLocked: Bool {
    shared.attempt { store throws(StorageError) in try store.isLocked } ?? true
  }
}

// MARK: - Typed keys

extension SecureVault {
  /// The secret of a typed key; nil when there is none, and setting it to nil removes it.
  ///
  /// ```swift
  /// SecureVault[.accessToken] = token
  /// ```
  @inlinable
  public static subscript<T: Codable>(key: Key<T>) -> T? {
    get { get(key) }
    set { set(newValue, for: key) }
  }

  /// The secret of a typed key; nil when there is none, or, reported, it cannot be read.
  @inlinable
  public static func get<T: Codable>(_ key: Key<T>, reason: String? = nil) -> T? {
    model(key.name, reason: reason, service: key.service ?? defaultService)
  }

  /// Stores the secret of a typed key with the key's own access; nil removes it.
  ///
  /// - Returns: Whether it is stored; if not, the old value is intact, as far as its directory
  ///   could be synchronized.
  @inlinable @discardableResult
  public static func set<T: Codable>(_ value: T?, for key: Key<T>) -> Bool {
    set(value, forKey: key.name, access: key.access, service: key.service ?? defaultService)
  }

  /// Removes the secret of a typed key.
  @discardableResult
  public static func remove<T: Codable>(_ key: Key<T>) -> Bool {
    remove(key.name, service: key.service ?? defaultService)
  }

  /// Whether there is a secret of a typed key.
  public static func contains<T: Codable>(_ key: Key<T>) -> Bool {
    contains(key.name, service: key.service ?? defaultService)
  }

  /// When a typed key's secret was made and changed, and how it is guarded; nil when there is none.
  public static func entry<T: Codable>(_ key: Key<T>) -> Entry? {
    entry(key.name, service: key.service ?? defaultService)
  }
}
#endif
