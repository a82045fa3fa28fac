internal import Synchronization

/// The stores that belong together: the ones of the process, or of a `withTemporary` block.
final class StorageScope: Sendable {
  typealias Handler = @Sendable (StorageError) -> Void

  /// What the stores are made from.
  struct Parts: Sendable {
    let finder: DirectoryFinder
    var backing: any StorageBacking = .thisMachine
    /// The engines that bootstrap or the scope was given, by their suites.
    var engines: [Defaults.Suite: any StorageEngines.Engine] = [:]
  }

  private let parts: FirstUse<Parts>
  /// Takes the configuration as it is, in the name of what uses a store first.
  private let takeConfiguration: @Sendable (_ firstUse: String) -> Parts
  private let handler: Locked<Handler?>
  private let suites = StoreRegistry<Defaults.Suite, Defaults.Store>()
  private let caches = StoreRegistry<DiskCache.Name, DiskCache.Store>()
  let vaults: ScopeVaults
  private let basePaths = Locked<[Folder.Base: String]>([:])
  private let reportLimiter = ReportLimiter()

  init(
    finder: DirectoryFinder, backing: any StorageBacking = .thisMachine,
    engines: [Defaults.Suite: any StorageEngines.Engine] = [:],
    vaultOptions: VaultOptions = VaultOptions(), handler: Handler? = nil
  ) {
    let given = Parts(finder: finder, backing: backing, engines: engines)
    takeConfiguration = { _ in given }
    parts = FirstUse(given)
    vaults = ScopeVaults(vaultOptions)
    self.handler = Locked(handler)
  }

  /// The scope of a process, which can be configured until one of its stores is used.
  init(configuration: @escaping @Sendable (_ firstUse: String) -> Parts) {
    takeConfiguration = configuration
    parts = FirstUse(make: { configuration("a store") })
    vaults = ScopeVaults(VaultOptions())
    handler = Locked(nil)
  }

  // MARK: The configuration

  /// Whether it is known where the stores are, and nothing can change that any more.
  var isConfigured: Bool { parts.isMade }

  /// Makes the configuration final.
  ///
  /// - Parameter firstUse: What is used, for the error of a late bootstrap.
  func configure(firstUse: @autoclosure () -> String = "a store") {
    if isConfigured { return }
    _ = takeConfiguration(firstUse())
    _ = parts.value
    applySizeLimits()
  }

  private var configuredParts: Parts {
    configure()
    return parts.value
  }

  var finder: DirectoryFinder { configuredParts.finder }

  /// Whether bootstrap was called, so that what was set before can be applied.
  private let isBootstrapped = Atomic(false)
  /// Caches whose limits were set before it was known where their entries are.
  private let limitedCaches = Locked<[DiskCache.Store]>([])

  func didBootstrap() {
    isBootstrapped.store(true, ordering: .sequentiallyConsistent)
    if limitedCaches.withLock({ !$0.isEmpty }) { configure(firstUse: "the size limit of a cache") }
  }

  /// Applies the limit of a cache at once after bootstrap, and otherwise with it or the first use.
  func applySizeLimit(of cache: DiskCache.Store) {
    limitedCaches.withLock { $0.append(cache) }
    if isBootstrapped.load(ordering: .sequentiallyConsistent) {
      configure(firstUse: "the size limit of a cache")
    }
    if isConfigured { applySizeLimits() }
  }

  private func applySizeLimits() {
    let caches = limitedCaches.withLock { caches in
      defer { caches = [] }
      return caches
    }
    for cache in caches { cache.applyEarlyLimit() }
  }

  /// The stores of the process that were taken before they had their engines.
  private let storesBeforeUse = Locked<[Defaults.Suite: Defaults.Store]>([:])

