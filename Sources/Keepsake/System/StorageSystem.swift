internal import FoundationEssentials
internal import Synchronization

/// Configures what all stores of a process share: the app's name, its directories, and the handler
/// for failures.
public enum StorageSystem {
  /// Called with each failure that a facade reports. The default writes one line to the standard
  /// error that the program was started with, and nothing if the program has replaced that stream.
  ///
  /// The same operation, code, path and key are reported at most once a second, and of each
  /// operation and code at most ten failures a second. ``StorageError/suppressedCount`` of the next
  /// report says how many failures were not reported. Each
  /// ``withTemporary(engines:keySources:authenticate:isolation:_:)`` block has its own handler. The
  /// handler may be called on any thread, and holds up the call that failed.
  ///
  /// The handler can use stores. If one of its own calls fails, it is not called again for that
  /// failure, which is counted in ``StorageError/suppressedCount`` of the next report: a handler
  /// that counts failures in `Defaults` would otherwise never return while they cannot be stored.
  /// That holds for its own thread only: do not wait in it for another thread that uses stores.
  ///
  /// ```swift
  /// StorageSystem.onFailure = { error in logger.error("\(error)") }
  /// ```
  public static var onFailure: @Sendable (StorageError) -> Void {
    get { StorageScope.current.onFailure }
    set { StorageScope.current.onFailure = newValue }
  }

  /// Implements the public calls of this name, with and without vaults.
  static func withTemporary<R>(
    engines: [Defaults.Suite: any StorageEngines.Engine], vaultOptions: VaultOptions,
    isolation: isolated (any Actor)?, _ body: () async throws -> R
  ) async throws -> R {
    let temporary = try TemporaryScope(engines: engines, vaultOptions: vaultOptions)
    defer { temporary.close() }
    return try await StorageScope.$temporary.withValue(
      temporary.scope, operation: body, isolation: isolation)
  }

  /// The same for code that cannot wait.
  static func withTemporarySynchronously<R>(
    engines: [Defaults.Suite: any StorageEngines.Engine], vaultOptions: VaultOptions,
    _ body: () throws -> R
  ) throws -> R {
    let temporary = try TemporaryScope(engines: engines, vaultOptions: vaultOptions)
    defer { temporary.close() }
    return try StorageScope.$temporary.withValue(temporary.scope, operation: body)
  }

  /// The stores of one `withTemporary` call.
  private struct TemporaryScope {
    let scope: StorageScope
    private let directory: String

    init(
      engines: [Defaults.Suite: any StorageEngines.Engine], vaultOptions: VaultOptions
    ) throws(StorageError) {
      directory = try TemporaryDirectory.make("scope")
      scope = StorageScope(
        finder: .temporary(app: ProcessIdentity.executableName, in: directory), engines: engines,
        vaultOptions: vaultOptions)
      StorageScope.temporaryScopeWasOpened.store(true, ordering: .relaxed)
    }

    func close() {
      scope.close()
      do throws(StorageError) {
        try FileSystem.removeTree(directory)
      } catch {
        scope.report(error.inContext(of: "withTemporary"))
      }
    }
  }

  /// Empties all stores of this app: every suite of settings and every cache, including those in
  /// memory, and the vault, even if its key is lost.
  ///
  /// On the server of a ``StorageBacking``, all suites are emptied, and the caches that this
  /// machine has used, for all machines that share them.
  ///
  /// Stores in a directory that the caller chose are kept, because other apps may share them. The
  /// files of a ``Folder`` are kept too.
  ///
  /// - Returns: Whether everything is empty now. Each failure is reported to ``onFailure``.
  @discardableResult
  public static func removeAll() -> Bool {
    let settings = Defaults.shared
    let (suites, failures) = settings.storedSuites()
    for failure in failures { settings.report(failure) }
    let caches = DiskCache.shared.attempt { store throws(StorageError) in try store.caches() }
    let isDone =
      (suites + [.memory]).map { Defaults.removeAll(suite: $0) }
      + ((caches ?? []) + [.memory]).map { DiskCache.removeAll(cache: $0) }
    #if SecureVault
    let vault = SecureVault.service(.standard)
    let isErased = vault.attempt { store throws(StorageError) in try store.eraseVault() } != nil
    #else
    // Secrets of another build of the program stay: this build cannot find them.
    let isErased = true
    #endif
    return failures.isEmpty && caches != nil && isErased && isDone.allSatisfy { $0 }
  }

  // MARK: Bootstrap

  /// The arguments of `bootstrap`.
  struct Setup: Sendable {
    let app: String
    var backing: any StorageBacking = .thisMachine
    var directories = Directories()
    var engines: [Defaults.Suite: any StorageEngines.Engine] = [:]
    var vaultOptions = VaultOptions()
  }

