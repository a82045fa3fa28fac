// What takes the place of vaults in a build without the package trait `SecureVault`.

#if !SecureVault
struct VaultOptions: Sendable {}

struct ScopeVaults: Sendable {
  init(_ options: VaultOptions) {}
  func close() {}
}

extension StorageSystem {
  /// Names the app, once, before anything is stored or read: as with vaults, but for their key
  /// sources.
  public static func bootstrap(
    app: String, directories: Directories = Directories(),
    engines: [Defaults.Suite: any StorageEngine] = [:]
  ) throws(StorageError) {
    try configuration.bootstrap(app: app, directories: directories, engines: engines)
  }

  /// Runs `body` with empty stores of its own, in a directory that is removed afterwards: as with
  /// vaults, but for their key sources.
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
