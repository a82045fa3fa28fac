#if SecureVault
/// The vaults of a scope, and the stores of their services.
final class ScopeVaults: Sendable {
  private let givenOptions: VaultOptions
  private let bootstrappedOptions = Locked<VaultOptions?>(nil)
  private let services = StoreRegistry<SecureVault.Service, SecureVault.Store>()
  private let vaults = StoreRegistry<String, Vault>()
  fileprivate let defaultService = Locked(SecureVault.Service.standard)
  fileprivate let maxLogN = Locked(PassphraseWorkBudget.defaultMaxLogN)

  init(_ options: VaultOptions) { givenOptions = options }

  /// Sets the options that the scope was not given.
  func bootstrap(_ options: VaultOptions) { bootstrappedOptions.withLock { $0 = options } }

  private var options: VaultOptions {
    var options = givenOptions
    if let bootstrapped = bootstrappedOptions.withLock({ $0 }) {
      if options.hasStandardSources { options.sources = bootstrapped.sources }
      options.authenticate = options.authenticate ?? bootstrapped.authenticate
    }
    options.maxLogN = maxLogN.withLock { $0 }
    return options
  }

  fileprivate func store(
    _ service: SecureVault.Service, in scope: StorageScope
  ) -> SecureVault.Store {
    if let store = services.store(service, named: service.givenName) { return store }
    // Before the stores are locked, because the backing is code of the app.
    let vault =
      scope.isConfigured
      ? FirstUse(vault(holding: service, in: scope))
      : FirstUse(make: {
        StorageScope.inProcess { scope.vaults.vault(holding: service, in: scope) }
      })
    return services.store(service, named: service.givenName) {
      SecureVault.Store(service: service, vault: vault, scope: scope)
    }
  }

  /// The vault of a directory or of the backing, which all its services share.
  private func vault(
    holding service: SecureVault.Service, in scope: StorageScope
  ) -> Result<Vault, StorageError> {
    scope.configure(firstUse: "the service \(service.description.debugDescription)")
    do throws(StorageError) {
      if service.givenName != nil, let vault = sharedVault(in: scope) { return .success(vault) }
      let paths = VaultPaths(
        in: try service.directory(in: scope.finder, .data), finder: scope.finder)
      // Whichever links lead to it: locking a vault locks it for all of the process.
      let place = try? FileSystem.resolvingExistingPart(of: paths.directory)
      return .success(vault(place ?? paths.directory, in: scope) { _ in VaultDirectory(paths) })
    } catch {
      return .failure(error)
    }
  }

  /// The vault of the backing; nil if it has none.
  private func sharedVault(in scope: StorageScope) -> Vault? {
    // No directory has this name.
    let name = "shared"
    if let vault = vaults.store(named: name) { return vault }
    let app = scope.finder.app
    guard let backing = scope.backing as? any VaultBacking else { return nil }
    return vault(name, in: scope) { backing.vaultStorage(app: app, report: $0) }
  }

  private func vault(
    _ name: String, in scope: StorageScope,
    storage: (@escaping @Sendable (StorageError) -> Void) -> any VaultStorage
  ) -> Vault {
    vaults.store(name, named: name) {
      let report: @Sendable (StorageError) -> Void = { [weak scope] in
        scope?.report($0.reported(by: "SecureVault"))
      }
      return Vault(
        storage: storage(report), finder: scope.finder, options: self.options, report: report)
    }
  }

  func close() {
    services.close()
    vaults.close()
  }
}

extension StorageScope {
  func vault(_ service: SecureVault.Service) -> SecureVault.Store {
    vaults.store(service, in: self)
  }

  var defaultService: SecureVault.Service {
    get { vaults.defaultService.withLock { $0 } }
    set { vaults.defaultService.withLock { $0 = newValue } }
  }

  /// The binary logarithm of scrypt's N, within the bounds of the format.
  var maxPassphraseLogN: Int {
    get { Int(vaults.maxLogN.withLock { $0 }) }
    set {
      let bounds = KeySlot.acceptedLogN
      let clamped = UInt8(
        clamping: max(Int(bounds.lowerBound), min(newValue, Int(bounds.upperBound))))
      vaults.maxLogN.withLock { $0 = clamped }
    }
  }
}
#endif