  static let configuration = Configuration()

  /// Implements the public calls of this name, with and without vaults.
  static func bootstrap(
    _ setup: Setup, _ handler: (@Sendable (StorageError) -> Void)?
  ) throws(StorageError) {
    try setup.requireValidName()
    if StorageScope.hasHadTemporaryScope, let scope = StorageScope.temporary {
      scope.vaults.bootstrap(setup.vaultOptions)
    } else {
      try configuration.bootstrap(setup)
    }
    if let handler { onFailure = handler }
  }

  /// What the scope of the process is made from, which can be set until the first store is used.
  final class Configuration: Sendable {
    private struct State {
      var setup: Setup?
      /// What used a store first.
      var firstUse: String?
      var scope: StorageScope?
    }

    private let state = Locked(State())
    private let isTestRun: Bool

    /// - Parameter isTestRun: Whether to keep the data apart from the user's. Names and arguments
    ///   do not tell, as any program may have them.
    init(isTestRun: Bool = ProcessEnvironment.hasTestLibrary) { self.isTestRun = isTestRun }

    func bootstrap(_ setup: Setup) throws(StorageError) {
      let (old, isSet) = state.withLock { state in
        let old = state
        let isSet = isTestRun || old.setup == nil && old.firstUse == nil
        if isSet {
          state.setup = setup
          state.scope?.vaults.bootstrap(setup.vaultOptions)
        }
        return (old, isSet)
      }
      if isSet {
        old.scope?.didBootstrap()
        return
      }
      // Outside the lock, because this calls the `==` of the app's backing, which may use a store.
      if let other = old.setup, other.isSame(as: setup) { return }
      throw StorageError(
        .misuse, operation: "bootstrap",
        reason: old.setup == nil
          ? "\(old.firstUse ?? "a store") is already in use"
          : "bootstrap has already been called with other arguments",
        remedy: "Call bootstrap once, before any store is used.")
    }

    func makeProcessScope() -> StorageScope {
      let scope = StorageScope(configuration: { self.take(firstUse: $0) })
      let setup = state.withLock { state in
        state.scope = scope
        return state.setup
      }
      if let setup {
        scope.vaults.bootstrap(setup.vaultOptions)
        scope.didBootstrap()
      }
      return scope
    }

    /// What the scope is made from, from now on.
    private func take(firstUse: String) -> StorageScope.Parts {
      state.withLock { state in
        state.firstUse = state.firstUse ?? firstUse
        let setup = state.setup ?? Setup(app: ProcessIdentity.executableName)
        if isTestRun {
          let directory = TemporaryDirectory.reservePath("tests")
          return StorageScope.Parts(finder: .temporary(app: setup.app, in: directory))
        }
        return StorageScope.Parts(
          finder: DirectoryFinder(app: setup.app, chosen: setup.directories),
          backing: setup.backing, engines: setup.engines)
      }
    }
  }
}

extension StorageSystem.Setup {
  func requireValidName() throws(StorageError) {
    guard !app.isEmpty, app != ".", app != "..", app.utf8.count <= 200,
      !app.utf8.contains(where: { $0 == UInt8(ascii: "/") || $0 == 0 })
    else {
      throw StorageError(
        .misuse, operation: "bootstrap", reason: "the app name is not a valid directory name",
        remedy: "Use a name such as com.example.notes.")
    }
  }

  /// Whether both have the same effect, as far as values can be compared: backings by `==` or their
  /// types, engines by their types and folders, closures by whether they are there.
  fileprivate func isSame(as other: Self) -> Bool {
    ExactString(app) == ExactString(other.app) && Self.isSame(backing, other.backing)
      && directories.all == other.directories.all
      && engines.count == other.engines.count
      && engines.allSatisfy { suite, engine in
        other.engines[suite].map { Self.isSame(engine, $0) } ?? false
      } && vaultOptions.isSame(as: other.vaultOptions)
  }

  private static func isSame(_ a: any StorageBacking, _ b: any StorageBacking) -> Bool {
    func isEqual<T: Equatable>(_ a: T) -> Bool { b as? T == a }
    if let a = a as? any Equatable { return isEqual(a) }
    return type(of: a) == type(of: b)
  }

  private static func isSame(_ a: any StorageEngines.Engine, _ b: any StorageEngines.Engine) -> Bool
  {
    if let a = a as? FileEngine, let b = b as? FileEngine { return a.directory == b.directory }
    return type(of: a) == type(of: b)
  }
}

extension StorageSystem.Directories {
  fileprivate var all: [URL?] { [configuration, data, state, cache, documents, temporary] }
}