  func defaultsBeforeUse(_ suite: Defaults.Suite) -> Defaults.Store {
    storesBeforeUse.withLock { stores in
      if let store = stores[suite] { return store }
      let store = Defaults.Store(suite: suite, before: self)
      stores[suite] = store
      return store
    }
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

  /// The scope of the process, whose configuration is final once a store is used.
  static let process = StorageSystem.configuration.makeProcessScope()

  static var current: StorageScope {
    if hasHadTemporaryScope, let temporary { return temporary }
    return process
  }

  /// The current scope if nothing has used a store of it, so that bootstrap may still configure it.
  static var unconfigured: StorageScope? {
    let current = current
    return current.isConfigured ? nil : current
  }

  /// Runs `body`, which makes what a store of the process was taken without, outside any temporary
  /// scope in which the store happens to be used first.
  static func inProcess<R>(_ body: () -> R) -> R {
    $temporary.withValue(nil, operation: body)
  }

  // MARK: Stores

  func defaults(_ suite: Defaults.Suite) -> Defaults.Store {
    if case .named(let name) = suite.location, let store = suites.store(named: name.text) {
      return store
    }
    if let store = suites.store(suite, named: suite.givenName) { return store }
    // Before the stores are locked, because the backing is code of the app.
    let engine = Result { () throws(StorageError) in try self.engine(for: suite) }
    let observation = storesBeforeUse.withLock { $0[suite]?.observation }
    return suites.store(suite, named: suite.givenName) {
      Defaults.Store(suite: suite, engine: engine, observation: observation, scope: self)
    }
  }

  /// The engine of a suite; nil if its values are in memory or in a journal.
  private func engine(for suite: Defaults.Suite) throws(StorageError) -> (
    any StorageEngines.Engine
  )? {
    configure(firstUse: "the suite \(suite.description.debugDescription)")
    if let engine = parts.value.engines[suite] { return engine }
    guard suite.givenName != nil else { return nil }
    return try callingBacking { try $0.engine(for: suite, app: finder.app) }
  }

  /// The app's own suites that were given an engine.
  var suitesOnEngines: [Defaults.Suite] {
    configuredParts.engines.keys.filter { $0.givenName != nil }
  }

  /// The app's own suites that have values in the backing.
  func suitesOnBacking() throws(StorageError) -> [Defaults.Suite] {
    try callingBacking { try $0.suites(app: finder.app) }.filter { $0.givenName != nil }
  }

  var backing: any StorageBacking { configuredParts.backing }

  private func callingBacking<R>(
    _ call: (any StorageBacking) throws -> R
  ) throws(StorageError) -> R {
    let backing = backing
    do {
      return try call(backing)
    } catch {
      throw StorageError(error, thrownBy: type(of: backing))
    }
  }

  func cache(_ name: DiskCache.Name) -> DiskCache.Store {
    if case .named(let name) = name.location, let store = caches.store(named: name.text) {
      return store
    }
    return caches.store(name, named: name.givenName) { DiskCache.Store(name: name, scope: self) }
  }

  /// The engine of a cache that machines share; nil for a cache of this machine alone.
  ///
  /// - Parameter files: The entries of this machine.
  func sharedEngine(
    over files: FileCache, of cache: DiskCache.Name,
    onFailure: @escaping @Sendable (StorageError) -> Void
  ) -> (any CacheEngine)? {
    guard cache.givenName != nil, let backing = backing as? any CacheBacking else { return nil }
    return backing.cacheEngine(over: files, of: cache, app: finder.app, onFailure: onFailure)
  }

  /// Releases the stores, which reference this scope. Stores that are still referenced elsewhere
  /// keep working.
  func close() {
    limitedCaches.withLock { $0 = [] }
    storesBeforeUse.withLock { $0 = [:] }
    suites.close()
    caches.close()
    vaults.close()
  }

  /// The path of a folder's base directory, found once.
  func path(of base: Folder.Base) throws(StorageError) -> String {
    try basePaths.withLock { basePaths throws(StorageError) in
      if let path = basePaths[base] { return path }
      configure(firstUse: "a Folder")
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
  ///
  /// A failure of a call that a handler makes is only counted: the handler would be called inside
  /// itself for as long as the store that it uses fails. During an update, which may hold a lock
  /// that the handler needs, the handler runs on another thread.
  func report(_ error: StorageError) {
    if ThreadState.isReporting { return reportLimiter.suppress() }
    guard let error = reportLimiter.admit(error) else { return }
    guard RunningUpdate.isAnyRunning else { return callHandler(error) }
    BackgroundWork.run { self.callHandler(error) }
  }

  private func callHandler(_ error: StorageError) {
    ThreadState.isReporting = true
    defer { ThreadState.isReporting = false }
    // On any thread, a handler that counts failures uses the stores of this scope.
    Self.$temporary.withValue(self === Self.process ? nil : self) { onFailure(error) }
  }
}
