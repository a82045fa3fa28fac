// What takes the place of vaults in a build without the package trait `SecureVault`.

#if !SecureVault
struct VaultOptions: Sendable {}

struct ScopeVaults: Sendable {
  init(_ options: VaultOptions) {}
  /// A vault that another build of the program has made stays: nothing here knows it.
  func erase() -> Bool { true }
  func close() {}
}

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
  /// - Throws: ``StorageError`` of code `misuse` when it comes late or twice, or when the name
  ///   cannot be the name of a folder.
  public static func bootstrap(
    app: String, directories: Directories = Directories(),
    engines: [Defaults.Suite: any StorageEngine] = [:]
  ) throws(StorageError) {
    try configuration.bootstrap(app: app, directories: directories, engines: engines)
  }

  /// Runs `body` with empty stores of its own, in a folder that is removed afterwards.
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
  /// `engines` are as in bootstrap, for the block's stores: a test puts a suite on an engine that fails. An
  /// engine is the caller's, and is not emptied at the end.
  ///
  /// - Returns: What `body` returns.
  /// - Throws: What `body` throws, or a ``StorageError`` when there is no folder to be had.
  @discardableResult
  public static func withTemporary<R>(
    engines: [Defaults.Suite: any StorageEngine] = [:],
    isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> R
  ) async throws -> R {
    try await withTemporary(
      engines: engines, vaultOptions: VaultOptions(), isolation: isolation, body)
  }
}
#endif
