internal import FoundationEssentials
internal import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// What all stores of a process share: the app's name, its folders, and who hears of failures.
public enum StorageSystem {
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
  ///   - keySources: Which sources may open a vault by themselves, in the order in which they are tried;
  ///     those that the vault is not under are passed over. A new vault is made with the first
  ///     that is there. By default a credential of systemd named `vault.key`, then a key file. With none,
  ///     a vault is made only by ``SecureVault/protect(with:service:)``.
  ///   - authenticate: Asks the person who sits there for a passphrase, which secrets with
  ///     ``SecureVault/Access/userPresence`` need; ``SecureVault/askTerminal(_:)`` is one.
  /// - Throws: ``StorageError`` of code `misuse` when it comes late or twice, or when the name
  ///   cannot be the name of a folder.
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

  /// Called with each failure that a facade reports, the same operation, code and path at most once
  /// a second; by default it writes one line to standard error.
  ///
  /// Inside ``withTemporary(engines:keySources:authenticate:isolation:_:)`` it is that block's own. It may be called on any thread.
  ///
  /// ```swift
  /// StorageSystem.onFailure = { error in logger.error("\(error)") }
  /// ```
  public static var onFailure: @Sendable (StorageError) -> Void {
    get { StorageScope.current.onFailure }
    set { StorageScope.current.onFailure = newValue }
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
  /// `engines`, `keySources` and `authenticate` are as in bootstrap, for the block's stores: a test puts a
  /// suite on an engine that fails, and answers for the person who would sit there. An engine is the
  /// caller's, and is not emptied at the end.
  ///
  /// - Returns: What `body` returns.
  /// - Throws: What `body` throws, or a ``StorageError`` when there is no folder to be had.
  @discardableResult
  public static func withTemporary<R>(
    engines: [Defaults.Suite: any StorageEngine] = [:],
    keySources: [SecureVault.KeySource] = SecureVault.KeySource.standard,
    authenticate: SecureVault.Authenticator? = nil,
    isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> R
  ) async throws -> R {
    let folder = try TemporaryFolder.make("scope")
    let scope = StorageScope(
      finder: .temporary(app: ProcessIdentity.executableName, in: folder), engines: engines,
      vaultOptions: VaultOptions(sources: keySources, authenticate: authenticate))
    StorageScope.hasBeenTemporary.store(true, ordering: .relaxed)
    defer {
      scope.close()
      do throws(StorageError) {
        try FileSystem.removeTree(folder)
      } catch {
        scope.report(error.during("withTemporary"))
      }
    }
    return try await StorageScope.$temporary.withValue(scope, operation: body, isolation: isolation)
  }

  /// Empties all stores of this app: each suite of settings and each cache, named or in memory, and its
  /// vault, even if nobody can open it any more.
  ///
  /// Those with a folder of their own are not the app's alone and stay, as do the files of each ``Folder``.
  ///
  /// - Returns: Whether everything is empty now; each failure is reported to ``onFailure``.
  @discardableResult
  public static func removeAll() -> Bool {
    let suites = Defaults.attempt(.standard) { store throws(StorageError) in try store.siblings() }
    let caches = DiskCache.attempt(.standard) { store throws(StorageError) in try store.siblings() }
    let isDone =
      ((suites ?? []) + [.memory]).map { Defaults.removeAll(suite: $0) }
      + ((caches ?? []) + [.memory]).map { DiskCache.removeAll(cache: $0) }
    let isErased = SecureVault.eraseVault(service: .standard)
    return suites != nil && caches != nil && isErased && isDone.allSatisfy { $0 }
  }

  static let configuration = Configuration()

  /// The app's name and folders until they are needed, and final from then on.
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
          .misuse, operation: "bootstrap", reason: "the app's name cannot be a folder's name",
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
          let folder = TemporaryFolder.reserve("tests")
          return StorageScope(
            finder: .temporary(app: app, in: folder), vaultOptions: state.vaultOptions)
        }
        return StorageScope(
          finder: DirectoryFinder(app: app, chosen: state.directories), engines: state.engines,
          vaultOptions: state.vaultOptions)
      }
    }
  }
}

extension DirectoryFinder {
  /// All folders below one that is going to be removed.
  static func temporary(app: String, in folder: String) -> DirectoryFinder {
    func place(_ name: String) -> URL { URL(filePath: "\(folder)/\(name)/\(app)") }
    return DirectoryFinder(
      app: app,
      chosen: .init(
        configuration: place("config"), data: place("data"), state: place("state"),
        cache: place("cache"), documents: place("documents"), temporary: place("temporary")))
  }
}
