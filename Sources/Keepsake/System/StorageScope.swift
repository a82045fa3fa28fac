internal import KeepsakeLibc
internal import Synchronization

/// The stores that belong together: the process's own, or those of a `withTemporary` block.
final class StorageScope: Sendable {
  typealias Handler = @Sendable (StorageError) -> Void

  let finder: DirectoryFinder
  /// The suites that do not lie in files of ours.
  let engines: [Defaults.Suite: any StorageEngine]
  private let handler: Locked<Handler?>
  private let suites = StoreRegistry<Defaults.Suite, Defaults.Store>()
  private let caches = StoreRegistry<DiskCache.Name, DiskCache.Store>()
  let vaults: ScopeVaults
  private let basePaths = Locked<[Folder.Base: String]>([:])
  private let complaints = ReportLimiter()

  init(
    finder: DirectoryFinder, engines: [Defaults.Suite: any StorageEngine] = [:],
    vaultOptions: VaultOptions = VaultOptions(), handler: Handler? = nil
  ) {
    self.finder = finder
    self.engines = engines
    vaults = ScopeVaults(vaultOptions)
    self.handler = Locked(handler)
  }

  // MARK: The scope in force

  /// Whether there has been a temporary scope: only then is the task-local worth its price.
  ///
  /// For good, as a task of a scope may come after its end: it must not find the process's own
  /// stores.
  static let hadTemporaryScope = Atomic(false)

  @inline(__always)
  static var hasHadTemporaryScope: Bool { hadTemporaryScope.load(ordering: .relaxed) }

  @TaskLocal static var temporary: StorageScope?

  /// The process's own scope; its settings are final from the first use on.
  static let process = StorageSystem.configuration.makeProcessScope()

  static var current: StorageScope {
    if hasHadTemporaryScope, let temporary { return temporary }
    return process
  }

  // MARK: Stores

  func defaults(_ suite: Defaults.Suite) -> Defaults.Store {
    if case .named(let name) = suite.location, let store = suites.store(named: name) {
      return store
    }
    return suites.store(suite, named: suite.givenName) { Defaults.Store(suite: suite, scope: self) }
  }

  func cache(_ name: DiskCache.Name) -> DiskCache.Store {
    caches.store(name, named: name.givenName) { DiskCache.Store(name: name, scope: self) }
  }

  /// Lets go of the stores, which hold this scope; who still has one can go on with it.
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
        case .own(let path): path
        case .unusable(let url):
          throw StorageError(
            .misuse, operation: "open", path: url, reason: "not the URL of an absolute file path",
            remedy: "Make the URL with URL(filePath:).")
        }
      basePaths[base] = path
      return path
    }
  }

  // MARK: Failures

  var onFailure: Handler {
    get { handler.withLock { $0 } ?? Self.complain }
    set { handler.withLock { $0 = newValue } }
  }

  private static let complain: Handler = { FileSystem.complain("keepsake: \($0.description)") }

  /// Hands a failure on, the same operation, code and path at most once a second.
  func report(_ error: StorageError) {
    if complaints.shouldReport(error) { onFailure(error) }
  }
}

/// One store for each place, made when it is first asked for.
final class StoreRegistry<Place: Hashable & Sendable, Store: Sendable>: Sendable {
  private struct Stores {
    /// By their bytes, as their files are told apart; a dictionary would take twice as long.
    var named = ByteKeyedDictionary<Store>()
    var others: [Place: Store] = [:]
    /// A store that a late task asks for is nobody else's.
    var isClosed = false
  }

  private let stores = Locked(Stores())

  @inline(__always)
  func store(named name: String) -> Store? { stores.withLock { $0.named[name] } }

  /// - Parameter name: Says by itself which place it is; nil where it does not.
  func store(_ place: Place, named name: String?, make: () -> Store) -> Store {
    stores.withLock { stores in
      let known = if let name { stores.named[name] } else { stores.others[place] }
      if let known { return known }
      let store = make()
      if stores.isClosed { return store }
      if let name { stores.named.set(name, store) } else { stores.others[place] = store }
      return store
    }
  }

  func close() { stores.withLock { $0 = Stores(isClosed: true) } }
}

/// Remembers which failures were reported within the last second.
private final class ReportLimiter: Sendable {
  private struct Kind: Hashable {
    let operation: String
    let code: StorageError.Code
    let path: String?
  }

  private let last = Locked<[Kind: ContinuousClock.Instant]>([:])

  func shouldReport(_ error: StorageError) -> Bool {
    let kind = Kind(operation: error.operation, code: error.code, path: error.path)
    let now = ContinuousClock.now
    return last.withLock { last in
      if let then = last[kind], now - then < .seconds(1) { return false }
      if last.count > 1_000 { last = [:] }
      last[kind] = now
      return true
    }
  }
}

/// Folders that are removed with all their contents, by the end of the process at the latest.
enum TemporaryDirectory {
  static func make(_ label: String) throws(StorageError) -> String {
    let path = reserve(label)
    try FileSystem.createDirectory(path)
    return path
  }

  /// The path of one that the first store in it makes.
  static func reserve(_ label: String) -> String {
    ofProcess.path + "/" + label + "-" + token()
  }

  private static func token() -> String {
    String(UInt64.random(in: .min ... .max), radix: 36)
  }

  private static let ofProcess: (path: String, owner: Int32) = {
    let base = getenv("TMPDIR").map { String(cString: $0) } ?? ""
    atexit {
      // A forked child must not take its parent's directory away.
      let (path, owner) = TemporaryDirectory.ofProcess
      if owner == getpid() { try? FileSystem.removeTree(path) }
    }
    return ("\(base.hasPrefix("/") ? base : "/tmp")/keepsake-\(getpid())-\(token())", getpid())
  }()
}
