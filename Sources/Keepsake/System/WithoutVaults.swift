// Replaces the vaults in a build without the package trait `SecureVault`.

#if !SecureVault
struct VaultOptions: Sendable {
  func isSame(as other: Self) -> Bool { true }
}

struct ScopeVaults: Sendable {
  init(_ options: VaultOptions) {}
  func bootstrap(_ options: VaultOptions) {}
  func close() {}
}

extension StorageSystem {
  /// Sets the app's name and directories, once, before anything is stored or read. The call has no
  /// key sources because this build has no vaults.
  public static func bootstrap<Backing: StorageBacking>(
    app: String, on backing: Backing = .thisMachine, directories: Directories = Directories(),
    engines: [Defaults.Suite: any StorageEngines.Engine] = [:],
    onFailure: (@Sendable (StorageError) -> Void)? = nil
  ) throws(StorageError) {
    try bootstrap(
      Setup(app: app, backing: backing, directories: directories, engines: engines), onFailure)
  }

  /// Runs `body` with its own empty stores, in a directory that is removed afterwards. The call has
  /// no key sources because this build has no vaults.
  @discardableResult
  public static func withTemporary<R>(
    engines: [Defaults.Suite: any StorageEngines.Engine] = [:],
    isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> R
  ) async throws -> R {
    try await withTemporary(
      engines: engines, vaultOptions: VaultOptions(), isolation: isolation, body)
  }

  /// Runs `body` with its own empty stores, for code that cannot wait, such as `invokeTest()` of an
  /// `XCTestCase`.
  @discardableResult
  public static func withTemporarySynchronously<R>(
    engines: [Defaults.Suite: any StorageEngines.Engine] = [:], _ body: () throws -> R
  ) throws -> R {
    try withTemporarySynchronously(engines: engines, vaultOptions: VaultOptions(), body)
  }
}
#endif
