internal import Synchronization

/// Configures what all stores of a process share: the app's name, its directories, and the handler
/// for failures.
public enum StorageSystem {
  /// Called with each failure that a facade reports. The default writes one line to the standard
  /// error that the program was started with, and nothing if the program has replaced that stream.
  ///
  /// The same operation, code and path are reported at most once a second. Each
  /// ``withTemporary(engines:keySources:authenticate:isolation:_:)`` block has a handler of its
  /// own. The handler may be called on any thread.
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
    engines: [Defaults.Suite: any StorageEngine], vaultOptions: VaultOptions,
    isolation: isolated (any Actor)?, _ body: () async throws -> R
  ) async throws -> R {
    let directory = try TemporaryDirectory.make("scope")
    let scope = StorageScope(
      finder: .temporary(app: ProcessIdentity.executableName, in: directory), engines: engines,
      vaultOptions: vaultOptions)
    StorageScope.temporaryScopeWasOpened.store(true, ordering: .relaxed)
    defer {
      scope.close()
      do throws(StorageError) {
        try FileSystem.removeTree(directory)
      } catch {
        scope.report(error.inContext(of: "withTemporary"))
      }
    }
    return try await StorageScope.$temporary.withValue(scope, operation: body, isolation: isolation)
  }

  /// Empties all stores of this app: every suite of settings and every cache, including those in
  /// memory, and the vault, even if its key is lost.
  ///
  /// Stores in a directory that the caller chose are kept, because other apps may share them. The
  /// files of a ``Folder`` are kept too.
  ///
  /// - Returns: Whether everything is empty now. Each failure is reported to ``onFailure``.
  @discardableResult
  public static func removeAll() -> Bool {
    let suites = Defaults.shared.attempt { store throws(StorageError) in try store.storedSuites() }
    let caches = DiskCache.shared.attempt { store throws(StorageError) in try store.storedCaches() }
    let isDone =
      ((suites ?? []) + [.memory]).map { Defaults.removeAll(suite: $0) }
      + ((caches ?? []) + [.memory]).map { DiskCache.removeAll(cache: $0) }
    #if SecureVault
    let isErased = SecureVault.eraseVault(service: .standard)
    #else
    // Secrets of another build of the program stay: this build cannot find them.
    let isErased = true
    #endif
    return suites != nil && caches != nil && isErased && isDone.allSatisfy { $0 }
  }

  static let configuration = Configuration()

  /// The app's name and directories, which can be set until the first store is used.
  final class Configuration: Sendable {
    private struct State {
      var app: String?
      var directories = Directories()
      var engines: [Defaults.Suite: any StorageEngine] = [:]
      var vaultOptions = VaultOptions()
      var isInUse = false
    }

    private let state = Locked(State())

    func bootstrap(
      app: String, directories: Directories, engines: [Defaults.Suite: any StorageEngine] = [:],
      vaultOptions: VaultOptions = VaultOptions()
    ) throws(StorageError) {
      guard !app.isEmpty, app != ".", app != "..", app.utf8.count <= 200,
        !app.utf8.contains(where: { $0 == UInt8(ascii: "/") || $0 == 0 })
      else {
        throw StorageError(
          .misuse, operation: "bootstrap", reason: "the app name is not a valid directory name",
          remedy: "Use a name such as com.example.notes.")
      }
      try state.withLock { state throws(StorageError) in
        guard !state.isInUse, state.app == nil else {
          throw StorageError(
            .misuse, operation: "bootstrap",
            reason: state.isInUse
              ? "a store is already in use" : "bootstrap has already been called",
            remedy: "Call bootstrap once, before any store is used.")
        }
        state.app = app
        state.directories = directories
        state.engines = engines
        state.vaultOptions = vaultOptions
      }
    }

    func makeProcessScope() -> StorageScope {
      state.withLock { state in
        state.isInUse = true
        let app = state.app ?? ProcessIdentity.executableName
        if ProcessIdentity.isTestRunner {
          let directory = TemporaryDirectory.reservePath("tests")
          return StorageScope(
            finder: .temporary(app: app, in: directory), vaultOptions: state.vaultOptions)
        }
        return StorageScope(
          finder: DirectoryFinder(app: app, chosen: state.directories), engines: state.engines,
          vaultOptions: state.vaultOptions)
      }
    }
  }
}
