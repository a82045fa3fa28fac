#if SecureVault
extension StorageSystem {
  /// Names the app. Call it once, before anything is stored or read.
  ///
  /// Before it, you may take a store, as with ``Defaults/shared``, and set ``onFailure``,
  /// ``SecureVault/defaultService`` or ``DiskCache/sizeLimit``.
  ///
  /// Without it, the executable's name is used, so a renamed program does not find its data.
  /// Another call with the same arguments only sets ``onFailure``: the same app, directories and
  /// kinds of backing, engines and key sources.
  ///
  /// In a test run, and in a ``withTemporary(engines:keySources:authenticate:isolation:_:)`` block
  /// of any program, it can be called at any time and with any arguments. It then sets the key
  /// sources and `authenticate` of the test run or the block, except those that the block was
  /// given. The backing, the directories and the engines have no effect there.
  ///
  /// ```swift
  /// try StorageSystem.bootstrap(app: "com.example.notes")
  /// ```
  ///
  /// - Parameters:
  ///   - app: A single path component, usually in reverse-DNS notation.
  ///   - backing: Where settings, secrets and caches are stored; by default on this machine.
  ///   - directories: Directories to use instead of the platform's.
  ///   - engines: Engines for suites of settings that should not be stored in journals. Each suite
  ///     needs its own ``StorageEngines/Engine``.
  ///   - keySources: The sources that may open a vault without a call of `unlock`, in the order in
  ///     which they are tried. Sources that do not protect the vault are skipped. A new vault is
  ///     created with the first source that is available. By default these are a systemd credential
  ///     named `vault.key`, then a key file. If the list is empty, only
  ///     ``SecureVault/protect(with:service:)`` creates a vault.
  ///   - onFailure: Becomes ``onFailure``; nil leaves that as it is.
  ///   - authenticate: Asks the user for a passphrase, which secrets with
  ///     ``SecureVault/Access/userPresence`` require; for instance ``SecureVault/askTerminal(_:)``.
  /// - Throws: ``StorageError`` of code `misuse` if a store has already been used, which the error
  ///   names, if it was called before with other arguments, or if the app's name cannot be the name
  ///   of a directory.
  public static func bootstrap<Backing: StorageBacking>(
    app: String, on backing: Backing = .thisMachine, directories: Directories = Directories(),
    engines: [Defaults.Suite: any StorageEngines.Engine] = [:],
    keySources: [SecureVault.KeySource] = SecureVault.KeySource.standard,
    onFailure: (@Sendable (StorageError) -> Void)? = nil,
    authenticate: SecureVault.Authenticator? = nil
  ) throws(StorageError) {
    try bootstrap(
      Setup(
        app: app, backing: backing, directories: directories, engines: engines,
        vaultOptions: VaultOptions(sources: keySources, authenticate: authenticate)), onFailure)
  }

  /// Runs `body` with its own empty stores, in a directory that is removed afterwards.
  ///
  /// These stores are used by `body` and the tasks that it creates. Detached tasks and dispatch
  /// queues use the process's stores.
  ///
  /// ```swift
  /// try await StorageSystem.withTemporary {
  ///   Defaults.set(25, forKey: "age")
  /// }
  /// ```
  ///
  /// `engines`, `keySources` and `authenticate` have the same meaning as in bootstrap, for the
  /// block's stores. A test can use an engine that fails, and enter passphrases for the user.
  /// Engines belong to the caller and are not emptied at the end.
  ///
  /// - Returns: The result of `body`.
  /// - Throws: What `body` throws, or a ``StorageError`` if the directory cannot be created.
  @discardableResult
  public static func withTemporary<R>(
    engines: [Defaults.Suite: any StorageEngines.Engine] = [:],
    keySources: [SecureVault.KeySource] = SecureVault.KeySource.standard,
    authenticate: SecureVault.Authenticator? = nil,
    isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> R
  ) async throws -> R {
    try await withTemporary(
      engines: engines, vaultOptions: VaultOptions(sources: keySources, authenticate: authenticate),
      isolation: isolation, body)
  }

  /// Does the same as ``withTemporary(engines:keySources:authenticate:isolation:_:)``, for code
  /// that cannot wait, such as `invokeTest()` of an `XCTestCase`.
  ///
  /// ```swift
  /// try StorageSystem.withTemporarySynchronously { super.invokeTest() }
  /// ```
  ///
  /// - Returns: The result of `body`.
  /// - Throws: What `body` throws, or a ``StorageError`` if the directory cannot be created.
  // It has a different name because in top-level code the compiler would prefer this call whenever
  // `body` does not wait, and warn of the `await`.
  @discardableResult
  public static func withTemporarySynchronously<R>(
    engines: [Defaults.Suite: any StorageEngines.Engine] = [:],
    keySources: [SecureVault.KeySource] = SecureVault.KeySource.standard,
    authenticate: SecureVault.Authenticator? = nil, _ body: () throws -> R
  ) throws -> R {
    try withTemporarySynchronously(
      engines: engines, vaultOptions: VaultOptions(sources: keySources, authenticate: authenticate),
      body)
  }
}
#endif
