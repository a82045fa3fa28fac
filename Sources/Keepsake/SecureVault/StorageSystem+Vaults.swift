#if SecureVault
extension StorageSystem {
  /// Names the app, once, before anything is stored or read.
  ///
  /// Without it the executable's name is used, so a renamed program finds other data.
  ///
  /// ```swift
  /// try StorageSystem.bootstrap(app: "com.example.notes")
  /// ```
  ///
  /// - Parameters:
  ///   - app: One path component, by custom in reverse-DNS form.
  ///   - directories: Folders to use in place of the platform's.
  ///   - engines: Where suites of settings lie that are not to be journals in files: each on a
  ///     ``StorageEngine`` of its own. A test run does not use them, no more than the directories.
  ///   - keySources: Which sources may open a vault by themselves, in the order in which they are
  ///     tried; those that the vault is not under are passed over. A new vault is made with the
  ///     first that is there. By default a credential of systemd named `vault.key`, then a key
  ///     file. With none, a vault is made only by ``SecureVault/protect(with:service:)``.
  ///   - authenticate: Asks the person who sits there for a passphrase, which secrets with
  ///     ``SecureVault/Access/userPresence`` need; ``SecureVault/askTerminal(_:)`` is one.
  /// - Throws: ``StorageError`` of code `misuse` when it comes late or twice, or when the name
  ///   cannot be the name of a directory.
  public static func bootstrap(
    app: String, directories: Directories = Directories(),
    engines: [Defaults.Suite: any StorageEngine] = [:],
    keySources: [SecureVault.KeySource] = SecureVault.KeySource.standard,
    authenticate: SecureVault.Authenticator? = nil
  ) throws(StorageError) {
    try configuration.bootstrap(
      app: app, directories: directories, engines: engines,
      vaultOptions: VaultOptions(sources: keySources, authenticate: authenticate))
  }

  /// Runs `body` with empty stores of its own, in a directory that is removed afterwards.
  ///
  /// It holds for `body` and the tasks it creates, not for detached tasks and dispatch queues:
  /// those use the process's stores.
  ///
  /// ```swift
  /// try await StorageSystem.withTemporary {
  ///   Defaults.set(25, forKey: "age")
  /// }
  /// ```
  ///
  /// `engines`, `keySources` and `authenticate` are as in bootstrap, for the block's stores: a test
  /// puts a suite on an engine that fails, and answers for the person who would sit there. An
  /// engine is the caller's, and is not emptied at the end.
  ///
  /// - Returns: What `body` returns.
  /// - Throws: What `body` throws, or a ``StorageError`` when there is no directory to be had.
  @discardableResult
  public static func withTemporary<R>(
    engines: [Defaults.Suite: any StorageEngine] = [:],
    keySources: [SecureVault.KeySource] = SecureVault.KeySource.standard,
    authenticate: SecureVault.Authenticator? = nil,
    isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> R
  ) async throws -> R {
    try await withTemporary(
      engines: engines, vaultOptions: VaultOptions(sources: keySources, authenticate: authenticate),
      isolation: isolation, body)
  }
}
#endif
