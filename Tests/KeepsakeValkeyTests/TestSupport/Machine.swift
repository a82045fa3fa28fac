import Foundation

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// A backing with nothing but a vault on an engine.
struct VaultEngine: VaultBacking {
  private let engine: any StorageEngines.MirroredEngine
  /// Called with the name of the app when it is asked for the vault.
  private let onVault: @Sendable (String) -> Void

  init(
    _ engine: any StorageEngines.MirroredEngine,
    onVault: @escaping @Sendable (String) -> Void = { _ in }
  ) { (self.engine, self.onVault) = (engine, onVault) }

  func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngines.Engine)? { nil }
  func suites(app: String) -> [Defaults.Suite] { [] }

  func vaultStorage(
    app: String, report: @escaping @Sendable (StorageError) -> Void
  ) -> any VaultStorage {
    onVault(app)
    return SharedVault(engine, app: app, report: report)
  }
}

/// What an app has on one of the machines that share a vault: stores of its own, and a mirror of
/// the engine.
final class Machine: Sendable {
  let engine: ServerEngine
  let directory: TemporaryDirectory
  let failures = Failures()
  private let scope: StorageScope

  /// What opens the vaults of tests.
  static let key = SecureVault.KeySource.closure("test") { Data(repeating: 7, count: 32) }

  init(
    _ server: SharedServer, app: String = "shop", flaw: MirrorFlaw? = nil,
    keySources: [SecureVault.KeySource] = [key],
    authenticate: SecureVault.Authenticator? = nil
  ) throws {
    let (engine, directory) = (ServerEngine(server, flaw: flaw), try TemporaryDirectory())
    (self.engine, self.directory) = (engine, directory)
    scope = StorageScope(
      finder: DirectoryFinder(
        app: app, chosen: .init(data: directory.url, state: directory.url),
        environment: { _ in nil }),
      backing: VaultEngine(engine),
      vaultOptions: VaultOptions(sources: keySources, authenticate: authenticate),
      handler: failures.append)
  }

  // A scope and its stores reference each other.
  deinit { scope.close() }

  func secrets(_ service: SecureVault.Service = .standard) -> SecureVault.Store {
    scope.vault(service)
  }

  var vault: Vault { get throws { try secrets().vault } }

  /// Waits until what the others have done has arrived.
  func catchUp() throws { _ = try engine.apply([], ifCurrent: []) }
}
