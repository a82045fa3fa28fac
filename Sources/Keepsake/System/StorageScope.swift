internal import Synchronization

/// The stores that belong together: the ones of the process, or of a `withTemporary` block.
final class StorageScope: Sendable {
  typealias Handler = @Sendable (StorageError) -> Void

  let finder: DirectoryFinder
  /// The engines of suites that are not kept in the library's own files.
  let engines: [Defaults.Suite: any StorageEngine]
  private let handler: Locked<Handler?>
  private let suites = StoreRegistry<Defaults.Suite, Defaults.Store>()
  private let caches = StoreRegistry<DiskCache.Name, DiskCache.Store>()
  let vaults: ScopeVaults
  private let basePaths = Locked<[Folder.Base: String]>([:])
  private let reportLimiter = ReportLimiter()

  init(
    finder: DirectoryFinder, engines: [Defaults.Suite: any StorageEngine] = [:],
    vaultOptions: VaultOptions = VaultOptions(), handler: Handler? = nil
  ) {
    self.finder = finder
    self.engines = engines
    vaults = ScopeVaults(vaultOptions)
    self.handler = Locked(handler)
  }

  // MARK: The current scope

  /// Whether there has ever been a temporary scope. Reading the task-local value is slow, so it is
  /// only read then.
  ///
  /// Never reset, because a task may outlive its scope and must not get the stores of the process.
  static let temporaryScopeWasOpened = Atomic(false)

  @inline(__always)
  static var hasHadTemporaryScope: Bool { temporaryScopeWasOpened.load(ordering: .relaxed) }

  @TaskLocal static var temporary: StorageScope?

  /// The scope of the process, whose configuration is final once it is used.
  static let process = StorageSystem.configuration.makeProcessScope()

  static var current: StorageScope {
    if hasHadTemporaryScope, let temporary { return temporary }
    return process
  }

  // MARK: Stores

  func defaults(_ suite: Defaults.Suite) -> Defaults.Store {
    if case .named(let name) = suite.location, let store = suites.store(named: name.text) {
      return store
    }
    return suites.store(suite, named: suite.givenName) { Defaults.Store(suite: suite, scope: self) }
  }

  func cache(_ name: DiskCache.Name) -> DiskCache.Store {
    caches.store(name, named: name.givenName) { DiskCache.Store(name: name, scope: self) }
  }

  /// Releases the stores, which reference this scope. Stores that are still referenced elsewhere
  /// keep working.
  func close() {
    suites.close()
    caches.close()
    vaults.close()
  }

  /// The path of a folder's base directory, found once.
  func path(of base: Folder.Base) throws(StorageError) -> String {
    try basePaths.withLock { basePaths throws(StorageError) in
      if let path = basePaths[base] { return path }
      let path =
        switch base {
        case .documents: try finder.documents()
        case .applicationSupport: try finder.directory(.data) + "/files"
        case .caches: try finder.directory(.cache) + "/files"
        case .temporary: try finder.temporary() + "/files"
        case .own(let path): path.text
        case .unusable(let url):
          throw StorageError(
            .misuse, operation: "open", path: url,
            reason: "the URL is not an absolute file URL",
            remedy: "Create it with URL(filePath:).")
        }
      basePaths[base] = path
      return path
    }
  }

  // MARK: Failures

  var onFailure: Handler {
    get { handler.withLock { $0 } ?? Self.writeToStandardError }
    set { handler.withLock { $0 = newValue } }
  }

  private static let writeToStandardError: Handler = {
    ProcessEnvironment.writeToStandardError("keepsake: \($0.description)")
  }

  /// Passes a failure to ``onFailure``, unless too many like it were reported in the last second.
  func report(_ error: StorageError) {
    if let error = reportLimiter.admit(error) { onFailure(error) }
  }
}
