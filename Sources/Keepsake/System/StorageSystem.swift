internal import FoundationEssentials
internal import KeepsakeLibc
internal import Synchronization

/// What all stores of a process share: the app's name, its directories, and who hears of failures.
public enum StorageSystem {
  /// Called with each failure that a facade reports, the same operation, code and path at most once
  /// a second; by default it writes one line to standard error.
  ///
  /// Inside ``withTemporary(engines:keySources:authenticate:isolation:_:)`` it is that block's own.
  /// It may be called on any thread.
  ///
  /// ```swift
  /// StorageSystem.onFailure = { error in logger.error("\(error)") }
  /// ```
  public static var onFailure: @Sendable (StorageError) -> Void {
    get { StorageScope.current.onFailure }
    set { StorageScope.current.onFailure = newValue }
  }

  /// What the public calls of this name do, with and without vaults.
  static func withTemporary<R>(
    engines: [Defaults.Suite: any StorageEngine], vaultOptions: VaultOptions,
    isolation: isolated (any Actor)?, _ body: () async throws -> R
  ) async throws -> R {
    let directory = try TemporaryDirectory.make("scope")
    let scope = StorageScope(
      finder: .temporary(app: ProcessIdentity.executableName, in: directory), engines: engines,
      vaultOptions: vaultOptions)
    StorageScope.hadTemporaryScope.store(true, ordering: .relaxed)
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

  /// Empties all stores of this app: each suite of settings and each cache, named or in memory, and
  /// its vault, even if nobody can open it any more.
  ///
  /// Those with a directory of their own are not the app's alone and stay, as do the files of each
  /// ``Folder``.
  ///
  /// - Returns: Whether everything is empty now; each failure is reported to ``onFailure``.
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
    // What another build of the program has sealed stays: nothing here knows it.
    let isErased = true
    #endif
    return suites != nil && caches != nil && isErased && isDone.allSatisfy { $0 }
  }

  static let configuration = Configuration()

  /// The app's name and directories until they are needed, and final from then on.
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
          .misuse, operation: "bootstrap", reason: "the app's name cannot be a directory's name",
          remedy: "Use a name such as com.example.notes.")
      }
      try state.withLock { state throws(StorageError) in
        guard !state.isInUse, state.app == nil else {
          throw StorageError(
            .misuse, operation: "bootstrap",
            reason: state.isInUse ? "a store is in use already" : "it was called before",
            remedy: "Call it once, first thing in the program.")
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
          let directory = TemporaryDirectory.reserve("tests")
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

extension DirectoryFinder {
  /// All directories below one that is going to be removed.
  static func temporary(app: String, in directory: String) -> DirectoryFinder {
    func place(_ name: String) -> URL { URL(filePath: "\(directory)/\(name)/\(app)") }
    return DirectoryFinder(
      app: app,
      chosen: .init(
        configuration: place("config"), data: place("data"), state: place("state"),
        cache: place("cache"), documents: place("documents"), temporary: place("temporary")))
  }
}
